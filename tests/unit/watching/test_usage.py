"""A provider that counts tokens unlike the others is warned of, and only that one."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.watching import metrics
from gateway.watching.metrics import ANSWERS, LOGGED_EVERY_S, UsageWatch
from tests.unit.ledger.records import new_id, won


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def told(watch: UsageWatch, number: int = ANSWERS, **tokens: int) -> list[tuple[str, float]]:
    """Let each deployment answer so often with so many tokens for 400 characters; return who is warned of."""
    return told_of(watch, number, {name: {"completion_tokens": count} for name, count in tokens.items()})


def told_of(watch: UsageWatch, number: int, answers: dict[str, dict[str, Any]]) -> list[tuple[str, float]]:
    with capture_logs() as lines:
        for _ in range(number):
            for name, facts in answers.items():
                watch.answered("m", won(new_id(), deployment=name, **({"chars": 400} | facts)))
    return [(line["deployment"], line["times"]) for line in lines if line["event"] == "usage.far_off"]


def test_who_states_twice_the_tokens_is_warned_of() -> None:
    assert told(UsageWatch(Clock()), number=2 * ANSWERS, a=100, b=105, liar=200) == [("liar", pytest.approx(1.95))]


def test_of_two_the_one_farther_from_the_usual_is_doubted() -> None:
    assert told(UsageWatch(Clock()), number=2 * ANSWERS, honest=100, liar=200) == [("liar", 2.0)]
    assert told(UsageWatch(Clock()), number=2 * ANSWERS, honest=100, miser=40) == [("miser", 0.4)]


def test_tokenizers_may_differ() -> None:
    assert told(UsageWatch(Clock()), number=5 * ANSWERS, a=100, b=140, c=90) == []


def test_a_few_answers_say_nothing() -> None:
    assert told(UsageWatch(Clock()), number=ANSWERS - 1, a=100, b=105, liar=200) == []


def test_a_warning_comes_once_an_hour() -> None:
    clock = Clock()
    watch = UsageWatch(clock)
    assert len(told(watch, number=10 * ANSWERS, a=100, b=105, liar=200)) == 1
    clock.now_s = LOGGED_EVERY_S
    assert len(told(watch, number=ANSWERS, a=100, b=105, liar=200)) == 1


def test_names_that_clients_make_up_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MODELS_WATCHED", 3)
    watch = UsageWatch(Clock())
    told(watch, number=ANSWERS, a=100, b=105)
    for number in range(100):
        watch.answered(f"m,{' ' * number}m", won(new_id(), deployment="a", chars=400, completion_tokens=100))
    assert len(watch._stated) == 3
    assert told(watch, number=ANSWERS, a=100, b=105, liar=200) == [("liar", pytest.approx(1.95))]


def test_each_comparison_that_finds_one_far_off_is_told_between_warnings_too() -> None:
    heard: list[tuple[str, str]] = []
    watch = UsageWatch(Clock(), lambda model, deployment: heard.append((model, deployment)))
    told(watch, number=5 * ANSWERS, a=100, b=105, liar=200)
    assert heard == 5 * [("m", "liar")]


@pytest.mark.parametrize("facts", [{"reasoning_tokens": 100}, {"chars": 10}, {"chars": None}, {"tokens_source": None}])
def test_answers_that_say_nothing_of_the_rate_are_left_out(facts: dict[str, Any]) -> None:
    honest = {"completion_tokens": 100}
    answers = {"a": honest, "b": honest, "odd": {"completion_tokens": 200} | facts}
    assert told_of(UsageWatch(Clock()), 3 * ANSWERS, answers) == []
