"""Calls of Anthropic's toolsets (anthropic 2.14, types/beta, read on 2026-11-29) stay in every API's history."""

from typing import Any

import pytest

from providers.dialects import DIALECTS, rendered
from providers.dialects.dialect import Habits
from providers.dialects.wording import raw_json

PLAIN = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
TOOLSETS: dict[str, dict[str, Any]] = {
    "computer": {"type": "computer_toolset_20260801"},
    "browser": {"type": "browser_toolset_20260801", "configs": {"zoom": {"enabled": False}}},
}
HISTORY = [
    {"role": "user", "content": "Click."},
    {
        "role": "assistant",
        "content": [
            {
                "type": "tool_use",
                "id": "t1",
                "name": "left_click",
                "toolset_name": "computer",
                "input": {"coordinate": [12, 34]},
            }
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t1", "toolset_name": "computer", "content": "clicked"}],
    },
]


@pytest.mark.parametrize("target", ["chat", "responses", "gemini"])
def test_a_conversation_in_which_one_was_called_goes_on_anywhere(target: str) -> None:
    asked = {"max_tokens": 99, "tools": [PLAIN], "messages": HISTORY}
    fields = {name: raw_json(value) for name, value in asked.items()}
    wording = rendered(fields, DIALECTS["messages"], DIALECTS[target], Habits())
    said = b"".join(bytes(value) for value in wording.fields.values())
    assert all(word in said for word in (b"left_click", b"12", b"34", b"clicked"))
    assert {loss.field.rpartition(".")[2] for loss in wording.losses} == {"toolset_name"}
    assert all(loss.hint for loss in wording.losses)


@pytest.mark.parametrize("kind", TOOLSETS)
@pytest.mark.parametrize("target", ["chat", "responses", "gemini"])
def test_where_one_is_offered_that_has_no_form_elsewhere_others_are_kept_out(target: str, kind: str) -> None:
    asked = {"max_tokens": 99, "tools": [TOOLSETS[kind], PLAIN], "messages": HISTORY}
    fields = {name: raw_json(value) for name, value in asked.items()}
    wording = rendered(fields, DIALECTS["messages"], DIALECTS[target], Habits())
    assert [loss.field for loss in wording.losses if not loss.hint] == ["tools[0]"]
    assert b"left_click" in b"".join(bytes(value) for value in wording.fields.values())
