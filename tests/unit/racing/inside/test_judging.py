"""A winner's whole answer is judged: by what was asked for, in each dialect, and never by what cannot be known."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import AnswerKind, Flaw, Outcome
from gateway.racing import GatheringSink, answer_kind, json_schema, reader
from providers import ErrorKind, UpstreamError
from providers.dialects import CHAT, MESSAGES, RESPONSES, Dialect
from tests.unit.racing.track import DONE, Timetable, Track, delta, event, usage
from tests.unit.racing.virtual_time import run

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/name"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"name": {"type": "string"}},
}


def end(reason: str | None) -> bytes:
    return event(id="c1", choices=[{"index": 0, "delta": {}, "finish_reason": reason}])


def calls(name: str, *pieces: str) -> list[bytes]:
    first = {"index": 0, "id": "t", "function": {"name": name, "arguments": ""}}
    more = [delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}]) for piece in pieces]
    return [delta(tool_calls=[first]), *more, end("tool_calls")]


def texts(*pieces: str) -> list[bytes]:
    return [*map(delta, pieces), end("stop")]


def judged(steps: Sequence[bytes | UpstreamError], **fields: Any) -> tuple[AnswerKind | None, Flaw | None]:
    """Return what the winner's record says of an answer of these events to a request with these fields."""
    upstream = Timetable(
        "a", [*((0.1 + number / 100, step) for number, step in enumerate(steps)), (2, DONE), (2, None)]
    )
    (attempt,) = run(Track(upstream, fields=fields).run()).attempts
    return attempt.judged_as, attempt.flaw


def schema(value: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": value}}


def test_a_plain_answer_has_no_flaw() -> None:
    assert judged(texts("hello")) == (AnswerKind.PLAIN, None)


@pytest.mark.parametrize(
    ("steps", "flaw"),
    [
        ([delta(reasoning_content="hm"), end("stop")], Flaw.EMPTY),
        ([end("stop")], Flaw.EMPTY),
        ([delta("a")], Flaw.TRUNCATED),
        ([delta("a"), end("length")], Flaw.TRUNCATED),
        ([delta("a"), end("content_filter")], Flaw.REFUSAL),
        ([delta(refusal="I'm sorry"), end("stop")], Flaw.REFUSAL),
        ([*calls("weather", "{}")], Flaw.UNKNOWN_TOOL),
    ],
)
def test_flaws_of_plain_answers(steps: list[bytes], flaw: Flaw) -> None:
    assert judged(steps) == (AnswerKind.PLAIN, flaw)


@pytest.mark.parametrize(("tokens", "flaw"), [(99, None), (100, None), (40, Flaw.TRUNCATED)])
def test_a_clients_own_limit_is_no_flaw_of_the_answer(tokens: int, flaw: Flaw | None) -> None:
    cut = [delta("a"), end("length"), usage(10, tokens)]
    assert judged(cut, max_tokens=100) == (AnswerKind.PLAIN, flaw)


def test_half_a_json_by_the_clients_own_limit_is_not_judged() -> None:
    cut = [delta('{"a"'), end("length"), usage(10, 3)]
    assert judged(cut, max_tokens=3, response_format={"type": "json_object"}) == (None, None)


def test_an_answer_that_breaks_off_is_truncated() -> None:
    assert judged([delta("a"), UpstreamError(ErrorKind.DISCONNECTED, "gone")]) == (AnswerKind.PLAIN, Flaw.TRUNCATED)


@pytest.mark.parametrize(
    ("steps", "flaw"),
    [
        (calls("weather", '{"a"', ": 1}"), None),
        (calls("weather", '{"a"'), Flaw.BAD_TOOL_CALL),
        (calls("wether", "{}"), Flaw.UNKNOWN_TOOL),
        (texts("no tool needed"), None),
    ],
)
def test_tool_calls(steps: list[bytes], flaw: Flaw | None) -> None:
    assert judged(steps, tools=[WEATHER]) == (AnswerKind.TOOLS, flaw)


@pytest.mark.parametrize(("strict", "flaw"), [(True, Flaw.SCHEMA_MISS), (False, None)])
def test_arguments_are_held_against_a_strict_tools_schema(strict: bool, flaw: Flaw | None) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA, "strict": strict}}
    assert judged(calls("weather", '{"city": 1}'), tools=[tool]) == (AnswerKind.TOOLS, flaw)


@pytest.mark.parametrize(
    ("pieces", "asked", "flaw"),
    [
        (['{"ci', 'ty": "R', 'ome"}'], schema(SCHEMA), None),
        (['{"city": ', "1}"], schema(SCHEMA), Flaw.SCHEMA_MISS),
        (['{"city": "Rome", "x": 1}'], schema(SCHEMA), Flaw.SCHEMA_MISS),
        (['```json\n{"city": "Rome"}\n```'], schema(SCHEMA), Flaw.BAD_JSON),
        (['{"any": 1}'], {"type": "json_object"}, None),
        (["[1]"], {"type": "json_object"}, Flaw.BAD_JSON),
    ],
)
def test_json(pieces: list[str], asked: dict[str, Any], flaw: Flaw | None) -> None:
    assert judged(texts(*pieces), response_format=asked) == (AnswerKind.JSON, flaw)


def test_text_that_is_never_parsed_is_judged_all_the_same() -> None:
    long = [delta(f'"{number:04}",') for number in range(400)]
    block = b"".join([delta("["), *long, delta('""]')])
    assert judged([delta(" "), block, end("stop")], response_format=schema({"type": "array"})) == (
        AnswerKind.JSON,
        None,
    )
    assert judged([delta(" "), block, end("stop")], response_format=schema({"type": "object"}))[1] is Flaw.SCHEMA_MISS


def doubling(levels: int) -> dict[str, Any]:
    """Return a schema whose check takes 2 ** levels steps."""
    defs = {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"type": "object"}}}


@pytest.mark.parametrize(
    "hostile",
    [
        {"type": "nonsense"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "#"},
        {"$ref": "#/$defs/missing"},
        "no schema",
        doubling(60),
        {"enum": [*range(20_000)]},
        {"allOf": [{"const": {"a": "x" * 300}}] * 3000},
    ],
)
def test_a_schema_that_is_broken_hostile_or_elsewhere_is_not_judged(hostile: Any) -> None:
    assert judged(texts('{"a": 1}'), response_format=schema(hostile)) == (None, None)


def many(subschema: Any) -> dict[str, Any]:
    return {"allOf": [subschema] * 1800}


@pytest.mark.parametrize(
    ("hostile", "answer"),
    [
        (many({"items": True}), [0] * 100_000),
        (many({"contains": True}), [0] * 40_000),
        (many({"additionalProperties": True}), {f"k{number}": 1 for number in range(20_000)}),
        ({"anyOf": [*[False] * 9000, True]}, [[]] * 80_000),
        (many({"anyOf": [{"contains": False}, True]}), [[]] * 1000),
        ({"anyOf": [*[{"type": "string"}] * 1800, True]}, [[]] * 80_000),
        ({"anyOf": [*[{"minLength": 1_000_000}] * 1800, True]}, "x" * 250_000),
        ({"items": {"dependentRequired": {"a": ["a"] * 15_000}}}, [{"a": 1}] * 4000),
        ({**many({"$ref": "#a"}), "$defs": {"a": {"$anchor": "a"}}}, 1),
        ({"$id": "http://x/y", **many({"$ref": "z"}), "$defs": {"a": {"$id": "z"}}}, 1),
        ({"items": {"$ref": "#" + "/$defs/a" * 300}}, [0] * 5000),
    ],
)
def test_an_answer_that_would_be_walked_or_quoted_too_often_is_not_judged(hostile: Any, answer: Any) -> None:
    text = json.dumps(answer, separators=(",", ":"))
    assert len(text) < reader.MOST_CHARS
    assert json_schema.allows(msgspec.json.encode(hostile), answer) is None
    assert judged(texts(text), response_format=schema(hostile)) == (None, None)


@pytest.mark.parametrize(("number", "kind"), [(1, AnswerKind.TOOLS), (16, AnswerKind.TOOLS), (17, None)])
def test_many_calls_of_strict_tools_are_not_judged(number: int, kind: AnswerKind | None) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA, "strict": True}}
    function = {"name": "weather", "arguments": '{"city": "Rome"}'}
    many_calls = [{"index": at, "id": f"t{at}", "function": function} for at in range(number)]
    assert judged([delta(tool_calls=many_calls), end("tool_calls")], tools=[tool]) == (kind, None)


def test_values_of_one_answer_share_the_steps() -> None:
    asked = msgspec.json.encode({"items": {"type": "integer"}})
    assert json_schema.allows(asked, [1] * 500) is True
    assert json_schema.allows(asked, [1] * 500, of=16) is None


def test_unique_items_is_passed_over() -> None:
    assert json_schema.allows(b'{"uniqueItems": true}', [1] * 40_000) is True


def test_what_clients_ask_for_is_judged() -> None:
    tags = {"type": "array", "items": {"enum": ["a", "b"]}}
    person = {**SCHEMA, "properties": {"city": {"$ref": "#/$defs/name"}, "tags": tags}}
    defs = {"person": person, "name": {"type": "string"}}
    asked = msgspec.json.encode({"type": "array", "items": {"$ref": "#/$defs/person"}, "$defs": defs})
    people = [{"city": "Rome", "tags": ["a", "b"]} for _ in range(100)]
    assert json_schema.allows(asked, people) is True
    assert json_schema.allows(asked, [*people, {"city": 1}]) is False


def test_regular_expressions_of_a_client_are_never_run() -> None:
    evil = "^(a+)+$"
    value = {"type": "object", "patternProperties": {evil: True}, "additionalProperties": False}
    answer = '{"' + "a" * 60 + '!": "' + "a" * 60 + '!"}'
    asked = schema({**value, "properties": {"x": {"pattern": evil}}})
    assert judged(texts(answer), response_format=asked) == (AnswerKind.JSON, None)


def test_an_answer_of_more_than_is_kept_is_not_judged() -> None:
    long = texts('["', *["x" * 50_000] * (reader.MOST_CHARS // 50_000 + 1), '"]')
    assert judged(long, response_format={"type": "json_object"}) == (None, None)
    assert json_schema.allows(b" " * (json_schema.MOST_BYTES + 1) + b"{}", {}) is None


def test_several_choices_are_not_judged_as_json() -> None:
    choices = [{"index": at, "delta": {"content": "{}"}, "finish_reason": "stop"} for at in (0, 1)]
    both = [event(id="c1", choices=choices)]
    assert judged(both, response_format={"type": "json_object"}, n=2) == (None, None)


def test_losers_and_calls_whose_client_left_are_not_judged() -> None:
    slow = Timetable("slow", [(5.0, delta("late")), (5.0, end("stop"))])
    quick = Timetable("quick", [(0.1, delta("a")), (0.2, end("stop")), (0.2, DONE), (0.2, None)])
    track = Track(slow, quick)
    record = run(track.run())
    assert {each.deployment: each.judged_as for each in record.attempts} == {"slow": None, "quick": AnswerKind.PLAIN}


def test_an_answer_that_is_gathered_is_judged_too() -> None:
    upstream = Timetable("a", [(0.1, delta("a")), (0.2, end("length")), (0.2, DONE), (0.2, None)])
    (attempt,) = run(Track(upstream, sink=GatheringSink(CHAT)).run()).attempts
    assert (attempt.outcome, attempt.flaw) == (Outcome.WON, Flaw.TRUNCATED)


@pytest.mark.parametrize(
    ("dialect", "fields", "kind"),
    [
        (CHAT, {}, AnswerKind.PLAIN),
        (CHAT, {"tools": []}, AnswerKind.PLAIN),
        (CHAT, {"tools": [WEATHER]}, AnswerKind.TOOLS),
        (CHAT, {"functions": [{"name": "f"}]}, AnswerKind.TOOLS),
        (CHAT, {"tools": [WEATHER], "response_format": {"type": "json_object"}}, AnswerKind.JSON),
        (CHAT, {"response_format": {"type": "text"}}, AnswerKind.PLAIN),
        (CHAT, {"response_format": None}, AnswerKind.PLAIN),
        (RESPONSES, {"text": {"format": {"type": "json_schema", "schema": {}}}}, AnswerKind.JSON),
        (RESPONSES, {"text": {"verbosity": "low"}}, AnswerKind.PLAIN),
        (MESSAGES, {"output_config": {"format": {"type": "json_schema", "schema": {}}}}, AnswerKind.JSON),
        (RESPONSES, {"text": "nonsense"}, AnswerKind.PLAIN),
        (RESPONSES, {"input": [{"type": "additional_tools", "tools": [{"name": "f"}]}]}, AnswerKind.TOOLS),
        (RESPONSES, {"input": ["additional_tools"]}, AnswerKind.PLAIN),
    ],
)
def test_what_an_answer_is_judged_as(dialect: Dialect, fields: dict[str, Any], kind: AnswerKind) -> None:
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    assert answer_kind(raw, dialect) is kind


@pytest.mark.parametrize(("parameters", "flaw"), [(SCHEMA, Flaw.BAD_TOOL_CALL), ({"type": "object"}, None)])
def test_empty_arguments_are_an_empty_object_and_a_flaw_where_the_tool_requires_one(
    parameters: dict[str, Any], flaw: Flaw | None
) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    assert judged(calls("weather"), tools=msgspec.Raw(json.dumps([tool]).encode())) == (AnswerKind.TOOLS, flaw)
