"""``auto`` asks whether somebody reads along, or a program waits for the whole answer."""

from typing import Any

import msgspec
import pytest

from gateway.api import ParsedRequest, read_chat, resolved_objective
from gateway.core.calls import Objective
from gateway.http import Contents

FUNCTION = {"type": "function", "function": {"name": "look_up"}}


def body(**fields: Any) -> ParsedRequest:
    said = {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}
    return read_chat(Contents.of(msgspec.json.encode(said)), None)


def objective(configured: Objective = Objective.AUTO, **fields: Any) -> Objective:
    chat = body(**fields)
    return resolved_objective(configured, streamed=chat.stream, for_program=chat.for_program)


def test_a_streamed_chat_is_read_along() -> None:
    assert objective(stream=True) is Objective.READING
    assert objective(stream=True, tools=[], response_format={"type": "text"}) is Objective.READING
    assert objective(stream=True, tools=None, response_format=None) is Objective.READING


def test_nobody_reads_along_where_nothing_is_streamed() -> None:
    assert objective(Objective.READING, stream=True, tools=[FUNCTION]) is Objective.READING
    assert objective(Objective.READING, stream=False) is Objective.COMPLETION


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": False},
        {"stream": True, "tools": [FUNCTION]},
        {"stream": True, "response_format": {"type": "json_object"}},
        {"stream": True, "response_format": {"type": "json_schema", "json_schema": {}}},
    ],
)
def test_whole_answers_tools_and_json_are_to_end_soon(fields: dict[str, Any]) -> None:
    assert objective(**fields) is Objective.COMPLETION


@pytest.mark.parametrize("configured", [Objective.FIRST_TOKEN, Objective.COMPLETION, Objective.COST])
@pytest.mark.parametrize("stream", [True, False])
def test_what_is_configured_needs_no_guess(configured: Objective, stream: bool) -> None:
    assert objective(configured, stream=stream) is configured


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, None),
        ({"max_tokens": 100}, 100),
        ({"max_tokens": 100, "max_completion_tokens": 40}, 40),
        ({"max_tokens": None, "max_completion_tokens": 40}, 40),
        ({"max_tokens": -1}, None),  # llama.cpp's word for no limit
    ],
)
def test_the_smaller_limit_of_the_answer_counts(fields: dict[str, Any], limit: int | None) -> None:
    assert body(**fields).needs.max_tokens == limit
