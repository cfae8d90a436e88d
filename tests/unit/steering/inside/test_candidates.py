import pytest

from gateway.core.calls import Objective
from gateway.core.prompt_classes import MeasuredApi
from gateway.settings import RaceSettings
from gateway.steering import Health, Terms, event
from gateway.steering.candidates import Candidate, Tier, candidates
from gateway.steering.counts import Counts, read_evidence
from gateway.steering.estimates import standings
from providers import Price

PRICES = {"cheap": Price(input_usd=1e-6, output_usd=1e-6), "dear": Price(input_usd=1e-5, output_usd=1e-5)}
COST = RaceSettings(objective=Objective.COST, ttft_ms=1000)


def seen(name: str, ttft_s: float, times: int) -> Counts:
    return {event(name, MeasuredApi.ANSWERS, ttft_s): float(times), f"{name}|n": float(times)}


def made(counts: Counts) -> dict[str, Candidate]:
    conditions = {name: Health().condition(0.0) for name in PRICES}
    terms = Terms(objective=Objective.COST, prompt_tokens=100, prices=PRICES)
    return {item.deployment: item for item in candidates(conditions, standings(read_evidence(counts)), COST, terms)}


def test_under_cost_whoever_keeps_the_time_competes_on_dollars() -> None:
    found = made({**seen("cheap", 0.3, 50), **seen("dear", 0.2, 50)})
    assert (found["cheap"].tier, found["dear"].tier) == (Tier.FREE, Tier.FREE)
    assert found["cheap"].rank_usd == pytest.approx(found["dear"].rank_usd / 10)


def test_under_cost_whoever_is_too_late_is_a_last_resort() -> None:
    found = made({**seen("cheap", 3.0, 50), **seen("dear", 0.2, 50)})
    assert (found["cheap"].tier, found["dear"].tier) == (Tier.MISSES, Tier.FREE)


def test_whoever_is_hardly_known_is_tried_when_the_others_are_too_late() -> None:
    found = made(seen("cheap", 3.0, 50))
    assert (found["cheap"].tier, found["dear"].tier) == (Tier.MISSES, Tier.FREE)
