"""The demo's fleet and audits: what a newcomer sees of racing's worth after a minute, on draws instead of requests."""

from collections.abc import Sequence
from math import inf
from random import Random
from statistics import fmean

import pytest

from gateway.replay import Replayed, advice, replay, settings
from gateway.replay.world import DrawnAttempt
from gateway.server import with_demo
from gateway.settings import Settings
from providers.simulator import CHAT_MODEL, DEMO_FLEET, Fate, Persona, are_demo
from tests.support.replayed import ledger
from tests.support.savings import LEAST_AUDITS, Overtaken, saved

MINUTE = 120  # calls: fewer than the page sends in one
SEEDS = range(20)
DEMO = with_demo(Settings(), {persona.name: f"http://127.0.0.1/{persona.name}" for persona in DEMO_FLEET})
AUDIT_SHARE = DEMO.models[CHAT_MODEL].race.audit_share
RACERS = sorted(DEMO_FLEET, key=lambda persona: persona.ttft_median_s)[:3]


def attempt(persona: Persona, random: Random) -> DrawnAttempt:
    run = persona.draw(random, 10)
    return DrawnAttempt(f"{persona.name}/{CHAT_MODEL}", 1000 * run.ttft_s, failed=run.fate is not Fate.ANSWER)


def calls(seed: int, count: int = MINUTE) -> list[list[DrawnAttempt]]:
    """Races of two of the three that the gateway soon prefers, in no better order than by chance."""
    random = Random(f"demo {seed}")
    return [[attempt(persona, random) for persona in random.sample(RACERS, len(RACERS))] for _ in range(count)]


def overtaken(drawn: Sequence[Sequence[DrawnAttempt]], random: Random) -> list[Overtaken]:
    """The calls whose first attempt lost; what the others of its deployment took is predicted for it."""
    answered = [(first, second) for first, second, *_ in drawn if not first.failed and not second.failed]

    def later(name: str, than_ms: float) -> float:
        waits = [first.ms for first, _ in answered if first.deployment == name and first.ms > than_ms]
        return fmean(waits) if waits else than_ms

    return [
        Overtaken(second.ms, first.ms, later(first.deployment, second.ms), audited=random.random() < AUDIT_SHARE)
        for first, second in answered
        if second.ms < first.ms
    ]


@pytest.fixture(scope="module")
def what_ifs() -> list[Replayed]:
    return [replayed(seed) for seed in range(4)]


def replayed(seed: int, count: int = MINUTE) -> Replayed:
    rows = ledger(calls(seed, count), AUDIT_SHARE, Random(seed))
    return replay(rows, settings((0.2, 0.5)), Random(1), window_s=60.0)


def test_in_a_minute_racing_is_worth_its_while_with_an_interval_that_says_so() -> None:
    held = 0
    for seed in SEEDS:
        lost = overtaken(calls(seed), Random(seed))
        truth_ms = sum(each.alone_ms - each.ttft_ms for each in lost)
        told = saved(lost)
        assert sum(each.audited for each in lost) >= LEAST_AUDITS
        assert told.low_ms is not None
        assert told.high_ms is not None
        assert 0 < told.low_ms < told.ms < told.high_ms
        held += told.low_ms <= truth_ms <= told.high_ms
    assert held >= 0.9 * len(SEEDS)


def test_in_a_minute_what_if_answers_with_an_interval_of_p95(what_ifs: list[Replayed]) -> None:
    for found in what_ifs:
        assert found.is_enough
        single, two = (
            next(each for each in found.outcomes if each.setting == name) for name in ("single", "race of 2")
        )
        assert single.ttft["p95"].value is not None
        assert single.ttft["p95"].low is not None
        assert single.ttft["p95"].low < single.ttft["p95"].value < (single.ttft["p95"].high or inf)
        assert two.ttft["p50"].value is not None
        assert two.ttft["p50"].value < (single.ttft["p50"].value or 0.0)


def test_what_if_says_that_few_calls_make_wide_intervals_and_tells_no_p99(what_ifs: list[Replayed]) -> None:
    for found in what_ifs:
        assert advice(found).why.endswith(f"These are only {MINUTE} calls, so the intervals are wide.")
        assert {outcome.ttft["p99"].value for outcome in found.outcomes} == {None}


@pytest.mark.parametrize("persona", DEMO_FLEET, ids=lambda persona: persona.name)
def test_a_provider_of_the_demo_has_the_p50_and_the_p95_that_are_published(persona: Persona) -> None:
    published_ms = {
        "sim-swift": (556, 2313),
        "sim-steady": (645, 1094),
        "sim-bursty": (761, 2221),
        "sim-slow": (1068, 3017),
        "sim-capped": (731, 1106),
    }
    random = Random(3)
    drawn_ms = sorted(1000 * persona.draw(random, 0).ttft_s for _ in range(20_000))
    for share, ms in zip((0.5, 0.95), published_ms[persona.name], strict=True):
        assert drawn_ms[int(share * len(drawn_ms))] == pytest.approx(ms, rel=0.05)
    # the half below the median is narrow: a lognormal of its p95 alone would have first tokens far too early
    assert drawn_ms[len(drawn_ms) // 4] / drawn_ms[len(drawn_ms) // 2] == pytest.approx(0.87, abs=0.02)


def test_only_the_simulated_fleet_is_the_demo() -> None:
    assert are_demo(DEMO.providers)
    assert not are_demo(["sim-swift"])
    assert not are_demo([*DEMO.providers, "groq"])
