"""``python -m benchmarks.ledger.contention``: what Postgres stores when many workers ship at the same time.

Each worker is a process with a ledger of its own, as a gateway has it: spool, shipper, and what adds up rows. All write
calls of the same models and clients, so they would meet in the same rows of sums. After a warm-up it is measured for
some seconds: calls stored, how old a call is when it is in SQL, batches that failed, how far sums trail, the share of
busy backends that wait for a lock, and the CPU of all of Postgres.
"""

import argparse
import asyncio
import logging
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.ledger.rows import call
from gateway.ledger import Finished, Ledger, migrate
from gateway.ledger.entries import Entry
from gateway.ledger.store import SqlStore
from tests.support.servers import postgres

POINTS = ("1x96", "8x12", "32x15", "64x15")
WARM_UP_S = 4.0
SECONDS = 15.0
TICK_S = 0.05
LOOK_S = 0.1
CONNECTIONS = 300
GOALS: Mapping[str, float] = {"lag_p95_s": 3.0, "failed": 0.0, "waiting": 0.05, "trail_p95_s": 2.0}
CPU_GOALS_MS = {"64x15": 0.8}  # batches of 15; else batches of 100 and more, or of all workers together
CPU_GOAL_MS = 0.35
_BUSY = """
select coalesce(wait_event_type || ' ' || wait_event, 'none') as wait, count(*) as n
from pg_stat_activity
where state = 'active' and backend_type = 'client backend' and pid <> pg_backend_pid()
group by 1
"""
_POSTMASTER = "split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int"


class Point(msgspec.Struct, frozen=True):
    """What one number of workers did."""

    name: str
    asked: float  # calls a second
    stored: float  # calls a second
    lag_p50_s: float  # of calls, from the spool to SQL
    lag_p95_s: float
    lag_max_s: float
    failed: int  # batches
    waiting: float  # the share of busy backends that waited for a lock
    busy: float  # backends, in the mean
    waits: Mapping[str, int]  # what busy backends waited for, as often as it was seen
    trail_p95_s: float | None  # how far sums were behind; None: they are of the same transaction
    cpu_ms: float  # of Postgres, a call stored
    cores: float  # of Postgres


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker does."""

    url: str
    folder: str
    number: int
    rate: int  # calls a second
    seconds: float  # measured, after the warm-up


class Counted(SqlStore):
    """Counts the batches that failed."""

    failed = 0

    async def insert(self, entries: Sequence[Entry], kept_since: Mapping[str, datetime]) -> int:
        """Store rows."""
        try:
            return await super().insert(entries, kept_since)
        except BaseException:
            self.failed += 1
            raise


def main() -> None:
    """Measure each point, and show them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger.contention", description=__doc__)
    parser.add_argument("points", nargs="*", default=POINTS, help="workers x calls a second of each, as 32x15")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="measured of each point")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = [_measure(name, options.seconds) for name in options.points]
    if options.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    else:
        _show(found)


def _measure(name: str, seconds: float) -> Point:
    workers, rate = (int(part) for part in name.split("x"))
    context = multiprocessing.get_context("fork")  # of a process that has imported everything, and has no loop
    with postgres(settings=[f"max_connections={CONNECTIONS}"]) as url, tempfile.TemporaryDirectory() as folder:
        asyncio.run(migrate(url))
        ends: list[Connection] = []
        processes = []
        for number in range(workers):
            ours, theirs = context.Pipe()
            worker = Worker(url=url, folder=folder, number=number, rate=rate, seconds=seconds)
            processes.append(context.Process(target=_work, args=(worker, theirs), daemon=True))
            ends.append(ours)
        for process in processes:
            process.start()
        for end in ends:
            end.recv()  # it is connected
        for end in ends:
            end.send("begin")
        looked = asyncio.run(_look(url, seconds))
        told = [end.recv() for end in ends]
        for process in processes:
            process.join()
    lags = sorted(lag for each in told for lag in each["lags_s"])
    return Point(
        name=name,
        asked=workers * rate,
        lag_p50_s=_quantile(lags, 0.5),
        lag_p95_s=_quantile(lags, 0.95),
        lag_max_s=_quantile(lags, 1.0),
        failed=sum(each["failed"] for each in told),
        **looked,
    )


def _work(worker: Worker, parent: Connection) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # batches are counted
    asyncio.run(_write(worker, parent))


async def _write(worker: Worker, parent: Connection) -> None:
    """Write ``rate`` calls a second, evenly, and tell the parent how old each was when it was in SQL."""
    store = Counted(worker.url)
    ledger = Ledger(worker.url, Path(worker.folder) / "spool", f"w{worker.number}", store=store)
    await store.ping()
    parent.send("connected")
    await asyncio.to_thread(parent.recv)
    draw = random.Random(worker.number)
    await asyncio.sleep(draw.random())  # workers do not ship in step
    await ledger.start()
    waiting: deque[float] = deque()
    lags_s: list[float] = []
    begun = time.monotonic()
    first, last = begun + WARM_UP_S, begun + WARM_UP_S + worker.seconds
    written = 0
    while (now := time.monotonic()) < last:
        for _ in range(int((now - begun) * worker.rate) - written):
            entry = call(draw, datetime.now(UTC))
            assert isinstance(entry, Finished)
            ledger.call_finished(entry.call)
            waiting.append(time.monotonic())
            written += 1
        now = time.monotonic()
        while len(waiting) > ledger.pending:
            since = waiting.popleft()
            if now >= first:
                lags_s.append(now - since)
        await asyncio.sleep(TICK_S)
    lags_s += [last - since for since in waiting if last - since > 1]  # not stored, and already so old
    failed = store.failed
    parent.send({"lags_s": lags_s, "failed": failed})
    with suppress(Exception):
        await ledger.close(timeout_s=0.1)


async def _look(url: str, seconds: float) -> dict[str, Any]:
    """Return what the server says of itself while the workers write."""
    connection: Any = await asyncpg.connect(url)
    postmaster, own = await connection.fetchrow(f"select {_POSTMASTER}, pg_backend_pid()")
    can_trail = await connection.fetchval("select to_regclass('rollup_pending') is not null")
    await asyncio.sleep(WARM_UP_S + 1)
    looks, waits = 0, Counter[str]()
    trails_s: list[float] = []
    seconds -= 1  # the first workers end
    count = "select count(*) from calls"
    before, before_s, begun = await connection.fetchval(count), _cpu_s(postmaster, own), time.monotonic()
    while time.monotonic() - begun < seconds:
        waits.update({row["wait"]: row["n"] for row in await connection.fetch(_BUSY)})
        looks += 1
        if can_trail and looks % 5 == 0:
            trails_s.append(float(await connection.fetchval("select trails_s from rollup_pending")))
        await asyncio.sleep(LOOK_S)
    spent_s, taken_s = _cpu_s(postmaster, own) - before_s, time.monotonic() - begun
    stored = await connection.fetchval(count) - before
    await connection.close()
    busy, waiting = waits.total(), sum(n for wait, n in waits.items() if wait.startswith("Lock "))
    return {
        "stored": stored / taken_s,
        "busy": busy / looks,
        "waits": dict(waits.most_common()),
        "waiting": waiting / busy if busy else 0.0,
        "trail_p95_s": _quantile(sorted(trails_s), 0.95) if trails_s else None,
        "cpu_ms": spent_s * 1000 / stored if stored else 0.0,
        "cores": spent_s / taken_s,
    }


def _cpu_s(postmaster: int, own: int) -> float:
    """Return the CPU seconds of a server so far, with those of backends that have ended, without our ``own``."""
    ticks = 0
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    for pid in {str(postmaster), *children} - {str(own)}:
        with suppress(OSError):  # it has ended: the postmaster has its times
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _show(points: Sequence[Point]) -> None:
    console = Console(width=130)
    table = Table(title="Workers that ship to one Postgres", title_justify="left")
    heads = (
        "workers x calls/s",
        "stored/s",
        "of",
        "lag p50",
        "p95",
        "most, s",
        "failed",
        "wait for locks",
        "trail p95",
    )
    for column in (*heads, "CPU ms a call", "cores"):
        table.add_column(column, justify="right")
    for each in points:
        table.add_row(
            each.name,
            f"{each.stored:,.0f}",
            f"{each.asked:,.0f}",
            f"{each.lag_p50_s:.1f}",
            _marked(f"{each.lag_p95_s:.1f}", each.lag_p95_s <= GOALS["lag_p95_s"]),
            f"{each.lag_max_s:.1f}",
            _marked(str(each.failed), each.failed == 0),
            _marked(f"{each.waiting:.1%} of {each.busy:.1f}", each.waiting < GOALS["waiting"]),
            "" if each.trail_p95_s is None else _marked(f"{each.trail_p95_s:.1f}", each.trail_p95_s <= 2),
            _marked(f"{each.cpu_ms:.2f}", each.cpu_ms <= CPU_GOALS_MS.get(each.name, CPU_GOAL_MS)),
            f"{each.cores:.2f}",
        )
    console.print(table)


def _marked(figure: str, holds: bool) -> str:
    return figure if holds else f"[red]{figure}[/red]"


if __name__ == "__main__":
    main()
