"""What the request of one client teaches of a model takes nothing from those of others."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.typing import EventDict

from providers.simulator.script import Step
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.app.gateway.test_refused_fields import ANSWERS, QUESTION, refused, strictly, told

DROPPING = {"models": {MODEL: {"deployments": [{"deployment": "alpha/m", "drop_params": True}]}}}


def pydantic(message: str, *place: Any) -> dict[str, Any]:
    return {"detail": [{"type": "bool_parsing", "loc": ["body", *place], "msg": message}]}


async def test_a_wrong_value_of_strict_leaves_others_strict(serve: Serve) -> None:
    said = pydantic("Input should be a valid boolean, unable to interpret input", "tools", 0, "function", "strict")
    wrong, right = strictly("f", additionalProperties=False), strictly("g", additionalProperties=False)
    wrong["tools"][0]["function"]["strict"] = "maybe"

    def answered(body: Any) -> Sequence[Step]:
        return refused(said, 422) if body["tools"][0]["function"].get("strict") == "maybe" else ANSWERS["chat"]

    async with serve(alpha=None) as running:
        running["alpha"].answers = answered
        assert (await told(running, wrong))[0] in {400, 422}
        assert len(running["alpha"].received) == 1
        assert await told(running, right) == (200, None)
        assert running["alpha"].received[-1].body["tools"] == right["tools"]


async def test_a_wrong_value_in_a_history_leaves_others_theirs(serve: Serve) -> None:
    said = pydantic("Input should be a valid string", "messages", 1, "reasoning_content")

    def answered(body: Any) -> Sequence[Step]:
        thoughts = [each.get("reasoning_content", "") for each in body["messages"]]
        return ANSWERS["chat"] if all(isinstance(each, str) for each in thoughts) else refused(said, 422)

    def asked(thought: Any) -> dict[str, Any]:
        return {"messages": [*QUESTION, {"role": "assistant", "content": "a", "reasoning_content": thought}, *QUESTION]}

    async with serve(alpha=None) as running:
        running["alpha"].answers = answered
        assert (await told(running, asked(5)))[0] in {400, 422}
        assert len(running["alpha"].received) == 1
        assert await told(running, asked("hm")) == (200, None)
        assert running["alpha"].received[-1].body["messages"] == asked("hm")["messages"]


@pytest.mark.parametrize(
    ("said", "beside"),
    [
        ("`reasoning_effort` is not supported when `response_format` is json_object", "response_format"),
        ("Thinking is not supported when tool_choice forces a tool", "tool_choice"),
        ("temperature is not supported when thinking is enabled", "reasoning_effort"),
    ],
)
async def test_what_is_refused_beside_another_field_is_left_out_there_alone(
    serve: Serve, said: str, beside: str
) -> None:
    lost = "temperature" if said.startswith("temp") else "reasoning_effort"
    values = {
        "response_format": {"type": "json_object"},
        "tool_choice": "required",
        "reasoning_effort": "low",
        "temperature": 0.5,
    }
    both = {"messages": QUESTION, **{name: values[name] for name in (lost, beside)}}
    alone = {"messages": QUESTION, lost: values[lost]}
    async with serve(alpha=None, config=DROPPING) as running:
        running["alpha"].answers = lambda body: refused(said) if {lost, beside} <= body.keys() else ANSWERS["chat"]
        assert await told(running, both) == (200, lost)
        assert await told(running, alone) == (200, None)
        assert running["alpha"].received[-1].body[lost] == values[lost]
        assert await told(running, both) == (200, lost)
        assert len(running["alpha"].received) == 2 + 1 + 2


async def test_nobodys_name_is_in_a_fact(serve: Serve, logged: list[EventDict]) -> None:
    said = pydantic("Input should be a valid address", "user")
    async with serve(alpha=None, config=DROPPING) as running:
        running["alpha"].answers = lambda body: refused(said, 422) if "user" in body else ANSWERS["chat"]
        assert (await told(running, {"messages": QUESTION, "user": "somebody"}))[0] in {400, 422}
        async with running.get("/leaderboard") as response:
            assert "somebody" not in await response.text()
    assert "somebody" not in json.dumps([str(entry) for entry in logged if entry["event"] == "deployment.learnt"])
