"""Schemas as Messages keeps to them: closed objects, and the keywords it does not know told by their paths."""

from typing import Any

import msgspec
import pytest

from providers.dialects import Malformed, Wording
from providers.dialects.messages.fields import KeptSchema
from providers.dialects.messages.request_from_chat import from_chat
from providers.dialects.messages.request_to_chat import to_chat

OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED = {**OPEN, "additionalProperties": False}


def kept(schema: Any) -> tuple[Any, list[str]]:
    one = KeptSchema(msgspec.Raw(msgspec.json.encode(schema)), "s")
    return msgspec.json.decode(msgspec.json.encode(one.kept)), one.lost


def asked(**fields: Any) -> Wording:
    ask = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9, **fields}
    return from_chat({name: msgspec.Raw(msgspec.json.encode(value)) for name, value in ask.items()})


@pytest.mark.parametrize(
    ("schema", "closed"),
    [
        (OPEN, CLOSED),
        ({"type": "array", "items": OPEN}, {"type": "array", "items": CLOSED}),
        ({"anyOf": [OPEN, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        ({"$ref": "#/$defs/A", "$defs": {"A": OPEN}}, {"$ref": "#/$defs/A", "$defs": {"A": CLOSED}}),
    ],
)
def test_objects_that_say_nothing_of_other_properties_are_closed(schema: Any, closed: Any) -> None:
    assert kept(schema) == (closed, [])


def test_a_schema_that_can_be_kept_to_stays_as_it_was_written() -> None:
    raw = msgspec.Raw(b'{ "type":"object", "properties":{"minimum":{"type":"number"}},"additionalProperties": false}')
    assert KeptSchema(raw, "s").kept is raw


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ({"type": "integer", "minimum": 1}, ".minimum"),
        ({"type": "string", "maxLength": 5}, ".maxLength"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 2}, ".minItems"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, ".additionalProperties"),
        ({"anyOf": [{"type": "number", "multipleOf": 2}]}, ".anyOf[0].multipleOf"),
        ({"oneOf": [{"type": "string"}]}, ".oneOf"),
        ({"type": "array", "items": {"type": "string"}, "minItems": [1]}, ".minItems"),
    ],
)
def test_a_keyword_that_messages_does_not_keep_to_is_a_loss(field: Any, path: str) -> None:
    schema = {"type": "object", "properties": {"a": field}, "additionalProperties": False}
    wording = asked(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
    assert [(loss.field, loss.hint) for loss in wording.losses] == [
        (f"response_format.json_schema.schema.properties.a{path}", False)
    ]
    said = msgspec.json.decode(wording.fields["output_config"])["format"]["schema"]
    assert KeptSchema(msgspec.Raw(msgspec.json.encode(said)), "s").lost == []


def test_a_strict_tool_is_not_strict_where_messages_cannot_keep_to_its_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "additionalProperties": False}
    function = {"name": "f", "parameters": schema, "strict": True}
    wording = asked(tools=[{"type": "function", "function": function}])
    assert [loss.field for loss in wording.losses] == ["tools[0].function.strict"]
    assert msgspec.json.decode(wording.fields["tools"]) == [{"name": "f", "input_schema": schema}]


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_alternatives_at_the_top_of_a_tool_are_a_loss_that_names_it(keyword: str) -> None:
    parameters = {**OPEN, keyword: [{"required": ["a"]}]}
    wording = asked(tools=[{"type": "function", "function": {"name": "f", "parameters": parameters}}])
    assert [loss.field for loss in wording.losses] == [f"tools[0].function.parameters.{keyword}"]
    assert msgspec.json.decode(wording.fields["tools"])[0]["input_schema"] == OPEN


def test_a_schema_that_is_no_object_is_malformed() -> None:
    with pytest.raises(Malformed) as caught:
        asked(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": [1]}})
    assert caught.value.param == "response_format.json_schema.schema"


# Strict schemas of Messages in chat: OpenAI has all properties required, closed objects, and fewer keywords.

STRING = {"type": "string"}
MAYBE = {"type": ["string", "null"]}


def shut(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def as_raw(fields: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def in_chat(schema: dict[str, Any]) -> tuple[Any, Any, list[str]]:
    """Return the schema of a strict tool and of the answer in chat, whether they are strict, and what is told."""
    tool = {"name": "f", "input_schema": schema, "strict": True}
    form = {"format": {"type": "json_schema", "schema": schema}}
    turns = [{"role": "user", "content": "Hi"}]
    wording = to_chat(as_raw({"max_tokens": 9, "messages": turns, "tools": [tool], "output_config": form}))
    assert all(loss.hint for loss in wording.losses)
    [said] = msgspec.json.decode(wording.fields["tools"])
    answer = msgspec.json.decode(wording.fields["response_format"])["json_schema"]
    function = said["function"]
    assert (function["parameters"], function["strict"]) == (answer["schema"], answer["strict"])
    return function["parameters"], function["strict"], [loss.field for loss in wording.losses]


DEFINED = {"$defs": {"b": shut({"c": STRING}, "c")}}


@pytest.mark.parametrize(
    ("schema", "fitted"),
    [
        (shut({"a": STRING}, "a"), shut({"a": STRING}, "a")),
        ({"type": "object", "properties": {"a": STRING}, "required": ["a"]}, shut({"a": STRING}, "a")),
        (shut({"a": STRING, "b": MAYBE}, "a"), shut({"a": STRING, "b": MAYBE}, "a", "b")),  # it may be null anyway
        (shut({"a": {**STRING, "default": "x"}}, "a"), shut({"a": STRING}, "a")),
        (
            shut({"a": {"type": "array", "items": {"type": "object", "properties": {}}}}, "a"),
            shut({"a": {"type": "array", "items": shut({})}}, "a"),
        ),
        (
            shut({"a": {"$ref": "#/$defs/b", "description": "B"}}, "a", **DEFINED),
            shut({"a": {"$ref": "#/$defs/b"}}, "a", **DEFINED),
        ),
        (
            shut({"a": {"anyOf": [STRING, {"type": "integer", "minimum": 1}]}}, "a"),
            shut({"a": {"anyOf": [STRING, {"type": "integer", "minimum": 1}]}}, "a"),
        ),
    ],
)
def test_a_strict_schema_is_made_to_fit_where_it_then_allows_nothing_new(schema: Any, fitted: Any) -> None:
    assert in_chat(schema) == (fitted, True, [])


@pytest.mark.parametrize(
    "schema",
    [
        shut({"a": STRING, "b": STRING}, "a"),  # its reader does not expect null
        {**shut({"a": STRING}, "a"), "additionalProperties": STRING},
        shut({"a": {**STRING, "minLength": 1}}, "a"),
        shut({"a": {**STRING, "format": "uri"}}, "a"),
        shut({"a": {"oneOf": [STRING, {"type": "integer"}]}}, "a"),
        shut({"a": {"description": "anything"}}, "a"),
        shut({"a": {"$ref": "https://example.com/schema"}}, "a"),
        shut({"a": {"type": "array"}}, "a"),
        {"type": "object", "anyOf": [shut({"a": STRING}, "a")], "properties": {}},
        shut({f"p{number}": {"enum": list(range(101))} for number in range(10)}, *(f"p{n}" for n in range(10))),
    ],
)
def test_any_other_is_best_effort_and_told(schema: Any) -> None:
    assert in_chat(schema) == (schema, False, ["tools[0].strict", "output_config.format.schema"])


@pytest.mark.parametrize(
    "odd",
    [
        {"required": [{}]},
        {"required": 1},
        {"properties": ["a"]},
        {"properties": {"a": {**STRING, "format": []}}},
        {"properties": {"a": {"anyOf": 1}}, "required": ["a"]},
        {"properties": {"a": {"enum": 1}}, "required": ["a"]},
        {"$defs": ["b"]},
    ],
)
def test_a_schema_whose_keywords_have_odd_types_is_best_effort_too(odd: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False, **odd}
    assert in_chat(schema) == (schema, False, ["tools[0].strict", "output_config.format.schema"])


def test_a_schema_that_is_too_deep_is_best_effort() -> None:
    schema: dict[str, Any] = STRING
    for _ in range(12):
        schema = shut({"a": schema}, "a")
    assert in_chat(schema)[1] is False


def test_a_tool_that_is_not_strict_keeps_its_schema() -> None:
    tool = {"name": "f", "input_schema": shut({"a": STRING}), "strict": False}
    wording = to_chat(as_raw({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "tools": [tool]}))
    [said] = msgspec.json.decode(wording.fields["tools"])
    assert (said["function"]["parameters"], said["function"]["strict"]) == (shut({"a": STRING}), False)
