"""A stream that dribbles is found at its end, from its gaps."""

import asyncio
from random import Random
from typing import Any

import pytest

from gateway.core.attempts import AttemptRecord
from gateway.racing import Block, GatheringSink
from gateway.racing.measurement import FEWEST, LATEST, MOST_GAPS, Gaps, Paces, dribbled_after_s
from providers.dialects import CHAT
from tests.unit.racing.track import DONE, FINISH, ROLE, RememberingSink, Step, Timetable, Track, delta, usage
from tests.unit.racing.virtual_time import run

SMOOTH = [0.1] * 100


@pytest.mark.parametrize(
    ("gaps_s", "tps", "after_s"),
    [
        (SMOOTH, 0.2, None),
        ([*SMOOTH, 4.9, *SMOOTH], 0.2, None),  # a pause, but never less than one token in 5 s
        ([*SMOOTH, 5.5, *SMOOTH], 0.2, 15.0),  # 5 s without any
        ([*SMOOTH, *([2.0] * 4), *SMOOTH], 2.0, 14.3),  # then 9 tokens came in 5 s: 10 would be enough
        ([2.0] * 4, 2.0, 5.0),
        ([2.0] * 2, 2.0, None),  # over before it was slow for long enough
        ([], 2.0, None),
    ],
)
def test_it_dribbles_where_too_few_tokens_come_in_any_5_seconds(
    gaps_s: list[float], tps: float, after_s: float | None
) -> None:
    assert dribbled_after_s(gaps_s, 1.0, tps) == (None if after_s is None else pytest.approx(after_s))


@pytest.mark.parametrize("tens", range(20))
def test_it_is_what_counting_in_small_steps_finds(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        is_what_counting_finds(Random(seed))


def is_what_counting_finds(dice: Random) -> None:
    gaps_s = [dice.choice((0.01, 0.1, 0.5, 1.3, 3.1)) for _ in range(dice.randint(1, 60))]
    tokens, tps = dice.choice((0.5, 1.0, 4.0)), dice.choice((0.3, 1.0, 2.0, 6.0))
    at_s = [0.0]
    for gap_s in gaps_s:
        at_s.append(at_s[-1] + gap_s)
    seen = None
    step = 5.0 + 0.0049
    while step < at_s[-1]:
        came = sum(step - 5.0 < at <= step for at in at_s[1:])
        if came * tokens < tps * 5.0:
            seen = step
            break
        step += 0.005
    found = dribbled_after_s(gaps_s, tokens, tps)
    assert (found is None) == (seen is None)
    if found is not None:
        assert found == pytest.approx(seen, abs=0.011)


def test_what_is_usual_is_known_after_some_answers_and_of_the_latest() -> None:
    paces = Paces()
    for number in range(FEWEST - 1):
        paces.add("d", 100.0 + number)
    assert paces.slowest_usual("d") is None
    paces.add("d", 1.0)
    assert paces.slowest_usual("d") == 102.0  # a twentieth was slower
    assert paces.median("d") == 100.0 + FEWEST // 2 - 1
    for _ in range(LATEST):
        paces.add("d", 7.0)
    assert paces.slowest_usual("d") == 7.0
    assert paces.slowest_usual("other") is None


def test_gaps_are_told_in_order_less_what_their_client_took_unless_some_are_no_longer_kept() -> None:
    gaps = Gaps()
    assert gaps.unblocked() is None
    gaps.add(0.5)
    gaps.blocked(2.0)
    gaps.add(2.25)
    gaps.add(0.125)
    gaps.blocked(1.0)  # nothing came any more
    assert gaps.unblocked() == [0.5, 0.25, 0.125]
    for _ in range(MOST_GAPS):
        gaps.add(0.1)
    assert gaps.unblocked() is None


def stream(*gaps_s: float) -> Timetable:
    at, steps = 0.1, list[tuple[float, Step]]([(0.1, ROLE), (0.1, delta("a"))])
    for gap_s in gaps_s:
        at += gap_s
        steps.append((at, delta("word")))
    return Timetable("d", [*steps, (at, FINISH), (at, usage(completion=len(gaps_s) + 1)), (at, DONE), (at, None)])


def usual(number: int = FEWEST) -> Paces:
    paces = Paces()
    for _ in range(number):
        paces.add("d", 10.0)
    return paces


def winner(*gaps_s: float, **options: Any) -> AttemptRecord:
    return run(Track(stream(*gaps_s), **{"paces": usual(), **options}).run()).attempts[0]


def test_a_winner_that_dribbles_is_recorded_with_its_age_then() -> None:
    attempt = winner(*SMOOTH, 6.0, *SMOOTH)
    assert (attempt.outcome, attempt.would_take_over) == ("won", True)
    assert attempt.would_take_over_ms is not None
    assert 10_100 < attempt.would_take_over_ms < 15_200
    assert attempt.last_token_ms == pytest.approx(26_100)


@pytest.mark.parametrize("gaps_s", [SMOOTH, [0.1] * 5, [3.0]], ids=["smooth", "short", "a pause"])
def test_who_does_not_dribble_is_recorded_too(gaps_s: list[float]) -> None:
    attempt = winner(*gaps_s)
    assert (attempt.would_take_over, attempt.would_take_over_ms) == (False, None)


@pytest.mark.parametrize(
    "options",
    [{"paces": usual(FEWEST - 1)}, {"streamed": False, "sink": GatheringSink(CHAT)}],
    ids=["nobody knows what is usual", "whole"],
)
def test_what_is_not_known_is_left_open(options: dict[str, Any]) -> None:
    assert winner(*SMOOTH, 6.0, *SMOOTH, **options).would_take_over is None


def test_a_client_that_takes_nothing_for_seconds_is_not_its_providers_fault() -> None:
    class Slow(RememberingSink):
        async def write(self, block: Block) -> None:
            await super().write(block)
            if len(self.blocks) == 50:
                await asyncio.sleep(8.0)

    assert winner(*SMOOTH, sink=Slow()).would_take_over is False


def test_a_whole_answer_counts_for_what_is_usual() -> None:
    paces = usual(FEWEST - 1)
    winner(*SMOOTH, paces=paces)
    assert paces.slowest_usual("d") == pytest.approx(10.0)


def test_an_answer_that_came_with_its_first_token_has_no_speed() -> None:
    paces = Paces()
    for _ in range(20):
        paces.add("d", 0.0)
    assert paces.median("d", 1) is paces.slowest_usual("d", 1) is None
