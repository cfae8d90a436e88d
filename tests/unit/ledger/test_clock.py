"""The database's clock, as a process knows it between two readings, and what is said when its own is off."""

from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from gateway.ledger import SharedClock

NOON = datetime(2026, 3, 31, 12, tzinfo=UTC)


class Machine:
    """A machine whose clock may be off, and a database whose clock is right."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.ahead_s = ahead_s
        self.passed_s = 0.0
        self.shared = SharedClock(lambda: self.there + timedelta(seconds=self.ahead_s), lambda: self.passed_s)

    @property
    def there(self) -> datetime:
        return NOON + timedelta(seconds=self.passed_s)

    def look(self, took_s: float = 0.0) -> None:
        asked_s = self.passed_s
        self.passed_s += took_s / 2
        there = self.there
        self.passed_s += took_s / 2
        self.shared.note(there, asked_s)


@pytest.mark.parametrize("ahead_s", [-300_000.0, -30.0, 0.0, 2.5, 216_000.0])
def test_what_is_shared_goes_by_the_databases_clock_whatever_the_machines_shows(ahead_s: float) -> None:
    machine = Machine(ahead_s)
    assert machine.shared.now() == NOON + timedelta(seconds=ahead_s)  # nothing else is known yet
    machine.look(took_s=0.5)
    machine.passed_s += 20.0
    machine.ahead_s += 86_400.0  # it is set meanwhile
    assert abs(machine.shared.now() - machine.there) < timedelta(milliseconds=1)
    assert machine.shared.unix_s() == pytest.approx(machine.there.timestamp())
    assert machine.shared.ahead_s == pytest.approx(ahead_s)


@pytest.mark.parametrize(
    ("ahead_s", "took_s", "is_told", "is_far"),
    [(1.9, 0.0, False, False), (-2.1, 0.0, True, False), (2.5, 2.0, False, False), (-61.0, 0.1, True, True)],
)
def test_a_clock_is_told_to_be_off_by_more_than_two_seconds_beyond_doubt(
    ahead_s: float, took_s: float, is_told: bool, is_far: bool
) -> None:
    machine = Machine(ahead_s)
    machine.look(took_s)
    assert (machine.shared.is_off, machine.shared.is_far_off) == (is_told, is_far)


def test_it_is_said_once_and_again_only_after_it_was_right() -> None:
    machine = Machine(30.0)
    with capture_logs() as logs:
        for ahead_s in (30.0, 31.0, 90.0, 0.2, 0.1, -5.0):
            machine.ahead_s = ahead_s
            machine.look()
    assert [(log["event"], log["ahead_s"]) for log in logs] == [
        ("ledger.clock_off", 30.0),
        ("ledger.clock_right", 0.2),
        ("ledger.clock_off", -5.0),
    ]


@pytest.mark.parametrize(
    ("ahead_s", "others", "leaves"), [(90.0, True, True), (90.0, False, False), (30.0, True, False)]
)
def test_only_a_clock_far_off_leaves_work_to_others_and_only_if_theirs_is_right(
    ahead_s: float, others: bool, leaves: bool
) -> None:
    machine = Machine(ahead_s)
    machine.look()
    machine.shared.others_are_right = others
    assert machine.shared.leaves_turns is leaves
