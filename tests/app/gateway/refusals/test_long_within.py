"""A prompt that is too long, told within an answer with status 200: whatever the event's code, it is no failure."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from providers.simulator import Done, Raw, Step, answer
from tests.app.gateway.apis.test_dialects import speaking
from tests.app.gateway.refusals.test_meanings import ASKED, BEGUN, KNOWN, asked, is_too_long
from tests.app.gateway.refusals.test_told_meanings import broken_off
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")
SAID = "This model's maximum context length is 32768 tokens. However, your messages resulted in 40021 tokens."
OPENAIS = {"message": "Your input exceeds the context window of this model.", "code": "context_length_exceeded"}


def event(data: Mapping[str, Any], name: str = "") -> Raw:
    return Raw((f"event: {name}\n" * bool(name) + f"data: {json.dumps(data)}\n\n").encode())


FINISHED = [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]
QUOTED = {"code": 502, "message": "Provider returned error", "metadata": {"raw": json.dumps({"error": OPENAIS})}}
FAILED = {"type": "response.failed", "sequence_number": 1}
# The API of the provider, and the event.
WITHIN: Mapping[str, tuple[str, Step]] = {
    "vLLM": ("chat", event({"error": {"object": "error", "message": SAID, "type": "BadRequestError", "code": 400}})),
    "SGLang": ("chat", event({"error": {"message": SAID, "type": "internal_server_error", "code": 500}})),
    "OpenRouter": ("chat", event({"error": {"code": 502, "message": SAID}, "choices": FINISHED})),
    "OpenRouter, quoting": ("chat", event({"error": QUOTED, "choices": FINISHED})),
    "Copilot": (
        "chat",
        event(
            {
                "error": {
                    "message": "prompt token count of 40021 exceeds the limit of 32768",
                    "code": "model_max_prompt_tokens_exceeded",
                }
            },
            "error",
        ),
    ),
    "a proxy": ("chat", event({"error": {"message": f"litellm.ContextWindowExceededError: {SAID}", "code": "503"}})),
    "Anthropic": (
        "messages",
        event(
            {"type": "error", "error": {"type": "api_error", "message": "prompt is too long: 40021 tokens > 32768"}},
            "error",
        ),
    ),
    "Responses": ("responses", event({"type": "error", "sequence_number": 1, "param": None, **OPENAIS}, "error")),
    "Responses, failed": (
        "responses",
        event(
            {
                **FAILED,
                "response": {"id": "r", "object": "response", "status": "failed", "error": OPENAIS, "output": []},
            },
            "response.failed",
        ),
    ),
    "Google": (
        "gemini",
        event(
            {
                "error": {
                    "code": 500,
                    "message": "The input token count (40021) exceeds the maximum number of tokens allowed (32768).",
                    "status": "INTERNAL",
                }
            }
        ),
    ),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", WITHIN)
@pytest.mark.parametrize("api", ASKED)
async def test_before_any_content_it_is_a_refusal(shared: SharedGateways, api: str, name: str, *, stream: bool) -> None:
    spoken, said = WITHIN[name]
    config = {"providers": {each: speaking(spoken) for each in ("alpha", "beta")}}
    async with shared.row(alpha=[said], beta=[said], config=config) as running:
        status, body = await asked(running, api, stream=stream)
        assert is_too_long(api, status, body), body


@pytest.mark.parametrize("name", WITHIN)
async def test_another_deployment_answers(shared: SharedGateways, name: str) -> None:
    spoken, said = WITHIN[name]
    config = {"providers": {"alpha": speaking(spoken)}, "models": {MODEL: {"race": {"mode": "single"}}}}
    async with shared.row(alpha=[said], beta=answer("well"), config=config) as running:
        running.prefer("alpha", "beta")
        assert (await asked(running, "chat", stream=True))[0] == 200


@pytest.mark.parametrize("name", [name for name, (spoken, _) in WITHIN.items() if spoken == "chat"])
@pytest.mark.parametrize("api", BEGUN)
async def test_behind_some_content_the_stream_ends_with_it(serve: Serve, api: str, name: str) -> None:
    error = await broken_off(serve, api, WITHIN[name][1], Done())
    field, value = BEGUN[api]
    assert error[field] == value
    assert re.search(KNOWN[api], error["message"]) is not None
