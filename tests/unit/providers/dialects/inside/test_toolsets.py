"""Anthropic's toolsets (anthropic 2.14, types/beta, read on 2026-11-29) are functions elsewhere, a member each."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from providers.dialects import DIALECTS, Habits, Wording, raw_json, rendered
from providers.dialects.messages.toolsets import members_of, offered_tools

Json = dict[str, Any]
PLAIN = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
COMPUTER: Json = {"type": "computer_toolset_20260801"}
BROWSER: Json = {"type": "browser_toolset_20260801"}
OPTIONAL = {"file_upload", "javascript_exec", "read_console", "read_network"}
CALL: Json = {
    "type": "tool_use",
    "id": "t1",
    "name": "left_click",
    "toolset_name": "computer",
    "input": {"coordinate": [12, 34]},
}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "toolset_name": "computer", "content": "clicked"}


def history(call: Json = CALL, result: Json = RESULT) -> list[Json]:
    """Return a conversation in which a member was called."""
    return [
        {"role": "user", "content": "Click."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]


def worded(target: str, asked: Mapping[str, Any]) -> Wording:
    """Return a request of Messages as this API is asked."""
    fields = {name: raw_json(value) for name, value in {"max_tokens": 99, **asked}.items()}
    return rendered(fields, DIALECTS["messages"], DIALECTS[target], Habits())


def functions(asked: Mapping[str, Any]) -> list[Json]:
    """Return the functions that chat is offered."""
    return [each["function"] for each in json.loads(bytes(worded("chat", asked).fields["tools"]))]


@pytest.mark.parametrize("offered", [[PLAIN], [PLAIN, COMPUTER]])
@pytest.mark.parametrize("target", ["chat", "responses", "gemini"])
def test_a_conversation_in_which_one_was_called_goes_on_anywhere(target: str, offered: list[Json]) -> None:
    wording = worded(target, {"tools": offered, "messages": history()})
    said = b"".join(bytes(value) for value in wording.fields.values())
    assert all(word in said for word in (b'"computer_left_click"', b"12", b"34", b"clicked"))
    assert not wording.losses


def test_the_call_of_one_that_is_not_known_stays_by_its_own_name() -> None:
    later, answered = {**CALL, "toolset_name": "phone"}, {**RESULT, "toolset_name": "phone"}
    wording = worded("chat", {"tools": [PLAIN], "messages": history(later, answered)})
    assert b'"left_click"' in bytes(wording.fields["messages"])
    assert {loss.field.rpartition(".")[2] for loss in wording.losses} == {"toolset_name"}
    assert all(loss.hint for loss in wording.losses)


@pytest.mark.parametrize(("toolset", "count"), [(COMPUTER, 17), (BROWSER, 27)])
def test_each_member_is_a_function_that_says_what_it_does(toolset: Json, count: int) -> None:
    offered = functions({"tools": [toolset], "messages": history()})
    assert len({each["name"] for each in offered}) == len(offered) == count
    for each in offered:
        assert each["description"]
        assert {*each["parameters"].get("required", ())} <= {*each["parameters"]["properties"]}, each["name"]


@pytest.mark.parametrize("target", ["chat", "responses", "gemini"])
def test_both_toolsets_and_a_tool_of_the_clients_are_offered_beside_each_other(target: str) -> None:
    own = {**PLAIN, "name": "screenshot"}
    wording = worded(target, {"tools": [COMPUTER, own, BROWSER], "messages": history()})
    tools = bytes(wording.fields["tools"])
    names = ("screenshot", "computer_screenshot", "browser_screenshot")
    assert [tools.count(f'"{name}"'.encode()) for name in names] == [1, 1, 1]
    assert not wording.losses


@pytest.mark.parametrize(
    ("config", "is_on"),
    [({"enabled": True}, True), ({"enabled": None}, False), (None, False), ({}, False), ({"enabled": "yes"}, False)],
)
def test_what_acts_beyond_the_page_is_offered_only_if_the_request_says_so(config: Json | None, *, is_on: bool) -> None:
    toolset = {**BROWSER, "configs": {"javascript_exec": config, "zoom": {"enabled": False}}}
    names = {each["name"] for each in functions({"tools": [toolset], "messages": history()})}
    assert ("browser_javascript_exec" in names) is is_on
    assert "browser_zoom" not in names
    assert names.isdisjoint({f"browser_{name}" for name in OPTIONAL - {"javascript_exec"}})


@pytest.mark.parametrize("toolset", [{"type": "phone_toolset_20270101"}, {**COMPUTER, "configs": {"fly": None}}])
def test_one_that_is_not_known_keeps_others_out_while_it_is_offered(toolset: Json) -> None:
    wording = worded("chat", {"tools": [toolset, PLAIN], "messages": history()})
    assert [loss.field for loss in wording.losses if not loss.hint] == ["tools[0]"]
    assert b"left_click" in bytes(wording.fields["messages"])


def test_members_that_are_loaded_later_are_loaded_at_once_and_this_is_told() -> None:
    toolset = {**COMPUTER, "configs": {"key": {"defer_loading": True}}, "cache_control": {"type": "ephemeral"}}
    wording = worded("chat", {"tools": [toolset], "messages": history()})
    assert [(loss.field, loss.hint) for loss in wording.losses] == [
        ("tools[0].configs", True),
        ("tools[0].cache_control", True),
    ]


@pytest.mark.parametrize(
    ("tools", "function"),
    [([COMPUTER], "computer_screenshot"), ([COMPUTER, {**PLAIN, "name": "screenshot"}], "screenshot")],
)
def test_a_member_that_must_be_called_is_named(tools: list[Json], function: str) -> None:
    choice = {"type": "tool", "name": "screenshot"}
    wording = worded("chat", {"tools": tools, "tool_choice": choice, "messages": history()})
    assert json.loads(bytes(wording.fields["tool_choice"]))["function"]["name"] == function


@pytest.mark.parametrize("target", ["chat", "responses", "gemini"])
def test_the_state_of_a_browser_is_told_in_words(target: str) -> None:
    state = {
        "type": "browser_state",
        "tabs": [
            {"tab_id": "t1", "title": "Weather", "url": "https://w.example/", "active": True},
            {"tab_id": "t2", "title": "", "url": ""},
        ],
        "state_changes": [
            {"type": "tab_opened", "tab_id": "t2"},
            {"type": "download_completed", "download_id": "d1", "url": "https://w.example/a.pdf", "size_bytes": 9},
        ],
    }
    call = {**CALL, "name": "new_tab", "toolset_name": "browser", "input": {}}
    result = {**RESULT, "toolset_name": "browser", "content": [state]}
    wording = worded(target, {"tools": [BROWSER], "messages": history(call, result)})
    said = b"".join(bytes(value) for value in wording.fields.values())
    for words in (b"t1 (active): Weather https://w.example/", b"- t2:", b"t2 was opened", b"(9 bytes)"):
        assert words in said, words
    assert not wording.losses


def test_a_call_of_a_member_is_one_that_was_offered() -> None:
    """Also at Anthropic's own models, beside a tool with a name: the answer is not taken for a wrong one."""
    offered = DIALECTS["messages"].requests.tools.offered["tools"](raw_json([PLAIN, COMPUTER, BROWSER]))
    schemas = {each.name: each.schema for each in offered}
    assert {"look", "left_click", "navigate", "cursor_position"} <= schemas.keys()
    assert schemas["screenshot"] is None  # either toolset's
    assert b"url" in (schemas["navigate"] or b"")


def test_the_table_has_all_members() -> None:
    everything = {name: {"enabled": True} for name in OPTIONAL}
    assert len(members_of(raw_json({**BROWSER, "configs": everything})) or ()) == 31
    assert members_of(raw_json(PLAIN)) is None
    assert not [*offered_tools(raw_json([PLAIN]), ())]
