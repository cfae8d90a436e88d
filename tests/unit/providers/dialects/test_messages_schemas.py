"""Schemas as Messages keeps to them: closed objects, and the keywords it does not know told by their paths."""

from typing import Any

import msgspec
import pytest

from providers.dialects.messages.fields import KeptSchema
from providers.dialects.messages.request_from_chat import from_chat
from providers.dialects.wording import Malformed, Wording

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
