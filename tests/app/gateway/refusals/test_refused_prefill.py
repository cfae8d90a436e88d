"""A model that does not continue an answer which the request begins is asked to by the user, and its client is told."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from providers.simulator import Step
from tests.app.gateway.refusals.test_refused_fields import ANSWERS, refused
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

Json = dict[str, Any]
WORDS = {
    "messages": "This model does not support assistant message prefill. The conversation must end with a user message.",
    "chat": "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant",
}
PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions"}
QUESTION: Json = {"role": "user", "content": "Name three colours as JSON."}
BEGUN: Json = {"role": "assistant", "content": '{"colours": ['}
IN_PARTS: Json = {"role": "assistant", "content": [{"type": "text", "text": '{"colours": ['}]}
AT: Json = {api: {"providers": {"alpha": {"apis": [api]}}} for api in WORDS}


def server(api: str) -> Any:
    """Return the answers of one that continues nothing."""

    def answer(body: Json) -> Sequence[Step]:
        return refused(WORDS[api]) if body["messages"][-1]["role"] == "assistant" else ANSWERS[api]

    return answer


async def said(running: RunningGateway, api: str, *turns: Json, stream: bool = False) -> tuple[int, str]:
    """Return the status of a call, and what its client is told."""
    body = {"model": MODEL, "max_tokens": 99, "messages": [QUESTION, *turns], "stream": stream}
    async with running.post(body, path=PATHS[api]) as response:
        await response.read()
        return response.status, response.headers.get("x-holeshot-dropped", "")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("begun", [BEGUN, IN_PARTS], ids=["text", "parts"])
@pytest.mark.parametrize("api", WORDS)
async def test_it_is_asked_to_go_on_after_one_refusal(serve: Serve, api: str, begun: Json, stream: bool) -> None:
    async with serve(alpha=None, config=AT[api]) as running:
        running["alpha"].answers = server(api)
        for sendings in (2, 3, 4):
            assert await said(running, api, begun, stream=stream) == (200, "messages[1]")
            sent = running["alpha"].received
            assert len(sent) == sendings
            *before, asks = sent[-1].body["messages"]
            assert (json.dumps(before[-1]), asks["role"]) == (json.dumps(begun), "user")
        # Who begins no answer is asked as ever.
        assert await said(running, api, stream=stream) == (200, "")
        assert running["alpha"].received[-1].body["messages"] == [QUESTION]


@pytest.mark.parametrize("api", WORDS)
async def test_who_continues_is_sent_what_was_begun_and_no_more(serve: Serve, api: str) -> None:
    async with serve(alpha=None, config=AT[api]) as running:
        running["alpha"].answers = lambda _: ANSWERS[api]
        assert await said(running, api, BEGUN) == (200, "")
        assert running["alpha"].received[-1].body["messages"] == [QUESTION, BEGUN]


CALL: Json = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
SAYING: Json = {**CALL, "input": {"role": "assistant"}}
TOOLS: Json = {
    "max_tokens": 99,
    "messages": [
        QUESTION,
        {"role": "assistant", "content": [SAYING]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}]},
    ],
}


async def test_of_a_family_that_continues_nothing_this_is_known_before_a_refusal(serve: Serve) -> None:
    """Models and Vertex AI's names of them; who continues comes first."""
    config = {"providers": {name: {"apis": ["messages"]} for name in ("alpha", "beta")}}
    models: Json = {
        MODEL: {"deployments": ["alpha/claude-opus-5-5", "alpha/anthropic/claude-sonnet-4-6@20260101"]},
        "mixed": {"deployments": ["alpha/claude-opus-5-5", "beta/claude-haiku-4-5"]},
    }
    models |= {name: {**each, "race": {"mode": "single"}} for name, each in models.items()}
    async with serve(alpha=None, beta=None, config={**config, "models": models}) as running:
        running["alpha"].answers, running["beta"].answers = server("messages"), lambda _: ANSWERS["messages"]
        for begun in (BEGUN, IN_PARTS):
            for stream in (False, True):
                assert await said(running, "messages", begun, stream=stream) == (200, "messages[1]")
                before, asks = running["alpha"].received[-1].body["messages"][-2:]
                assert (before, asks["role"]) == (begun, "user")
        assert len(running["alpha"].received) == 4
        # Who begins none is asked as ever, whatever a call says.
        async with running.post({"model": MODEL, **TOOLS}, path=PATHS["messages"]) as response:
            assert (response.status, response.headers.get("x-holeshot-dropped")) == (200, None)
        assert running["alpha"].received[-1].body["messages"] == TOOLS["messages"]
        body = {"model": "mixed", "max_tokens": 99, "messages": [QUESTION, BEGUN]}
        async with running.post(body, path=PATHS["messages"]) as response:
            assert (response.status, response.headers.get("x-holeshot-dropped")) == (200, None)
        assert [each.body["messages"][-1] for each in running["beta"].received] == [BEGUN]


async def test_a_call_without_its_result_is_no_beginning(serve: Serve) -> None:
    async with serve(alpha=refused(WORDS["messages"]), config=AT["messages"]) as running:
        assert await said(running, "messages", {"role": "assistant", "content": [CALL]}) == (400, "")
        assert len(running["alpha"].received) == 1
