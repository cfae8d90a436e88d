"""When a deployment is probed: the rules."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from gateway.app.prober import MAX_WAIT_S, most_usd, refusal, unwell, wait_s
from gateway.core.records import DailyFacts, NotProbed
from gateway.fleet import Clocks, Deployment
from gateway.settings import ProbeSettings
from gateway.steering import STRIKES, Health, HealthState
from gateway.steering.constants import OPEN_S, UNPROBED_S
from providers import Price

if TYPE_CHECKING:
    from providers import Upstream

NOON = datetime(2026, 10, 5, 12, tzinfo=UTC)
QUIET = ProbeSettings(quiet_s=600, usd_per_day=1.0, max_per_day=10)


def priced(price: Price | None) -> Deployment:
    return Deployment(
        name="a/m",
        provider="a",
        model="m",
        upstream=cast("Upstream", None),
        clocks=Clocks(1.0, 1.0, 1.0, None),
        price=price,
        bills_after_disconnect=None,
        extra_body={},
        upstream_stream=True,
    )


def ago(seconds: float) -> datetime:
    return NOON - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, None),
        ({"spent_usd": 0.95}, None),
        ({"spent_usd": 0.96}, NotProbed.MONEY),
        ({"probes": 9}, None),
        ({"probes": 10}, NotProbed.NUMBER),
        ({"probed_at": ago(601)}, None),
        ({"probed_at": ago(599)}, NotProbed.IN_USE),
        ({"called_at": ago(601)}, None),
        ({"called_at": ago(599)}, NotProbed.IN_USE),
        ({"is_broken": True}, NotProbed.BROKEN),
        ({"probed_at": ago(1199), "failures": 1}, NotProbed.BACKED_OFF),
        ({"probed_at": ago(1201), "failures": 1}, None),
    ],
)
def test_what_the_book_knows_decides(facts: dict[str, Any], reason: NotProbed | None) -> None:
    known = DailyFacts(**{"spent_usd": 0.0, "probes": 0} | facts)
    assert refusal(known, QUIET, 0.05, NOON) is reason


def test_what_costs_nothing_is_sent_without_a_budget() -> None:
    free = ProbeSettings(usd_per_day=0)
    nothing = DailyFacts(spent_usd=0.0, probes=0)
    assert refusal(nothing, free, 0.0, NOON) is None
    assert refusal(nothing, free, 1e-9, NOON) is NotProbed.MONEY


def test_failures_in_a_row_double_the_wait_up_to_a_day() -> None:
    assert [wait_s(600, failures) for failures in range(4)] == [600, 1200, 2400, 4800]
    assert wait_s(3600, 1000) == MAX_WAIT_S
    assert wait_s(2 * MAX_WAIT_S, 3) == 2 * MAX_WAIT_S  # never sooner than without a failure


def test_a_new_deployment_is_quiet_and_a_used_one_is_not() -> None:
    health = Health()
    assert unwell(health, 600, 1000.0) is None
    health.launched(1000.0)
    assert unwell(health, 600, 5000.0) is NotProbed.IN_USE  # it runs
    health.ended()
    assert unwell(health, 600, 1599.0) is NotProbed.IN_USE
    assert unwell(health, 600, 1600.0) is None


def test_a_broken_one_is_not_probed_before_a_call_has_closed_its_breaker() -> None:
    health = Health()
    for _ in range(STRIKES):
        health.strike(1000.0)
    for now_s in (1001.0, 1000.0 + OPEN_S + 1, 1000.0 + OPEN_S + UNPROBED_S + 1, 1e6):
        assert unwell(health, 1, now_s) is NotProbed.BROKEN
    assert health.condition(1e6).state is HealthState.OK  # on trial, which is for calls
    assert health.delivered(0.1, 0.2, 1e6)
    assert unwell(health, 1, 1e6) is None


def test_one_that_is_out_or_cools_down_is_not_probed() -> None:
    out, cooling = Health(), Health()
    out.refuse(1000.0)
    assert unwell(out, 1, 1e6) is NotProbed.OUT
    cooling.rate_limited(30.0, 1000.0)
    assert unwell(cooling, 1, 1029.0) is NotProbed.COOLING
    assert unwell(cooling, 1, 1031.0) is None


def test_what_little_is_left_of_a_rate_limit_is_for_calls() -> None:
    health = Health()
    health.limit_left(0.1, 1000.0)
    assert unwell(health, 1, 1001.0) is NotProbed.HEADROOM
    assert unwell(health, 1, 2000.0) is None  # it has filled up since


def test_the_most_that_a_probe_can_cost() -> None:
    settings = ProbeSettings(max_tokens=10)
    dear = Price(1e-6, 4e-6, cache_write_usd=2e-6, reasoning_usd=5e-6)
    assert most_usd(priced(dear), 136, settings) == pytest.approx(200 * 2e-6 + 10 * 5e-6)
    assert most_usd(priced(None), 136, settings) is None
    assert most_usd(priced(None), 136, ProbeSettings(usd_if_unknown=0.01)) == 0.01
