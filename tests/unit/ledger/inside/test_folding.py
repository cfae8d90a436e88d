"""When a process adds up new rows: the one that did so the last time goes on, others wait until it seems to be gone."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from gateway.core.calls import CallRecord, HourlySum, LimitUse, Spent
from gateway.core.records import StoredName
from gateway.ledger import DatabaseUnreachableError, Retention
from gateway.ledger.entries import Entry
from gateway.ledger.folding import FULL, FoldResult
from gateway.ledger.shipper import Shipper
from gateway.ledger.used import OwnRows
from gateway.ledger.writer import (
    ADOPT_INTERVAL_S,
    EAGER_S,
    FOLD_INTERVAL_S,
    HELD_S,
    IDLE_LOOKS,
    REST_S,
    TAKE_OVER_S,
    Folding,
)


class Notes:
    """A store that takes what it is told to; ``asked`` has the arguments of each fold."""

    def __init__(self) -> None:
        self.taken: list[int | None] = []
        self.asked: list[tuple[int, float]] = []
        self.folded_all = 0
        self.is_away = False

    async def fold(self, since: int, rest_s: float) -> FoldResult:
        self.asked.append((since, rest_s))
        if self.is_away:
            raise DatabaseUnreachableError("permission denied")
        taken = self.taken.pop(0) if self.taken else 0
        return FoldResult(taken, since + (taken or 0))

    async def fold_all(self) -> None:
        self.folded_all += 1

    async def insert(self, entries: Sequence[Entry], kept_since: Mapping[str, datetime]) -> int:
        return 0

    async def ping(self) -> None: ...

    async def now(self) -> datetime | None:
        return None

    async def others_are_right(self, replica: str) -> bool:
        return False

    async def prune(self, kept: Retention, *, jumped: bool = False) -> dict[str, int] | None: ...

    async def remembered(self, now: datetime) -> list[HourlySum]:
        return []

    async def spent(self, now: datetime, until: datetime) -> list[Spent]:
        return []

    async def used(self, since_s: Sequence[float], until: datetime, own: OwnRows) -> list[LimitUse]:
        return []

    async def used_by_payers(self, since_s: Sequence[float], until: datetime) -> list[LimitUse]:
        return []

    async def lately(self, now: datetime, until: datetime) -> dict[str, dict[int, dict[str, float]]]:
        return {}

    async def text_gaps(self, now: datetime) -> dict[str, list[float]]:
        return {}

    async def kept_ends(self) -> tuple[dict[str, CallRecord], list[str], int]:
        return {}, [], 0

    async def forget_ends(self, names: Collection[str]) -> None: ...

    async def unended(self, now: datetime) -> list[StoredName]:
        return []

    async def aclose(self) -> None: ...


class Process:
    """A process that adds up, at a time of its own."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.notes = Notes()
        self.shipper = Shipper(self.notes, lambda: self.now_s, lambda: datetime.now(UTC))
        self.folding = Folding(self.notes, self.shipper, lambda: self.now_s)

    async def look(self, *taken: int | None) -> list[tuple[int, float]]:
        """Return what the store was asked for, which took so many notes each time."""
        self.now_s += FOLD_INTERVAL_S * 2
        self.notes.taken, self.notes.asked = list(taken), []
        await self.folding.fold()
        return self.notes.asked


@pytest.fixture
async def process() -> Process:
    process = Process()
    await process.shipper.ship([], lambda *_: None)
    return process


async def test_who_added_up_goes_on_and_others_wait_longer(process: Process) -> None:
    assert await process.look() == [(0, TAKE_OVER_S)]
    assert await process.look(7) == [(0, TAKE_OVER_S)]
    assert await process.look(5) == [(7, REST_S)]
    assert await process.look(None) == [(12, REST_S)]
    assert await process.look() == [(12, TAKE_OVER_S)]


async def test_who_finds_nothing_for_a_while_is_as_any_other(process: Process) -> None:
    await process.look(7)
    for _ in range(IDLE_LOOKS):
        assert await process.look() == [(7, REST_S)]
    assert await process.look() == [(7, TAKE_OVER_S)]


async def test_what_is_left_is_taken_at_once(process: Process) -> None:
    assert await process.look(FULL, FULL, 3) == [(0, TAKE_OVER_S), (FULL, 0.0), (2 * FULL, 0.0)]


async def test_after_a_failure_all_notes_are_looked_at_again(process: Process) -> None:
    await process.look(7)
    process.notes.is_away = True
    assert await process.look() == [(7, REST_S)]
    process.notes.is_away = False
    assert await process.look() == [(0, REST_S)]


async def test_an_idle_process_looks_seldom(process: Process) -> None:
    process.now_s += EAGER_S
    assert await process.look()
    process.now_s += ADOPT_INTERVAL_S / 3
    assert not await process.look()
    process.now_s += ADOPT_INTERVAL_S
    assert await process.look()
    await process.shipper.ship([], lambda *_: None)
    assert await process.look()


async def test_at_its_end_a_process_adds_up_only_if_it_has_stored_rows(process: Process) -> None:
    await process.folding.fold_rest()
    assert process.notes.folded_all == 1
    idle = Process()
    await idle.folding.fold_rest()
    assert idle.notes.folded_all == 0


async def test_a_standing_fault_is_said_once_an_hour_and_at_once_when_it_is_back(process: Process) -> None:
    async def look(times: int, *, is_away: bool) -> int:
        process.notes.is_away = is_away
        with capture_logs() as logs:
            for _ in range(times):
                process.now_s += ADOPT_INTERVAL_S
                await process.folding.fold()
        return len([log for log in logs if log["event"] == "ledger.not_folded"])

    assert await look(int(2.5 * 3600 / ADOPT_INTERVAL_S), is_away=True) == 3
    assert await look(1, is_away=False) == 0
    assert await look(2, is_away=True) == 1


def stand_still_s(process: Process) -> float | None:
    return process.folding.stands_still_s


async def test_sums_stand_still_from_the_first_failure_until_rows_are_added_up_again(process: Process) -> None:
    assert stand_still_s(process) is None
    process.notes.is_away = True
    for _ in range(3):
        await process.look()
    assert stand_still_s(process) == 2 * 2 * FOLD_INTERVAL_S
    assert process.folding.problem == "permission denied"
    process.notes.is_away = False
    with capture_logs() as logs:
        await process.look(3)
        await process.look(3)
    assert stand_still_s(process) is None
    assert [log["event"] for log in logs] == ["ledger.folded_again"]


async def test_sums_stand_still_where_another_session_keeps_the_turn(process: Process) -> None:
    await process.look(None)
    process.now_s += HELD_S - 2.0
    await process.look(None)
    assert stand_still_s(process) is None
    process.now_s += ADOPT_INTERVAL_S
    await process.look(None)
    assert stand_still_s(process) is not None
    assert "another session" in process.folding.problem
    process.now_s += ADOPT_INTERVAL_S
    await process.look()
    assert stand_still_s(process) is None
