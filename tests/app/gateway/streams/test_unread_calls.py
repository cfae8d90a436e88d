"""A call that its vendor could not read is no good end: an answer that says nothing else has failed.

Behind a text, a call that the model has written badly is an error to clients of another API.
"""

import asyncio
import json
from typing import Any

import pytest

from providers.simulator import Delta, Done, Gate, JsonEvent, Raw, RoleOnly, Step, answer
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]
ENDS: dict[str, Json] = {
    "Google's chat": {"finish_reason": "function_call_filter: MALFORMED_FUNCTION_CALL"},
    "others": {"finish_reason": "malformed_function_call"},
    "OpenRouter": {"finish_reason": "stop", "native_finish_reason": "MALFORMED_FUNCTION_CALL"},
    "another word": {"finish_reason": "stop", "native_finish_reason": "UNEXPECTED_TOOL_CALL"},
}


def ended(text: str = "", thought: str = "", **end: Any) -> list[Step]:
    """Return the stream of a chat that thinks, says ``text``, and ends so."""

    def chunk(delta: Json, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": None, **more}
        return f"data: {json.dumps({'id': 'c', 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"

    deltas = [{"role": "assistant", "content": ""}, {"reasoning_content": thought}, {"content": text}]
    said = [chunk(each) for each in deltas if any(each.values())]
    return [Raw("".join([*said, chunk({}, **end), "data: [DONE]\n\n"]).encode(), token=True)]


ASKED: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    "messages": ("/v1/messages", {"max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}]}),
    "responses": ("/v1/responses", {"input": "Hi"}),
}
MISWRITTEN = {name: end for name, end in ENDS.items() if name != "another word"}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("thought", ["", "hm"], ids=["at once", "after thoughts"])
@pytest.mark.parametrize("end", ENDS)
async def test_another_is_asked_and_alone_nobody_is_told_of_a_good_end(
    shared: SharedGateways, end: str, thought: str, *, stream: bool
) -> None:
    steps = ended(thought=thought, **ENDS[end])
    models: Json = {
        MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single"}},
        "alone": {"deployments": ["alpha/m"]},
    }
    async with shared.row(alpha=steps, beta=answer("right"), config={"models": models}) as running:
        running.prefer("alpha", "beta")
        for path, body in ASKED.values():
            async with running.post(
                {"model": "alone" + running.suffix, "stream": stream, **body}, path=path
            ) as response:
                text = await response.text()
            good = ('"finish_reason":"stop"', '"stop_reason":"end_turn"', "response.completed", '"status":"completed"')
            assert response.status != 200 or not any(each in text for each in good)
            if not (stream and thought):  # the client has the thoughts already
                async with running.post(
                    {"model": MODEL + running.suffix, "stream": stream, **body}, path=path
                ) as response:
                    assert "right" in await response.text()


@pytest.mark.parametrize("end", ENDS)
async def test_behind_a_text_its_own_clients_are_told_of_it_as_it_is(serve: Serve, end: str) -> None:
    async with serve(alpha=ended("Well", **ENDS[end])) as running:
        path, body = ASKED["chat"]
        async with running.post({"model": MODEL, **body}, path=path) as response:
            [choice] = (await response.json())["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Well", ENDS[end]["finish_reason"])


async def test_behind_a_text_a_call_that_was_not_offered_is_the_end_of_that(serve: Serve) -> None:
    async with serve(alpha=ended("Well", **ENDS["another word"])) as running:
        for path, body in ASKED.values():
            async with running.post({"model": MODEL, **body}, path=path) as response:
                assert (response.status, "Well" in await response.text()) == (200, True)


FAILED = {
    "messages": "event: error",
    "responses": "event: error",
    "gemini": '{"error":{"code":500,',
}


def asked(client: str, model: str, *, stream: bool) -> tuple[Json, str]:
    """Return a client's request and its path."""
    if client == "gemini":
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return {"contents": [{"parts": [{"text": "Hi"}]}]}, f"/v1beta/models/{model}:{verb}"
    path, body = ASKED[client]
    return {"model": model, "stream": stream, **body}, path


@pytest.mark.parametrize("end", MISWRITTEN)
@pytest.mark.parametrize("client", FAILED)
async def test_behind_a_text_another_is_asked_and_alone_clients_of_another_api_are_told_of_an_error(
    serve: Serve, client: str, end: str
) -> None:
    models: Json = {
        MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single"}},
        "alone": {"deployments": ["alpha/m"]},
    }
    steps = ended("Well", **MISWRITTEN[end])
    async with serve(alpha=steps, beta=answer("right"), config={"models": models}) as running:
        running.prefer("alpha", "beta")
        body, path = asked(client, "alone", stream=False)
        async with running.post(body, path=path) as response:
            assert (response.status, "Well" in await response.text()) == (502, False)
        body, path = asked(client, MODEL, stream=False)
        async with running.post(body, path=path) as response:
            assert (response.status, "right" in await response.text()) == (200, True)


@pytest.mark.parametrize("end", MISWRITTEN)
@pytest.mark.parametrize("client", FAILED)
async def test_behind_a_text_that_a_client_of_another_api_has_it_is_an_error_at_which_programs_ask_again(
    serve: Serve, client: str, end: str
) -> None:
    has_text = asyncio.Event()
    last = JsonEvent({"choices": [{"index": 0, "delta": {}, **MISWRITTEN[end]}]})
    steps = [RoleOnly(), Delta("Well"), Gate(has_text), last, Done()]
    async with serve(alpha=steps, beta=answer("right")) as running:
        running.prefer("alpha", "beta")
        body, path = asked(client, MODEL, stream=True)
        async with running.post(body, path=path) as response:
            told = b""
            while b"Well" not in told:
                told += await response.content.readany()
            has_text.set()
            told += await response.read()
    assert response.status == 200
    assert FAILED[client].encode() in told
    assert not any(each in told for each in (b"right", b"end_turn", b"response.completed", b"STOP"))
