"""The notation in which answers are described."""

import subprocess
import sys
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

import pytest

from gateway.admin.openapi.schemas import OBJECT, Made, either, nullable, ref, schema


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (float | None, {"type": ["number", "null"]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a"] | None, {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
        (dict[str, str], {"type": "object", "additionalProperties": {"type": "string"}}),
        (dict[str, Any], {"type": "object", "additionalProperties": True}),
        ("Model", {"$ref": "#/components/schemas/Model"}),
        ([bool], {"type": "array", "items": {"type": "boolean"}}),
        ((int, "Seconds."), {"type": "integer", "description": "Seconds."}),
        ((int | None, "Seconds."), {"type": ["integer", "null"], "description": "Seconds."}),
        (
            (Literal["a"] | None, "Why."),
            {"anyOf": [{"type": "string", "enum": ["a"], "description": "Why."}, {"type": "null"}]},
        ),
        (Made(minimum=1), {"minimum": 1}),
    ],
)
def test_what_is_written_as_it_looks_becomes_a_schema(written: Any, expected: dict[str, Any]) -> None:
    assert schema(written) == expected


def test_several_fields_may_have_one_type_and_some_may_be_missing() -> None:
    assert schema({"a b": int, "c?": [{"d": OBJECT}]}) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "integer"},
            "c": {
                "type": "array",
                "items": {"type": "object", "properties": {"d": {"type": "object"}}, "required": ["d"]},
            },
        },
        "required": ["a", "b"],
    }


def test_what_may_be_null_or_one_of_several_says_so() -> None:
    assert nullable({"a": int}) == {**schema({"a": int}), "type": ["object", "null"]}
    assert nullable("Model") == {"anyOf": [ref("Model"), {"type": "null"}]}
    assert either("Model", str) == {"anyOf": [ref("Model"), {"type": "string"}]}


def test_a_gateway_that_nobody_asks_for_the_description_does_not_load_it() -> None:
    code = "import sys, gateway.app.routes; print([name for name in sys.modules if 'openapi' in name])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
