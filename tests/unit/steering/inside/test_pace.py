"""A day's dollars, paced: simulated days with a daily load, in virtual time."""

from collections.abc import Mapping, Sequence
from functools import cache
from math import cos, inf, pi
from random import Random
from typing import Any

import pytest

from gateway.core.attempts import Role
from gateway.core.calls import HourlySum
from gateway.settings import RaceSettings
from gateway.steering import Explanation, Spending
from gateway.steering.budget import Budgets, Pace
from gateway.steering.plans import Offer
from gateway.steering.worth import best
from providers import Price
from tests.unit.steering.virtual_replica import MODEL, VirtualReplica

MIDNIGHT_S = 1_800_057_600.0  # 2027-01-16, UTC
DAY_S, HOUR_S = 86_400.0, 3600.0
CALLS = 12_000  # a day
NEWS_S = 2.0  # what replicas spend is known to the others so much later


class Days:
    """A fleet of replicas, each with a share of the calls; most come at noon, eight times as many as at midnight."""

    def __init__(self, usd_per_day: float, *, replicas: int = 1, value_usd_per_s: float | None = None) -> None:
        self.now_s = MIDNIGHT_S
        self._random = Random(1)
        self._race = RaceSettings(usd_per_day=usd_per_day, value_usd_per_s=value_usd_per_s)
        self._spendings = [Spending(lambda: self.now_s) for _ in range(replicas)]
        self._fleet = [Budgets(spending) for spending in self._spendings]
        self._told_at_s = MIDNIGHT_S
        self._restarts: tuple[int, float] | None = None
        self._gone: list[Mapping[str, float]] = []  # what replicas had spent that are gone; it stays in Redis

    def run(self) -> tuple[float, float, list[float]]:
        """Run a day; return the dollars that were spent, the seconds saved, and the dollars by hour."""
        begin_s = self.now_s
        arrivals = sorted(self._arrival_s() for _ in range(CALLS))
        usd, saved_s, by_hour = 0.0, 0.0, [0.0] * 24
        for at_s in arrivals:
            self.now_s = begin_s + at_s
            if self._restarts is not None and self.now_s > self._restarts[1]:
                self._restart(self._restarts[0])
                self._restarts = None
            self._tell()
            mine = self._random.choice(self._fleet)
            chosen, cost_usd = self._one_call(mine)
            if chosen is not None:
                usd, saved_s = usd + cost_usd, saved_s + chosen.saved_s
                by_hour[int(at_s // HOUR_S)] += cost_usd
        self.now_s = begin_s + DAY_S
        return usd, saved_s, by_hour

    def _arrival_s(self) -> float:
        while True:
            at_s = self._random.uniform(0.0, DAY_S)
            if self._random.random() < self._load(at_s):
                return at_s

    def _one_call(self, mine: Budgets) -> tuple[Offer | None, float]:
        offers, cost_usd = draw(self._random)
        mine.call("m", self._race, self.now_s)
        race, _ = mine.paced("m", self._race)
        chosen = best(offers, race.value_usd_per_s, race.budget) if race.value_usd_per_s else offers[0]
        if chosen is None or (chosen.delay_s and self._random.random() > chosen.starts):
            return None, 0.0
        limit = mine.exceeded_limit(race, cost_usd=cost_usd, payer="m")
        if limit is not None:
            return None, 0.0
        mine.of("m").tokens = 20.0  # the budget is no limit
        assert mine.draw("m", Role.RACE, race, cost_usd=cost_usd, payer="m", now_s=self.now_s) is None
        return chosen, cost_usd

    def restart(self, replica: int, after_s: float) -> None:
        """Let a replica forget, so long after now, all but what the ledger knows of the day before."""
        self._restarts = replica, self.now_s + after_s

    def _restart(self, replica: int) -> None:
        self._gone.append(self._spendings[replica].own_usd()[1])
        self._spendings[replica] = Spending(lambda: self.now_s)
        mine = self._fleet[replica] = Budgets(self._spendings[replica])
        instants = [self.now_s - DAY_S + hour * HOUR_S for hour in range(24)]
        mine.recollect(HourlySum("m", "b", 0, at_s, "n", 0, CALLS * self._load(at_s)) for at_s in instants)

    def _load(self, at_s: float) -> float:
        return (1.0 - 7 / 9 * cos(2 * pi * at_s / DAY_S)) / 2

    def _tell(self) -> None:
        if self.now_s < self._told_at_s + NEWS_S:
            return
        self._told_at_s = self.now_s
        own = [spending.own_usd() for spending in self._spendings]
        for mine, spending in enumerate(self._spendings):
            for name in own[mine][1]:
                others = sum(each[1].get(name, 0.0) for number, each in enumerate(own) if number != mine)
                others += sum(each.get(name, 0.0) for each in self._gone)
                spending.learn(own[mine][0], name, others)


def draw(random: Random) -> tuple[Sequence[Offer], float]:
    """Return what a call can buy, and what an attempt may cost at most, US dollars."""
    prompt_usd, slow_s = random.lognormvariate(-7.5, 0.8), random.expovariate(3.0)
    race, hedge = Offer("b", 0.0, 1.0, slow_s / 4, prompt_usd), Offer("b", 0.5, 0.2, slow_s, prompt_usd)
    return (race, hedge), 2.0 * prompt_usd


@cache
def all_of_them() -> float:
    """Return what all that can be bought in a day costs."""
    usd, _, _ = Days(1e12).run()
    return usd


@cache
def three_days(share: float, *, replicas: int) -> list[tuple[float, float, list[float]]]:
    """Return what three days come to, the same each time, with a limit of this share of what can be bought."""
    days = Days(share * all_of_them(), replicas=replicas)
    return [days.run() for _ in range(3)]


@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.7])
def test_the_sum_is_spent_over_the_day_and_never_exceeded(share: float, replicas: int) -> None:
    limit_usd = share * all_of_them()
    late_news = 1.0 if replicas == 1 else 1.002
    first, *known = three_days(share, replicas=replicas)
    usd, _, by_hour = first  # of the day's load nothing is known, so that it is spent evenly
    assert 0.85 * limit_usd <= usd <= late_news * limit_usd
    assert max(by_hour) < 0.1 * limit_usd
    for usd, _, by_hour in known:
        assert 0.95 * limit_usd <= usd <= late_news * limit_usd
        assert sum(by_hour[9:15]) == pytest.approx(0.4 * limit_usd, rel=0.15)  # as the calls are


def test_dollars_that_are_paced_save_more_than_those_of_who_comes_first() -> None:
    limit_usd = 0.05 * all_of_them()
    _, first_come_s, by_hour = Days(limit_usd, value_usd_per_s=0.0).run()
    assert sum(by_hour[:6]) == pytest.approx(limit_usd, rel=0.01)
    (_, paced_s, _), (_, known_s, _), _ = three_days(0.05, replicas=1)
    assert paced_s > 5 * first_come_s
    assert known_s > 1.02 * paced_s


def test_a_sum_that_is_large_enough_changes_nothing() -> None:
    everything_usd = all_of_them()
    usd, _, _ = Days(1.5 * everything_usd).run()
    assert usd >= 0.95 * everything_usd


def test_a_replica_that_is_restarted_comes_to_the_same_value_as_the_others() -> None:
    limit_usd = 0.3 * all_of_them()
    _, _, without = three_days(0.3, replicas=4)
    days = Days(limit_usd, replicas=4)
    days.run()
    days.run()
    days.restart(3, after_s=9 * HOUR_S)
    restarted = days.run()
    for usd, _, _ in (without, restarted):
        assert 0.9 * limit_usd <= usd <= 1.002 * limit_usd
    assert restarted[1] >= 0.97 * without[1]


def test_the_value_that_is_found_decides_and_is_explained() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.3, b=0.35)
    prices = dict.fromkeys("ab", Price(input_usd=1e-6, output_usd=4e-6))

    def hour(value_usd_per_s: float | None = None) -> tuple[int, Explanation]:
        extra, told = 0, None
        for _ in range(60):
            replica.now_s += 60.0
            race: dict[str, Any] = {"usd_per_day": 0.05, "value_usd_per_s": value_usd_per_s}
            made = replica.plan(prices=prices, holds=False, explain=True, **race)
            for each in made.launches:
                if each.role in {Role.RACE, Role.HEDGE} and not each.delay_s:
                    cost_usd, settings = made.cost_usd[each.deployment], RaceSettings.model_validate(race)
                    extra += replica.steering.draw_extra(MODEL, each, settings, cost_usd=cost_usd) is None
            told = made.explanation
        assert told is not None
        return extra, told

    raced, _ = hour()
    later, told = hour()
    assert later < raced
    value = told.value_usd_per_s
    assert value is not None
    assert f"usd_per_day lasts until midnight UTC if a second is worth ${value:.2g}" in told.notes
    _, least = hour(value_usd_per_s=1e-9)  # a value that is set is the most that a second is worth
    assert least.value_usd_per_s == 1e-9
    assert not any("usd_per_day lasts" in note for note in least.notes)
    _, by_budget = hour(value_usd_per_s=0.0)
    assert by_budget.value_usd_per_s is None


@pytest.mark.parametrize("mode", ["single", "hedge", "race"])
def test_where_the_mode_does_as_it_is_told_nothing_is_said_of_a_value(mode: str) -> None:
    now_s = MIDNIGHT_S
    budgets = Budgets(Spending(lambda: now_s))
    for number in range(60):
        now_s = MIDNIGHT_S + 60.0 * number
        race = RaceSettings.model_validate({"usd_per_day": 1.0, "mode": mode})
        budgets.call(MODEL, race, now_s)
        budgets.draw(MODEL, Role.RACE, race, cost_usd=0.01, payer=MODEL, now_s=now_s)
        assert budgets.paced(MODEL, race) == (race, ())
    assert budgets.paced(MODEL, RaceSettings(usd_per_day=1.0))[1]


def test_an_hour_in_which_others_calls_become_unknown_has_none_and_not_fewer() -> None:
    by_hour: dict[int, float] = {}
    pace = Pace(MODEL, by_hour)
    for hour, calls in ((0.0, 1.0), (0.9, 1000.0), (1.0, 1001.0), (1.5, 5.0), (2.0, 6.0)):
        pace.call(MIDNIGHT_S + hour * HOUR_S, 0.0, calls, 10.0)
    assert by_hour == {1: 0.0}


def _value_after_half_an_hour(*, told_late: bool) -> float | None:
    """Return what a second is worth where nearly all of the day before came in its first hour, as the ledger tells."""
    now_s = MIDNIGHT_S
    budgets, race = Budgets(Spending(lambda: now_s)), RaceSettings(usd_per_day=10.0)
    sums = [
        HourlySum(MODEL, "b", 0, MIDNIGHT_S - DAY_S + hour * HOUR_S, "n", 0, 1.0 if hour else 1000.0)
        for hour in range(24)
    ]
    for minute in range(30):
        if bool(minute) is told_late and minute <= 1:
            budgets.recollect(sums)
        now_s = MIDNIGHT_S + 60.0 * minute
        budgets.call(MODEL, race, now_s)
        budgets.of(MODEL).tokens = 20.0
        budgets.draw(MODEL, Role.RACE, race, cost_usd=0.1, payer=MODEL, now_s=now_s)
    return budgets.paced(MODEL, race)[0].value_usd_per_s


def test_what_others_were_asked_while_a_replica_had_no_call_is_not_of_the_hour_of_its_next_one() -> None:
    by_hour: dict[int, float] = {}
    pace = Pace(MODEL, by_hour)
    for hour, calls in ((1, 100.0), (2, 110.0), (10, 461.0), (11, 521.0)):
        pace.call(MIDNIGHT_S + hour * HOUR_S, 0.0, calls, 24.0)
    assert by_hour == {2: 10.0, **dict.fromkeys(range(3, 10), 50.0), 10: 1.0}


def test_what_the_ledger_tells_of_the_day_before_counts_also_after_the_first_call() -> None:
    assert _value_after_half_an_hour(told_late=False) is None  # so much may be spent now: all that the budget allows
    assert _value_after_half_an_hour(told_late=True) is None


def test_a_clock_that_was_hours_ahead_does_not_stop_the_pacing() -> None:
    pace = Pace(MODEL, {})
    for hour in (12.0, 17.0):
        pace.call(MIDNIGHT_S + hour * HOUR_S, 0.0, 1.0, 10.0)
    for minute in range(1, 30):
        pace.paid(MODEL, 0.1)
        pace.call(MIDNIGHT_S + 12 * HOUR_S + 60.0 * minute, 0.1 * minute, 1.0 + minute, 10.0)
    assert pace.value_usd_per_s < inf


@pytest.mark.parametrize("limit_usd", [0.0, 5e-324, 1e-300, 1e300, inf])
def test_a_sum_of_any_size_is_paced_without_an_error(limit_usd: float) -> None:
    pace = Pace(MODEL, {})
    for minute in range(5):
        pace.call(MIDNIGHT_S + 70.0 * minute, 0.0, minute + 1.0, limit_usd)
        pace.paid(MODEL, 0.001)
    assert pace.value_usd_per_s >= 0.0
