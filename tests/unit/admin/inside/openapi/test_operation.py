"""Schemas are made from the structs that handlers return."""

import subprocess
import sys
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.admin.openapi.operation import TEXT, Made, Schemas, of_type, ref


class Inner(msgspec.Struct):
    """One ``thing``."""

    figure: int


class Told(msgspec.Struct, kw_only=True):
    """What is told,
    over two lines.
    """

    title: str
    inner: Annotated[Inner | None, Meta(description="Null: there is none.")]
    usual: int = 3
    perhaps: str | UnsetType = UNSET


def test_a_record_is_referred_to_by_its_name() -> None:
    schemas = Schemas([Told, list[Inner]])
    assert schemas.of(Told) == ref("Told")
    assert schemas.of(list[Inner]) == {"type": "array", "items": ref("Inner")}


def test_what_has_a_default_is_sent_all_the_same_and_only_what_may_be_missing_is_not_required() -> None:
    told = Schemas([Told]).components["Told"]
    assert told["required"] == ["title", "inner", "usual"]
    assert "default" not in told["properties"]["usual"]


def test_descriptions_are_markdown_on_one_line_and_a_field_may_be_called_title() -> None:
    components = Schemas([Told]).components
    assert components["Told"]["description"] == "What is told, over two lines."
    assert components["Inner"]["description"] == "One `thing`."
    assert components["Told"]["properties"]["title"] == TEXT
    assert components["Told"]["properties"]["inner"] == {
        "anyOf": [ref("Inner"), {"type": "null"}],
        "description": "Null: there is none.",
    }


def test_what_is_a_schema_already_stays_as_it_is() -> None:
    assert Schemas([]).of(ref("Client")) == ref("Client")


def test_a_parameter_has_its_records_inside() -> None:
    assert of_type(Inner | None, "What.")["anyOf"][0]["properties"] == {"figure": {"type": "integer"}}
    assert of_type(str, "What.") == Made(TEXT, description="What.")


def test_a_gateway_that_nobody_asks_for_the_description_does_not_load_it() -> None:
    code = "import sys, gateway.app.routes; print([name for name in sys.modules if 'openapi' in name])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
