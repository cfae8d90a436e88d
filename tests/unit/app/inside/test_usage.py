"""A provider that counts tokens unlike the others is warned of, and only that one."""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.app import usage_watch
from gateway.app.usage_watch import ANSWERS, LOGGED_EVERY_S, UsageWatch
from gateway.core.attempts import AttemptRecord, TokensSource
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
    monkeypatch.setattr(usage_watch, "MODELS_WATCHED", 3)
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


# Texts as they come: their lengths differ much, and how many characters a token has differs from text to text.

Report = Callable[[int, int], tuple[int, int]]  # from the true tokens of answer and prompt to those that are stated


def reports(seed: int, number: int, deployments: Sequence[str], lies: Mapping[str, Report]) -> Iterator[AttemptRecord]:
    """Yield answers, ``number`` of each deployment in turns. Tokenizers differ by a tenth."""
    draw = random.Random(seed)
    honest = {name: math.exp(draw.gauss(0, 0.05)) for name in deployments}
    for _ in range(number):
        for name in draw.sample(deployments, len(deployments)):
            chars = 40 + int(draw.lognormvariate(6, 1))
            asked = 25 + int(draw.lognormvariate(5.7, 1.2))
            answer = max(1, round(chars * 0.24 * honest[name] * draw.lognormvariate(0, 0.12)))
            prompt = 8 + round((asked - 20) * honest[name] * draw.lognormvariate(0, 0.12))
            if (lie := lies.get(name)) is not None:
                answer, prompt = lie(answer, prompt)
            counts = {"completion_tokens": answer, "prompt_tokens": prompt, "asked_tokens": asked}
            yield won(new_id(), deployment=name, chars=chars, **counts)


def found_in(answers: Iterable[AttemptRecord]) -> list[dict[str, Any]]:
    """Return what is said of these answers, warnings and notes."""
    watch = UsageWatch(Clock())
    with capture_logs() as lines:
        for each in answers:
            watch.answered("m", each)
    return [dict(line) for line in lines if line["event"] in {"usage.far_off", "usage.surplus"}]


LIES: Mapping[str, Report] = {
    "twice the answer": lambda answer, prompt: (2 * answer, prompt),
    "eight times the answer": lambda answer, prompt: (8 * answer, prompt),
    "a tenth of the answer": lambda answer, prompt: (max(1, answer // 10), prompt),
    "100 more for each answer": lambda answer, prompt: (answer + 100, prompt),
    "twice the prompt": lambda answer, prompt: (answer, 2 * prompt),
    "eight times the prompt": lambda answer, prompt: (answer, 8 * prompt),
    "600 more for each prompt": lambda answer, prompt: (answer, prompt + 600),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("others", [1, 3])
def test_who_states_too_much_or_too_little_is_found_within_twenty_answers(lie: str, others: int, seed: int) -> None:
    names = ["liar", *(f"honest-{number}" for number in range(others))]
    found = found_in(reports(seed, ANSWERS, names, {"liar": LIES[lie]}))
    assert {(line["event"], line["deployment"]) for line in found} == {("usage.far_off", "liar")}
    assert {line["of"] for line in found} == {lie.rsplit(maxsplit=1)[-1]}


@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_tokens_more_for_each_prompt_are_a_note(seed: int) -> None:
    lies = {"template": lambda answer, prompt: (answer, prompt + 100)}
    (line,) = found_in(reports(seed, 5 * ANSWERS, ["template", "plain", "other"], lies))
    assert (line["event"], line["log_level"], line["deployment"]) == ("usage.surplus", "info", "template")
    assert line["surplus_tokens"] == pytest.approx(100, rel=0.3)


@pytest.mark.parametrize("reported", [0, 1])
def test_counts_that_cannot_be_are_told_without_another_deployment_too(reported: int) -> None:
    answers = (
        won(new_id(), deployment="zero", chars=900, completion_tokens=225, asked_tokens=600, prompt_tokens=600,
            tokens_source=TokensSource.ESTIMATED, reported_tokens=reported)
        for _ in range(ANSWERS)
    )  # fmt: skip
    (line,) = found_in(answers)
    assert (line["event"], line["deployment"], line["of"], line["times"]) == ("usage.far_off", "zero", "count", 0.0)


@pytest.mark.parametrize("times", [8.0, 0.1])
def test_a_lone_deployment_is_held_against_what_texts_can_have(times: float) -> None:
    lies = {"lone": lambda answer, prompt: (max(1, round(answer * times)), prompt)}
    assert [line["deployment"] for line in found_in(reports(1, ANSWERS, ["lone"], lies))] == ["lone"]


@pytest.mark.parametrize("others", [0, 2])
def test_thinking_that_was_not_sent_is_no_fault(others: int) -> None:
    draw = random.Random(1)
    lies = {"thinker": lambda answer, prompt: (answer + round(draw.lognormvariate(6, 1)), prompt)}
    names = ["thinker", *(f"other-{number}" for number in range(others))]
    assert found_in(reports(1, 20 * ANSWERS, names, lies)) == []


def test_a_prompt_that_was_served_from_a_cache_at_times_is_no_fault() -> None:
    draw = random.Random(1)
    lies = {"cache": lambda answer, prompt: (answer, prompt if draw.random() < 0.5 else 30)}
    assert found_in(reports(1, 20 * ANSWERS, ["cache", "a", "b"], lies)) == []


@pytest.mark.parametrize("deployments", [1, 2, 3, 5])
def test_honest_deployments_are_left_alone_for_days(deployments: int) -> None:
    names = [f"d{number}" for number in range(deployments)]
    assert [line for seed in range(3) for line in found_in(reports(seed, 500, names, {}))] == []
