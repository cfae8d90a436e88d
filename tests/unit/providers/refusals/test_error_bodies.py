"""What a refusal says, and what of it may be shown."""

from typing import Any

import msgspec
import pytest

from providers.dialects import CHAT, GEMINI, MESSAGES, RESPONSES, Dialect, read_event, translations
from providers.refusals import ErrorKind, UpstreamError, error_in, error_of_response, read_answer, redact_json

SECRET = "own-secret-key"


def refused(status: int, body: bytes, **headers: str) -> UpstreamError:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return error_of_response(status, names, body, [SECRET], 0.0)


def client_error(error: UpstreamError) -> dict[str, Any]:
    assert error.body is not None
    decoded: dict[str, Any] = msgspec.json.decode(error.body)
    assert list(decoded) == ["error"]
    return dict(decoded["error"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"openai","type":"t"}}', "openai"),
        (b'{"error":"a string"}', "a string"),
        ('{"error":{"message":"of .NET"}}'.encode("utf-16"), "of .NET"),
        (b'{"object":"error","message":"vllm","code":400}', "vllm"),
        (b'{"message":"mistral"}', "mistral"),
        (b'{"detail":"fastapi"}', "fastapi"),
        (b'{"detail":[{"msg":"field required"}]}', '[{"msg":"field required"}]'),
        (b'{"statusCode":400,"message":["nest","js"],"error":"Bad Request"}', "nest; js"),
        (b'{"status":400,"error":"Bad Request","message":"spring","path":"/v1"}', "spring"),
        (b'{"error":"invalid_request","message":"a code"}', "a code"),
        (b'{"error":"two words","message":"and more"}', "two words: and more"),
        (b'{"error":"{\\"message\\":\\"json in a text\\"}"}', "json in a text"),
        (b'{"success":false,"error":{"issues":[{"message":"zod"}],"name":"ZodError"}}', "zod"),
        (b'{"error":{"errors":[{"message":"old google","reason":"badRequest"}],"code":400}}', "old google"),
        (b'{"errors":[{"status":"400","title":"Bad","detail":"json api"}]}', "json api"),
        (b'{"errors":[{"description":"writer","key":"fail"}]}', "writer"),
        (b'{"errors":[{"source":{"pointer":"/a/b"},"detail":"json api"}]}', "/a/b: json api"),
        (b'{"message":"ajv","validation":[{"params":{"additionalProperty":"a"}}]}', "ajv; a"),
        (b'{"error":{"issues":[{"message":"zod","path":["a",0]}]}}', "a.0: zod"),
        (b'{"message":"wrong","errors":[{"field":"a","message":"is unknown"}]}', "wrong; a: is unknown"),
        (b'{"errors":[{"field":"a","message":"a is unknown"}]}', "a is unknown"),
        (
            b'{"error":{"message":"Invalid.","details":[{"fieldViolations":[{"field":"a.b","description":"no"}]}]}}',
            "Invalid.; a.b: no",
        ),
        (b'{"error":{"message":"Bad: no","details":[{"fieldViolations":[{"description":"Bad: no"}]}]}}', "Bad: no"),
        (b'[{"error":{"message":"gemini"}}]', "gemini"),
        (b'{"error":{"message":"Provider returned error","metadata":{"raw":"why"}}}', "Provider returned error: why"),
        (b'{"error":{"code":"model_busy"}}', "model_busy"),
        (b"plain\n  text", "plain text"),
        (b"<html><head><title>A &amp; B</title></head><body>secret details</body></html>", "a web page: A & B"),
        (b"<!doctype html><h1>Oops</h1>", "a web page: Oops"),
        (b"<!doctype html>", "a web page"),
        (b"", "answered 500 without a message"),
        (b"{}", "{}"),
    ],
)
def test_the_message_is_found_in_every_shape(body: bytes, message: str) -> None:
    assert refused(500, body).message == message


def test_secrets_are_gone_before_a_message_is_shortened() -> None:
    error = refused(500, b"x" * 495 + b" " + SECRET.encode())
    assert "own-" not in error.message
    assert len(refused(500, b"word " * 1000).message) == 4096


def test_no_part_of_a_secret_is_left_where_a_long_text_was_cut() -> None:
    for spaces in range(4070, 4100):
        error = refused(400, b"{" + b'"message":"a' + b" " * spaces + SECRET.encode() + b'"}')
        assert "own" not in error.message
        assert b"own" not in (error.body or b"")


def test_of_a_large_error_the_client_gets_its_beginning_and_its_code() -> None:
    said = {"message": "m" * 9000, "type": "t", "code": "c" * 9000, "more": ["x"] * 9000}
    shown = client_error(refused(400, msgspec.json.encode({"error": said})))
    assert shown.keys() == {"type", "param", "code", "message"}
    assert (shown["type"], len(shown["code"]), len(shown["message"])) == ("t", 500, 4096)


def test_of_an_error_beyond_64_kb_only_its_own_fields_are_read() -> None:
    data = msgspec.json.encode({"error": {"message": "busy", "code": 503}, "rest": [0] * 50_000})
    assert error_in(data, [SECRET], otherwise=ErrorKind.STREAM_ERROR).status == 503


def test_a_character_with_thousands_of_digits_breaks_nothing() -> None:
    assert redact_json(["&#" + "9" * 5000 + ";"], [SECRET]) == ["&#" + "9" * 5000 + ";"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ErrorKind.BAD_REQUEST),
        (401, ErrorKind.PROVIDER_AUTH),
        (402, ErrorKind.PROVIDER_AUTH),  # DeepSeek and OpenRouter: no credit is left
        (404, ErrorKind.NOT_FOUND),
        (429, ErrorKind.RATE_LIMITED),
        (529, ErrorKind.SERVER_ERROR),
    ],
)
def test_the_kind_follows_the_status(status: int, kind: ErrorKind) -> None:
    assert refused(status, b"{}").kind is kind


FLAGGED = """{"error":{"code":403,"message":"requires moderation on OpenInference. Your input was flagged",
 "metadata":{"reasons":["violence"],"flagged_input":"a text","provider_name":"P","model_slug":"m"}}}"""
POLICY = '{"error":{"code":"content_policy_violation","message":"flagged"}}'
GUARDED = """{"error":{"code":403,"message":"Request blocked: prompt injection patterns detected",
 "metadata":{"patterns":["ignore all previous instructions"]}}}"""
ENVELOPED = '{"type":"error","error":{"type":"permission_error","message":"Request blocked: sensitive info detected"}}'
UNKEYED = '{"error":{"code":403,"message":"Only management keys can perform this operation"}}'
SPENT = '{"error":{"code":403,"message":"Key limit exceeded (daily limit). Manage it using ..."}}'
DEAR = '{"error":{"code":402,"message":"needs more credits, or fewer max_tokens: asked for 65536, can afford 3919"}}'
LONG = '{"error":{"message":"Input token count + max_tokens parameter must be less than the context","code":null}}'
TOOLLESS = '{"error":{"code":404,"message":"No endpoints found that support tool use. Try disabling \\"f\\". To ..."}}'
ENDED = '{"error":{"code":404,"message":"No endpoints found for vendor/model."}}'
BARRED = '{"error":{"code":403,"message":"no access to this model","metadata":{}}}'


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (403, FLAGGED, ErrorKind.BAD_REQUEST),  # OpenRouter
        (403, POLICY, ErrorKind.BAD_REQUEST),
        (403, GUARDED, ErrorKind.BAD_REQUEST),  # OpenRouter, as its specification has it
        (403, ENVELOPED, ErrorKind.BAD_REQUEST),
        (403, UNKEYED, ErrorKind.PROVIDER_AUTH),
        (403, SPENT, ErrorKind.PROVIDER_AUTH),
        (402, DEAR, ErrorKind.SERVER_ERROR),  # OpenRouter: smaller requests are still served
        (403, LONG, ErrorKind.BAD_REQUEST),  # Together
        (403, BARRED, ErrorKind.PROVIDER_AUTH),
        (401, DEAR, ErrorKind.PROVIDER_AUTH),
        (404, TOOLLESS, ErrorKind.BAD_REQUEST),  # OpenRouter: requests without tools are still served
        (404, ENDED, ErrorKind.NOT_FOUND),
    ],
)
def test_what_is_refused_to_one_request_refuses_no_key(status: int, said: str, kind: ErrorKind) -> None:
    error = refused(status, said.encode())
    assert error.kind is kind
    assert (error.body is not None) is (kind is ErrorKind.BAD_REQUEST)


MISTYPED = '{"code":"Client specified an invalid argument","error":"Incorrect API key provided: xa***yz. You can ..."}'
BROKE = """{"type":"error","error":{"type":"invalid_request_error",
 "message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing ..."}}"""
OWING = """{"error":{"code":"Arrearage","param":null,"type":"Arrearage",
 "message":"Access denied, please make sure your account is in good standing. For details, see: ..."}}"""
ABROAD = """[{"error":{"code":400,"message":"User location is not supported for the API use.",
 "status":"FAILED_PRECONDITION"}}]"""


CAPPED = """{"type":"error","error":{"type":"invalid_request_error",
 "message":"You have reached your specified API usage limits. You will regain access on 2026-04-01 at 00:00 UTC."}}"""
DISABLED = '{"type":"error","error":{"type":"invalid_request_error","message":"This organization has been disabled."}}'
BILLED = """{"error":{"code":"billing_hard_limit_reached","type":"invalid_request_error",
 "message":"Billing hard limit has been reached"}}"""
BARRED_REGION = '{"message":"Access to Anthropic models is not allowed from unsupported countries, regions, or ..."}'
ACCOUNTS = [MISTYPED, BROKE, OWING, ABROAD, CAPPED, DISABLED, BILLED, BARRED_REGION]


@pytest.mark.parametrize("said", ACCOUNTS)
def test_a_400_about_the_account_blames_no_client(said: str) -> None:  # xAI, Anthropic, Alibaba, Gemini, OpenAI, AWS
    error = refused(400, said.encode())
    assert (error.kind, error.body) == (ErrorKind.PROVIDER_AUTH, None)


TOO_LARGE = """{"error":{"message":"Request too large for m in organization o on tokens per min (TPM): Limit 8000, ...",
 "type":"tokens","param":null,"code":"rate_limit_exceeded"}}"""
TOO_OFTEN = TOO_LARGE.replace("Request too large", "Rate limit reached")


@pytest.mark.parametrize("status", [413, 429])
def test_more_tokens_than_a_minute_has_are_one_requests_fault(status: int) -> None:  # Groq, OpenAI
    error = refused(status, TOO_LARGE.encode())
    assert (error.kind, error.status, error.findings.is_outsized) == (ErrorKind.BAD_REQUEST, status, True)
    assert refused(429, TOO_OFTEN.encode()).kind is ErrorKind.RATE_LIMITED
    assert not refused(413, b'{"error":{"message":"Request too large"}}').findings.is_outsized


@pytest.mark.parametrize("said", ["ServiceQuotaExceededException", "ThrottlingException:http://internal.amazon.com/"])
def test_a_400_for_a_quota_of_bedrocks_is_a_rate_limit(said: str) -> None:
    body = b'{"message":"Your request exceeds the service quota for your account."}'
    assert refused(400, body, x_amzn_errortype=said).kind is ErrorKind.RATE_LIMITED
    assert refused(400, body, x_amzn_errortype="ValidationException").kind is ErrorKind.BAD_REQUEST


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (b'"__type":"ThrottlingException"', ErrorKind.RATE_LIMITED),
        (b'"__type":"com.amazon.coral.availability#ThrottlingException"', ErrorKind.RATE_LIMITED),
        (b'"code":"ThrottlingException"', ErrorKind.RATE_LIMITED),
        (b'"__type":"ValidationException"', ErrorKind.BAD_REQUEST),
    ],
)
def test_so_is_one_that_says_it_in_its_body_alone(name: bytes, kind: ErrorKind) -> None:
    error = refused(400, b'{%s,"message":"Too many tokens, please wait before trying again."}' % name)
    assert (error.kind, error.is_too_long) == (kind, False)


def test_a_400_that_only_mentions_an_account_is_the_clients() -> None:
    said = b'{"error":{"message":"messages.0: \'Your credit balance is too low\' is no valid role"}}'
    assert refused(400, said).kind is ErrorKind.BAD_REQUEST


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        (b'{"code":401,"msg":"token expired or incorrect","success":false}', ErrorKind.PROVIDER_AUTH, "token expired"),
        (b'{"code":500,"msg":"busy","success": false}', ErrorKind.SERVER_ERROR, "busy"),
        (b'{"choices":null,"base_resp":{"status_code":1008,"status_msg":"spent"}}', ErrorKind.PROVIDER_AUTH, "spent"),
    ],
)
def test_an_error_that_is_told_as_a_success_says_why(said: bytes, kind: ErrorKind, message: str) -> None:
    with pytest.raises(UpstreamError, match=message) as caught:  # Z.ai, MiniMax
        read_answer(said)
    assert caught.value.kind is kind


@pytest.mark.parametrize(
    ("message", "kind", "shown"),
    [
        ("too long", ErrorKind.BAD_REQUEST, "too long"),
        ('{"error":{"message":"too long"}}', ErrorKind.BAD_REQUEST, "too long"),
        ('{"error":{"message":"busy","code":503}}', ErrorKind.SERVER_ERROR, "busy"),
        ("", ErrorKind.STREAM_ERROR, "sent an error without a message"),
    ],
)
def test_an_errors_message_and_type_may_be_called_so_and_the_message_be_json(
    message: str, kind: ErrorKind, shown: str
) -> None:
    said = msgspec.json.encode({"error_type": "validation_error", "error_message": message})
    error = error_in(said, (), otherwise=ErrorKind.STREAM_ERROR)
    assert (error.kind, error.message) == (kind, shown)
    if kind is ErrorKind.BAD_REQUEST:
        assert client_error(error) == {"type": "validation_error", "param": None, "code": None, "message": shown}


@pytest.mark.parametrize("said", [b'{"success":true}', b'{"base_resp":{"status_code":0,"status_msg":""}}'])
def test_an_answer_that_says_it_is_well_is_no_error(said: bytes) -> None:
    assert read_answer(said)


@pytest.mark.parametrize("said", [FLAGGED, GUARDED])
def test_a_text_that_is_flagged_after_the_stream_began_refuses_no_key(said: str) -> None:
    error = error_in(said.encode(), (), otherwise=ErrorKind.STREAM_ERROR)
    assert (error.kind, error.status) == (ErrorKind.BAD_REQUEST, 403)


@pytest.mark.parametrize(
    "page",
    [
        b"<html><title>ERROR: The request could not be satisfied</title><h2>Request blocked.</h2></html>",
        b"<!DOCTYPE html><title>Attention Required! | Cloudflare</title>",
    ],
)
def test_a_firewalls_page_may_be_about_one_text_and_refuses_no_key(page: bytes) -> None:
    assert refused(403, page).kind is ErrorKind.SERVER_ERROR
    assert refused(401, page).kind is ErrorKind.PROVIDER_AUTH
    assert refused(403, b"Forbidden").kind is ErrorKind.PROVIDER_AUTH


def test_a_client_error_keeps_the_providers_object() -> None:
    error = refused(
        400, b'{"error":{"message":"bad %b","type":"t","param":"p","code":"c","extra":1}}' % SECRET.encode()
    )
    assert client_error(error) == {"message": "bad ***", "type": "t", "param": "p", "code": "c", "extra": 1}


def test_a_type_that_is_an_address_is_none_of_openais() -> None:
    body = b'{"type":"https://x.example/validation","title":"Bad","status":400,"errors":{"n":["wrong"]}}'
    told = client_error(refused(400, body))
    assert told["type"] == "invalid_request_error"
    assert (
        client_error(refused(400, b'{"error":{"type":"tool_use_failed","message":"m"}}'))["type"] == "tool_use_failed"
    )


@pytest.mark.parametrize("body", [b'{"error":"no"}', b'{"detail":"no"}', b"no", b'{"message":"no"}'])
def test_a_client_error_has_openais_shape_whatever_it_came_in(body: bytes) -> None:
    shape = {"message": "no", "type": "invalid_request_error", "param": None, "code": None}
    assert client_error(refused(422, body)) == shape


def test_a_client_error_is_json_even_without_a_body() -> None:
    assert client_error(refused(413, b""))["message"] == "the provider refused the request"


@pytest.mark.parametrize("depth", [100, 300, 500, 700, 900, 1_200])
def test_an_error_nested_however_deep_is_still_the_providers_refusal(depth: int) -> None:
    body = b'{"error":{"message":"no","details":%b"key %b"%b}}' % (b"[" * depth, SECRET.encode(), b"]" * depth)
    error = refused(400, body)
    assert error.kind is ErrorKind.BAD_REQUEST
    assert SECRET.encode() not in (error.body or b"")


def test_geminis_retry_delay_is_in_its_body() -> None:
    body = b'[{"error":{"code":429,"message":"Quota","details":[{"@type":"RetryInfo","retryDelay":"26s"}]}}]'
    assert refused(429, body).retry_after_s == 26
    assert refused(429, body, retry_after="3").retry_after_s == 3


def test_only_a_refusal_for_now_says_when_to_return() -> None:
    assert refused(503, b"", retry_after="3").retry_after_s == 3
    assert refused(401, b"", retry_after="3").retry_after_s is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1002, ErrorKind.RATE_LIMITED),
        (1004, ErrorKind.PROVIDER_AUTH),
        (1008, ErrorKind.PROVIDER_AUTH),
        (2013, ErrorKind.BAD_REQUEST),
        (1000, ErrorKind.SERVER_ERROR),
    ],
)
def test_minimax_s_errors_with_200_are_of_their_code_s_kind(code: int, kind: ErrorKind) -> None:
    body = {"id": "a", "choices": None, "base_resp": {"status_code": code, "status_msg": "insufficient balance"}}
    with pytest.raises(UpstreamError, match="insufficient balance") as raised:
        read_answer(msgspec.json.encode(body))
    assert raised.value.kind is kind
    error = read_event(msgspec.json.encode(body)).error
    assert error is not None
    assert (error.kind, error.message) == (kind, "insufficient balance")


@pytest.mark.parametrize("target", [MESSAGES, RESPONSES, GEMINI])
@pytest.mark.parametrize(
    ("code", "kind"),
    [(1002, ErrorKind.RATE_LIMITED), (1004, ErrorKind.PROVIDER_AUTH), (2013, ErrorKind.BAD_REQUEST)],
)
def test_minimax_s_errors_in_a_stream_are_the_same_to_clients_of_every_api(
    target: Dialect, code: int, kind: ErrorKind
) -> None:
    told = {"status_code": code, "status_msg": f"refused {SECRET}"}
    data = msgspec.json.encode({"choices": None, "base_resp": told})
    [step] = translations(CHAT, target, {}, (SECRET,))
    with pytest.raises(UpstreamError, match=r"refused \*\*\*") as raised:
        step.feed(b"data: " + data + b"\n\n")
    assert raised.value.kind is kind
    assert (kind is ErrorKind.BAD_REQUEST) == (b"refused" in (raised.value.body or b""))
    [step] = translations(CHAT, target, {}, ())
    well = msgspec.json.encode({"choices": [], "base_resp": {"status_code": 0, "status_msg": ""}})
    assert step.feed(b"data: " + well + b"\n\n") == b""


def test_a_status_of_0_is_no_error() -> None:
    body = msgspec.json.encode({"choices": [], "base_resp": {"status_code": 0, "status_msg": ""}})
    assert "choices" in read_answer(body)
    assert read_event(body).error is None


@pytest.mark.parametrize(
    ("message", "turn"),
    [
        ("messages.3.content.0: Invalid `data` in `redacted_thinking` block. The block is bound to a different", 3),
        ("messages.12.content.1: This `thinking` block is bound to a different", 12),
        ("A thinking block was bound to a different", 0),
    ],
)
def test_thoughts_behind_an_edit_are_known_in_several_words(message: str, turn: int) -> None:
    error = {"type": "invalid_request_error", "message": f"{message} conversation."}
    assert refused(400, msgspec.json.encode({"type": "error", "error": error})).edited_from == turn
