"""What a gateway reads at its start of what was before: what was spent, and the figures by which it steers."""

import asyncio
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from random import Random

import pytest

from gateway.app.recorders import StartupHistory
from gateway.core.calls import HourlySum, Spent
from gateway.ledger.errors import DatabaseUnreachableError
from gateway.ledger.writer import Ledger
from gateway.limits import Limits, OwnShare, Payer, Use, level_of_key
from gateway.racing.timeouts import LEAST_S, Came, PausesByDeployment
from gateway.steering import MemoryBoard, Spending, Steering
from tests.unit.ledger.test_folding import Notes
from tests.unit.steering.test_spending import MIDNIGHT_S, Clock


class AtMidnight(Notes):
    """A store that is asked before midnight, and answers after it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    async def spent(self, now: datetime, until: datetime) -> list[Spent]:
        self._clock.now_s = MIDNIGHT_S + 1
        return [Spent("team", "llama", 1.0, 1.0, 0.5)]


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
    limits_s = [pauses[f"groq/{model}"].noticed_s(Came.TEXT) for model in ("llama", "gemma", "qwen")]
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
