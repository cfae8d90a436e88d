"""What a refusal means, by the words of many vendors: only what is told as such is asked elsewhere as such."""

import json
from typing import Any

import pytest

from providers import Meaning, meaning_of
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
    ],
)
def test_a_server_that_is_overloaded_is_told_apart_from_a_limit(body: object, meant: str) -> None:
    assert meaning(429, body) == meant


@pytest.mark.parametrize(
    "said", ["No capacity", "Insufficient GPU capacity, retry later", "The server is too busy", "Model m is overloaded"]
)
def test_an_unavailable_server_that_speaks_of_its_load_is_overloaded(said: str) -> None:
    assert meaning(503, openai(said)) is Meaning.OVERLOADED
    assert meaning(503, openai("The database is gone")) is None
