"""What a model's configuration says of parameters holds, however a request words them."""

from typing import Any

import msgspec
import pytest

from gateway.core.errors import InvalidRequest
from gateway.fleet import Parameters
from gateway.settings import ModelSettings
from providers.dialects import CHAT, COMPLETIONS, MESSAGES, RESPONSES, Dialect


def applied(dialect: Dialect, fields: dict[str, Any], **settings: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    parameters = Parameters.of(ModelSettings.model_validate({"deployments": ["a/m"], **settings}))
    assert parameters is not None
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    changed, lowered = parameters.applied(raw, dialect)
    return {name: msgspec.json.decode(value) for name, value in changed.items()}, lowered


@pytest.mark.parametrize(
    ("fields", "expected", "lowered"),
    [
        ({"max_tokens": 500, "max_completion_tokens": 700}, {"max_tokens": 100, "max_completion_tokens": 100}, 2),
        ({"max_tokens": -1}, {"max_tokens": 100}, 1),
        ({"max_tokens": None}, {"max_tokens": 100}, 0),
        ({"max_tokens": 50, "max_completion_tokens": None}, {"max_tokens": 50, "max_completion_tokens": None}, 0),
        ({}, {"max_tokens": 100}, 0),
    ],
)
def test_the_longest_answer_is_kept_to_under_each_of_its_names(
    fields: dict[str, Any], expected: dict[str, Any], lowered: int
) -> None:
    changed, names = applied(CHAT, fields, maximums={"max_tokens": 100})
    assert (changed, len(names)) == (expected, lowered)


@pytest.mark.parametrize("value", ["1.9", True, [2], {"a": 1}])
def test_a_maximum_is_not_got_round_by_what_some_servers_take_for_a_number(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="'temperature' must be a number"):
        applied(CHAT, {"temperature": value}, maximums={"temperature": 1.0})


def test_of_two_maximums_for_the_same_thing_the_smaller_holds() -> None:
    maximums = {"max_completion_tokens": 200, "max_tokens": 100}
    assert applied(RESPONSES, {"max_output_tokens": 999}, maximums=maximums) == (
        {"max_output_tokens": 100},
        ("max_output_tokens",),
    )
    parameters = Parameters.of(ModelSettings.model_validate({"deployments": ["a/m"], "maximums": maximums}))
    assert parameters is not None
    assert parameters.most_tokens == 100


@pytest.mark.parametrize("stop", ["END", ["END"]])
def test_a_default_stop_is_said_as_messages_has_it(stop: Any) -> None:
    assert applied(MESSAGES, {}, defaults={"stop": stop})[0] == {"stop_sequences": ["END"]}


def test_defaults_that_a_dialect_does_not_have_are_not_sent_in_it() -> None:
    defaults = {"reasoning_effort": "low", "response_format": {"type": "json_object"}, "metadata": {"team": "x"}}
    settings = {"defaults": {**defaults, "temperature": 0.5, "top_k": 4}}
    assert set(applied(COMPLETIONS, {}, **settings)[0]) == {"temperature", "top_k"}
    assert set(applied(MESSAGES, {}, **settings)[0]) == {"temperature", "top_k"}
    assert set(applied(RESPONSES, {}, **settings)[0]) == {"temperature", "metadata"}
