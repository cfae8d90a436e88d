"""What one client meets takes no deployment from the others; what is dead is found as soon as ever."""

from collections.abc import Callable
from itertools import cycle, islice

import pytest

from gateway.core.calls import Mode
from gateway.steering import STRIKES
from gateway.steering.constants import CLIENTS_HALF_LIFE_S, OUT_PROBE_EVERY_S
from providers import ErrorKind
from tests.unit.steering.inside.replica import Replica, later
from tests.unit.steering.inside.test_strikes import sync
from tests.unit.steering.virtual_replica import VirtualReplica

TEN = [f"client {number}" for number in range(10)]
Fail = Callable[[VirtualReplica, str], object]


def forbidden(replica: VirtualReplica, client: str) -> object:
    return replica.fail("a", ErrorKind.PROVIDER_AUTH, status_code=403, client=client)


def unknown(replica: VirtualReplica, client: str) -> object:
    return replica.fail("a", ErrorKind.NOT_FOUND, status_code=404, client=client)


def limited(replica: VirtualReplica, client: str) -> object:
    return replica.fail("a", ErrorKind.RATE_LIMITED, status_code=429, retry_after_s=30.0, client=client)


def crashed(replica: VirtualReplica, client: str) -> object:
    return [replica.fail("a", status_code=500, client=client) for _ in range(STRIKES)]


def overloaded(replica: VirtualReplica, client: str) -> object:
    return replica.fail("a", status_code=503, retry_after_s=30.0, client=client)


MET = {"forbidden": forbidden, "unknown": unknown, "limited": limited, "crashed": crashed, "overloaded": overloaded}
SLOW: dict[str, Fail] = {
    "slow": lambda replica, client: [replica.win("a", 5.0, client=client) for _ in range(STRIKES)],
    "left": lambda replica, client: [replica.leave("a", 6.0, client) for _ in range(12)],
}
OUT = {
    "forbidden": "out",
    "unknown": "out",
    "limited": "cooling 30.0 s",
    "crashed": "open",
    "overloaded": "cooling 30.0 s",
}


def uses(replica: VirtualReplica, client: str | None) -> bool:
    """Whether calls of this client go to the fast deployment."""
    plan = replica.plan(mode=Mode.SINGLE, budget=0.0, client=client)
    return any(each.deployment == "a" for each in plan.launches)


@pytest.fixture
def replica() -> VirtualReplica:
    made = VirtualReplica(("a", "b"))
    made.warm_up(a=0.1, b=0.9)
    return made


def busy(replica: VirtualReplica, *clients: str, calls: int = 10) -> None:
    for client in clients:
        for _ in range(calls):
            replica.win("a", 0.1, client=client)


@pytest.mark.parametrize("what", MET)
def test_what_one_of_several_clients_meets_is_held_against_the_deployment_for_that_one(
    replica: VirtualReplica, what: str
) -> None:
    busy(replica, "mallory", "fair", "other")
    for _ in range(3):
        MET[what](replica, "mallory")
    assert replica.state("a") == "ok"
    assert not uses(replica, "mallory")
    assert uses(replica, "fair")
    assert uses(replica, "new")
    assert uses(replica, None)


@pytest.mark.parametrize("what", MET)
def test_what_a_client_meets_while_all_others_are_silent_is_no_more_than_a_supposition_for_those_who_come(
    replica: VirtualReplica, what: str
) -> None:
    MET[what](replica, "mallory")
    assert replica.state("a") == OUT[what]
    assert not uses(replica, "mallory")
    assert uses(replica, "fair")
    replica.win("a", 0.1, client="fair")
    assert uses(replica, "fair")
    assert not uses(replica, "mallory")


@pytest.mark.parametrize("what", MET)
def test_what_three_clients_meet_holds_for_all(replica: VirtualReplica, what: str) -> None:
    busy(replica, *TEN)
    for client in TEN[:3]:
        assert uses(replica, TEN[9])
        MET[what](replica, client)
    assert replica.state("a") == OUT[what]
    assert not any(uses(replica, client) for client in TEN)


@pytest.mark.parametrize("what", MET)
def test_where_there_are_two_clients_it_takes_both(replica: VirtualReplica, what: str) -> None:
    busy(replica, "one", "two")
    MET[what](replica, "one")
    assert uses(replica, "two")
    MET[what](replica, "two")
    assert replica.state("a") == OUT[what]
    assert not uses(replica, "three")


@pytest.mark.parametrize("what", MET)
def test_a_second_client_confirms_what_a_lone_one_has_met(replica: VirtualReplica, what: str) -> None:
    MET[what](replica, "one")
    assert uses(replica, "two")
    MET[what](replica, "two")
    assert not uses(replica, "two")
    assert not uses(replica, "three")


@pytest.mark.parametrize("what", SLOW)
def test_whose_requests_take_long_takes_the_deployment_from_no_other(replica: VirtualReplica, what: str) -> None:
    for _ in range(2):  # until it is known what is usual
        replica.now_s += 120.0
        replica.warm_up(60, a=0.1, b=0.9)
    busy(replica, "mallory", "fair", "other")
    SLOW[what](replica, "mallory")
    assert replica.state("a") == "ok"
    assert uses(replica, "fair")
    assert not uses(replica, "mallory")
    SLOW[what](replica, "fair")
    SLOW[what](replica, "other")
    assert replica.state("a") == "open"


CERTAIN: dict[str, Fail] = {
    "a refused key": lambda replica, client: replica.fail(
        "a", ErrorKind.PROVIDER_AUTH, status_code=401, client=client, is_certain=True
    ),
    "no connection": lambda replica, client: [
        replica.fail("a", ErrorKind.CONNECT_ERROR, client=client) for _ in range(STRIKES)
    ],
    "no connection in time": lambda replica, client: [
        replica.fail("a", ErrorKind.CONNECT_TIMEOUT, client=client) for _ in range(STRIKES)
    ],
    "a used up rate": lambda replica, client: replica.fail(
        "a", ErrorKind.RATE_LIMITED, status_code=429, client=client, is_certain=True
    ),
}


@pytest.mark.parametrize("what", CERTAIN)
def test_what_no_request_can_cause_holds_for_all_from_one(replica: VirtualReplica, what: str) -> None:
    busy(replica, *TEN)
    CERTAIN[what](replica, TEN[0])
    assert replica.state("a") != "ok"
    assert not any(uses(replica, client) for client in (*TEN, None, "new"))


@pytest.mark.parametrize("clients", [TEN[:1], TEN[:2], TEN[:3], TEN], ids=len)
def test_a_dead_vendor_is_found_after_as_many_failures_as_ever(replica: VirtualReplica, clients: list[str]) -> None:
    busy(replica, *clients)
    for client in islice(cycle(clients), STRIKES):
        assert replica.state("a") == "ok"
        replica.fail("a", status_code=500, client=client)
    assert replica.state("a") == "open"
    assert not any(uses(replica, client) for client in clients)


def test_the_one_client_that_is_active_is_kept_from_a_dead_vendor_as_soon_as_ever(replica: VirtualReplica) -> None:
    busy(replica, *TEN)
    for _ in range(STRIKES):
        assert uses(replica, TEN[0])
        replica.fail("a", status_code=500, client=TEN[0])
    assert not uses(replica, TEN[0])  # the nine others have just been there, and are asked for their part
    assert replica.state("a") == "ok"


def test_clients_that_have_been_silent_have_no_part_in_it(replica: VirtualReplica) -> None:
    busy(replica, *TEN)
    replica.now_s += 10.0 * CLIENTS_HALF_LIFE_S
    for _ in range(STRIKES):
        replica.fail("a", status_code=500, client=TEN[0])
    assert replica.state("a") == "open"


def test_a_client_gets_back_what_it_was_kept_from_once_it_answers(replica: VirtualReplica) -> None:
    busy(replica, "mallory", "fair", "other")
    forbidden(replica, "mallory")
    assert not uses(replica, "mallory")
    replica.now_s += OUT_PROBE_EVERY_S + 1.0
    plan = replica.plan(mode=Mode.AUTO, client="mallory")
    assert "a" in {each.deployment for each in plan.launches}  # as a probe
    replica.win("a", 0.1, client="mallory")
    assert uses(replica, "mallory")


def test_a_reload_forgets_what_clients_have_met(replica: VirtualReplica) -> None:
    busy(replica, "mallory", "fair", "other")
    forbidden(replica, "mallory")
    replica.steering.reset({"llama": ("a", "b")})
    assert uses(replica, "mallory")


def test_one_clients_failures_at_each_of_many_replicas_open_no_breaker_of_others() -> None:
    replicas = [Replica() for _ in range(6)]
    for each in replicas:
        busy(each, "mallory", "fair", "other")
        crashed(each, "mallory")
    later(1.0, *replicas)
    sync(*replicas)
    assert {each.state("a") for each in replicas} == {"ok"}


def test_what_ten_clients_meet_at_two_replicas_is_known_to_both_as_soon_as_ever() -> None:
    one, other, *_ = replicas = [Replica() for _ in range(3)]
    for each in replicas:
        busy(each, *TEN)
    later(6.0, *replicas)
    for replica, clients in ((one, TEN[:2]), (other, TEN[2:4])):
        for client in clients:
            replica.fail("a", status_code=500, client=client)
            replica.win("b", client=client)
    sync(*replicas)
    assert {each.state("a") for each in replicas} == {"open"}


@pytest.mark.parametrize("silent", [[], TEN[1:]], ids=["alone", "beside nine silent ones"])
def test_what_the_one_active_client_meets_at_two_replicas_is_known_to_both_as_soon_as_ever(silent: list[str]) -> None:
    one, other, *_ = replicas = [Replica() for _ in range(3)]
    for each in replicas:
        busy(each, *silent)
        each.now_s += 10.0 * CLIENTS_HALF_LIFE_S
    for replica in (one, other):
        for _ in range(STRIKES // 2):
            replica.fail("a", status_code=500, client=TEN[0])
            replica.win("b", client=TEN[0])
    sync(*replicas)
    assert {each.state("a") for each in replicas} == {"open"}
