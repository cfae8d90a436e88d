"""The stand-in of Azure has OpenAI's rules behind deployments, versions and errors of its own."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import USER, Came, ask

CHAT = "/openai/deployments/{}/chat/completions?api-version={}"
NOW = "2025-04-01-preview"


@pytest.fixture
def azure() -> Vendor:
    return made("azure")


def chat(vendor: Vendor, deployment: str, version: str = NOW, **fields: Any) -> Came:
    headers = {"api-key": vendor.key}
    return ask(vendor, CHAT.format(deployment, version), {"messages": [USER], **fields}, headers=headers)


@pytest.mark.parametrize("deployment", ["gpt-4o", "my-gpt-4o"])
def test_a_deployment_answers_and_tells_its_filters(azure: Vendor, deployment: str) -> None:
    body = chat(azure, deployment).body
    assert body["model"] == "gpt-4o"
    assert "content_filter_results" in body["choices"][0]
    first, *_ = chat(azure, deployment, stream=True).events
    assert (first["choices"], len(first["prompt_filter_results"])) == ([], 1)


@pytest.mark.parametrize(
    ("deployment", "version", "status", "code"),
    [
        ("none", NOW, 404, "DeploymentNotFound"),
        ("gpt-5-codex", NOW, 400, "OperationNotSupported"),
        ("o1", "2024-06-01", 400, "BadRequest"),
        ("gpt-4o", "", 404, "404"),
        ("gpt-4o", "yesterday", 404, "404"),
    ],
)
def test_its_front_door_refuses_with_a_code_and_words_alone(
    azure: Vendor, deployment: str, version: str, status: int, code: str
) -> None:
    came = chat(azure, deployment, version)
    assert (came.status, came.body["error"]["code"], set(came.body["error"])) == (status, code, {"code", "message"})
    assert came.page.startswith("https://")


def test_what_stands_behind_is_openais(azure: Vendor) -> None:
    assert chat(azure, "gpt-5", max_tokens=9).body["error"] == {
        "message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"
        " instead.",
        "type": "invalid_request_error",
        "param": "max_tokens",
        "code": "unsupported_parameter",
    }


def test_responses_need_a_newer_version_or_the_newer_surface(azure: Vendor) -> None:
    headers, body = {"api-key": azure.key}, {"model": "gpt-5", "input": "Hello"}
    assert ask(azure, f"/openai/responses?api-version={NOW}", body, headers=headers).status == 200
    assert ask(azure, "/openai/responses?api-version=2024-10-21", body, headers=headers).status == 400
    assert ask(azure, "/openai/v1/responses", body, headers={"authorization": f"Bearer {azure.key}"}).status == 200
    assert ask(azure, "/openai/v1/responses", body, headers={"api-key": "wrong"}).body["error"]["code"] == "401"
