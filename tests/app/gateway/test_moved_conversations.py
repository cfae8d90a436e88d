"""A conversation goes on at another provider, key or deployment than that which gave the earlier turns."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from providers.simulator.script import Raw, Status, Step, answer
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.app.gateway.test_dialects import RESPONSE_BYTES, speaking

UNREADABLE = Status(
    400,
    {
        "error": {
            "message": "The encrypted content enc... could not be verified.",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_encrypted_content",
        }
    },
)
REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "made elsewhere"}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    REASONING,
    {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
    {"role": "user", "content": "more"},
]


def reads(*, own: bool) -> Callable[[Any], Sequence[Step]]:
    """Return a provider that answers, and refuses reasoning unless it is its ``own``."""
    return lambda body: [UNREADABLE] if REASONING in body["input"] and not own else [Raw(RESPONSE_BYTES, token=True)]


@pytest.mark.parametrize("mode", ["single", "auto", "race"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_reasoning_that_nobody_can_read_is_left_out_and_told(serve: Serve, mode: str, stream: bool) -> None:
    config = {
        "providers": {name: speaking("responses") for name in ("alpha", "beta")},
        "models": {MODEL: {"race": {"mode": mode}}},
    }
    body = {"model": MODEL, "input": CONVERSATION, "store": False, "stream": stream}
    async with serve(alpha=None, beta=None, config=config) as running:
        for name in ("alpha", "beta"):
            running[name].answers = reads(own=False)
        async with running.post(body, path="/v1/responses") as response:
            answered = await response.read()
        rows = await running.rows("select outcome, error_kind from attempts order by number")
    assert (response.status, b"Hello" in answered or not stream) == (200, True)
    assert response.headers["x-holeshot-dropped"] == "input[1]"
    assert [row["error_kind"] for row in rows] == ["bad_request", "bad_request", None]
    sent = [each.body["input"] for name in ("alpha", "beta") for each in running[name].received]
    [without] = [each for each in sent if REASONING not in each]
    assert without == [{k: v for k, v in item.items() if k != "id"} for item in CONVERSATION if item is not REASONING]


@pytest.mark.parametrize("mode", ["single", "auto", "race"])
async def test_the_deployment_that_can_read_the_reasoning_answers(serve: Serve, mode: str) -> None:
    config = {
        "providers": {name: speaking("responses") for name in ("alpha", "beta", "gamma")},
        "models": {MODEL: {"race": {"mode": mode}}},
    }
    async with serve(alpha=None, beta=None, gamma=None, config=config) as running:
        running.prefer("alpha", "beta", "gamma")
        for name in ("alpha", "beta", "gamma"):
            running[name].answers = reads(own=name == "gamma")
        body = {"model": MODEL, "input": CONVERSATION, "store": False, "stream": True}
        async with running.post(body, path="/v1/responses") as response:
            await response.read()
    assert (response.status, response.headers["x-holeshot-provider"]) == (200, "gamma")
    assert "x-holeshot-dropped" not in response.headers


SYSTEMS = [
    {"role": "system", "content": "You are an agent."},
    {"role": "developer", "content": "Rules of the sandbox."},
    {"role": "user", "content": "Hi"},
]


async def test_a_server_that_refuses_the_order_of_roles_is_asked_once_more_and_then_at_once_as_it_wants(
    serve: Serve,
) -> None:
    def template(body: Any) -> Sequence[Step]:
        roles = [message["role"] for message in body["messages"]]
        says = {"error": {"message": "System message must be at the beginning."}}
        return answer("Hello") if roles == ["system", "user"] else [Status(400, says)]

    async with serve(alpha=None) as running:
        running["alpha"].answers = template
        for sendings in (2, 3):
            async with running.post({"model": MODEL, "messages": SYSTEMS}) as response:
                assert response.status == 200
            assert len(running["alpha"].received) == sendings
    assert running["alpha"].received[-1].body["messages"][0]["content"] == "You are an agent.\n\nRules of the sandbox."


async def test_another_400_is_not_asked_again(serve: Serve) -> None:
    async with serve(alpha=[Status(400, {"error": {"message": "the prompt is too long"}})]) as running:
        async with running.post({"model": MODEL, "messages": SYSTEMS}) as response:
            assert response.status == 400
        assert len(running["alpha"].received) == 1


async def test_an_operator_says_beforehand_what_a_server_takes(serve: Serve) -> None:
    ids = {"chat": {"longest": 9, "shortest": 9, "letters": "alphanumeric"}}
    config = {"providers": {"alpha": {"history": {"one_system": True, "call_ids": ids}}}}
    function = {"name": "f", "arguments": "{}"}
    called = {"role": "assistant", "tool_calls": [{"id": "call_abcdef", "type": "function", "function": function}]}
    history = [*SYSTEMS, called, {"role": "tool", "tool_call_id": "call_abcdef", "content": "rain"}]
    async with serve(alpha=None, config=config) as running:
        async with running.post({"model": MODEL, "messages": history}) as response:
            assert response.status == 200
        [received] = running["alpha"].received
    roles = [message["role"] for message in received.body["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]
    call_id = received.body["messages"][3]["tool_call_id"]
    assert (len(call_id), received.body["messages"][2]["tool_calls"][0]["id"]) == (9, call_id)
