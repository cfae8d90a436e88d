"""A gateway walks through a year of midnights: what it admits and refuses, beside a model of a few lines."""

import asyncio
import sqlite3
from contextlib import AsyncExitStack, closing
from datetime import UTC, date, datetime, timedelta
from math import inf
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gateway.limits import level_of_key
from providers.simulator import Done, UsageChunk, answer
from tests.app.gateway.races.test_objectives import KEY, client, keyed
from tests.app.gateway.running_gateway import MODEL, RunningGateway, read, serving
from tests.patience import PATIENCE_S, until
from tests.support.moved_time import MovedTime

LIMITS = {"usd_per_hour": 3, "usd_per_day": 4, "usd_per_week": 20, "usd_per_month": 70, "usd_total": 700}
ZONES = ("Europe/Berlin", "America/Santiago", "UTC", "Asia/Kathmandu", "Pacific/Auckland")
PRICED = {MODEL: {"deployments": [{"deployment": "alpha/m", "price_per_mtok": {"input": 0, "output": 1e6}}]}}
ONE_TOKEN = [*answer("a")[:-2], UsageChunk(10, 1), Done()]  # for a dollar


def window(limit: str, unix_s: float, zone: str) -> tuple[str, float, float]:
    """Return the name of a limit's window, and when it begins and ends."""
    today = datetime.fromtimestamp(unix_s, ZoneInfo(zone)).date()
    first = today.replace(day=1)
    if limit == "usd_per_hour":
        quarter_s = midnight_s(today, zone) % 3600  # of local hours, as in Kathmandu
        begins_s = (unix_s - quarter_s) // 3600 * 3600 + quarter_s
        return str(begins_s), begins_s, begins_s + 3600
    if limit == "usd_total":
        return "total", -inf, inf
    days = {
        "usd_per_day": (today, today + timedelta(1)),
        "usd_per_week": (today - timedelta(today.weekday()), today + timedelta(7 - today.weekday())),
        "usd_per_month": (first, (first + timedelta(31)).replace(day=1)),
    }
    begins, ends = days[limit]
    return str(begins), midnight_s(begins, zone), midnight_s(ends, zone)


def midnight_s(day: date, zone: str) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).timestamp()


class Spent:
    """When each dollar was spent, and the zones that there were."""

    def __init__(self) -> None:
        self._at_s: list[float] = []
        self._zones: set[str] = set()

    def add(self, unix_s: float) -> None:
        self._at_s.append(unix_s)

    def since(self, limit: str, unix_s: float, zone: str) -> int:
        """Return the dollars of a limit's window, of which none may be admitted beyond the limit."""
        _, starts_s, _ = window(limit, unix_s, zone)
        return sum(each_s >= starts_s for each_s in self._at_s)

    def on_date(self, limit: str, unix_s: float, zone: str) -> int:
        """Return those with what was spent on the window's date in any zone that there was: that counts on."""
        self._zones.add(zone)
        name, starts_s, _ = window(limit, unix_s, zone)
        near = [each_s for each_s in self._at_s if each_s >= starts_s - 2 * 86_400]
        return sum(any(window(limit, each_s, each)[0] == name for each in self._zones) for each_s in near)


class Walk:
    """A gateway whose clock is moved, started again now and then."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random, self.moved, self.spent = Random(seed), MovedTime(), Spent()
        self.zone = self.random.choice(ZONES)
        self._folder, self._stack = folder, AsyncExitStack()
        self.refused = self.admitted = 0

    async def start(self) -> None:
        settings: dict[str, Any] = {**client(**LIMITS, limits_zone=self.zone), "models": PRICED}
        self.running: RunningGateway = await self._stack.enter_async_context(
            serving(self._folder, {"alpha": ONE_TOKEN}, key=KEY, **self.moved.runtime, **settings)
        )

    async def restart(self) -> None:
        await self._stack.aclose()
        await self.start()

    async def change_zone(self) -> None:
        self.zone = self.random.choice(ZONES)
        self.running.config["clients"]["team"]["limits_zone"] = self.zone
        gateway = self.running.gateway
        gateway.reload(read(self.running.config, self._folder))
        await asyncio.sleep(0)  # the count begins
        await until(lambda: not gateway._history._adding.locked())

    async def prune(self) -> None:
        """Delete the rows of 40 days ago, as ``keep_calls_days`` does, by the clock of SQLite, which is not moved."""
        await self.running.gateway.ledger.flush()
        await self.running.gateway.ledger.fold()
        oldest = (self.moved.utc_now() - timedelta(days=40)).strftime("%Y-%m-%d")

        def delete() -> None:
            with closing(sqlite3.connect(self._folder / "holeshot.db", timeout=PATIENCE_S)) as ledger, ledger:
                for table in ("attempts", "calls"):
                    ledger.execute(f"delete from {table} where started_at < ?", (oldest,))

        await asyncio.to_thread(delete)  # the gateway, in this loop, may be about to end a transaction

    async def nothing(self) -> None:
        """Nothing happens."""

    async def ask(self) -> None:
        """Make a call, which must be admitted or refused as the model says."""
        unix_s, of = self.moved.unix_s(), self.spent
        given = (datetime.fromtimestamp(unix_s, ZoneInfo(self.zone)), self.zone)
        on_date = [each for each, limit in LIMITS.items() if of.on_date(each, unix_s, self.zone) >= limit]
        async with self.running.chat(keyed(), max_tokens=1) as response:
            await response.read()
        if response.status == 200:
            over = [each for each, limit in LIMITS.items() if of.since(each, unix_s, self.zone) >= limit]
            assert not over, given
            of.add(unix_s)
            self.admitted += 1
            return
        assert (response.status, bool(on_date)) == (429, True), given
        told, last_s = (
            response.headers.get("retry-after"),
            max(window(each, unix_s, self.zone)[2] for each in on_date),
        )
        assert last_s == inf or int(str(told)) <= last_s - unix_s + 2
        self.refused += 1

    async def close(self) -> None:
        await self._stack.aclose()


@pytest.mark.parametrize("seed", [1])
async def test_in_a_year_of_midnights_no_window_has_more_or_less_than_its_limit(tmp_path: Path, seed: int) -> None:
    walk = Walk(tmp_path, seed)
    moves = [walk.nothing] * 36 + [
        walk.restart,
        walk.change_zone,
        walk.change_zone,
        walk.prune,
    ]
    walk.moved.is_now(datetime(2027, 1, 1, 12, tzinfo=UTC))
    await walk.start()
    try:
        for number in range(1, 366):
            day = datetime(2027, 1, 1, tzinfo=ZoneInfo(walk.zone)) + timedelta(days=number)
            minutes = sorted(walk.random.uniform(-45, 45) for _ in range(2))
            for minute in minutes:
                walk.moved.is_now(day.astimezone(UTC) + timedelta(minutes=minute))
                await walk.random.choice(moves)()
                for _ in range(walk.random.choice((0, 1, 3))):
                    await walk.ask()
        await walk.prune()
        await walk.restart()  # the rows of most of the year are deleted
        total = level_of_key("team", {"usd_total": 700})
        [standing] = walk.running.gateway.context.limits.standings(total)
        kept = await walk.running.rows("select count(*) as n from calls where cost_usd > 0")
        assert (standing.used, kept[0]["n"] < walk.admitted / 2) == (walk.admitted, True)
    finally:
        await walk.close()
    assert walk.refused > 50
    assert walk.admitted > 50
