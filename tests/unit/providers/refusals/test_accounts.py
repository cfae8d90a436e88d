"""An account without money counts as a 402, whatever the status: a rate limit stays a rate limit."""

from typing import Any

import msgspec
import pytest

from providers.dialects import CHAT, GEMINI, MESSAGES, RESPONSES, Dialect, read_event
from providers.refusals import ErrorKind, UpstreamError, error_in, error_of_response, read_answer

OPENAI = "You exceeded your current quota, please check your plan and billing details."
MORE = " For more information on this error, read the docs: "
GOOGLE = (
    f"{OPENAI} For more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.\n"
    "* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 5\n"
    "Please retry in 34.07s."
)
XAI = "Your team 16f2 has either used all available credits or reached its monthly spending limit. To continue"
MOONSHOT = "Your account org-ea6 <ak-f8t> is suspended due to insufficient balance, please recharge your account"


def error(message: str, **said: Any) -> dict[str, Any]:
    return {"error": {"message": message, **said}}


SPENT: dict[str, tuple[int, Any]] = {
    "OpenAI's quota": (429, error(OPENAI, type="insufficient_quota", code="insufficient_quota")),
    "OpenAI's quota without a code": (429, error(OPENAI, type="insufficient_quota", code=None)),
    "OpenAI's quota by a proxy": (429, error(f"{OPENAI}{MORE}https://platform.openai.com/docs", code=429)),
    "OpenAI's billing": (429, error("Your account is not active, please check", code="billing_not_active")),
    "OpenAI's own limit": (429, error("Over the limit", code="project_spend_limit_exceeded")),
    "Moonshot": (429, error(MOONSHOT, type="exceeded_current_quota_error")),
    "Moonshot by a proxy": (429, error(MOONSHOT)),
    "Z.ai": (429, {"error": {"code": "1113", "message": "Insufficient balance or no resource package."}}),
    "Zhipu": (429, error("余额不足或无可用资源包,请充值。")),
    "MiniMax": (429, error("insufficient balance (1008)", type="insufficient_balance_error", http_code="429")),
    "MiniMax's Messages": (500, {"type": "error", **error("insufficient balance (1008)", type="api_error")}),
    "MiniMax's own": (200, {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}),
    "xAI": (429, {"code": "Some resource has been exhausted", "error": XAI}),
    "Google": (429, error("Your prepayment credits are depleted. Please go to", code=429, status="RESOURCE_EXHAUSTED")),
    "Google's cap": (429, [error("Your project has exceeded its monthly spending cap. Please", code=429)]),
    "Fireworks": (
        412,
        error("Account a-1 is suspended, possibly due to reaching the monthly", code="PRECONDITION_FAILED"),
    ),
    "Groq": (400, error("API access blocked", type="invalid_request_error", code="blocked_api_access")),
    "Alibaba": (400, error("Access denied, please make sure your account is in good standing.", code="Arrearage")),
    "Volcengine": (
        429,
        error("Your account 21 has reached the set inference limit for the m model", code="SetLimitExceeded"),
    ),
    "Cohere": (429, {"message": "You are using a Trial key, which is limited to 1000 API calls / month. You can"}),
    "Anthropic": (
        400,
        {"type": "error", **error("Your credit balance is too low to access", type="invalid_request_error")},
    ),
    "litellm's proxy": (400, error("Budget has been exceeded! Current cost: 2, Max budget: 1", type="budget_exceeded")),
    "litellm's proxy of another": (429, error(f"litellm.RateLimitError: RateLimitError: OpenAIException - {OPENAI}")),
    "one-api": (429, error("用户额度不足", type="new_api_error", code="insufficient_user_quota")),
    "a text": (429, "Insufficient Balance"),
    "Anthropic's workspace": (
        400,
        {
            "type": "error",
            **error("You have reached your specified workspace API usage limits. You will regain access"),
        },
    ),
    "Anthropic's plan": (
        400,
        {"type": "error", **error("You're out of extra usage. Add more at claude.ai/settings/usage and keep going.")},
    ),
    "Google's account": (429, error("Your billing account has exceeded its monthly spending cap", code=429)),
    "Alibaba's bill": (429, error("The postpaid bill is overdue.", type="PostpaidBillOverdue")),
    "Alibaba's own form": (429, {"code": "PrepaidBillOverdue", "message": "The prepaid bill is overdue."}),
    "Alibaba's purchase": (429, error("Commodity has not purchased yet.", code="CommodityNotPurchased")),
    "Tencent": (429, error("免费资源包余量已用尽", code="FailedOperation.FreeResourcePackExhausted")),
    "Tencent's arrears": (400, error("账号已欠费。", code="ResourceUnavailable.InArrears")),
    "SiliconFlow": (429, {"code": 30001, "message": "Sorry, your account balance is insufficient", "data": None}),
    # In codes that no list has: of a 429, which tells nothing that its client wrote.
    "an unknown code": (429, error("Request rejected", code="ACCOUNT_BALANCE_INSUFFICIENT")),
    "an unknown type": (429, error("Request rejected", type="credits_exhausted_error")),
    "a code in words": (429, error("Request rejected", code="UserBudgetExceeded")),
    "an overdue account": (429, error("Request rejected", code="ACCOUNT_OVERDUE")),
}
# Likewise in words alone, of a limit that does not say that it passes within a minute.
IN_WORDS: dict[str, tuple[int, Any]] = {
    "a wallet": (429, error("Request failed: insufficient wallet balance. Please top up your account.")),
    "credits": (429, error("Sorry! The organization has run out of API credits.")),
    "an unpaid bill": (429, error("This project has an unpaid invoice")),
    "in Chinese": (429, error("请求失败: 当前账户余额已用完, 请充值后再试")),
    "in German": (429, error("Ihr Guthaben ist aufgebraucht.")),
    "in French": (429, error("Votre solde est insuffisant.")),
    "in Spanish": (429, error("Saldo insuficiente")),
    "in Italian": (429, error("Credito esaurito")),
    "in Russian": (429, error("Недостаточно средств на счете")),
    "in Japanese": (429, error("残高が不足しています")),
    "in Korean": (429, error("잔액이 부족합니다")),
    "a longer text": (429, "Error: your remaining credits are depleted"),
    "a budget": (429, error("You have exceeded your monthly budget limit")),
    "a key's budget": (429, error("API key budget exceeded")),
    "a payment": (429, error("Request refused: payment required")),
    "more money": (429, error("Not enough available balance, please top up and try again")),
    "no money": (429, error("You have no remaining credits")),
    "a limit of what is spent": (429, error("Spending limit reached. Please increase your spending limit.")),
    "an account": (429, error("This account has been suspended")),
}
RATED: dict[str, tuple[int, Any]] = {
    "OpenAI": (429, error("Rate limit reached for m on tokens per min (TPM): Limit 9", code="rate_limit_exceeded")),
    "Google": (429, error(GOOGLE, code=429, status="RESOURCE_EXHAUSTED")),
    "Google in an array": (429, [error(GOOGLE, code=429, status="RESOURCE_EXHAUSTED")]),
    "Vertex": (429, error("Quota exceeded for aiplatform.googleapis.com/online_prediction_requests", code=429)),
    "Azure": (429, error("Your requests to m have exceeded token rate limit of your pricing tier", code="429")),
    "Mistral": (429, {"object": "error", "message": "Requests rate limit exceeded", "code": "1300"}),
    "Moonshot": (
        429,
        error("Your account org-1 request reached organization max RPM: 3", type="rate_limit_reached_error"),
    ),
    "Alibaba": (429, error(f"{OPENAI}{MORE}https://help.aliyun.com/zh/", code="insufficient_quota")),
    "Alibaba's other": (429, error("Allocated quota exceeded, please increase", code="insufficient_quota")),
    "Z.ai": (429, {"error": {"code": "1302", "message": "High concurrency usage of this API"}}),
    "Z.ai's plan": (429, {"error": {"code": "1308", "message": "Usage limit reached, resets at 12:00"}}),
    "MiniMax's plan": (429, error("usage limit exceeded, 5-hour usage limit reached (2056)", type="rate_limit_error")),
    "Cohere": (429, {"message": "You are using a Trial key, which is limited to 20 API calls / minute. You can"}),
    "Replicate": (429, {"detail": "Request was throttled. Your rate limit is reduced while you have less than $5.0"}),
    "OpenRouter's vendor": (429, error("Provider returned error", code=429, metadata={"raw": OPENAI})),
    "Anthropic": (
        429,
        {"type": "error", **error("This request would exceed your rate limit", type="rate_limit_error")},
    ),
    "a user of a proxy": (429, error("ExceededBudget: End User=a over budget. Spend=2", type="budget_exceeded")),
    "a quota of a minute": (429, error("Quota of tokens per minute is used up", code="insufficient_quota")),
    "a text": (429, "slow down"),
    "OpenRouter's free models": (
        429,
        error("Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day"),
    ),
    "Voyage": (
        429,
        {"detail": "You have not yet added your payment method and will have reduced rate limits of 3 RPM."},
    ),
    "a day's share": (429, error("今日额度已用完, 请明日再试")),
    "Cloudflare": (429, {"errors": [{"code": 3036, "message": "you have used up your daily free allocation"}]}),
    "tokens' budget": (429, error("Your token budget limit is exceeded. Please wait a moment.")),
    "a credit of requests": (429, error("Too many requests: credit limit reached, try again shortly")),
    **{
        code: (429, error("Request rejected", code=code))
        for code in (
            *("token_budget_exceeded", "TokenBudgetExceeded", "thinking_budget_exceeded", "time_budget_exceeded"),
            *("request_overdue", "burst_credits_exhausted", "cpu_credits_depleted", "load_balance_exhausted"),
        )
    },
    "a rate limit's code": (429, error("The credit limit is reached", code="rate_limit_exceeded")),
    "concurrency": (429, error("Concurrency budget limit reached")),
    "concurrent requests": (429, error("Insufficient credits for concurrent requests")),
    "a machine's credits": (429, error("CPU credits exhausted")),
    "a burst's credits": (429, error("Insufficient burst credits")),
    "load": (429, error("load balance exhausted")),
    "a balancer": (429, error("No available balancer")),
    "a card": (429, error("Free tier: 1 request at a time, no credit card needed")),
    "a free tier": (
        429,
        error("Free tier: 5 requests at once. A payment method is required to raise limits."),
    ),
    "a recharge": (429, error("Too fast, please recharge for higher limits")),
    "for a while": (429, error("Your credits are temporarily exhausted")),
    "in Chinese, for a while": (429, error("当前账户余额不足, 请稍后再试")),
    "in German, for a while": (429, error("Guthaben aufgebraucht, bitte später erneut versuchen")),
    "in Spanish, of a rate": (429, error("Demasiadas solicitudes")),
    # What OpenRouter quotes of its vendor is not about its own key.
    "OpenRouter's vendor's name": (
        429,
        error("account balance is insufficient", code=429, metadata={"provider_name": "Acme"}),
    ),
    "OpenRouter's vendor's balance": (429, error("Provider returned error: your account balance is insufficient")),
    "OpenRouter's quoted vendor": (429, error("Upstream error from Acme: account balance is insufficient")),
    "OpenRouter's vendor's words": (
        429,
        error("Provider returned error", code=429, metadata={"raw": '{"error":"Insufficient balance"}'}),
    ),
    "OpenRouter's own budget": (
        402,
        error(
            "This request would exceed your available credits given your current in-flight requests.",
            code=402,
            metadata={"reason": "in_flight_budget_exhausted", "limit_source": "openrouter_in_flight_budget"},
        ),
    ),
}


# With 400, where the message says nothing else: whoever writes a client's request into such words is not believed.
KEYS: dict[str, Any] = {
    "in English": error("Invalid API key"),
    "a code": error("Request rejected", code="invalid_api_key", type="invalid_request_error"),
    "a type": error("Request rejected", type="authentication_error"),
    "expired": error("API key expired. Please renew the API key.", code=400, status="INVALID_ARGUMENT"),
    "a header": {"detail": "Missing or invalid Authorization header"},
    "AWS, a client": {"message": "The security token included in the request is invalid.", "__type": "x#ExpiredToken"},
    "no word": {"error": "Unauthorized"},
    "in German": error("Ungültiger API-Schlüssel"),
    "in French": error("Clé API invalide"),
    "in Spanish": error("La clave de API no es válida"),
    "in Portuguese": error("Chave de API inválida"),
    "in Italian": error("Chiave API non valida"),
    "in Dutch": error("Ongeldige API-sleutel"),
    "in Polish": error("Nieprawidłowy klucz API"),
    "in Turkish": error("Geçersiz API anahtar\u0131"),
    "in Russian": error("Неверный API-ключ"),
    "in Chinese": {"code": 40001, "msg": "API Key 无效或已过期"},
    "in Chinese, a token": error("无效的令牌"),
    "in Japanese": error("APIキーが無効です"),
    "in Korean": error("유효하지 않은 API 키입니다"),
}
RATES: dict[str, Any] = {
    "in English": error("Rate limit exceeded"),
    "a code": error("Wait a bit", code="rate_limit_exceeded", type="invalid_request_error"),
    "requests": {"detail": "Too many requests, please slow down"},
    "AWS": {"message": "Please wait before trying again.", "__type": "ThrottlingException"},
    "in German": error("Zu viele Anfragen. Bitte versuchen Sie es später erneut."),
    "in French": error("Limite de requêtes dépassée"),
    "in Spanish": error("Demasiadas solicitudes"),
    "in Russian": error("Слишком много запросов"),
    "in Chinese": {"code": 1302, "msg": "您的账户已达到速率限制,请您控制请求频率"},
    "in Japanese": error("レート制限を超えました。しばらくしてから再度お試しください。"),
    "in Korean": error("요청이 너무 많습니다"),
}
MISTAKES: dict[str, str] = {
    "a field's name": "Invalid type for 'api_key': expected string",
    "a value": "Invalid value: 'rate limit exceeded'. Supported values are: 'auto'",
    "a tool's server": "Error retrieving tool list from MCP server: 'x'. Http status code: 401 (Unauthorized)",
    "a tool's rate": "Error retrieving tool list from MCP server: 'x'. Http status code: 429 (Too Many Requests)",
    "a picture's server": "Failed to download image from https://x/y.png: 401 Unauthorized",
    "a schema's key": "Invalid key in tools[0].function.parameters: 'proprties'",
    "a map's key": "Invalid key in 'logit_bias': abc.",
    "a cache's key": "Invalid 'prompt_cache_key': string too long.",
    "a token of JSON": "Invalid token at position 5 of the request body",
    "stop words": "Too many stop sequences: at most 4",
    "messages": "Insufficient messages: at least one is required",
    "a tool's name": "Tool name 'credit balance' is invalid",
    "a batch": "Too many requests in batch: at most 10",
    "a budget of thoughts": "The budget is exceeded by budget_tokens",
    "letters": "Unauthorized characters found in the prompt",
    "a name in metadata": "Invalid secret key name in metadata",
    "in Chinese, a field": "参数错误: 密钥字段 metadata.key",
    "in Japanese, a parameter": "リクエストの制限: temperature は 2 以下",
}


def answered(status: int, said: Any, /, **headers: str) -> UpstreamError:
    body = said.encode() if isinstance(said, str) else msgspec.json.encode(said)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    if status != 200:
        return error_of_response(status, names, body, [], 0.0)
    with pytest.raises(UpstreamError) as caught:
        read_answer(body)
    return caught.value


@pytest.mark.parametrize("vendor", SPENT)
def test_a_spent_account_is_the_operators_to_mend_and_nobody_is_asked_to_come_again(vendor: str) -> None:
    found = answered(*SPENT[vendor], retry_after="1")
    assert (found.kind, found.retry_after_s) == (ErrorKind.PROVIDER_AUTH, None)


@pytest.mark.parametrize("vendor", IN_WORDS)
@pytest.mark.parametrize("headers", [{}, {"retry_after": "86400"}, {"retry_after": "Tue, 01 Dec 2026 00:00:00 GMT"}])
def test_words_of_a_spent_account_count_where_no_short_time_to_wait_is_told(
    vendor: str, headers: dict[str, Any]
) -> None:
    assert answered(*IN_WORDS[vendor], **headers).kind is ErrorKind.PROVIDER_AUTH


@pytest.mark.parametrize("vendor", [name for name, (_, said) in IN_WORDS.items() if not isinstance(said, str)])
@pytest.mark.parametrize("status", [400, 422])
def test_so_they_do_with_400_where_nothing_else_is_said(vendor: str, status: int) -> None:
    assert answered(status, IN_WORDS[vendor][1]).kind is ErrorKind.PROVIDER_AUTH


@pytest.mark.parametrize("vendor", KEYS)
def test_a_key_that_is_refused_with_400_is_the_operators_to_mend(vendor: str) -> None:
    found = answered(400, KEYS[vendor])
    assert found.kind is ErrorKind.PROVIDER_AUTH
    assert found.body is None


@pytest.mark.parametrize("vendor", RATES)
@pytest.mark.parametrize("status", [400, 403])
def test_a_rate_that_is_told_with_400_passes_by_itself(vendor: str, status: int) -> None:
    found = answered(status, RATES[vendor], retry_after="7")
    is_coded = vendor in {"a code", "AWS"}
    assert (found.kind, found.retry_after_s) == (ErrorKind.RATE_LIMITED, 7) or (is_coded and status == 403)


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("status", [400, 422])
def test_what_names_something_of_the_request_blames_the_request(mistake: str, status: int) -> None:
    assert answered(status, error(MISTAKES[mistake], type="invalid_request_error")).kind is ErrorKind.BAD_REQUEST


@pytest.mark.parametrize("said", ["Invalid API key", "Rate limit exceeded", "Your balance is insufficient"])
def test_words_with_400_hold_for_their_own_client_alone(said: str) -> None:
    assert not answered(400, error(said)).findings.is_certain


def test_the_type_that_every_429_has_in_messages_does_not_say_that_it_passes() -> None:
    said = {"type": "error", **error("API key budget exceeded", type="rate_limit_error")}
    assert answered(429, said).kind is ErrorKind.PROVIDER_AUTH


@pytest.mark.parametrize("vendor", IN_WORDS)
def test_words_alone_take_no_key_out_where_the_limit_passes_within_a_minute(vendor: str) -> None:
    status, said = IN_WORDS[vendor]
    for headers in ({"retry_after": "5"}, {"retry_after_ms": "5000"}):
        found = answered(status, said, **headers)
        assert (found.kind, found.retry_after_s) == (ErrorKind.RATE_LIMITED, 5)
    if not isinstance(said, str):
        details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "5s"}]
        found = answered(status, {"error": {**said["error"], "details": details}})
        assert (found.kind, found.retry_after_s) == (ErrorKind.RATE_LIMITED, 5)


@pytest.mark.parametrize("vendor", RATED)
def test_a_rate_limit_stays_one_with_its_time_to_wait(vendor: str) -> None:
    found = answered(*RATED[vendor], retry_after="7")
    assert (found.kind, found.retry_after_s) == (ErrorKind.RATE_LIMITED, 7)
    assert answered(*RATED[vendor]).kind is ErrorKind.RATE_LIMITED


def test_alibabas_minute_is_told_by_its_headers_where_the_words_are_openais() -> None:
    status, said = SPENT["OpenAI's quota"]
    found = answered(status, said, x_dashscope_call_gateway="true", retry_after="7")
    assert (found.kind, found.retry_after_s) == (ErrorKind.RATE_LIMITED, 7)
    arrears = answered(*SPENT["Alibaba"], x_dashscope_call_gateway="true")
    assert arrears.kind is ErrorKind.PROVIDER_AUTH


def test_one_request_that_alone_is_too_dear_for_openrouters_budget_is_no_spent_account() -> None:
    said = error("Payment required", code=402, metadata={"reason": "weight_exceeds_budget"})
    assert answered(402, said).kind is ErrorKind.SERVER_ERROR
    said = error("Insufficient credits", code=402, metadata={"limit_source": "openrouter_credits"})
    assert answered(402, said).kind is ErrorKind.PROVIDER_AUTH


@pytest.mark.parametrize("status", [400, 404, 422, 500, 503])
def test_what_a_client_may_have_written_takes_no_key_out(status: int) -> None:
    said = error("Invalid value: 'my account balance is insufficient'. Supported values are: 'auto'")
    assert answered(status, said).kind is not ErrorKind.PROVIDER_AUTH


@pytest.mark.parametrize("vendor", [name for name, (_, said) in SPENT.items() if not isinstance(said, str)])
def test_it_is_told_inside_a_stream_too(vendor: str) -> None:
    data = msgspec.json.encode(SPENT[vendor][1])
    assert error_in(data, [], otherwise=ErrorKind.STREAM_ERROR).kind is ErrorKind.PROVIDER_AUTH


@pytest.mark.parametrize("vendor", [name for name, (_, said) in IN_WORDS.items() if not isinstance(said, str)])
def test_words_inside_a_stream_take_no_key_out(vendor: str) -> None:
    data = msgspec.json.encode(IN_WORDS[vendor][1])
    assert error_in(data, [], otherwise=ErrorKind.STREAM_ERROR).kind is not ErrorKind.PROVIDER_AUTH


TOOLS_PAYMENT = "Error retrieving tool list from MCP server: 'pay'. Http status code: 402 (Payment Required)"
QUOTING: dict[str, tuple[Dialect, Any]] = {
    "chat": (CHAT, {"error": 'error parsing tool call: raw=\'{"q":"please recharge\', err=unexpected end'}),
    "Responses": (RESPONSES, {"type": "error", "code": "tool_error", "message": TOOLS_PAYMENT, "param": None}),
    "Responses that failed": (
        RESPONSES,
        {"type": "response.failed", "response": {"error": {"code": "http_error", "message": TOOLS_PAYMENT}}},
    ),
    "Messages": (MESSAGES, {"type": "error", "error": {"type": "api_error", "message": TOOLS_PAYMENT}}),
}


@pytest.mark.parametrize("api", QUOTING)
def test_what_a_tool_or_a_model_says_inside_a_stream_takes_no_key_out(api: str) -> None:
    dialect, said = QUOTING[api]
    read = dialect.answers.read_event if dialect is not CHAT else read_event
    found = read(msgspec.json.encode(said), [])
    assert found.error is not None
    assert found.error.kind is not ErrorKind.PROVIDER_AUTH


def test_only_the_beginning_of_a_long_error_is_searched() -> None:
    said = "x" * 5_000 + " insufficient balance"
    assert answered(429, error(said)).kind is ErrorKind.RATE_LIMITED
    assert answered(429, error("Rejected", code=said)).kind is ErrorKind.RATE_LIMITED


EVENTS: dict[str, tuple[Dialect, bytes]] = {
    "chat": (CHAT, msgspec.json.encode(SPENT["OpenAI's quota"][1])),
    "Responses": (
        RESPONSES,
        msgspec.json.encode(
            {"type": "response.failed", "response": {"error": {"code": "insufficient_quota", "message": OPENAI}}}
        ),
    ),
    "Responses' error": (
        RESPONSES,
        msgspec.json.encode({"type": "error", "code": "insufficient_quota", "message": OPENAI, "param": None}),
    ),
    "Messages": (
        MESSAGES,
        msgspec.json.encode(
            {"type": "error", "error": {"type": "rate_limit_error", "code": "1113", "message": "[1113][Insufficient"}}
        ),
    ),
    "Gemini": (GEMINI, msgspec.json.encode(SPENT["Google"][1])),
}


@pytest.mark.parametrize("api", EVENTS)
def test_each_apis_first_event_may_say_it(api: str) -> None:
    dialect, data = EVENTS[api]
    read = dialect.answers.read_event if dialect is not CHAT else read_event
    found = read(data, [])
    assert found.error is not None
    assert found.error.kind is ErrorKind.PROVIDER_AUTH


def test_a_400_that_only_quotes_such_words_is_the_requests_own_fault() -> None:
    quoting = error("Invalid value: 'Insufficient balance'", type="invalid_request_error", code="invalid_value")
    assert answered(400, quoting).kind is ErrorKind.BAD_REQUEST


def test_a_402_about_one_requests_length_stays_one_that_others_may_answer() -> None:
    said = error("This request requires more credits, or fewer max_tokens.", code=402)
    assert answered(402, said).kind is ErrorKind.SERVER_ERROR
