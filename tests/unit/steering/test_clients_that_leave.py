"""Clients that give up on a silent deployment are evidence against it; those with reasons of their own are not."""

from itertools import cycle

import pytest
import structlog

from tests.unit.steering.virtual_replica import VirtualReplica


def opened(logs: list[structlog.typing.EventDict]) -> list[str]:
    return [line["cause"] for line in logs if line["event"] == "steering.opened"]


@pytest.mark.parametrize("deployments", [("a",), ("a", "b")], ids=["alone", "with a rival"])
def test_a_few_clients_that_wait_far_beyond_the_usual_time_and_leave_open_the_breaker(
    deployments: tuple[str, ...],
) -> None:
    replica = VirtualReplica(deployments)
    replica.warm_up(30, **dict.fromkeys(deployments, 0.3))
    with structlog.testing.capture_logs() as logs:
        for client in ("ann", "bob", "ann"):
            replica.leave("a", 6.0, client)
        assert replica.state("a") == "ok"
        replica.leave("a", 6.0, "bob")
    assert opened(logs) == ["4 clients left before a first token"]
    assert replica.state("a") == "open"


@pytest.mark.parametrize("client", [None, "ann"], ids=["without names", "one name"])
@pytest.mark.parametrize("wins", [0, 30], ids=["unknown", "known"])
def test_twelve_in_a_row_open_it_where_all_are_one_client_or_nothing_is_known(client: str | None, wins: int) -> None:
    replica = VirtualReplica(("a",))
    replica.warm_up(wins, a=0.3)
    with structlog.testing.capture_logs() as logs:
        for _ in range(11):
            replica.leave("a", 6.0, client)
        assert opened(logs) == []
        replica.leave("a", 6.0, client)
    assert opened(logs) == ["12 clients left before a first token"]


def test_clients_that_leave_early_for_their_own_reasons_break_no_healthy_deployment() -> None:
    replica = VirtualReplica(("a",))
    replica.warm_up(a=3.0)
    clients = cycle(("ann", "bob", "cid"))
    for _ in range(200):
        replica.leave("a", 2.0, next(clients))
    assert replica.state("a") == "ok"


def test_clients_that_leave_a_deployment_that_answers_others_in_time_do_not_break_it() -> None:
    replica = VirtualReplica(("a",))
    replica.warm_up(a=0.3)
    clients = cycle(("ann", "bob"))
    for _ in range(100):
        for _ in range(3):
            replica.leave("a", 20.0, next(clients))
        replica.win("a", 0.3)
    assert replica.state("a") == "ok"


def test_where_nothing_is_known_clients_that_leave_within_seconds_prove_nothing() -> None:
    replica = VirtualReplica(("a",))
    clients = cycle(("ann", "bob"))
    for _ in range(60):
        replica.leave("a", 4.0, next(clients))
    assert replica.state("a") == "ok"


def test_a_first_token_in_time_ends_the_outage_that_leaving_clients_showed() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.3, b=0.3)
    for client in ("ann", "bob") * 2:
        replica.leave("a", 6.0, client)
    replica.now_s += 20.0
    replica.win("a", 0.3)
    assert replica.state("a") == "ok"
