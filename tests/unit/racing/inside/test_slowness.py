"""A slow stream is found while it runs, and no healthy one is."""

from collections.abc import Iterable, Iterator
from random import Random

import pytest

from gateway.racing.rescue import LEAD_S, SPOKEN_TICK_S, TICK_S, Slowness, VoiceWatch, slow_speed
from gateway.racing.services import MOST_RESCUES, RescueBudget
from tests.unit.racing.inside.slow_streams import HEALTHY
from tests.unit.racing.inside.slow_streams import healthy as healthy_streams

FLOOR_TPS = 3.0


def found_at(gaps_s: Iterable[float], tps: float = FLOOR_TPS, *, paused: Iterable[float] = ()) -> float | None:
    """Return when a stream with these gaps is found slow, in seconds since its first token; None: never.

    ``paused``: how long its client took nothing, in each gap.
    """
    slowness = Slowness(tps, 1, 0.0, 0.0)
    at_s, tokens, tick_s, paused_s = 0.0, 1, TICK_S, 0.0
    pauses = iter(paused)
    for gap_s in gaps_s:
        paused_s += next(pauses, 0.0)
        while tick_s < at_s + gap_s:
            if slowness.look(tokens, at_s, tick_s, paused_s):
                return tick_s
            tick_s += TICK_S
        at_s, tokens = at_s + gap_s, tokens + 1
    return None


def healthy(dice: Random) -> Iterator[float]:
    """Yield gaps at 15 to 120 tok/s with natural jitter, and now and then 1 to 3 s of thinking."""
    tps = dice.uniform(15.0, 120.0)
    for _ in range(dice.randint(20, 1_500)):
        yield dice.uniform(1.0, 3.0) if dice.random() < 0.002 else dice.lognormvariate(-0.3, 0.8) / tps


@pytest.mark.parametrize("seed", range(4))
def test_of_healthy_streams_fewer_than_one_in_a_thousand_is_found(seed: int) -> None:
    dice = Random(seed)
    assert sum(found_at(healthy(dice)) is not None for _ in range(250)) == 0


@pytest.mark.parametrize("kind", HEALTHY)
def test_no_stream_is_found_whose_deployment_is_usually_as_slow_or_as_rough(kind: str) -> None:
    (row,) = healthy_streams(150, 1, [kind])
    assert (row["n"], row["found"], row["tokens"]) == (150, 0, 0.0)


@pytest.mark.parametrize(
    ("fastest", "own", "slow"),
    [(100.0, 40.0, 3.0), (10.0, 40.0, 2.0), (100.0, 8.0, 2.0), (100.0, None, 3.0), (10.0, 4.0, 1.0)],
)
def test_slow_is_less_than_a_share_of_what_is_usual(fastest: float, own: float | None, slow: float) -> None:
    assert slow_speed(FLOOR_TPS, fastest, own) == slow


@pytest.mark.parametrize(("tps", "within_s"), [(0.5, 8.5), (0.8, 6.0), (1.0, 6.0), (1.5, 8.0), (2.0, 12.0)])
def test_a_stream_of_so_few_tokens_per_second_is_always_found(tps: float, within_s: float) -> None:
    for dice in map(Random, range(20)):
        at_s = found_at([dice.uniform(0.8, 1.2) / tps for _ in range(60)])
        assert at_s is not None
        assert 2.0 <= at_s <= within_s


def test_a_brown_out_is_found_after_a_fast_beginning() -> None:
    at_s = found_at([0.02] * 500 + [1.0] * 20)
    assert at_s is not None
    assert 12.0 <= at_s <= 16.0


@pytest.mark.parametrize("pause_s", [3.0, 10.0, 1000.0])
@pytest.mark.parametrize("tps", [0.3, 1.0, 3.0, 20.0])
def test_three_pauses_are_no_slow_stream(pause_s: float, tps: float) -> None:
    fast = [0.1 / tps] * 50
    assert found_at([*fast, pause_s, pause_s, pause_s, *fast], tps) is None


def test_the_time_in_which_its_client_takes_nothing_does_not_count() -> None:
    gaps_s = [1.0] * 30
    assert found_at(gaps_s) is not None
    assert found_at(gaps_s, paused=[0.95] * 30) is None


def test_a_stream_above_the_floor_is_never_found() -> None:
    assert found_at([0.3] * 1000) is None


def test_rescues_have_a_budget_that_each_stream_adds_to() -> None:
    budget = RescueBudget()
    assert [budget.spend() for _ in range(int(MOST_RESCUES) + 1)] == [True] * int(MOST_RESCUES) + [False]
    for _ in range(7):
        budget.earn(0.125)
    assert not budget.spend()
    budget.earn(0.125)
    assert budget.spend()
    budget.earn(1000.0)
    assert sum(budget.spend() for _ in range(1000)) == MOST_RESCUES


def falls_silent_at(arrivals: Iterable[tuple[float, float]], until_s: float = 30.0) -> tuple[float | None, float]:
    """Return when a stream is found that falls behind its voice, and how much the voice had left to say then.

    ``arrivals``: seconds, and of how much speech the text is that came then.
    """
    listening, left = VoiceWatch(), sorted(arrivals)
    heard_until, tick_s = 0.0, 0.0
    while tick_s <= until_s:
        while left and left[0][0] <= tick_s:
            at_s, speech_s = left.pop(0)
            heard_until = max(at_s, heard_until) + speech_s
        if listening.look(tick_s, heard_until):
            return tick_s, heard_until - tick_s
        if not left:
            return None, 0.0
        tick_s += SPOKEN_TICK_S
    return None, 0.0


@pytest.mark.parametrize(
    ("first_s", "gap_s", "word_s"),
    [(0.6, 0.025, 0.35), (0.4, 0.1, 0.35), (4.0, 0.3, 0.35), (0.5, 0.2, 0.35)],
    ids=["usual", "a short clause, ten words a second", "as fast as it is said", "five words a second"],
)
def test_a_stream_that_keeps_ahead_of_its_voice_is_not_found(first_s: float, gap_s: float, word_s: float) -> None:
    assert falls_silent_at([(0.0, first_s), *((number * gap_s, word_s) for number in range(1, 60))]) == (None, 0.0)


@pytest.mark.parametrize("gap_s", [0.6, 1.6, 60.0], ids=["crawls", "hardly moves", "stands still"])
def test_a_stream_that_falls_behind_its_voice_is_found_while_that_still_speaks(gap_s: float) -> None:
    at_s, left_s = falls_silent_at([(0.0, 4.0), *((number * gap_s, 0.35) for number in range(1, 60))])

    assert at_s is not None
    assert 0.0 < left_s < LEAD_S


def test_after_a_short_first_clause_it_is_found_at_once() -> None:
    at_s, _ = falls_silent_at([(0.0, 0.3), (5.0, 0.3)])
    assert at_s == 0.5
