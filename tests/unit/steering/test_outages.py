"""Outages: recorded when a breaker opens or a key is refused, and when that is over, however it is."""

from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from gateway.core.attempts import Role
from gateway.steering import MemoryBoard, Outages, Steering
from providers import ErrorKind
from tests.unit.steering.inside.replica import Replica, later, struck, well

if TYPE_CHECKING:
    from gateway.core.records import OutageRecord

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


class Diary:
    """Outages whose clock moves a minute with each look."""

    def __init__(self) -> None:
        self.records: list[OutageRecord] = []
        minutes, ids = count(), count(1)
        self.outages = Outages(
            self.records.append,
            utc_now=lambda: NOON + timedelta(minutes=next(minutes)),
            new_id=lambda: str(next(ids)),
            replica="r1",
        )

    @property
    def told(self) -> list[tuple[str, str, bool]]:
        return [(each.id, each.deployment, each.ended_at is not None) for each in self.records]


def test_an_outage_is_recorded_at_its_begin_and_at_its_end() -> None:
    diary = Diary()
    diary.outages.opened("a", "server_error", "m")
    diary.outages.recovered("m", "a")
    [begin, end] = diary.records
    assert (begin.deployment, begin.model, begin.reason, begin.replica) == ("a", "m", "server_error", "r1")
    assert (begin.began_at, begin.ended_at) == (NOON, None)
    assert (end.id, end.began_at, end.ended_at) == (begin.id, NOON, NOON + timedelta(minutes=1))


def test_a_failed_probe_begins_no_other_outage() -> None:
    diary = Diary()
    for _ in range(3):
        diary.outages.opened("a", "hangs", "m")
    assert diary.told == [("1", "a", False)]


def test_a_recovery_without_an_outage_is_none() -> None:
    diary = Diary()
    diary.outages.recovered("m", "a")
    assert diary.told == []


def test_outages_end_with_their_deployment_and_with_their_process() -> None:
    diary = Diary()
    for name in ("a", "b", "c"):
        diary.outages.opened(name, "slow", None)
    diary.outages.keep({"b", "c"})
    assert diary.told[3:] == [("1", "a", True)]
    diary.outages.close()
    assert sorted(diary.told[4:]) == [("2", "b", True), ("3", "c", True)]
    diary.outages.close()
    assert len(diary.records) == 6


def test_a_breaker_that_opens_and_closes_is_an_outage() -> None:
    diary = Diary()
    replica = Replica(["a", "b"])
    replica.steering = Steering(
        MemoryBoard(),
        clock=lambda: replica.now_s,
        unix_clock=replica.unix_s,
        random=Random(1),
        outages=diary.outages,
    )
    replica.steering.reset({"llama": replica.deployments})
    well(replica)
    struck(replica, 3)
    assert diary.told == []
    struck(replica, 2)
    assert diary.told == [("1", "a", False)]
    assert (diary.records[0].reason, diary.records[0].model) == ("server_error", "llama")
    later(10.0, replica)
    replica.fail("a", role=Role.PROBE)  # it is not over
    later(60.0, replica)
    replica.win("a", role=Role.PROBE)
    assert diary.told == [("1", "a", False), ("1", "a", True)]


def test_a_deployment_that_refuses_the_key_is_out_until_it_answers_or_a_reload() -> None:
    diary = Diary()
    replica = Replica(["a", "b"])
    replica.steering = Steering(
        MemoryBoard(), clock=lambda: replica.now_s, unix_clock=replica.unix_s, random=Random(1), outages=diary.outages
    )
    replica.steering.reset({"llama": replica.deployments})
    well(replica)
    replica.fail("a", kind=ErrorKind.PROVIDER_AUTH)
    assert (diary.told, diary.records[0].reason) == ([("1", "a", False)], "provider_auth")
    later(70.0, replica)
    replica.win("a", role=Role.PROBE)
    assert diary.told == [("1", "a", False), ("1", "a", True)]
    replica.fail("a", kind=ErrorKind.PROVIDER_AUTH)
    replica.steering.reset({"llama": replica.deployments})
    assert diary.told[2:] == [("2", "a", False), ("2", "a", True)]
