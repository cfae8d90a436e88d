"""Strikes across replicas: replicas that tell each other, on one clock, without a Redis between them."""

import pytest
from structlog.testing import capture_logs

from gateway.core.attempts import Role
from gateway.steering import STRIKES, Strikes
from gateway.steering.constants import OPEN_S, PROBE_EVERY_S, REPORT_AGE_S, STRIKE_NEWS_S, WELL_S
from gateway.steering.outages import OutageReport, Strike
from providers import ErrorKind
from tests.unit.steering.inside.replica import UNIX_S, Replica, later, struck, well


def sync(*replicas: Replica) -> None:
    """Let each tell all others, as once a second through Redis."""
    reports = {replica: replica.strikes.report() for replica in replicas}
    for replica in replicas:
        replica.strikes.learn(report for other, report in reports.items() if other is not replica)


@pytest.fixture
def replicas() -> list[Replica]:
    made = [Replica() for _ in range(3)]
    well(*made)
    return made


def test_what_two_replicas_see_fail_is_left_alone_by_all(replicas: list[Replica]) -> None:
    one, other, third = replicas
    struck(one, STRIKES - 2)
    struck(other, 2)
    assert [each.state("a") for each in replicas] == ["ok"] * 3
    sync(*replicas)
    assert [each.state("a") for each in replicas] == ["open"] * 3
    assert {each.state(name) for each in replicas for name in "bcdef"} == {"ok"}
    assert third.plan().launches[0].deployment != "a"


def test_one_replica_alone_is_believed_by_nobody(replicas: list[Replica]) -> None:
    one, other, third = replicas
    struck(one, STRIKES)
    sync(*replicas)
    assert [each.state("a") for each in replicas] == ["open", "ok", "ok"]
    struck(other, 1)  # whoever sees it too need not count to four
    sync(*replicas)
    assert [each.state("a") for each in replicas] == ["open", "open", "open"]
    assert third.state("b") == "ok"


def test_fewer_strikes_than_open_a_breaker_open_none(replicas: list[Replica]) -> None:
    one, other, _ = replicas
    struck(one, STRIKES - 2)
    struck(other, 1)
    sync(*replicas)
    assert [each.state("a") for each in replicas] == ["ok"] * 3


def test_who_just_had_a_first_token_ignores_the_others(replicas: list[Replica]) -> None:
    one, other, third = replicas
    struck(one, STRIKES)
    struck(other, STRIKES)
    later(1.0, *replicas)
    third.win("a")
    sync(*replicas)
    assert third.state("a") == "ok"
    later(WELL_S + 1.0, *replicas)
    sync(*replicas)
    assert third.state("a") == "ok"  # nothing has been seen since


def test_a_first_token_before_the_outage_is_outweighed_by_ones_own_strike(replicas: list[Replica]) -> None:
    one, other, third = replicas
    third.win("a")
    later(1.0, *replicas)
    struck(one, STRIKES)
    struck(other, STRIKES)
    sync(*replicas)
    assert third.state("a") == "ok"
    struck(third, 1)
    sync(*replicas)
    assert third.state("a") == "open"


def test_a_replica_whose_network_is_cut_reports_no_strikes_and_opens_nothing_elsewhere() -> None:
    replicas = [Replica() for _ in range(3)]
    cut, *others = replicas
    well(*replicas)
    for _ in range(STRIKES):
        for name in cut.deployments:
            cut.fail(name, ErrorKind.CONNECT_ERROR)
        for other in others:
            struck(other, 1, "c")  # an error of no account: c answers again at once
            other.win("c")
        sync(*replicas)
        later(1.0, *replicas)
    assert {cut.state(name) for name in cut.deployments} == {"open"}
    assert cut.strikes.report().strikes == {}
    for other in others:
        struck(other, 1)
    sync(*replicas)
    assert {other.state(name) for other in others for name in other.deployments} == {"ok"}


def test_several_deployments_of_one_provider_that_fails_are_one_failure() -> None:
    strikes = Strikes(lambda: UNIX_S)
    for name in ("groq/one", "groq/two", "groq/three"):
        strikes.struck(name, "groq", opened=False)
    strikes.answered("cerebras/one", "cerebras")
    assert set(strikes.report().strikes) == {"groq/one", "groq/two", "groq/three"}
    strikes.struck("cerebras/one", "cerebras", opened=False)
    assert strikes.report().strikes == {}


def test_a_breaker_opened_for_the_others_is_no_strike_of_ones_own(replicas: list[Replica]) -> None:
    one, other, third = replicas
    struck(one, STRIKES)
    struck(other, STRIKES)
    sync(*replicas)
    assert third.state("a") == "open"
    assert third.strikes.report().strikes == {}


def test_it_is_probed_as_usual_and_closes_by_that(replicas: list[Replica]) -> None:
    one, other, third = replicas
    struck(one, STRIKES)
    struck(other, STRIKES)
    sync(*replicas)
    later(OPEN_S, *replicas)
    sync(*replicas)
    assert third.state("a") == "half-open"  # the same news does not open it again
    roles = {launch.deployment: launch.role for launch in third.plan().launches}
    assert roles["a"] is Role.PROBE
    third.win("a", 0.3, Role.PROBE)
    assert third.state("a") == "ok"
    later(WELL_S + 1.0, *replicas)
    sync(*replicas)
    assert third.state("a") == "ok"  # theirs are still open, by what they saw before


def test_a_probe_that_fails_is_news(replicas: list[Replica]) -> None:
    one, other, third = replicas
    struck(one, STRIKES)
    struck(other, 1)
    sync(one, other)
    later(OPEN_S + PROBE_EVERY_S, *replicas)
    other.fail("a", role=Role.PROBE)
    other.win("b")
    assert other.strikes.report().strikes["a"].count == STRIKES
    one.win("b")
    sync(*replicas)
    assert third.state("a") == "open"


def test_among_many_replicas_there_are_always_some_that_just_met_an_error() -> None:
    replicas = [Replica() for _ in range(20)]
    for replica in replicas:
        replica.warm_up(5, **dict.fromkeys(replica.deployments, 0.3))
    for replica in replicas[:STRIKES]:
        struck(replica, 1)
    sync(*replicas)
    assert {replica.state("a") for replica in replicas} == {"ok"}
    for replica in replicas[STRIKES:12]:
        struck(replica, 1)
    sync(*replicas)
    assert [replica.state("a") for replica in replicas] == ["open"] * 12 + ["ok"] * 8


def test_strikes_that_are_not_repeated_are_forgotten(replicas: list[Replica]) -> None:
    one, other, _ = replicas
    struck(one, 2)
    struck(other, 2)
    later(STRIKE_NEWS_S + 1.0, *replicas)
    sync(*replicas)
    assert [each.state("a") for each in replicas] == ["ok"] * 3


def test_a_report_of_one_who_is_gone_counts_no_more(replicas: list[Replica]) -> None:
    one, other, third = replicas
    struck(one, STRIKES)
    struck(other, STRIKES)
    reports = [one.strikes.report(), other.strikes.report()]
    third.now_s += REPORT_AGE_S + 1.0
    third.strikes.learn(reports)
    assert third.state("a") == "ok"
    third.now_s -= 2 * (REPORT_AGE_S + 1.0)  # nor that of a clock that is far ahead
    third.strikes.learn(reports)
    assert third.state("a") == "ok"


def test_it_is_logged_once(replicas: list[Replica]) -> None:
    one, other, third = replicas
    struck(one, STRIKES)
    struck(other, STRIKES)
    with capture_logs() as logged:
        for _ in range(3):
            sync(*replicas)
            later(1.0, *replicas)
    [line] = logged
    assert (line["event"], line["deployment"], line["cause"]) == ("steering.opened", "a", "other replicas")
    assert third.state("a") == "open"


def test_deployments_that_nobody_here_knows_are_of_no_concern() -> None:
    replica = Replica()
    strangers = {"nobody/knows": Strike(STRIKES, UNIX_S)}
    replica.strikes.learn([OutageReport(UNIX_S, strangers), OutageReport(UNIX_S, strangers)])
    assert replica.steering.not_asked(["nobody/knows"], ()) == ()


def test_a_strike_dated_after_its_own_report_is_not_believed() -> None:
    replica = Replica()
    ahead = {"a": Strike(STRIKES, UNIX_S + 1e6)}
    replica.strikes.learn([OutageReport(UNIX_S, ahead), OutageReport(UNIX_S, ahead)])
    assert replica.state("a") == "ok"


def test_deployments_that_are_gone_are_reported_no_more() -> None:
    strikes = Strikes(lambda: UNIX_S)
    strikes.struck("a", "a", opened=False)
    strikes.answered("b", "b")
    strikes.keep({"b"})
    assert strikes.report() == OutageReport(UNIX_S, {}, ("b",))
