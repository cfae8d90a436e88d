"""A wrong key in its words, with a status that says something else."""

import pytest

from providers import meaning_of
from providers.dialects import raw_json
from providers.refusals import ErrorKind, Meaning, decide_by_request, error_of_response


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


@pytest.mark.parametrize(
    "error",
    [
        {"message": "This API method requires billing to be enabled. Please enable billing on project #p", "code": 403},
        {"message": "AI Gateway requires a valid credit card on file to service requests."},
        {"message": "Your newly created teams doesn't have any credits yet."},
        {"message": "Failed due to token quota reached", "code": "token_quota_reached"},
        {"message": "You have no quota", "code": "insufficient_quota"},
    ],
)
def test_an_unpaid_account_is_known_though_the_status_is_that_of_a_key(error: dict[str, object]) -> None:
    refusal = error_of_response(403, {}, bytes(raw_json({"error": error})), (), 0.0)
    decide_by_request(refusal, "m", {})
    assert (refusal.kind, meaning_of(refusal)) == (ErrorKind.PROVIDER_AUTH, Meaning.UNPAID)


def test_a_function_that_an_account_lacks_is_a_missing_model() -> None:
    body = {"status": 404, "title": "Not Found", "detail": "Function '0c5c-11': Not found for account 'a'"}
    refusal = error_of_response(404, {}, bytes(raw_json(body)), (), 0.0)
    decide_by_request(refusal, "m", {})
    assert (refusal.kind, meaning_of(refusal)) == (ErrorKind.NOT_FOUND, Meaning.GONE)
