"""What vendors refuse to one request alone counts against no key and no deployment; what is about these still does."""

import msgspec
import pytest

from providers.refusals import ErrorKind, RefusalScope, UpstreamError, decide_by_request, error_in, error_of_response
from providers.refusals.one_request import RULES

XAI_BIO = """{"code":"The caller does not have permission to execute the specified operation",
 "error":"Content violates usage guidelines. Team: t, API key ID: k, Failed check: SAFETY_CHECK_TYPE_BIO"}"""
XAI_SHORT = '{"code":"permission-denied","error":"Content violates usage guidelines. "}'
XAI_BARRED = '{"code":"permission-denied","error":"Access to the chat endpoint is denied"}'
MIMO = '{"error":{"code":"421","message":"Moderation Block","param":"high risk","type":"content_filter"}}'
QWEN = """{"error":{"message":"<400> InternalError.Algo.DataInspectionFailed: Input text data may ...",
 "type":"data_inspection_failed","code":"data_inspection_failed"}}"""
CLAUDE_LONG = """{"type":"error","error":{"type":"rate_limit_error",
 "message":"Extra usage is required for long context requests."}}"""
CLAUDE_BUSY = """{"type":"error","error":{"type":"rate_limit_error",
 "message":"This request would exceed the rate limit for your organization of 20,000 input tokens per minute."}}"""
GROQ_FULL = '{"error":{"message":"Flex tier capacity exceeded","type":"capacity_exceeded","code":"capacity_exceeded"}}'
GROQ_TIER = """{"error":{"message":"Rate limit reached for model m in organization o service tier `flex` on TPM",
 "type":"tokens","code":"rate_limit_exceeded"}}"""
GROQ_USUAL = GROQ_TIER.replace("`flex`", "`on_demand`")
OPENAI_FULL = '{"error":{"message":"Resource Unavailable","type":"resource_unavailable","code":null}}'
OPENAI_RATE = '{"error":{"message":"Rate limit reached for m on RPM","type":"requests","code":"rate_limit_exceeded"}}'
OPENAI_SPENT = '{"error":{"message":"You exceeded ...","type":"insufficient_quota","code":"insufficient_quota"}}'
GOOGLE_FULL = '{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}'
ROUTED = (
    '{"error":{"message":"No allowed providers are available for the selected model. Providers serving a/b: x, but '
    'your request\'s provider.only preference permits only: y.","code":404}}'
)
ROUTED_BY_ACCOUNT = ROUTED.replace("request's provider.only preference", "account's allowed-providers setting")
ROUTED_BY_WHOM = '{"error":{"message":"No allowed providers are available for the selected model.","code":404}}'
IGNORED = '{"error":{"message":"All providers have been ignored. To change your default ...","code":404}}'
TOOLLESS = '{"error":{"code":404,"message":"No endpoints found that support tool use. Try disabling \\"f\\"."}}'
GONE = '{"error":{"code":404,"message":"No endpoints found for a/b."}}'

NOTHING: dict[str, object] = {}
FLEX: dict[str, object] = {"service_tier": "flex"}
ONLY: dict[str, object] = {"provider": {"only": ["y"]}}


def told(status: int, said: str, asked: dict[str, object]) -> UpstreamError:
    error = error_of_response(status, {}, said.encode(), (), 0.0)
    decide_by_request(error, "m", {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in asked.items()})
    return error


@pytest.mark.parametrize(
    ("status", "said"), [(403, XAI_BIO), (403, XAI_SHORT), (421, MIMO), (500, QWEN), (446, "{}"), (451, "{}")]
)
def test_a_refused_content_is_the_requests(status: int, said: str) -> None:
    error = told(status, said, NOTHING)
    assert error.kind is ErrorKind.BAD_REQUEST
    assert error.scope not in {RefusalScope.MINUTE, RefusalScope.MAKER, RefusalScope.TERMS}
    assert error.body is not None


@pytest.mark.parametrize(
    ("status", "said", "asked"),
    [
        (498, GROQ_FULL, NOTHING),
        (429, GROQ_TIER, FLEX),
        (429, OPENAI_FULL, FLEX),
        (503, GOOGLE_FULL, FLEX),
        (503, GOOGLE_FULL, {"serviceTier": "flex"}),
        (404, ROUTED, NOTHING),
        (404, ROUTED_BY_WHOM, ONLY),
        (404, IGNORED, ONLY),
        (404, GONE, ONLY),
        (404, TOOLLESS, NOTHING),
    ],
)
def test_how_a_request_wants_to_be_served_is_its_own_and_every_other_deployment_is_asked(
    status: int, said: str, asked: dict[str, object]
) -> None:
    error = told(status, said, asked)
    assert (error.kind, error.scope) == (ErrorKind.BAD_REQUEST, RefusalScope.TERMS)


def test_a_long_context_that_this_key_has_not_paid_for_is_asked_with_the_others() -> None:
    error = told(429, CLAUDE_LONG, NOTHING)
    assert (error.kind, error.findings.is_outsized) == (ErrorKind.BAD_REQUEST, True)


@pytest.mark.parametrize(
    ("status", "said", "asked", "kind"),
    [
        (403, XAI_BARRED, NOTHING, ErrorKind.PROVIDER_AUTH),
        (401, XAI_SHORT, NOTHING, ErrorKind.PROVIDER_AUTH),
        (429, CLAUDE_BUSY, NOTHING, ErrorKind.RATE_LIMITED),
        (429, GROQ_USUAL, FLEX, ErrorKind.RATE_LIMITED),
        (429, OPENAI_FULL, NOTHING, ErrorKind.RATE_LIMITED),
        (429, OPENAI_FULL, {"service_tier": "default"}, ErrorKind.RATE_LIMITED),
        (429, OPENAI_RATE, FLEX, ErrorKind.RATE_LIMITED),
        (429, OPENAI_SPENT, FLEX, ErrorKind.PROVIDER_AUTH),
        (500, GOOGLE_FULL, FLEX, ErrorKind.SERVER_ERROR),
        (503, GOOGLE_FULL, NOTHING, ErrorKind.SERVER_ERROR),
        (404, ROUTED_BY_ACCOUNT, ONLY, ErrorKind.NOT_FOUND),
        (404, ROUTED_BY_WHOM, NOTHING, ErrorKind.NOT_FOUND),
        (404, IGNORED, NOTHING, ErrorKind.NOT_FOUND),
        (404, GONE, NOTHING, ErrorKind.NOT_FOUND),
    ],
)
def test_a_key_an_account_a_limit_and_a_model_are_still_what_they_are(
    status: int, said: str, asked: dict[str, object], kind: ErrorKind
) -> None:
    error = told(status, said, asked)
    assert (error.kind, error.scope) == (kind, None)


@pytest.mark.parametrize("said", [XAI_BIO, MIMO, QWEN, CLAUDE_LONG, TOOLLESS])
def test_an_error_within_an_answer_is_read_the_same_way(said: str) -> None:
    assert error_in(said.encode(), (), otherwise=ErrorKind.STREAM_ERROR).kind is ErrorKind.BAD_REQUEST


def test_every_rule_has_a_page_and_the_day_it_was_read() -> None:
    assert all("read on 20" in each.source and "/" in each.source for each in RULES)
    assert all(each.statuses or each.codes or each.words for each in RULES)
