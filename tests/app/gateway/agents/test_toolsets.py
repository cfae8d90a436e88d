"""Anthropic's computer and browser toolsets are called and answered at every vendor, whole, streamed and raced."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.app.gateway.agents.test_built_in_tools import called_at, used
from tests.app.gateway.agents.test_custom_tools import calls_sent, tools_sent
from tests.app.gateway.rules.asking import FORMS, RACED, asked, running

Json = dict[str, Any]
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
TABS = {"type": "browser_state", "tabs": [{"tab_id": "t1", "title": "Weather", "url": "https://w.example/"}]}


class Toolset(NamedTuple):
    """A toolset, the function that a vendor calls, what its client gets, and what it answers."""

    tool: Json
    function: str
    call: Json
    result: list[Json]
    told: str


TOOLSETS: Mapping[str, Toolset] = {
    "computer": Toolset(
        {"type": "computer_toolset_20260801"},
        "computer_left_click",
        {"name": "left_click", "toolset_name": "computer", "input": {"coordinate": [12, 34]}},
        [PICTURE],
        "iVBORw0KGgo=",
    ),
    "browser": Toolset(
        {"type": "browser_toolset_20260801", "configs": {"zoom": {"enabled": False}}},
        "browser_left_click",
        {"name": "left_click", "toolset_name": "browser", "input": {"target": {"type": "ref", "ref": "ref_7"}}},
        [{"type": "text", "text": "Clicked."}, TABS],
        "Weather",
    ),
}


@pytest.mark.parametrize("api", ["chat", "gemini", "converse", "responses"])
@pytest.mark.parametrize("name", TOOLSETS)
async def test_a_member_is_called_and_answered_at_every_vendor(name: str, api: str, tmp_path: Path) -> None:
    toolset = TOOLSETS[name]
    first: Json = {"role": "user", "content": "Hi"}
    plain = {"name": "left_click", "input_schema": {"type": "object", "properties": {}}}
    async with running(tmp_path) as (desk, gateway):
        desk.rule = called_at(api, toolset.function, toolset.call["input"])
        for form in (*FORMS, RACED):
            stream, desk.is_whole = FORMS.get(form, FORMS["streamed"])
            model = f"{api}-{RACED}" if form == RACED else api
            body: Json = {"messages": [first], "tools": [plain, toolset.tool], "thinking": {"type": "disabled"}}
            status, got = await asked(gateway, "messages", model, stream=stream, **body)
            assert status == 200, got
            use = used(got, stream=stream)
            assert {field: use.get(field) for field in toolset.call} == toolset.call, form
            result = {"type": "tool_result", "tool_use_id": use["id"], "content": toolset.result}
            result["toolset_name"] = use["toolset_name"]
            body["messages"] = [first, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
            status, got = await asked(gateway, "messages", model, stream=stream, **body)
            assert status == 200, got
            assert toolset.told in json.dumps(desk.asked[-1])
    sent = desk.asked[-1]
    if api == "responses":
        (call,) = [each for each in sent["input"] if each.get("type") == "function_call"]
        assert (call["name"], json.loads(call["arguments"])) == (toolset.function, toolset.call["input"])
        offered = {each["name"]: each["parameters"] for each in sent["tools"]}
    else:
        assert calls_sent(api, sent) == [(toolset.function, toolset.call["input"])]
        offered = {called: schema for called, _, schema in tools_sent(api, sent)}
    assert {*toolset.call["input"]} <= {*offered[toolset.function]["properties"]}
    assert "left_click" in offered
