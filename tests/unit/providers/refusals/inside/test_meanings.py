"""What a refusal means, by the words of many vendors: only what is told as such is asked elsewhere as such."""

import json
from typing import Any

import pytest

from providers import ErrorKind, Meaning, RefusalScope, meaning_of
from providers.refusals.error_bodies import error_of_response


def meaning(status: int, body: object) -> Meaning | None:
    return meaning_of(error_of_response(status, {}, json.dumps(body, ensure_ascii=False).encode(), (), now_s=0.0))


def openai(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": code}}


@pytest.mark.parametrize(
    "body",
    [
        openai("Content Exists Risk", "invalid_request_error"),  # DeepSeek
        {"error": {"code": "1301", "message": "系统检测到输入或生成内容可能包含不安全或敏感内容"}},  # Zhipu
        openai("input new_sensitive (1026)", "1026"),  # MiniMax
        {"base_resp": {"status_code": 1027, "status_msg": "output new_sensitive"}},
        openai("The request was rejected because it was considered high risk"),  # Moonshot
        openai("Input text may contain sensitive information.", "InputTextSensitiveContentDetected"),  # Volcengine
        openai("Output data may contain inappropriate content."),  # Alibaba
        {"message": "The request was blocked by the content guardrail of this account."},  # Bedrock
        openai("This request was blocked by our usage policy"),
        openai("your request was blocked by our content moderation"),
        openai("Invalid prompt: we've limited access to this content for safety reasons.", "invalid_prompt"),
    ],
)
def test_a_filter_is_known_by_its_vendors_words(body: object) -> None:
    assert meaning(400, body) is Meaning.CONTENT


IN_OTHER_WORDS = (
    "Ihre Anfrage verstößt gegen die Inhaltsrichtlinien.",
    "Der Inhalt verstoesst gegen die Inhaltsrichtlinie",
    "Die Anfrage wurde vom Sicherheitsfilter blockiert",
    "Blocked by safety classifier",
    "The safety classifiers declined this prompt",
    "Policy violation",
    "policy_violation",
    "Policy violation detected in input",
    "Your request violates our usage policies",
    "The prompt violates our terms of service",
    "Your input violates OpenAI's usage policies",
    "Request violates our Acceptable Use Policy",
    "Unsafe content detected in prompt",
    "jailbreak attempt detected",
    "Content blocked",
    "Request rejected by guardrail",
    "Votre demande enfreint nos règles d'utilisation",
    "La requête a été bloquée par le filtre de contenu",
    "Contenu inapproprié détecté",
    "Su solicitud infringe nuestras políticas de uso",
    "La solicitud fue bloqueada por el filtro de contenido",
    "A solicitação viola nossas políticas de uso",
    "La richiesta viola le norme sui contenuti",
    "コンテンツポリシーに違反しています。",
    "利用規約に違反する内容が含まれています",
    "安全性フィルタによりブロックされました",
    "不適切なコンテンツが検出されました",
    "内容违规",
    "您的请求违反了内容政策",
    "内容审核未通过",
    "請求違反了使用政策",
    "输入包含不当内容",
    "콘텐츠 정책을 위반했습니다",
    "콘텐츠 필터에 의해 차단되었습니다",
    "부적절한 콘텐츠가 감지되었습니다",
    "Запрос нарушает правила использования",
    "Żądanie narusza zasady użytkowania",
)


@pytest.mark.parametrize("said", IN_OTHER_WORDS)
def test_a_filter_is_known_in_words_and_languages_of_no_vendor(said: str) -> None:
    assert meaning(400, openai(said)) is Meaning.CONTENT
    assert error_of_response(400, {}, json.dumps(openai(said)).encode(), (), now_s=0.0).scope is RefusalScope.CONTENT


@pytest.mark.parametrize(
    "said",
    [
        "retention policy violation: store must be false",
        "Tool schema violates the naming rules",
        "Die Anfrage verstößt gegen das JSON-Schema",
        "Der Parameter 'content' fehlt",
        "Le contenu du message est vide",
        "La requête enfreint le schéma",
        "El contenido viola el esquema",
        "El contenido del mensaje es demasiado largo",
        "スキーマに違反しています",
        "コンテンツが長すぎます",
        "内容过长",
        "违反了 JSON Schema 规范",
        "스키마를 위반했습니다",
        "내용이 너무 깁니다",
        "Your organization's policy does not allow this model",
        "Unknown parameter: 'moderation'",
        "The guardrail does not exist",
        "disallowed content type",
    ],
)
def test_schemas_sizes_and_other_policies_are_no_filters(said: str) -> None:
    assert meaning(400, openai(said)) is None


@pytest.mark.parametrize("said", ["Your request violates our usage policies", "コンテンツポリシーに違反しています。"])
def test_a_filter_that_answers_403_is_no_keys_fault(said: str) -> None:
    assert error_of_response(403, {}, json.dumps(openai(said)).encode(), (), now_s=0.0).kind is ErrorKind.BAD_REQUEST


@pytest.mark.parametrize(
    "said",
    [
        "Your account violates our usage policies",
        "Policy violation",
        "Request rejected: terms of use not accepted",
        "This model is blocked by our policies",
        "Ihr Konto verstößt gegen die Nutzungsbedingungen",
    ],
)
def test_a_403_about_a_key_or_an_account_is_still_one(said: str) -> None:
    assert error_of_response(403, {}, json.dumps(openai(said)).encode(), (), now_s=0.0).kind is ErrorKind.PROVIDER_AUTH


@pytest.mark.parametrize(
    "body",
    [
        openai("Invalid value for 'content': expected a string"),
        openai("The guardrail identifier or version provided in the request does not exist."),
        openai("Field names are case-sensitive: 'Content'"),
        openai("Invalid 'safety_identifier': string too long."),
    ],
)
def test_a_mistake_is_no_filters(body: object) -> None:
    assert meaning(400, body) is None


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (410, openai("The requested model is deprecated and no longer supported by provider x.")),  # Hugging Face
        (404, openai("The API deployment for this resource does not exist.", "DeploymentNotFound")),  # Azure
        (410, openai("This deployment was retired on 2026-11-01")),
        (404, openai("Deployment 'gpt-x' does not exist in this region")),
        (404, {"message": "This model version has reached the end of its life.", "__type": "ResourceNotFound"}),
    ],
)
def test_a_model_that_is_gone_is_known(status: int, body: object) -> None:
    assert meaning(status, body) is Meaning.GONE


@pytest.mark.parametrize("said", ["Not Found", "This deployment has no path /v1/responses", "Unknown endpoint"])
def test_a_path_that_a_server_does_not_have_is_no_model_that_is_gone(said: str) -> None:
    assert meaning(404, openai(said)) is None


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        (openai("The engine is currently overloaded, please try again later", "engine_overloaded_error"), "overloaded"),
        ({"error": {"code": "1305", "message": "该模型当前访问量过大"}}, "overloaded"),  # Zhipu
        ({"error": {"type": "engine_overloaded_error", "message": "please retry"}}, "overloaded"),
        (openai("Service temporarily overloaded; try again shortly", "overloaded"), "overloaded"),
        (openai("We are experiencing high demand"), "overloaded"),
        (openai("Too many requests: your workers are busy"), "rate"),
        (openai("Your deployment is overloaded: limit of 60 requests per minute"), "rate"),
        (openai("Rate limit reached for requests", "rate_limit_exceeded"), "rate"),
        ({"error": {"code": "1302", "message": "您当前使用该API的并发数过高"}}, "rate"),
        (openai("Rate limit reached on requests per day (RPD): Limit 200", "rate_limit_exceeded"), "day"),
        (openai("Rate limit of 50 per 86400s exceeded for UserByModelByDay. Please wait."), "day"),  # GitHub Models
        (
            {"error": {"code": "1310", "message": "Weekly/Monthly Limit Exhausted. It will reset at 10:20"}},
            "day",
        ),  # Z.ai
        (openai("you have reached your weekly usage limit, upgrade for higher limits"), "day"),  # Ollama's cloud
        (openai("Rate limit exceeded. Upgrade to a monthly plan"), "rate"),
        ({"detail": "Infrastructure is at maximum capacity, try again later"}, "overloaded"),  # Chutes
        (openai("Model busy, retry later"), "overloaded"),  # DeepInfra
        (openai("当前分组上游负载已饱和,请稍后再试"), "overloaded"),  # new-api
    ],
)
def test_a_server_that_is_overloaded_is_told_apart_from_a_limit(body: object, meant: str) -> None:
    assert meaning(429, body) == meant


@pytest.mark.parametrize(
    ("after", "meant"),
    [
        *(("459202", "day"), ("21600", "day"), ("Wed, 02 Dec 2026 00:00:00 GMT", "day"), ("17", "rate")),
        *(("315360000", "rate"), ("-5", "rate"), ("Fri, 31 Dec 1999 23:59:59 GMT", "rate"), ("soon", "rate")),
    ],
)
def test_a_limit_is_of_a_day_if_there_is_no_room_for_hours(after: str, meant: str) -> None:
    body = json.dumps(openai("All credentials are cooling down", "model_cooldown")).encode()
    error = error_of_response(429, {"retry-after": after}, body, (), now_s=1_796_000_000.0)
    assert meaning_of(error) == meant
    assert error.retry_after_s is None or 0 <= error.retry_after_s <= 60


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (
            403,
            openai("token quota is not enough, token remain quota: 0.25", "pre_consume_token_quota_failed"),
        ),  # new-api
        (403, openai("The free tier of the model has been exhausted.", "AllocationQuota.FreeTierOnly")),  # Alibaba
        (403, openai("Key limit exceeded (total limit). Manage it using https://openrouter.ai/settings/keys")),
        (
            403,
            {
                "message": "Model access is denied due to INVALID_PAYMENT_INSTRUMENT:A valid payment instrument must be"
                " provided. If you recently fixed this issue, try again after 15 minutes."
            },
        ),
        (
            429,
            {
                "message": "You are using a Trial key, which is limited to 1000 API calls / month. You can continue to"
                " use the Trial key for free or upgrade to a Production key with higher rate limits"
            },
        ),
    ],
)
def test_an_account_without_money_is_known(status: int, body: object) -> None:
    assert meaning(status, body) is Meaning.UNPAID


@pytest.mark.parametrize(
    "said", ["No capacity", "Insufficient GPU capacity, retry later", "The server is too busy", "Model m is overloaded"]
)
def test_an_unavailable_server_that_speaks_of_its_load_is_overloaded(said: str) -> None:
    assert meaning(503, openai(said)) is Meaning.OVERLOADED
    assert meaning(503, openai("The database is gone")) is None


def test_a_server_may_speak_of_its_load_in_other_languages() -> None:
    for said in (
        "Usługa przeciążona",
        "Servidor sobrecarregado",
        "De server is overbelast",
        "Сервер перевантажений",
    ):
        assert meaning(503, openai(said)) is Meaning.OVERLOADED
