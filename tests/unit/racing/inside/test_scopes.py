"""Who else is asked after a refusal: one value, by which the ladder, the fallbacks and the key ring go."""

import msgspec
import pytest

from gateway.api.fallbacks import cause_of
from gateway.core.race_failures import RejectedByProvider
from gateway.racing.ladder import Others, others_after
from gateway.settings import Cause
from providers.refusals import RefusalScope, UpstreamError, decide_by_request, error_of_response

# status, what the vendor says, its scope, the other deployments, and the cause of the fallbacks
ROWS = [
    (
        429,
        {"type": "rate_limit_error", "message": "Extra usage is required for long context requests."},
        (RefusalScope.MINUTE, Others.ALL, Cause.FAILED),
    ),
    (
        413,
        {
            "code": "rate_limit_exceeded",
            "type": "tokens",
            "message": "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000",
        },
        (RefusalScope.MINUTE, Others.ALL, Cause.CONTEXT),
    ),
    (
        400,
        {"code": "invalid_encrypted_content", "message": "The encrypted content gAAA could not be verified."},
        (RefusalScope.MAKER, Others.ALL, None),
    ),
    (
        404,
        {"message": "No endpoints found that support tool use"},
        (RefusalScope.TERMS, Others.ALL, Cause.FAILED),
    ),
    (
        400,
        {"message": "Invalid 'tools': array too long. Expected an array with maximum length 128, got 129 instead."},
        (RefusalScope.SIZE, Others.ALL, Cause.FAILED),
    ),
    (
        400,
        {"type": "invalid_request_error", "message": "prompt is too long: 208310 tokens > 200000 maximum"},
        (RefusalScope.LENGTH, Others.LONGER, Cause.CONTEXT),
    ),
    (
        400,
        {"code": "content_filter", "message": "The response was filtered due to the content management policy."},
        (RefusalScope.CONTENT, Others.ELSEWHERE, Cause.CONTENT_FILTER),
    ),
    (
        400,
        {"message": "This model does not support image input"},
        (RefusalScope.MODEL, Others.ALL, Cause.FAILED),
    ),
    (
        400,
        {"message": "messages.1: tool_use ids were found without tool_result blocks"},
        (RefusalScope.REQUEST, Others.ONE, None),
    ),
]


@pytest.mark.parametrize(("status", "said", "whom"), ROWS)
def test_a_refusal_says_once_who_else_may_take_the_request(
    status: int, said: dict[str, str], whom: tuple[RefusalScope, Others, Cause | None]
) -> None:
    error = refusal(status, said)
    assert (error.scope, others_after(error), cause_of(RejectedByProvider(error))) == whom


@pytest.mark.parametrize("status", [401, 429, 500, 529])
def test_a_failure_that_is_not_about_the_request_narrows_nothing(status: int) -> None:
    error = refusal(status, {"message": "Try again later"})
    assert (error.scope, others_after(error)) == (None, None)


def test_each_scope_has_a_row() -> None:
    assert {whom[0] for _, _, whom in ROWS} == set(RefusalScope)


def refusal(status: int, said: dict[str, str]) -> UpstreamError:
    error = error_of_response(status, {}, msgspec.json.encode({"error": said}), (), 0.0)
    decide_by_request(error, "m", {}, may_lack_path=False)
    return error
