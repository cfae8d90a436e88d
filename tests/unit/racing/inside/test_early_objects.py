"""Parallel calls that begin with an empty object, whose arguments come later, in any order."""

import json
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.racing.measurement import ToolCalls
from providers.dialects import CHAT, GEMINI, MESSAGES, RESPONSES, Dialect
from providers.refusals import UpstreamError
from tests.unit.providers.dialects.inside.test_chat_oddities import answer, chunk
from tests.unit.providers.dialects.test_joins_in_pieces import Draw, merged, pieces_of

EARLY = [["{}"], ["{ }"], ["{", "}"], ["", "{", "", "}"]]
ARGUMENTS: list[dict[str, Any]] = [{}, {"x": 1}, {"a": {"b": {}}, "c": "{}"}]
TARGETS = [CHAT, MESSAGES, RESPONSES, GEMINI]

Piece = tuple[int, str, str]  # index, name and arguments


@st.composite
def calls(draw: Draw, early: list[list[str]]) -> tuple[list[Piece], list[tuple[str, Any]]]:
    """Return the pieces of parallel calls, and the calls in the order of their beginnings."""
    lanes, said = [], {}
    for index in range(draw(st.integers(2, 3))):
        given_ = draw(st.sampled_from(ARGUMENTS))
        later = pieces_of(draw, json.dumps(given_)) if given_ or draw(st.booleans()) else []
        pieces = ["", *draw(st.sampled_from(early)), *later]
        name = "fgh"[index]
        said[name] = given_
        lanes.append([(index, "" if number else name, piece) for number, piece in enumerate(pieces)])
    mixed: list[Piece] = merged(draw, *lanes)
    return mixed, [(name, said[name]) for _, name, _ in mixed if name]


def told(target: Dialect, pieces: list[Piece]) -> list[tuple[str, Any]]:
    chunks = []
    for index, name, written in pieces:
        begun = {"id": f"c{index}", "type": "function"} if name else {}
        function = {**({"name": name} if name else {}), "arguments": written}
        chunks.append(chunk(tool_calls=[{"index": index, **begun, "function": function}]))
    return answer(target, *chunks, chunk("tool_calls"))[1]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@given(said=calls(EARLY))
def test_each_of_parallel_calls_that_begin_empty_has_its_arguments(
    target: Dialect, said: tuple[list[Piece], list[tuple[str, Any]]]
) -> None:
    assert told(target, said[0]) == said[1]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@given(said=calls([*EARLY, []]))
def test_no_call_that_begins_empty_beside_others_has_any_other_arguments(
    target: Dialect, said: tuple[list[Piece], list[tuple[str, Any]]]
) -> None:
    # One block after the other: a call that was taken for complete cannot go on.
    with suppress(UpstreamError) if target is MESSAGES else nullcontext():
        assert told(target, said[0]) == said[1]


@given(said=calls([*EARLY, []]))
def test_calls_that_begin_empty_are_measured_with_their_arguments(
    said: tuple[list[Piece], list[tuple[str, Any]]],
) -> None:
    measured = ToolCalls()
    for index, name, written in said[0]:
        measured.add([(index, written)], [name] if name else [])
    assert [json.loads(each or "{}") for each in measured.arguments() or ()] == [args for _, args in said[1]]


BEGUN = [(0, "f", "{}"), (1, "g", '{"x":1}')]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_call_that_comes_whole_ends_none_that_began_empty(target: Dialect) -> None:
    assert told(target, [*BEGUN, (0, "", '{"x":2}')]) == [("f", {"x": 2}), ("g", {"x": 1})]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_an_empty_object_stays_where_a_text_follows(target: Dialect) -> None:
    begun = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    said = answer(target, chunk(tool_calls=[begun]), chunk(content="Hi"), chunk("tool_calls"))
    assert said == ("Hi", [("f", {})])
