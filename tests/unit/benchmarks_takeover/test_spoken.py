"""The benchmark of takeover: its models say the same whenever they are sent the same, and what is right follows."""

from random import Random

import pytest

from benchmarks.takeover.__main__ import CONTINUES, HABITS, Spoken
from benchmarks.takeover.texts import KINDS
from providers.simulator.script import Delta

ANSWER = "One two three four five six."


def said(habit: str, begun: str, way: str = "prefix") -> str:
    model = Spoken("chat", ANSWER, habit, way, Random(1))
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": begun, "prefix": True}]
    return "".join(step.text for step in model.script({"messages": messages}) if isinstance(step, Delta))


@pytest.mark.parametrize("habit", HABITS)
def test_a_model_says_the_same_whenever_it_is_sent_the_same(habit: str) -> None:
    assert said(habit, "One two") == said(habit, "One two")


@pytest.mark.parametrize(
    ("habit", "way", "expected"),
    [
        ("exactly", "prefix", " three four five six."),
        ("trims", "prefix", "three four five six."),
        ("exactly", "repeated_prefix", ANSWER),
        ("leaves one out", "prefix", " four five six."),
        ("another word", "prefix", " Certainly three four five six."),
        ("refuses", "prefix", ""),
    ],
)
def test_a_model_goes_on_by_its_habit(habit: str, way: str, expected: str) -> None:
    assert said(habit, "One two", way) == expected


@pytest.mark.parametrize("habit", CONTINUES)
def test_what_is_right_begins_with_what_was_sent(habit: str) -> None:
    model = Spoken("chat", ANSWER, habit, "prefix", Random(1))
    model.script({"messages": [{"role": "assistant", "content": "One two"}]})
    [whole] = model.whole
    assert whole.startswith("One two three")


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_drawn_from_a_seed(kind: str) -> None:
    assert KINDS[kind](Random(7), 30) == KINDS[kind](Random(7), 30) != ""
