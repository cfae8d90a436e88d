"""What a gateway reads at its start of what was before: what was spent, and the figures by which it steers."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from math import inf
from pathlib import Path
from random import Random

import pytest

from gateway.app.startup_history import StartupHistory
from gateway.core.calls import HourlySum, LimitUse, Spent
from gateway.ledger import DatabaseUnreachableError, Ledger
from gateway.ledger.entries import Entry
from gateway.ledger.used import OwnRows
from gateway.limits import LimitReached, Limits, OwnShare, Payer, Use, level_of_end_user, level_of_key, level_of_team
from gateway.racing import PausesByDeployment
from gateway.racing.timeouts import LEAST_S, DeltaKind
from gateway.steering import MemoryBoard, Spending, Steering
from tests.unit.ledger.inside.test_folding import Notes
from tests.unit.ledger.records import call, lost, won
from tests.unit.steering.inside.test_spending import MIDNIGHT_S, Clock


class AtMidnight(Notes):
    """A store that is asked before midnight, and answers after it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    async def spent(self, now: datetime, until: datetime) -> list[Spent]:
        self._clock.now_s = MIDNIGHT_S + 1
        return [Spent("team", "llama", 1.0, 0.5)]

    async def used(self, since_s: Sequence[float], until: datetime, own: OwnRows) -> list[LimitUse]:
        return [LimitUse(each_s, 1.0, client="team") for each_s in since_s]


async def test_what_is_read_at_midnight_counts_on_the_day_of_which_it_is(tmp_path: Path) -> None:
    clock = Clock()
    leases, spending = OwnShare(1, clock=clock, unix_clock=clock), Spending(clock)
    steering = Steering(MemoryBoard(), clock=clock, unix_clock=clock, random=Random(1), spending=spending)
    ledger = Ledger(
        "sqlite:///unused.db",
        tmp_path / "spool",
        "w1",
        clock=clock,
        utc_now=lambda: datetime.fromtimestamp(clock(), UTC),
        store=AtMidnight(clock),
    )
    history = StartupHistory(ledger, steering, leases, spending, teams=dict, payer_of=lambda: str, unix_clock=clock)
    assert await history.load_spending()
    limits = Limits(leases, unix_clock=clock, clock=clock)
    await limits.hold("call", [level_of_key("team", {"usd_per_day": 1.0})], Payer("llama", "llama"), Use(usd=1.0))
    assert spending.today_usd("llama") == 0.0
    await ledger.close()


class Paused(Notes):
    """A store that knows how long streams paused in their text."""

    async def text_gaps(self, now: datetime) -> dict[str, list[float]]:
        return {"groq/llama": [6_000.0, *[100.0] * 99], "groq/gemma": [100.0] * 100, "groq/qwen": [100.0]}


async def test_how_long_streams_pause_is_known_at_the_start(tmp_path: Path) -> None:
    clock = Clock()
    leases, spending = OwnShare(1, clock=clock, unix_clock=clock), Spending(clock)
    steering = Steering(MemoryBoard(), clock=clock, unix_clock=clock, random=Random(1), spending=spending)
    ledger = Ledger(
        "sqlite:///unused.db",
        tmp_path / "spool",
        "w1",
        clock=clock,
        utc_now=lambda: datetime.fromtimestamp(clock(), UTC),
        store=Paused(),
    )
    history = StartupHistory(ledger, steering, leases, spending, teams=dict, payer_of=lambda: str, unix_clock=clock)
    pauses = PausesByDeployment()
    await history.load_pauses(pauses)
    limits_s = [pauses[f"groq/{model}"].noticed_s(DeltaKind.TEXT) for model in ("llama", "gemma", "qwen")]
    assert limits_s == pytest.approx([9.0, LEAST_S, 11.91])
    await ledger.close()


class Asked(Notes):
    """A store whose figures are there once ``answered`` is set, unless it is away."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = asyncio.Event()

    async def remembered(self, now: datetime) -> list[HourlySum]:
        if self.is_away:
            raise DatabaseUnreachableError("connection refused")
        await self.answered.wait()
        return [HourlySum("llama", "groq/llama", 0, now.timestamp(), "n", 0, 7.0)]


async def test_a_start_waits_for_the_figures_unless_the_database_is_away_or_takes_long(tmp_path: Path) -> None:
    clock, store = Clock(), Asked()
    leases, spending = OwnShare(1, clock=clock, unix_clock=clock), Spending(clock)
    steering = Steering(MemoryBoard(), clock=clock, unix_clock=clock, random=Random(1), spending=spending)
    ledger = Ledger(
        "sqlite:///unused.db",
        tmp_path / "spool",
        "w1",
        clock=clock,
        utc_now=lambda: datetime.fromtimestamp(clock(), UTC),
        store=store,
    )

    def fresh() -> StartupHistory:
        return StartupHistory(ledger, steering, leases, spending, teams=dict, payer_of=lambda: str, unix_clock=clock)

    history = fresh()
    loading = asyncio.create_task(history.load_figures())
    await history.tried(most_s=0.0)
    assert (history.attempts,) == (None,)  # it takes too long: the start went on, and this goes on beside it
    store.answered.set()
    await history.tried(most_s=inf)
    assert (history.attempts,) == (7,)
    await loading

    store.is_away, history = True, fresh()
    loading = asyncio.create_task(history.load_figures())
    await history.tried(most_s=inf)  # the first refusal ends it
    assert (history.attempts,) == (None,)
    loading.cancel()
    await asyncio.wait({loading})
    await ledger.close()


class Away(Notes):
    """A store that takes and tells nothing while it is away, and tells of a dollar afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = True

    async def insert(self, entries: Sequence[Entry], kept_since: Mapping[str, datetime]) -> int:
        raise DatabaseUnreachableError("connection refused")

    async def ping(self) -> None:
        raise DatabaseUnreachableError("connection refused")

    async def spent(self, now: datetime, until: datetime) -> list[Spent]:
        if self.is_away:
            raise DatabaseUnreachableError("connection refused")
        return []

    async def used(self, since_s: Sequence[float], until: datetime, own: OwnRows) -> list[LimitUse]:
        found = [LimitUse(each_s, 1.0, client="team") for each_s in since_s]
        return [*found, *(LimitUse(each_s, 1.0, model="llama") for each_s in since_s)]


USER = level_of_end_user("team:research", "ann", {"usd_per_day": 2.0, "usd_per_month": 2.0})
SPENDERS = {
    "client": [level_of_key("team", {"usd_per_day": 2.0, "usd_per_month": 2.0})],
    "team": [level_of_key("new", {}), level_of_team("research", {"usd_per_day": 2.0, "usd_per_month": 2.0})],
    "end user": [level_of_key("new", {}), USER],
    "model": [level_of_key("new", {})],
}


@pytest.mark.parametrize("level", SPENDERS)
async def test_what_waits_on_disk_while_the_database_is_away_counts_at_a_start_and_only_once(
    tmp_path: Path, level: str
) -> None:
    clock = Clock()

    def ledger(worker: str, store: Notes) -> Ledger:
        now = partial(datetime.fromtimestamp, tz=UTC)
        return Ledger("sqlite:///unused.db", tmp_path, worker, clock=clock, utc_now=lambda: now(clock()), store=store)

    before, store = ledger("w1", Away()), Away()
    usd = {"cost_usd": 0.5, "tags": {"team": "research", "end_user": "ann"}, "client": "team"}
    for at_s in (clock(), clock(), clock() - 40 * 86_400):
        at = datetime.fromtimestamp(at_s, UTC)
        before.call_finished(call(won("c", model="llama", cost_usd=0.5), started_at=at, model="llama", **usd))
    before.attempts_ended("d", (lost("d", model="other", cost_usd=9.0, learnt_as="other"),))
    await before.close()
    leases, spending, now = OwnShare(1, clock=clock, unix_clock=clock), Spending(clock), ledger("w2", store)
    steering = Steering(MemoryBoard(), clock=clock, unix_clock=clock, random=Random(1), spending=spending)
    history = StartupHistory(now, steering, leases, spending, teams=dict, payer_of=lambda: str, unix_clock=clock)
    limits = Limits(leases, unix_clock=clock, clock=clock)
    payer = Payer("llama", "llama", {"usd_per_day": 2.0} if level == "model" else {})

    async def fits(usd: float) -> bool:
        try:
            await limits.hold("call", SPENDERS[level], payer, Use(usd=usd))
        except LimitReached:
            return False
        limits.drop("call")
        return True

    assert not await history.load_spending()
    assert await fits(2.0)
    await history.count_spooled()
    assert (await fits(1.0), await fits(1.01)) == (True, False)
    store.is_away = False
    assert await history.load_spending()
    if level != "end user":  # of which this store tells nothing
        await history.count_spooled()  # one that took longer than the database
        assert (await fits(1.0), await fits(1.01)) == (True, False)
    await now.close()


class Growing(Notes):
    """A store of which each answer knows of half a dollar more, but of one of the start's."""

    def __init__(self) -> None:
        super().__init__()
        self.instants: list[datetime] = []

    async def spent(self, now: datetime, until: datetime) -> list[Spent]:
        return []

    async def used(self, since_s: Sequence[float], until: datetime, own: OwnRows) -> list[LimitUse]:
        self.instants.append(until)
        usd = 1.0 if until == min(self.instants) else 1.5
        return [LimitUse(each_s, usd, client=client) for each_s in since_s for client in ("new", "old")]


async def test_what_a_start_reads_late_does_not_replace_what_a_limit_set_meanwhile_has_found(tmp_path: Path) -> None:
    clock, store = Clock(), Growing()
    leases, spending = OwnShare(1, clock=clock, unix_clock=clock), Spending(clock)
    steering = Steering(MemoryBoard(), clock=clock, unix_clock=clock, random=Random(1), spending=spending)
    clock.now_s = MIDNIGHT_S + 1

    def utc_now() -> datetime:
        return datetime.fromtimestamp(clock(), UTC)

    ledger = Ledger("sqlite:///unused.db", tmp_path, "w1", clock=clock, utc_now=utc_now, store=store)
    history = StartupHistory(ledger, steering, leases, spending, teams=dict, payer_of=lambda: str, unix_clock=clock)
    assert await history.load_spending()
    day = f"{utc_now():%Y-%m-%d}"
    new, old = (f"client:{name}:usd_per_day:{day}" for name in ("new", "old"))
    clock.now_s += 60
    await history.count_added({old}, (), utc_now())
    assert (leases.recollected(new), leases.recollected(old)) == (1.5, 1.0)
    await history.retry_spending(after_s=0.0)
    assert (leases.recollected(new), leases.recollected(old)) == (1.5, 1.0)
    await ledger.close()
