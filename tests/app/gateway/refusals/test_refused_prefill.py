"""A model that does not continue an answer which the request begins is asked to by the user, and its client is told."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from providers.simulator.script import Step
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


async def test_a_call_without_its_result_is_no_beginning(serve: Serve) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
    async with serve(alpha=refused(WORDS["messages"]), config=AT["messages"]) as running:
        assert await said(running, "messages", {"role": "assistant", "content": [call]}) == (400, "")
        assert len(running["alpha"].received) == 1
