"""Google's ``computerUse`` is run by the client: its functions are called at every vendor, and stay in the history."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.app.gateway.agents.test_built_in_tools import called_at, calling_at
from tests.app.gateway.agents.test_custom_tools import calls_sent, tools_sent
from tests.app.gateway.rules.asking import FORMS, asked, running

Json = dict[str, Any]
CLICK: Json = {"x": 500, "y": 120}
COMPUTER: Json = {"computerUse": {"environment": "ENVIRONMENT_BROWSER", "excludedPredefinedFunctions": ["search"]}}
OWN: Json = {"functionDeclarations": [{"name": "run", "parameters": {"type": "OBJECT", "properties": {}}}]}
PICTURE: Json = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
FIRST: Json = {"role": "user", "parts": [{"text": "Hi"}]}


def call_in(body: bytes) -> Json:
    told = json.loads(body) if body[:1] == b"{" else [json.loads(each[6:]) for each in body.splitlines() if each]
    parts = [
        part
        for each in (told if isinstance(told, list) else [told])
        for candidate in each.get("candidates", ())
        for part in candidate.get("content", {}).get("parts", ())
    ]
    [call] = [part["functionCall"] for part in parts if "functionCall" in part]
    return dict(call)


@pytest.mark.parametrize("tools", [[COMPUTER], [COMPUTER, OWN], [{**COMPUTER, **OWN}]], ids=["alone", "beside", "in"])
@pytest.mark.parametrize("api", ["chat", "messages", "converse", "responses"])
async def test_a_click_is_called_and_answered_at_every_vendor(api: str, tools: list[Json], tmp_path: Path) -> None:
    async with running(tmp_path) as (desk, gateway):
        desk.rule = called_at(api, "click_at", CLICK)
        for stream, desk.is_whole in FORMS.values():
            body: Json = {"contents": [FIRST], "tools": tools}
            status, got = await asked(gateway, "gemini", api, stream=stream, **body)
            assert status == 200, got
            call = call_in(got)
            assert (call["name"], call["args"]) == ("click_at", CLICK)
            result = {"name": "click_at", "response": {"url": "https://example.com"}, "parts": [PICTURE]}
            answer = {"role": "user", "parts": [{"functionResponse": {**result, "id": call.get("id")}}]}
            said = {"role": "model", "parts": [{"functionCall": call}]}
            body["contents"] = [FIRST, said, answer]
            status, got = await asked(gateway, "gemini", api, stream=stream, **body)
            assert status == 200, got
            assert "iVBORw0KGgo=" in json.dumps(desk.asked[-1])
    sent = desk.asked[-1]
    if api == "responses":
        names = [each["name"] for each in sent["tools"]]
    else:
        assert calls_sent(api, sent) == [("click_at", CLICK)]
        names = [name for name, *_ in tools_sent(api, sent)]
    has_own = len(tools) > 1 or "functionDeclarations" in tools[0]
    assert ("click_at" in names, "search" in names, "run" in names) == (True, False, has_own)


async def test_another_screen_than_a_browsers_keeps_others_out(tmp_path: Path) -> None:
    async with running(tmp_path) as (desk, gateway):
        desk.rule, desk.is_whole = calling_at("chat", "run", {}), True
        tools = [{"computerUse": {"environment": "ENVIRONMENT_MOBILE"}}]
        status, got = await asked(gateway, "gemini", "chat", stream=False, contents=[FIRST], tools=tools)
        assert (status, b"computerUse" in got, desk.asked) == (400, True, [])
