"""Tools of OpenAI's and Anthropic's that the client runs are called at every vendor, and stay in the history."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from providers import events
from tests.app.gateway.agents.test_custom_tools import calls_sent, tools_sent
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
VENDORS = ("chat", "messages", "gemini", "converse")
PICTURE = "data:image/png;base64,iVBORw0KGgo="
RUN = {"type": "function", "name": "run", "parameters": {"type": "object", "properties": {}}}


class Kind(NamedTuple):
    """A tool without a name, what its function is called with, and the item that its client gets and answers."""

    tool: Json
    name: str
    arguments: Json
    item: Json
    output: Json
    told: str  # of the output, at every vendor


_UPDATE = {"type": "update_file", "path": "a.py", "diff": '@@\n-x = "1"\n+x = "2" 😀\n'}
_CLICK = {"type": "click", "x": 3, "y": 4, "button": "left"}
_SCREEN = {"type": "computer_screenshot", "image_url": PICTURE}
_SHELL = {"commands": ["ls -a", "pwd"], "timeout_ms": 1000}
_OF_SHELL = {
    "type": "shell_call",
    "action": {**_SHELL, "max_output_length": None},
    "environment": {"type": "local"},
}
_RAN: Json = {
    "type": "shell_call_output",
    "max_output_length": 100,
    "output": [
        {"stdout": "a.py\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
        {"stdout": "", "stderr": "no such\n", "outcome": {"type": "exit", "exit_code": 2}},
        {"stdout": "slow", "stderr": "", "outcome": {"type": "timeout"}},
    ],
}
_RAN_TOLD = "a.py\nno such\n[exit code 2]\nslow\n[timed out]"
_EXEC = {"command": ["ls", "-a"], "working_directory": "/repo"}
KINDS: Mapping[str, Kind] = {
    "shell": Kind({"type": "shell", "environment": {"type": "local"}}, "shell", _SHELL, _OF_SHELL, _RAN, _RAN_TOLD),
    "shell, anywhere": Kind({"type": "shell"}, "shell", _SHELL, _OF_SHELL, _RAN, _RAN_TOLD),
    "local_shell": Kind(
        {"type": "local_shell"},
        "local_shell",
        _EXEC,
        {"type": "local_shell_call", "action": {"type": "exec", "env": {}, **_EXEC}},
        {"type": "local_shell_call_output", "output": "a.py"},
        "a.py",
    ),
    "apply_patch": Kind(
        {"type": "apply_patch"},
        "apply_patch",
        _UPDATE,
        {"type": "apply_patch_call", "operation": _UPDATE},
        {"type": "apply_patch_call_output", "status": "completed", "output": "Changed a.py"},
        "Changed a.py",
    ),
    "apply_patch, failed": Kind(
        {"type": "apply_patch"},
        "apply_patch",
        _UPDATE,
        {"type": "apply_patch_call", "operation": _UPDATE},
        {"type": "apply_patch_call_output", "status": "failed", "output": "No such line"},
        "No such line",
    ),
    "computer": Kind(
        {"type": "computer"},
        "computer",
        {"actions": [_CLICK, {"type": "wait"}]},
        {"type": "computer_call", "actions": [_CLICK, {"type": "wait"}], "pending_safety_checks": []},
        {"type": "computer_call_output", "output": _SCREEN, "acknowledged_safety_checks": []},
        "iVBORw0KGgo=",
    ),
    "computer_use_preview": Kind(
        {"type": "computer_use_preview", "display_width": 800, "display_height": 600, "environment": "browser"},
        "computer",
        _CLICK,
        {"type": "computer_call", "action": _CLICK, "pending_safety_checks": []},
        {"type": "computer_call_output", "output": _SCREEN},
        "iVBORw0KGgo=",
    ),
}


def calling_at(api: str, name: str, arguments: Json) -> Rule:
    """Return a call of a function in an API, as a stream in pieces and whole."""
    written = json.dumps(arguments)
    pieces = [written[at : at + 9] for at in range(0, len(written), 9)]
    block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments}
    part = parts({"functionCall": {"name": name, "args": arguments}}, reason="STOP")
    use = {"toolUseId": "tooluse_1", "name": name}
    match api:
        case "chat":
            begun = chunk({"role": "assistant", **calling((0, "call_1", name, ""))})
            told = [begun, *(chunk(calling((0, "", "", each))) for each in pieces), chunk(reason="tool_calls")]
            call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": written}}
            whole = completion({"content": None, "tool_calls": [call]}, "tool_calls")
            return Rule("", api, chat(*told), whole, Said())
        case "messages":
            said = [message_start(), *call_block(0, "toolu_1", name, *pieces), *message_end("tool_use")]
            return Rule("", api, named(*said), message(block, reason="tool_use"), Said())
        case "gemini":
            return Rule("", api, google(part), part, Said())
    blocks = converse_block(0, *({"toolUse": {"input": each}} for each in pieces), start={"toolUse": use})
    body = conversed({"toolUse": {**use, "input": arguments}}, reason="tool_use")
    return Rule("", api, said_by_converse(blocks, reason="tool_use"), body, Said())


def item_in(body: bytes, *, stream: bool) -> Json:
    """Return the one item of an answer; in a stream it begins empty, and ends as it is in the answer."""
    if not stream:
        (item,) = json.loads(body)["output"]
        return dict(item)
    told = [json.loads(each.data) for each in events(body) if each.data]
    (item,) = told[-1]["response"]["output"]
    (begun,) = [each["item"] for each in told if each["type"] == "response.output_item.added"]
    (ended,) = [each["item"] for each in told if each["type"] == "response.output_item.done"]
    assert (begun["type"], begun["id"], begun["status"]) == (item["type"], item["id"], "in_progress")
    assert ended == item
    if item["type"] == "shell_call":
        lines = [each["command"] for each in told if each["type"] == "response.shell_call_command.done"]
        assert lines == item["action"]["commands"]
    return dict(item)


@pytest.mark.parametrize("api", VENDORS)
@pytest.mark.parametrize("name", KINDS)
async def test_a_tool_of_openais_is_called_and_answered_at_every_vendor(name: str, api: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    first = [{"role": "user", "content": "Hi"}]
    async with running(tmp_path) as (desk, gateway):
        desk.rule = calling_at(api, kind.name, kind.arguments)
        for form in FORMS if name == "shell, anywhere" else (*FORMS, RACED):  # which may be one of OpenAI's
            stream, desk.is_whole = FORMS.get(form, FORMS["streamed"])
            desk.is_slow = form == RACED
            model = f"{api}-{RACED}" if form == RACED else api
            body: Json = {"input": first, "tools": [RUN, kind.tool]}
            status, got = await asked(gateway, "responses", model, stream=stream, **body)
            assert status == 200, got
            item = item_in(got, stream=stream)
            assert {field: item[field] for field in kind.item} == kind.item, form
            assert item["status"] == "completed"
            output = {"call_id": item["call_id"], **kind.output}
            body["input"] = [*first, item, output, {"role": "user", "content": "and now?"}]
            status, got = await asked(gateway, "responses", model, stream=stream, **body)
            assert status == 200, got
            assert calls_sent(api, desk.asked[-1]) == [(kind.name, kind.arguments)]
            assert json.dumps(kind.told, ensure_ascii=False)[1:-1] in json.dumps(desk.asked[-1], ensure_ascii=False)
    (other, *_), (own, about, schema) = tools_sent(api, desk.asked[-1])
    assert (other, own, bool(about)) == ("run", kind.name, True)
    assert {*kind.arguments} <= {*schema["properties"]}


@pytest.mark.parametrize("api", VENDORS)
async def test_one_that_is_demanded_is_demanded_everywhere(api: str, tmp_path: Path) -> None:
    async with running(tmp_path) as (desk, gateway):
        desk.rule, desk.is_whole = calling_at(api, "shell", _SHELL), True
        for choice in (
            {"type": "shell"},
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "shell"}]},
        ):
            body: Json = {"input": "Hi", "tools": [RUN, KINDS["shell"].tool], "tool_choice": choice}
            status, got = await asked(gateway, "responses", api, stream=False, **body)
            assert (status, item_in(got, stream=False)["type"]) == (200, "shell_call"), got
        assert '"shell"' in json.dumps(desk.asked[0].get("tool_choice", desk.asked[0].get("toolConfig")))


@pytest.mark.parametrize("api", VENDORS)
async def test_what_openai_has_run_stays_in_the_history(api: str, tmp_path: Path) -> None:
    """Its own shell cannot be had elsewhere, and keeps others out only while it is offered."""
    where = {"type": "container_reference", "container_id": "cntr_1"}
    ran = [
        {"id": "sh_1", **_OF_SHELL, "call_id": "call_1", "status": "completed", "environment": where},
        {"id": "sho_1", **_RAN, "call_id": "call_1", "status": "completed"},
    ]
    body: Json = {"input": [{"role": "user", "content": "Hi"}, *ran, {"role": "user", "content": "and now?"}]}
    async with running(tmp_path) as (desk, gateway):
        desk.rule, desk.is_whole = calling_at(api, "run", {}), True
        status, got = await asked(gateway, "responses", api, stream=False, **{**body, "tools": [RUN]})
        assert status == 200, got
        assert calls_sent(api, desk.asked[-1]) == [("shell", _SHELL)]
        hosted = {"type": "shell", "environment": {"type": "container_auto"}}
        status, got = await asked(gateway, "responses", api, stream=False, **{**body, "tools": [RUN, hosted]})
        assert (status, len(desk.asked)) == (400, 1), got


@pytest.mark.parametrize("api", VENDORS)
@pytest.mark.parametrize(
    ("written", "action"),
    [({"commands": "ls -a"}, ["ls -a"]), ({"commands": ["ls"], "timeout_ms": None}, ["ls"])],
)
async def test_what_a_model_writes_otherwise_is_read(
    api: str, written: Json, action: list[str], tmp_path: Path
) -> None:
    async with running(tmp_path) as (desk, gateway):
        desk.rule, desk.is_whole = calling_at(api, "shell", written), True
        body: Json = {"input": "Hi", "tools": [RUN, KINDS["shell"].tool]}
        status, got = await asked(gateway, "responses", api, stream=True, **body)
        assert (status, item_in(got, stream=True)["action"]["commands"]) == (200, action), got


class Own(NamedTuple):
    """A tool of Anthropic's, and what it is called with."""

    tool: Json
    arguments: Json
    also: tuple[str, ...] = ()  # of its parameters


OWN: Mapping[str, Own] = {
    "bash": Own({"type": "bash_20250124", "name": "bash"}, {"command": "ls"}, ("restart",)),
    "editor": Own(
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 900},
        {"command": "insert", "path": "/a", "insert_line": 1, "insert_text": "x\n"},
        ("old_str", "new_str", "file_text", "view_range"),
    ),
    "old editor": Own(
        {"type": "text_editor_20250124", "name": "str_replace_editor"},
        {"command": "insert", "path": "/a", "insert_line": 1, "new_str": "x\n"},
        ("old_str",),
    ),
    "computer": Own(
        {
            "type": "computer_20251124",
            "name": "computer",
            "display_width_px": 800,
            "display_height_px": 600,
            "display_number": 1,
            "enable_zoom": True,
        },
        {"action": "scroll", "coordinate": [3, 4], "scroll_direction": "down", "scroll_amount": 2},
        ("text", "duration", "region"),
    ),
    "memory": Own(
        {"type": "memory_20250818", "name": "memory"},
        {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b"},
        ("insert_text",),
    ),
}
_OTHERS = ("chat", "gemini", "converse", "responses")


def called_at(api: str, name: str, arguments: Json) -> Rule:
    """Return a call of a function in an API, as ``calling_at``, and in Responses."""
    if api != "responses":
        return calling_at(api, name, arguments)
    call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": name}
    output = [{**call, "status": "completed", "arguments": json.dumps(arguments)}]
    whole = {"id": "resp_1", "object": "response", "status": "completed", "output": output, "model": "m"}
    said: Json = {"type": "response.completed", "response": whole}
    added = {"type": "response.output_item.added", "output_index": 0, "item": {**output[0], "arguments": ""}}
    return Rule("", api, named(added, said), whole, Said())


@pytest.mark.parametrize("api", _OTHERS)
@pytest.mark.parametrize("name", OWN)
async def test_a_tool_of_anthropics_is_called_and_answered_at_every_vendor(name: str, api: str, tmp_path: Path) -> None:
    own = OWN[name]
    first: Json = {"role": "user", "content": "Hi"}
    plain = {"name": "run", "input_schema": {"type": "object", "properties": {}}}
    async with running(tmp_path) as (desk, gateway):
        desk.rule = called_at(api, own.tool["name"], own.arguments)
        for form in (*FORMS, RACED):
            stream, desk.is_whole = FORMS.get(form, FORMS["streamed"])
            model = f"{api}-{RACED}" if form == RACED else api
            body: Json = {"messages": [first], "tools": [plain, own.tool], "thinking": {"type": "disabled"}}
            status, got = await asked(gateway, "messages", model, stream=stream, **body)
            assert status == 200, got
            use = used(got, stream=stream)
            assert (use["name"], use["input"]) == (own.tool["name"], own.arguments), form
            picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
            result = {"type": "tool_result", "tool_use_id": use["id"], "content": [picture]}
            body["messages"] = [first, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
            status, got = await asked(gateway, "messages", model, stream=stream, **body)
            assert status == 200, got
            assert "iVBORw0KGgo=" in json.dumps(desk.asked[-1])
    sent = desk.asked[-1]
    if api == "responses":
        (call,) = [each for each in sent["input"] if each.get("type") == "function_call"]
        assert json.loads(call["arguments"]) == own.arguments
        (about, schema) = next(
            (each["description"], each["parameters"]) for each in sent["tools"] if each["name"] == own.tool["name"]
        )
    else:
        assert calls_sent(api, sent) == [(own.tool["name"], own.arguments)]
        _, (_, about, schema) = tools_sent(api, sent)
    assert {*own.arguments, *own.also} <= {*schema["properties"]}
    assert bool(about)
    for value in (value for field, value in own.tool.items() if isinstance(value, int) and value is not True):
        assert str(value) in about, value


def used(body: bytes, *, stream: bool) -> Json:
    """Return the one block of an answer of Messages, with its whole input."""
    if not stream:
        (block,) = json.loads(body)["content"]
        return dict(block)
    told = [json.loads(each.data) for each in events(body) if each.data]
    (block,) = [each["content_block"] for each in told if each["type"] == "content_block_start"]
    pieces = [each["delta"]["partial_json"] for each in told if each["type"] == "content_block_delta"]
    return {**block, "input": json.loads("".join(pieces))}


_DECLARED = {"functionDeclarations": [{"name": "run", "parameters": {"type": "OBJECT", "properties": {}}}]}
_FETCH = {"type": "web_fetch_20250910", "name": "web_fetch"}
OFFERED: Mapping[str, tuple[str, list[Json], str]] = {  # by name, the client, its tools, and what is told as left out
    "Cline": ("responses", [RUN, {"type": "web_search"}, {"type": "image_generation"}], "tools[1], tools[2]"),
    "built in": ("responses", [KINDS["shell"].tool, {"type": "web_search"}], "tools[1]"),
    "Claude": ("messages", [OWN["bash"].tool, {"type": "web_search_20250305", "name": "web_search"}], "tools[1]"),
    "fetched": ("messages", [OWN["editor"].tool, _FETCH], "tools[1]"),
    "Google": ("gemini", [_DECLARED, {"googleSearch": {}}], "tools[1].googleSearch"),
    "Google's at once": ("gemini", [{**_DECLARED, "googleSearch": {}}], "tools[0].googleSearch"),
}


@pytest.mark.parametrize("name", OFFERED)
async def test_searches_that_are_only_offered_keep_nobody_out_and_are_told(name: str, tmp_path: Path) -> None:
    client, tools, told = OFFERED[name]
    async with running(tmp_path) as (desk, gateway):
        desk.rule, desk.is_whole = calling_at("chat", "run", {}), True
        paths = {"responses": "/v1/responses", "messages": "/v1/messages"}
        path = paths.get(client, "/v1beta/models/chat:generateContent")
        bodies: Mapping[str, Json] = {
            "responses": {"model": "chat", "input": "Hi"},
            "messages": {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9},
            "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
        }
        async with gateway.post({**bodies[client], "tools": tools}, path=path) as response:
            assert response.status == 200, await response.read()
            assert response.headers["x-holeshot-dropped"] == told
        searches = [each for each in tools if each is not tools[0]] or [{"googleSearch": {}}]
        async with gateway.post({**bodies[client], "tools": searches}, path=path) as response:
            assert response.status == 400  # it is what the client came for
        assert len(desk.asked) == 1
