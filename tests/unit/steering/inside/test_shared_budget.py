"""Extra attempts of one model, shared by its clients: what one of them uses is missed by no other."""

from random import Random

import pytest

from gateway.core.attempts import Role
from gateway.core.shares import MOST_CLIENTS, REMEMBERED_S, Shares
from gateway.racing.services import MOST_RESCUES, RescueBudget
from gateway.steering import BURST_TOKENS
from gateway.steering.budget import Budget
from gateway.steering.constants import RESCUED_OF, RESCUED_SHARE

RATIO = 0.1


def hedged(budget: Budget, *, calls: int, racers: int, clients: tuple[str, ...] = ("fair",), seed: int = 1) -> float:
    """Return the share of hedges that ``clients`` get; beside each call of theirs ``racers`` race as many."""
    dice, asked, granted = Random(seed), 0, 0
    for number in range(calls):
        for _ in range(racers):
            budget.accrue(RATIO, "racer", float(number))
            budget.draw(Role.RACE, RATIO, client="racer")
        client = clients[number % len(clients)]
        budget.accrue(RATIO, client, float(number))
        if dice.random() < RATIO:
            asked += 1
            granted += budget.draw(Role.HEDGE, RATIO, client=client)
    return granted / asked


@pytest.mark.parametrize("racers", [1, 5, 20])
@pytest.mark.parametrize("clients", [("fair",), tuple(f"fair-{number}" for number in range(10))])
def test_who_races_each_call_takes_no_hedges_of_the_others(racers: int, clients: tuple[str, ...]) -> None:
    assert hedged(Budget(), calls=5000, racers=racers, clients=clients) > 0.9


def test_who_begins_after_a_racer_that_used_all_is_hedged_soon() -> None:
    budget = Budget()
    for _ in range(1000):
        budget.accrue(RATIO, "racer")
        budget.draw(Role.RACE, RATIO, client="racer")
    assert budget.tokens < 1.0
    assert hedged(budget, calls=1000, racers=5) > 0.8


def test_a_racer_that_calls_seldom_takes_no_hedges_of_one_that_calls_often() -> None:
    budget, dice, asked, granted = Budget(), Random(2), 0, 0
    for number in range(10_000):
        budget.accrue(RATIO, "often", float(number))
        if dice.random() < RATIO:
            asked += 1
            granted += budget.draw(Role.HEDGE, RATIO, client="often")
        if not number % 5:
            budget.accrue(RATIO, "racer", float(number))
            budget.draw(Role.RACE, RATIO, client="racer")
    assert granted / asked > 0.9


@pytest.mark.parametrize("client", ["app", None])
def test_a_client_alone_may_use_all(client: str | None) -> None:
    budget = Budget()
    budget.accrue(RATIO, client)
    assert sum(budget.draw(Role.HEDGE, RATIO, client=client) for _ in range(100)) == BURST_TOKENS


def test_what_others_leave_is_used() -> None:
    """Nine clients that are never late beside one that races each call: in the long run no attempt is wasted."""
    budget, raced, calls = Budget(), 0, 10_000
    for number in range(calls):
        client = f"client-{number % 10}"
        budget.accrue(RATIO, client)
        if client == "client-0":
            raced += budget.draw(Role.RACE, RATIO, client=client)
    assert raced >= RATIO * calls * 0.98


def test_many_clients_that_call_seldom_have_their_bursts() -> None:
    """A hundred clients, each hedged at a tenth of its calls, get nearly what one client with all calls gets."""
    names = tuple(f"client-{number}" for number in range(100))
    alone = hedged(Budget(), calls=20_000, racers=0)
    assert hedged(Budget(), calls=20_000, racers=0, clients=names) > alone - 0.05


def test_all_clients_together_start_no_more_than_the_budget() -> None:
    budget, dice, calls, started = Budget(), Random(3), 5000, 0
    for _ in range(calls):
        client = f"client-{dice.randrange(30)}"
        budget.accrue(RATIO, client)
        started += sum(budget.draw(role, RATIO, client=client) for role in (Role.RACE, Role.HEDGE, Role.EXPLORE))
    assert started <= RATIO * calls + 2 * BURST_TOKENS


def test_who_explores_beyond_its_part_makes_up_for_it_itself() -> None:
    budget = Budget()
    for number in range(2000):
        budget.accrue(RATIO, "racer", float(number))
        budget.draw(Role.EXPLORE if number % 20 == 0 else Role.RACE, RATIO, client="racer")
        budget.accrue(RATIO, "fair", float(number))
    assert budget.tokens >= BURST_TOKENS / 2 - 2


def test_rescues_are_shared() -> None:
    """Each call of one client hangs: the other has its rescues for a quarter of its own calls all the same."""
    budget, granted = Budget(), list[bool]()
    for number in range(2000):
        budget.accrue(0.0, "hangs")
        budget.draw(Role.FAILOVER, 0.0, client="hangs")
        budget.accrue(0.0, "fair")
        if number % 5 == 0:
            granted.append(budget.draw(Role.FAILOVER, 0.0, client="fair"))
    assert all(granted[RESCUED_OF // 5 :])  # the first calls of the other have used what was there at the start


def test_rescues_that_others_do_not_need_are_there_for_one_that_does() -> None:
    budget, rescued = Budget(), 0
    for number in range(2000):
        budget.accrue(0.0, "hangs" if number % 10 == 0 else "fair")
        if number % 10 == 0:
            rescued += budget.draw(Role.FAILOVER, 0.0, client="hangs")
    assert rescued == 200
    alone = Budget()
    alone.accrue(0.0, "app")
    assert sum(alone.draw(Role.FAILOVER, 0.0, client="app") for _ in range(100)) == RESCUED_SHARE * RESCUED_OF


def test_rescues_of_slow_streams_are_shared() -> None:
    budget = RescueBudget()
    for client in ("slow", "fair"):
        budget.earn(0.0, client)
    assert sum(budget.spend("slow") for _ in range(100)) == MOST_RESCUES / 2
    assert sum(budget.spend("fair") for _ in range(100)) == MOST_RESCUES / 2
    alone = RescueBudget()
    alone.earn(0.0, "app")
    assert sum(alone.spend("app") for _ in range(100)) == MOST_RESCUES


def test_dollars_are_shared() -> None:
    """One races each call for ten times what a call may cost extra; the other hedges a twentieth at that price."""
    budget, per_call, refused = Budget(), 0.001, 0
    for number in range(2000):
        for client, asks in (("racer", True), ("fair", number % 20 == 19)):
            budget.earn(per_call, client)
            if asks and budget.affords(10 * per_call, per_call, client):
                budget.pay(10 * per_call, per_call, client)
            elif asks and client == "fair":
                refused += 1
    assert refused <= 5


def used(shares: Shares, client: str, stock: float) -> float:
    """Use as much of ``stock`` as ``client`` may; return what is left."""
    while stock >= 1.0 and shares.takes(client, stock):
        stock -= 1.0
    return stock


def test_who_has_not_called_for_long_leaves_its_part_to_the_others() -> None:
    shares = Shares(20.0)
    for number in range(10):
        shares.earn(f"gone-{number}", 0.1, 0.0)
    shares.earn("app", 0.1, 1.0)
    assert used(shares, "app", 20.0) == 10.0
    shares.earn("app", 0.0, REMEMBERED_S + 2.0)
    assert used(shares, "app", 10.0) == 0.0


def test_the_clients_that_are_remembered_are_bounded() -> None:
    shares = Shares(20.0)
    for number in range(MOST_CLIENTS + 500):
        shares.earn(f"client-{number}", 0.1, float(number) / 1000)
    assert len(shares.known) == MOST_CLIENTS
