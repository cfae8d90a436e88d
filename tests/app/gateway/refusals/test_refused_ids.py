"""A vendor that does not take the ids of another vendor's calls is sent them in its own form, after one refusal."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from providers.simulator import Step
from tests.app.gateway.refusals.test_refused_fields import ANSWERS, refused
from tests.app.gateway.running_gateway import MODEL, Serve

Json = dict[str, Any]
KIMIS, LONG = "functions.look:0", "call_" + "x" * 80
TOO_LONG = "Invalid '{}': string too long. Expected a string with maximum length {}, but got a string with length 85."
# What they take, and what they say of others: langchain-ai/langchain/pull/37756, editor-code-assistant/eca/issues/233,
# vercel/ai/issues/5171, orchidfiles/ungate/issues/26.
VENDORS = {
    "Anthropic": (
        "messages",
        KIMIS,
        r"[a-zA-Z0-9_-]+",
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    "Mistral": (
        "chat",
        KIMIS,
        r"[a-zA-Z0-9]{9}",
        "Tool call id was functions.look:0 but must be a-z, A-Z, 0-9, with a length of 9.",
    ),
    "OpenAI, chat": (
        "chat",
        LONG,
        r".{1,40}",
        TOO_LONG.format("messages[1].tool_calls[0].id", 40),
    ),
    "OpenAI, Responses": (
        "responses",
        LONG,
        r".{1,64}",
        TOO_LONG.format("input[1].call_id", 64),
    ),
}
PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}


def conversation(api: str, call_id: str) -> Json:
    """Return a request whose history has a call with this id."""
    if api == "responses":
        call = {"type": "function_call", "call_id": call_id, "name": "look", "arguments": '{"id": "a.b"}'}
        result = {"type": "function_call_output", "call_id": call_id, "output": "okapi"}
        return {"input": [{"role": "user", "content": "look"}, call, result], "store": False}
    if api == "messages":
        use = {"type": "tool_use", "id": call_id, "name": "look", "input": {"id": "a.b"}}
        found = {"type": "tool_result", "tool_use_id": call_id, "content": "okapi"}
        said: list[Json] = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [found]}]
    else:
        function = {"name": "look", "arguments": '{"id": "a.b"}'}
        asked = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        }
        said = [asked, {"role": "tool", "tool_call_id": call_id, "content": "okapi"}]
    return {"messages": [{"role": "user", "content": "look"}, *said], "max_tokens": 99}


def ids_in(api: str, body: Json) -> list[str]:
    """Return the id of the call, and that of its result."""
    if api == "responses":
        return [item["call_id"] for item in body["input"][1:]]
    _, asked, result = body["messages"]
    if api == "chat":
        return [asked["tool_calls"][0]["id"], result["tool_call_id"]]
    return [asked["content"][0]["id"], result["content"][0]["tool_use_id"]]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("vendor", VENDORS)
async def test_they_are_sent_in_its_own_form_after_one_refusal(serve: Serve, vendor: str, stream: bool) -> None:
    api, call_id, taken, words = VENDORS[vendor]

    def answer(body: Json) -> Sequence[Step]:
        fit = all(re.fullmatch(taken, each) for each in ids_in(api, body))
        return ANSWERS[api] if fit else refused(words)

    async with serve(alpha=None, config={"providers": {"alpha": {"apis": [api]}}}) as running:
        upstream = running["alpha"]
        upstream.answers = answer
        for sendings in (2, 3, 4):
            body = {"model": MODEL, **conversation(api, call_id), "stream": stream}
            async with running.post(body, path=PATHS[api]) as response:
                await response.read()
                assert response.status == 200
            assert len(upstream.received) == sendings
            sent = upstream.received[-1].body
            call, result = ids_in(api, sent)
            assert call == result != call_id
            assert '{\\"id\\": \\"a.b\\"}' in json.dumps(sent) or '{"id": "a.b"}' in json.dumps(sent)
        # An id that it takes stays.
        async with running.post({"model": MODEL, **conversation(api, "aB3456789")}, path=PATHS[api]) as response:
            await response.read()
        assert ids_in(api, upstream.received[-1].body) == ["aB3456789"] * 2


ODD, HALF = "mcp__server__tool.name/with:odd", '{"id": "a'
OPENAIS = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
# What is odd, its vendor's words, and what is as usual.
CALLS = {
    "OpenAI, chat": ("chat", ODD, f"Invalid 'messages[1].tool_calls[0].function.name': {OPENAIS}", "look"),
    "OpenAI, Responses": ("responses", ODD, f"Invalid 'input[1].name': {OPENAIS}", "look"),
    "Anthropic": ("messages", ODD, "messages.1.content.0.tool_use.name: String should match pattern '^[a-z]$'", "look"),
    "OpenAI, too long": (
        "chat",
        "x" * 65,
        "Invalid 'messages[1].tool_calls[0].function.name': string too long. Expected a string with maximum length 64.",
        "x" * 64,
    ),
    "Ollama": ("chat", HALF, "invalid tool call arguments", '{"id": "a.b"}'),
}


def called(api: str, odd: str) -> Json:
    """Return a request whose history has a call with such a name, or such arguments."""
    said = json.dumps(conversation(api, "aB3456789"))
    if odd.startswith("{"):
        return dict(json.loads(said.replace(json.dumps('{"id": "a.b"}'), json.dumps(odd))))
    return dict(json.loads(said.replace('"name": "look"', f'"name": "{odd}"')))


@pytest.mark.parametrize("with_fallback", [False, True], ids=["another deployment", "a fallback"])
@pytest.mark.parametrize("vendor", CALLS)
async def test_who_has_refused_a_name_or_arguments_of_a_call_is_asked_after_others(
    serve: Serve, vendor: str, *, with_fallback: bool
) -> None:
    api, odd, words, usual = CALLS[vendor]
    single = {"race": {"mode": "single"}}
    models: dict[str, Any] = {MODEL: {"deployments": ["alpha/m", "beta/m"], **single}}
    if with_fallback:
        models = {
            MODEL: {"deployments": ["alpha/m"], "fallbacks": ["other"], **single},
            "other": {"deployments": ["beta/m"], **single},
        }
    config = {"providers": {name: {"apis": [api]} for name in ("alpha", "beta")}, "models": models}

    async def ask(part: str) -> tuple[int, str]:
        async with running.post({"model": MODEL, **called(api, part)}, path=PATHS[api]) as response:
            return response.status, await response.text()

    async with serve(alpha=None, beta=ANSWERS[api], config=config) as running:
        alpha, beta = running["alpha"], running["beta"]
        if not with_fallback:
            running.prefer("alpha", "beta")
        alpha.answers = lambda body: refused(words) if json.dumps(odd) in json.dumps(body) else ANSWERS[api]
        for calls in (1, 2, 3):
            assert (await ask(odd))[0] == 200
            assert len(beta.received) == calls
        assert with_fallback or len(alpha.received) == 1
        # Other calls are asked of it as before.
        asked = len(alpha.received)
        assert (await ask(usual))[0] == 200
        assert (len(alpha.received), len(beta.received)) == (asked + 1, 3)
        # Where nobody takes it, its client is told in the vendor's words.
        beta.answers = alpha.answers
        status, said = await ask(odd)
        assert (status, words in json.loads(said)["error"]["message"]) == (400, True)
