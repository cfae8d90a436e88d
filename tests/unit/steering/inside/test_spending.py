"""Dollars per day: what extra attempts may have cost."""

from random import Random

import pytest

from gateway.core.attempts import Role
from gateway.core.calls import Objective, Spent
from gateway.core.prompt_classes import answer_class
from gateway.settings import RaceSettings
from gateway.steering import Health, Launch, MemoryBoard, Spending, Steering, Terms
from gateway.steering.budget import Budgets

MIDNIGHT_S = 1_800_057_600.0  # 2027-01-16, UTC


class Clock:
    def __init__(self) -> None:
        self.now_s = MIDNIGHT_S - 60

    def __call__(self) -> float:
        return self.now_s


def test_a_limit_is_reached_and_never_passed() -> None:
    spending = Spending(Clock())
    started = 0
    while spending.may_spend("m", 0.3, 1.0):
        spending.charge("m", 0.3)
        started += 1
    assert started == 3
    assert spending.may_spend("m", 0.1, 1.0)
    assert spending.may_spend("another", 1.0, 1.0)
    assert not spending.may_spend("another", 0.01, 0.0)


def test_what_the_others_have_spent_counts() -> None:
    spending = Spending(Clock())
    spending.charge("m", 0.25)
    day, own = spending.own_usd()
    assert (day, own) == ("2027-01-15", {"m": 0.25})
    spending.learn(day, "m", 0.5)
    assert spending.today_usd("m") == 0.75
    assert not spending.may_spend("m", 0.5, 1.0)


def test_each_day_begins_with_nothing_spent_and_yesterdays_news_are_late() -> None:
    clock = Clock()
    spending = Spending(clock)
    spending.charge("m", 1.0)
    yesterday, _ = spending.own_usd()
    clock.now_s = MIDNIGHT_S
    assert spending.may_spend("m", 1.0, 1.0)
    spending.learn(yesterday, "m", 5.0)
    assert spending.today_usd("m") == 0.0


def test_a_model_asked_about_is_one_to_hear_of_from_the_others() -> None:
    spending = Spending(Clock())
    assert spending.may_spend("m", 0.1, 1.0)
    assert spending.own_usd()[1] == {"m": 0.0}


def test_when_the_days_dollars_are_spent_races_get_narrower_and_it_is_said_by_which_limit() -> None:
    refused: list[tuple[str, str]] = []
    clock = Clock()
    steering = Steering(
        MemoryBoard(),
        clock=clock,
        unix_clock=clock,
        random=Random(1),
        on_refused=lambda model, limit: refused.append((model, limit)),
    )
    race = RaceSettings(budget=1.0, usd_per_day=0.5)
    extra = Launch("b", 0.0, Role.RACE)
    limits = [steering.draw_extra("m", extra, race, cost_usd=0.2) for _ in range(3)]
    assert limits == [None, None, "usd_per_day"]
    assert steering.draw_extra("m", extra, race, cost_usd=0.1) is None  # a cheaper one still fits
    assert steering.draw_extra("m", extra, race, cost_usd=None) is None  # no price is known: it counts as nothing
    assert steering.draw_extra("m", extra, race, cost_usd=0.2) == "usd_per_day"
    while steering.draw_extra("m", extra, race, cost_usd=0.0) is None:
        pass
    assert refused == [("m", "usd_per_day"), ("m", "usd_per_day"), ("m", "budget")]
    clock.now_s = MIDNIGHT_S
    assert steering.draw_extra("m", extra, race, cost_usd=0.2) == "budget"


def test_a_fallback_beside_a_late_model_is_charged_and_refused_only_for_dollars_where_it_is_not_needed() -> None:
    clock, spending, refused = Clock(), Spending(Clock()), list[tuple[str, str]]()
    steering = Steering(
        MemoryBoard(),
        clock=clock,
        unix_clock=clock,
        random=Random(1),
        spending=spending,
        on_refused=lambda model, limit: refused.append((model, limit)),
    )
    race, fallback = RaceSettings(budget=0.1, usd_per_day=0.5), Launch("b", 0.0, Role.FALLBACK)
    before = steering.extra_attempts_left("m")
    assert steering.draw_extra("m", fallback, race, cost_usd=0.4) is None
    assert steering.draw_extra("m", fallback, race, cost_usd=0.4) == "usd_per_day"
    assert steering.draw_extra("m", fallback, race, cost_usd=0.4, is_needed=True) is None
    assert (steering.extra_attempts_left("m"), spending.today_usd("m")) == (before - 2, pytest.approx(0.8))
    assert refused == [("m", "usd_per_day")]
    hung = [steering.draw_extra("m", fallback, race, cost_usd=None) for _ in range(50)]
    assert hung == [None] * 48 + ["budget"] * 2
    assert steering.extra_attempts_left("m") == -before  # hangs do not end racing for longer than a burst
    assert steering.draw_extra("m", Launch("b", 0.0, Role.HEDGE), race, cost_usd=None) == "budget"


def test_however_a_list_of_models_is_written_one_of_them_pays_and_counts_its_calls() -> None:
    spending, clock = Spending(Clock()), Clock()
    steering = Steering(MemoryBoard(), clock=clock, unix_clock=clock, random=Random(1), spending=spending)
    race, terms = RaceSettings(budget=1.0, usd_per_day=5.0), Terms(Objective.FIRST_TOKEN, 100)
    for number in range(100):
        name = f"m,{' ' * number}other"
        steering.plan(name, ("a", "b"), race, terms, answer_class(0), payer="m")
        steering.draw_extra(name, Launch("b", 0.0, Role.RACE), race, cost_usd=0.01, payer="m")
    _, own = spending.own_usd()
    assert own == {"m\0calls": 100.0, "m": pytest.approx(1.0)}


def test_a_restart_goes_on_from_what_extra_attempts_have_cost_by_the_ledger() -> None:
    clock = Clock()
    spending = Spending(clock)
    rows = [Spent("team", "m", 5.0, 0.5), Spent(None, "m, other", 1.0, 0.25), Spent(None, "other", 1.0)]
    spending.recollect(rows, clock(), lambda name: name.partition(",")[0])
    assert (spending.today_usd("m"), spending.today_usd("other")) == (0.75, 0.0)
    spending.charge("m", 0.125)
    assert not spending.may_spend("m", 0.25, 1.0)
    day, own = spending.own_usd()
    assert own["m"] == 0.125  # the others hear of it from those who have spent it
    spending.learn(day, "m", 1.5)  # of which the ledger has a part
    assert spending.today_usd("m") == 1.625
    clock.now_s = MIDNIGHT_S
    assert spending.today_usd("m") == 0.0


def lost(model: str, usd: float) -> Spent:
    """What attempts for ``model`` cost that lost a race, in calls of whichever model."""
    return Spent(None, model, 0.0, lost_usd=usd)


def test_what_races_of_a_fallback_have_cost_is_the_fallbacks() -> None:
    """The ledger has extra attempts under the model that was asked for, and losers under the one they ran for."""
    spending = Spending(Clock())
    asked = [Spent("team", "m", 9.0, 0.75), Spent("team", "spare", 9.0, 0.125)]
    spending.recollect([*asked, lost("m", 0.25), lost("spare", 0.625)], Clock()())
    assert (spending.today_usd("m"), spending.today_usd("spare")) == (0.25, 0.625)


def test_extra_attempts_that_failed_stay_with_the_model_that_was_asked_for() -> None:
    spending = Spending(Clock())
    spending.recollect([Spent("team", "m", 9.0, 0.75), lost("m", 0.25), lost("spare", 0.375)], Clock()())
    assert (spending.today_usd("m"), spending.today_usd("spare")) == (0.375, 0.375)


def test_of_several_models_with_one_fallback_each_gives_by_what_it_has_too_much() -> None:
    spending = Spending(Clock())
    asked = [Spent("team", "a", 9.0, 0.75), Spent("team", "b", 9.0, 0.25)]
    spending.recollect([*asked, Spent("team", "c", 9.0, 0.5), lost("c", 0.5), lost("spare", 0.5)], Clock()())
    found = [spending.today_usd(name) for name in ("a", "b", "c", "spare")]
    assert found == [0.375, 0.125, 0.5, 0.5]


def test_a_clock_that_jumps_to_another_day_and_back_has_spent_what_it_had_spent() -> None:
    clock = Clock()
    spending = Spending(clock)
    spending.charge("m", 1.0)
    clock.now_s += 86_400
    assert spending.may_spend("m", 1.0, 1.0)
    clock.now_s -= 86_400
    assert not spending.may_spend("m", 0.1, 1.0)


def test_a_lull_of_ten_seconds_makes_no_more_room_under_rate_limits() -> None:
    budgets, (limited, other) = Budgets(Spending(Clock())), (Health(), Health())
    for number in range(120):
        budgets.call("m", RaceSettings(), number * 0.25)
        (other if number % 3 else limited).launched(number * 0.25)
    limited.rate_limited(30.0, 29.9)
    rooms = [budgets.room("m", [limited, other], now_s)[0] for now_s in (31.0, 40.0)]
    assert rooms == [0.0, 0.0]


# Clients share a day's dollars.

DAY_S = 86_400.0


def spent(spending: Spending, client: str | None, *, usd: float = 0.01, limit_usd: float = 1.0) -> float:
    """Let ``client`` spend as much as it may at once; return how much that was."""
    total_usd = 0.0
    spending.called("m", client)
    while spending.may_spend("m", usd, limit_usd, client):
        spending.charge("m", usd, client)
        total_usd += usd
    return total_usd


def at_midnight() -> tuple[Clock, Spending]:
    clock = Clock()
    clock.now_s = MIDNIGHT_S
    return clock, Spending(clock)


@pytest.mark.parametrize("client", ["app", None])
def test_a_client_alone_may_spend_all_of_a_day_at_once(client: str | None) -> None:
    _, spending = at_midnight()
    assert spent(spending, client) == pytest.approx(1.0, abs=0.011)


@pytest.mark.parametrize("greedy", ["greedy", None])
@pytest.mark.parametrize("fair", [("fair",), tuple(f"fair-{number}" for number in range(9))])
def test_who_races_each_call_leaves_the_others_their_part_of_the_day(greedy: str | None, fair: tuple[str, ...]) -> None:
    _, spending = at_midnight()
    for each in fair:
        spending.called("m", each)
    part_usd = 1.0 / (len(fair) + 1)
    assert spent(spending, greedy) == pytest.approx(part_usd, abs=0.011)
    for each in fair:
        assert spent(spending, each) == pytest.approx(part_usd, abs=0.011)


def test_nor_do_several_that_race_each_call() -> None:
    _, spending = at_midnight()
    for each in ("one", "other", "fair"):
        spending.called("m", each)
    assert spent(spending, "one") + spent(spending, "other") == pytest.approx(2 / 3, abs=0.021)
    assert spent(spending, "fair") == pytest.approx(1 / 3, abs=0.011)


def test_nor_does_one_that_begins_late_in_the_day() -> None:
    clock, spending = at_midnight()
    clock.now_s += DAY_S - 3600.0
    spending.called("m", "fair")
    assert spent(spending, "greedy") == pytest.approx(0.5, abs=0.011)
    clock.now_s += 1800.0
    assert spent(spending, "greedy") == pytest.approx(0.25, abs=0.011)
    assert spent(spending, "fair") == pytest.approx(0.25, abs=0.011)


def test_what_others_do_not_spend_is_spent_in_the_course_of_the_day() -> None:
    clock, spending = at_midnight()
    for number in range(9):
        spending.called("m", f"silent-{number}")
    total_usd, by_hour = 0.0, list[float]()
    for hour in range(24):
        clock.now_s = MIDNIGHT_S + hour * 3600.0
        total_usd += spent(spending, "app")
        by_hour.append(total_usd)
    assert by_hour[0] == pytest.approx(0.1, abs=0.011)
    assert by_hour[12] == pytest.approx(0.55, abs=0.02)
    assert total_usd > 0.95
    fair_usd = spent(spending, "silent-1")
    assert total_usd + fair_usd <= 1.0 + 1e-9


def test_whoever_called_on_the_day_before_has_a_part_and_nobody_for_longer() -> None:
    clock, spending = at_midnight()
    spending.called("m", "gone")
    clock.now_s = MIDNIGHT_S + DAY_S - 60
    spending.called("m", "fair")
    clock.now_s = MIDNIGHT_S + DAY_S + 60
    assert spent(spending, "app") == pytest.approx(0.5, abs=0.011)
    clock.now_s = MIDNIGHT_S + 2 * DAY_S
    assert spent(spending, "app") == pytest.approx(1.0, abs=0.011)


def test_after_a_restart_each_client_goes_on_with_what_it_had_spent() -> None:
    clock, spending = at_midnight()
    rows = [Spent("greedy", "m", 9.0, 0.5), Spent("fair", "m", 1.0, 0.0), Spent("old", "m", 0.0)]
    spending.recollect([*rows, lost("m", 0.5)], clock())
    assert spent(spending, "greedy") == 0.0
    assert spent(spending, "fair") == pytest.approx(0.5, abs=0.011)


def test_what_a_client_has_spent_elsewhere_counts_as_its_own() -> None:
    _, here = at_midnight()
    _, there = at_midnight()
    for spending in (here, there):
        spending.called("m", "greedy")
        spending.called("m", "fair")
    assert spent(here, "greedy") == pytest.approx(0.5, abs=0.011)
    day, own = here.own_usd()
    for name, usd in own.items():
        there.learn(day, name, usd)
    assert spent(there, "greedy") == 0.0
    assert spent(there, "fair") == pytest.approx(0.5, abs=0.011)


def test_the_clients_whose_parts_are_known_are_bounded() -> None:
    _, spending = at_midnight()
    for number in range(1000):
        spending.called("m", f"client-{number}")
        spending.charge("m", 0.001, f"client-{number}")
    assert len(spending.own_usd()[1]) == 101
    assert spending.today_usd("m") == pytest.approx(1.0)
