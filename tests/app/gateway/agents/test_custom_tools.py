"""A tool that takes a text (Codex's apply_patch) is called at every vendor, and its calls stay in the history."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from providers import events
from tests.app.gateway.rules.asking import FORMS, RACED, Rule, Said, asked, chat, google, named, running
from tests.app.gateway.rules.table import (
    call_block,
    calling,
    chunk,
    completion,
    converse_block,
    conversed,
    message,
    message_end,
    message_start,
    parts,
    said_by_converse,
)

Json = dict[str, Any]
TEXT = '*** Begin Patch\n*** Update File: a.py\n@@\n-x = "1"\\n\n+x = "2" 😀\n*** End Patch\n'
DEFINITION = 'start: begin_patch hunk+ end_patch\nbegin_patch: "*** Begin Patch" LF'
ARGUMENTS = {"input": TEXT}
WRITTEN = json.dumps(ARGUMENTS)
PIECES = [WRITTEN[at : at + 9] for at in range(0, len(WRITTEN), 9)]
NAME = "apply_patch"


def answers() -> Mapping[str, Rule]:
    """Return a call of the function in each API, as a stream and whole."""
    call = {"id": "call_1", "type": "function", "function": {"name": NAME, "arguments": WRITTEN}}
    begun = chunk({"role": "assistant", **calling((0, "call_1", NAME, ""))})
    chunks = [begun, *(chunk(calling((0, "", "", each))) for each in PIECES), chunk(reason="tool_calls")]
    block = {"type": "tool_use", "id": "toolu_1", "name": NAME, "input": ARGUMENTS}
    told = [message_start(), *call_block(0, "toolu_1", NAME, *PIECES), *message_end("tool_use")]
    part = {"functionCall": {"name": NAME, "args": ARGUMENTS}}
    use = {"toolUseId": "tooluse_1", "name": NAME}
    pieces = [{"toolUse": {"input": each}} for each in PIECES]
    stream = said_by_converse(converse_block(0, *pieces, start={"toolUse": use}), reason="tool_use")
    whole = conversed({"toolUse": {**use, "input": ARGUMENTS}}, reason="tool_use")
    return {
        "chat": Rule(
            "", "chat", chat(*chunks), completion({"content": None, "tool_calls": [call]}, "tool_calls"), Said()
        ),
        "messages": Rule("", "messages", named(*told), message(block, reason="tool_use"), Said()),
        "gemini": Rule("", "gemini", google(parts(part, reason="STOP")), parts(part, reason="STOP"), Said()),
        "converse": Rule("", "converse", stream, whole, Said()),
    }


ANSWERS = answers()
CLIENTS: Mapping[str, Json] = {
    "responses": {
        "input": "change x",
        "tools": [
            {"type": "function", "name": "run", "parameters": {"type": "object", "properties": {}}},
            {
                "type": "custom",
                "name": NAME,
                "description": "Edits files.",
                "format": {"type": "grammar", "syntax": "lark", "definition": DEFINITION},
            },
        ],
        "tool_choice": {"type": "custom", "name": NAME},
    },
    "chat": {
        "messages": [{"role": "user", "content": "change x"}],
        "tools": [
            {"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}},
            {
                "type": "custom",
                "custom": {
                    "name": NAME,
                    "description": "Edits files.",
                    "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": DEFINITION}},
                },
            },
        ],
        "tool_choice": {"type": "custom", "custom": {"name": NAME}},
    },
}


def called(client: str, body: bytes, *, stream: bool) -> list[tuple[str, str, str]]:
    """Return the calls in what a client got: their kinds, names and texts. The deltas of a stream say the same."""
    told = [json.loads(each.data) for each in events(body) if each.data and each.data != b"[DONE]"] if stream else []
    if client == "responses":
        output = told[-1]["response"]["output"] if stream else json.loads(body)["output"]
        found = [(item["type"], item["name"], item["input"]) for item in output]
        if stream:
            kind = "response.custom_tool_call_input"
            assert "".join(each["delta"] for each in told if each["type"] == f"{kind}.delta") == found[0][2]
            assert [each["input"] for each in told if each["type"] == f"{kind}.done"] == [found[0][2]]
        return found
    if not stream:
        calls = json.loads(body)["choices"][0]["message"]["tool_calls"]
        return [(call["type"], call["custom"]["name"], call["custom"]["input"]) for call in calls]
    pieces = [call for each in told for one in each["choices"] for call in one["delta"].get("tool_calls", ())]
    ends = [one["finish_reason"] for each in told for one in each["choices"] if one["finish_reason"]]
    assert (ends, {each["index"] for each in pieces}) == (["tool_calls"], {0})
    text = "".join(each["custom"].get("input", "") for each in pieces)
    return [(pieces[0]["type"], pieces[0]["custom"]["name"], text)]


def tools_sent(api: str, sent: Json) -> Sequence[tuple[str, str, Json]]:
    """Return the tools that a provider was offered: name, description and schema."""
    if api == "chat":
        assert {each["type"] for each in sent["tools"]} == {"function"}
        found = [each["function"] for each in sent["tools"]]
        return [(each["name"], each.get("description", ""), each["parameters"]) for each in found]
    if api == "messages":
        return [(each["name"], each.get("description", ""), each["input_schema"]) for each in sent["tools"]]
    if api == "gemini":
        found = [each for tool in sent["tools"] for each in tool["functionDeclarations"]]
        return [
            (each["name"], each.get("description", ""), each.get("parametersJsonSchema") or each.get("parameters", {}))
            for each in found
        ]
    found = [each["toolSpec"] for each in sent["toolConfig"]["tools"]]
    return [(each["name"], each.get("description", ""), each["inputSchema"]["json"]) for each in found]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("api", ANSWERS)
async def test_its_call_is_the_same_in_every_form_at_every_vendor(api: str, client: str, tmp_path: Path) -> None:
    kind = "custom" if client == "chat" else "custom_tool_call"
    async with running(tmp_path) as (desk, gateway):
        desk.rule = ANSWERS[api]
        for form in (*FORMS, RACED):
            stream, desk.is_whole = FORMS.get(form, FORMS["streamed"])
            desk.is_slow = form == RACED
            model = f"{api}-{RACED}" if form == RACED else api
            status, body = await asked(gateway, client, model, stream=stream, **CLIENTS[client])
            assert status == 200, body
            assert called(client, body, stream=stream) == [(kind, NAME, TEXT)], form
    (other, *_), (name, about, schema) = tools_sent(api, desk.asked[-1])
    assert (other, name) == ("run", NAME)
    assert "Edits files." in about
    assert DEFINITION in about
    assert schema["properties"]["input"]["type"].lower() == "string"
    assert schema["required"] == ["input"]


HISTORY: Mapping[str, Json] = {
    "responses": {
        "input": [
            {"role": "user", "content": "change x"},
            {"type": "custom_tool_call", "call_id": "call_1", "name": NAME, "input": TEXT},
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Success: a.py"},
            {"role": "user", "content": "and now?"},
        ]
    },
    "chat": {
        "messages": [
            {"role": "user", "content": "change x"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": NAME, "input": TEXT}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "Success: a.py"},
            {"role": "user", "content": "and now?"},
        ]
    },
}


def calls_sent(api: str, sent: Json) -> list[tuple[str, Any]]:
    """Return the calls in the history that a provider was sent."""
    if api == "chat":
        calls = [call["function"] for each in sent["messages"] for call in each.get("tool_calls", ())]
        return [(call["name"], json.loads(call["arguments"])) for call in calls]
    if api == "gemini":
        said = [part["functionCall"] for each in sent["contents"] for part in each["parts"] if "functionCall" in part]
        return [(call["name"], call["args"]) for call in said]
    blocks = [block for each in sent["messages"] if isinstance(each["content"], list) for block in each["content"]]
    if api == "messages":
        return [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    return [(block["toolUse"]["name"], block["toolUse"]["input"]) for block in blocks if "toolUse" in block]


@pytest.mark.parametrize("client", HISTORY)
@pytest.mark.parametrize("api", ANSWERS)
async def test_its_earlier_call_and_the_result_are_sent_to_every_vendor(api: str, client: str, tmp_path: Path) -> None:
    async with running(tmp_path) as (desk, gateway):
        desk.rule = ANSWERS[api]
        offered = {name: value for name, value in CLIENTS[client].items() if name != "tool_choice"}
        status, body = await asked(gateway, client, api, stream=True, **{**offered, **HISTORY[client]})
        assert status == 200, body
    (sent,) = desk.asked
    assert calls_sent(api, sent) == [(NAME, ARGUMENTS)]
    assert "Success: a.py" in json.dumps(sent)


async def test_openai_is_sent_the_tool_as_it_is(tmp_path: Path) -> None:
    async with running(tmp_path) as (desk, gateway):
        call = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_1", "name": NAME, "input": TEXT}
        whole = {"id": "resp_1", "object": "response", "status": "completed", "output": [call], "model": "m"}
        desk.rule, desk.is_whole = Rule("", "responses", b"", whole, Said()), True
        for client, body in CLIENTS.items():
            status, got = await asked(gateway, client, "responses", stream=False, **body)
            assert (status, called(client, got, stream=False)[0][1:]) == (200, (NAME, TEXT))
            assert desk.asked[-1]["tools"][1] == CLIENTS["responses"]["tools"][1]
            assert desk.asked[-1]["tool_choice"] == CLIENTS["responses"]["tool_choice"]


async def test_pictures_that_are_only_offered_keep_nobody_out_and_are_told(tmp_path: Path) -> None:
    run, pictures = CLIENTS["responses"]["tools"][0], {"type": "image_generation", "output_format": "png"}
    async with running(tmp_path) as (desk, gateway):
        desk.rule, desk.is_whole = ANSWERS["messages"], True
        body = {"model": "messages", "input": "Hi", "tools": [run, pictures]}
        async with gateway.post(body, path="/v1/responses") as response:
            assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "tools[1]")
        assert [each["name"] for each in desk.asked[-1]["tools"]] == ["run"]
        for more in ({"tools": [pictures]}, {"tool_choice": {"type": "image_generation"}}):
            async with gateway.post({**body, **more}, path="/v1/responses") as response:
                assert response.status == 400


FOUND = {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}, "defer_loading": True}
DOCS = {"type": "namespace", "name": "mcp__docs", "description": "docs", "tools": [FOUND]}
SEARCH = {"type": "tool_search", "execution": "client", "description": "Searches.", "parameters": FOUND["parameters"]}
QUERY = {"query": "docs"}


def calling_in(api: str, name: str, arguments: Json) -> Rule:
    """Return a call in each API, whole: retold as a stream where the client streams."""
    written = json.dumps(arguments)
    calls = [{"id": "call_1", "type": "function", "function": {"name": name, "arguments": written}}]
    whole = {
        "chat": completion({"content": None, "tool_calls": calls}, "tool_calls"),
        "messages": message({"type": "tool_use", "id": "t1", "name": name, "input": arguments}, reason="tool_use"),
        "gemini": parts({"functionCall": {"name": name, "args": arguments}}, reason="STOP"),
        "converse": conversed({"toolUse": {"toolUseId": "t1", "name": name, "input": arguments}}, reason="tool_use"),
    }
    return Rule("", api, b"", whole[api], Said())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", ANSWERS)
async def test_a_search_that_the_client_runs_and_what_it_found_are_called_everywhere(
    api: str, stream: bool, tmp_path: Path
) -> None:
    asks: Json = {"input": "Hi", "tools": [CLIENTS["responses"]["tools"][0], SEARCH]}
    async with running(tmp_path) as (desk, gateway):
        desk.rule, desk.is_whole = calling_in(api, "tool_search", QUERY), True
        status, body = await asked(gateway, "responses", api, stream=stream, **asks)
        assert status == 200, body
        told = [json.loads(each.data) for each in events(body) if each.data] if stream else []
        (call,) = (told[-1]["response"] if stream else json.loads(body))["output"]
        assert (call["type"], call["execution"], call["arguments"]) == ("tool_search_call", "client", QUERY)
        output = {"type": "tool_search_output", "call_id": call["call_id"], "execution": "client", "tools": [DOCS]}
        later = {**asks, "input": [{"role": "user", "content": "Hi"}, call, output]}
        desk.rule = calling_in(api, "mcp__docs__find", {})
        status, body = await asked(gateway, "responses", api, stream=stream, **later)
        assert status == 200, body
        told = [json.loads(each.data) for each in events(body) if each.data] if stream else []
        (called_,) = (told[-1]["response"] if stream else json.loads(body))["output"]
        assert (called_["type"], called_.get("namespace"), called_["name"]) == ("function_call", "mcp__docs", "find")
    assert calls_sent(api, desk.asked[-1]) == [("tool_search", QUERY)]
    assert [each[0] for each in tools_sent(api, desk.asked[-1])] == ["run", "tool_search", "mcp__docs__find"]
