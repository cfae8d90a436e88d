"""A wrong key in its words, with a status that says something else."""

import pytest

from providers.dialects import raw_json
from providers.refusals import ErrorKind, decide_by_request, error_of_response


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (498, "invalid token"),
        (498, "Token expired"),
        (400, "fail to auth"),
        (400, "failed to authenticate"),
        (400, "Auth failed"),
        (400, "Not logged in"),
        (400, "authorization header is badly formatted"),
        (404, "API key not found"),
        (406, "invalid api key"),
        (407, "Proxy Authentication Required"),
        (412, "API key is disabled"),
        (418, "invalid token"),
    ],
)
def test_a_wrong_key_is_known_whatever_the_status(status: int, said: str) -> None:
    error = error_of_response(status, {}, bytes(raw_json({"message": said})), (), 0.0)
    decide_by_request(error, "m", {})
    assert error.kind is ErrorKind.PROVIDER_AUTH


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (498, "Flex tier capacity exceeded", ErrorKind.BAD_REQUEST),
        (404, "The tool `get_key` was not found", ErrorKind.NOT_FOUND),
        (409, "the mcp server says: invalid api key", ErrorKind.SERVER_ERROR),
        (502, "invalid access token", ErrorKind.SERVER_ERROR),
        (400, "the model failed to authenticate at the mcp server", ErrorKind.BAD_REQUEST),
    ],
)
def test_what_else_these_statuses_say_refuses_no_key(status: int, said: str, kind: ErrorKind) -> None:
    error = error_of_response(status, {}, bytes(raw_json({"message": said})), (), 0.0)
    decide_by_request(error, "m", {})
    assert error.kind is kind
