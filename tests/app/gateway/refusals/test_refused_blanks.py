"""A turn of the model that says nothing, as programs keep it of an answer that broke off, ends no conversation."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from providers.simulator import Status, Step
from tests.app.gateway.refusals.test_refused_fields import ANSWERS, refused
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]
WORDS = {
    "messages": "messages: text content blocks must contain non-whitespace text",
    "chat": "Assistant message must have either content or tool_calls, but not none.",
}
OTHER_WORDS = {
    "messages": "messages.1: all messages must have non-empty content except for the optional final assistant message",
    "chat": "Invalid request content: Each message must have at least one content element.",
}
PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions"}
AT: Json = {api: {"providers": {"alpha": {"apis": [api]}}} for api in WORDS}
ASKS, SAYS, GOES_ON = ({"role": role, "content": "hello"} for role in ("user", "assistant", "user"))
THOUGHT: Json = {"type": "thinking", "thinking": "so", "signature": "c2ln"}
TEXT: Json = {"type": "text", "text": "hello"}
CALLS: Json = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def blank(text: str) -> Json:
    return {"type": "text", "text": text}


def server(api: str, words: str) -> Any:
    """Return the answers of one that takes no blank, and says so with ``words``."""

    def answer(body: Json) -> Sequence[Step]:
        texts = list[str]()
        for turn in body["messages"]:
            content = turn.get("content")
            if isinstance(content, list) and content:
                texts += [part["text"] for part in content if part["type"] == "text"]
            elif not turn.get("tool_calls"):
                texts.append(content or "")
        return ANSWERS[api] if all(map(str.strip, texts)) else refused(words)

    return answer


async def said(running: RunningGateway, api: str, *turns: Json) -> tuple[int, str]:
    """Return the status of a call, and what its client is told."""
    body = {"model": MODEL + running.suffix, "max_tokens": 99, "messages": [*turns]}
    async with running.post(body, path=PATHS[api]) as response:
        await response.read()
        return response.status, response.headers.get("x-holeshot-dropped", "")


@pytest.mark.parametrize(
    ("api", "said_by_model", "left"),
    [
        ("chat", {"content": ""}, None),
        ("chat", {"content": None}, None),
        ("chat", {}, None),
        ("chat", {"content": [blank(" ")]}, None),
        ("chat", {"content": [blank(""), TEXT]}, {"content": [TEXT]}),
        ("chat", {"content": [blank("")], "tool_calls": [CALLS]}, {"content": None, "tool_calls": [CALLS]}),
        ("messages", {"content": "\n"}, None),
        ("messages", {"content": []}, None),
        ("messages", {"content": [blank(""), blank("\t")]}, None),
        ("messages", {"content": [THOUGHT, blank(" "), THOUGHT, TEXT]}, {"content": [THOUGHT, THOUGHT, TEXT]}),
    ],
)
@pytest.mark.parametrize("words", [WORDS, OTHER_WORDS])
async def test_it_is_left_out_after_one_refusal(
    shared: SharedGateways, words: Json, api: str, said_by_model: Json, left: Json | None
) -> None:
    turn = {"role": "assistant", **said_by_model}
    kept = [] if left is None else [{"role": "assistant", **left}]
    async with shared.row(alpha=None, config=AT[api]) as running:
        running["alpha"].answers = server(api, words[api])
        for sendings in (2, 3):
            assert await said(running, api, ASKS, turn, SAYS, GOES_ON) == (200, "messages[1]")
            sent = running.received("alpha")
            assert len(sent) == sendings
            assert sent[-1].body["messages"] == [ASKS, *kept, SAYS, GOES_ON]
        # A conversation that has none passes as it is.
        assert await said(running, api, ASKS, SAYS, GOES_ON) == (200, "")
        assert running.received("alpha")[-1].body["messages"] == [ASKS, SAYS, GOES_ON]


async def test_a_system_prompt_without_words_is_left_out_as_well(serve: Serve) -> None:
    empty = {"role": "system", "content": ""}
    async with serve(alpha=None, config=AT["chat"]) as running:
        running["alpha"].answers = server("chat", WORDS["chat"])
        for sendings in (2, 3):
            assert await said(running, "chat", empty, ASKS) == (200, "messages[0]")
            assert len(running["alpha"].received) == sendings
            assert running["alpha"].received[-1].body["messages"] == [ASKS]
        assert await said(running, "chat", {**empty, "content": "Be brief."}, ASKS) == (200, "")
        assert len(running["alpha"].received[-1].body["messages"]) == 2


async def test_calls_without_words_stay_and_who_takes_blanks_gets_them(serve: Serve) -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [CALLS]}
    told = {"role": "tool", "tool_call_id": "1", "content": "done"}
    empty = {"role": "assistant", "content": ""}
    async with serve(alpha=None, config=AT["chat"]) as running:
        running["alpha"].answers = lambda _: ANSWERS["chat"]
        assert await said(running, "chat", ASKS, empty, GOES_ON) == (200, "")
        assert running["alpha"].received[-1].body["messages"] == [ASKS, empty, GOES_ON]
        running["alpha"].answers = server("chat", WORDS["chat"])
        assert await said(running, "chat", ASKS, called, told, empty, GOES_ON) == (200, "messages[3]")
        assert running["alpha"].received[-1].body["messages"] == [ASKS, called, told, GOES_ON]


@pytest.mark.parametrize("api", WORDS)
async def test_what_the_user_has_not_said_is_refused(serve: Serve, api: str) -> None:
    async with serve(alpha=refused(WORDS[api]), config=AT[api]) as running:
        status, _ = await said(running, api, {"role": "user", "content": " "})
        assert (status, len(running["alpha"].received)) == (400, 1), json.dumps(WORDS[api])


ASKED: Json = {"role": "user", "parts": [{"text": "Hi"}]}
CALLED: Json = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}
GOOGLES = (
    "* GenerateContentRequest.contents[1].parts[0].data: required oneof field 'data' must have one initialized field",
    "Unable to submit request because it has an empty text parameter. Add a value to the parameter and try again.",
)


def googles(words: str) -> Any:
    """Return the answers of Google, which takes no blank part and no turn without parts."""

    def answer(body: Json) -> Sequence[Step]:
        turns = [*body["contents"], *filter(None, [body.get("systemInstruction")])]
        is_blank = any(not turn["parts"] or {"text": ""} in turn["parts"] for turn in turns)
        error = {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}
        return [Status(400, {"error": error})] if is_blank else ANSWERS["gemini"]

    return answer


@pytest.mark.parametrize(
    ("turn", "left"),
    [
        ({"role": "model", "parts": [{"text": ""}]}, []),
        ({"role": "model", "parts": []}, []),
        ({"role": "model", "parts": [{"text": ""}, CALLED]}, [{"role": "model", "parts": [CALLED]}]),
        ({"role": "user", "parts": [{"text": ""}, {"text": "!"}]}, [{"role": "user", "parts": [{"text": "!"}]}]),
    ],
)
@pytest.mark.parametrize("words", GOOGLES)
async def test_parts_of_googles_api_that_say_nothing_are_left_out_after_one_refusal(
    shared: SharedGateways, words: str, turn: Json, left: list[Json]
) -> None:
    async with shared.row(alpha=None, config={"providers": {"alpha": {"kind": "gemini"}}}) as running:
        running["alpha"].answers = googles(words)
        asked = {"contents": [ASKED, turn, ASKED], "systemInstruction": {"parts": [{"text": ""}]}}
        for sendings in (2, 3):
            path = f"/v1beta/models/{MODEL}{running.suffix}:generateContent"
            async with running.post(asked, path=path) as response:
                await response.read()
                told = response.headers.get("x-holeshot-dropped")
            assert (response.status, told) == (200, "contents[1], systemInstruction")
            sent = running.received("alpha")
            assert (len(sent), sent[-1].body["contents"]) == (sendings, [ASKED, *left, ASKED])
            assert "systemInstruction" not in sent[-1].body
