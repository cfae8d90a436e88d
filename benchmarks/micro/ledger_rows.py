"""What a row of the ledger costs, from the start of its call to its commit in SQL, and what shipping does to the loop.

    python -m benchmarks.micro.ledger_rows [seconds]

A race of two is three rows. Postgres: CPU of this process per row, spool and shipping, beside asyncpg alone copying
ready tuples into the same tables. SQLite: CPU per call, for few and for many calls a second. Then the hot path: another
process asks this loop something every few milliseconds, as a call would, while 5,000 rows a second go through spool and
shipping, and while none do; the two take turns. This process has a core to itself, all others share the rest.
"""

import asyncio
import gc
import multiprocessing
import os
import socket
import struct
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from statistics import median_high

import asyncpg
import uvloop

from gateway.core.attempts import AttemptRecord
from gateway.core.calls import CallRecord, CallStart
from gateway.core.tasks import collect_less
from gateway.ledger import Ledger, migrate
from tests.support.recorded import deployments, races
from tests.support.servers import postgres

ROWS_PER_CALL = 3
CALLS_PER_S = 1667  # 5,000 rows
TICK_S = 0.001
ASKS_PER_S = 400
WORK_S = 0.0002  # of CPU, what is asked for takes
NAMES = deployments(6)

_JSON = {"tags": "{}", "dropped": None}  # columns that are text on the way to the database

Race = tuple[CallStart, CallRecord]


def tell(ledger: Ledger, made: list[Race]) -> None:
    for start, record in made:
        ledger.call_started(start)
        ledger.call_finished(record)


async def row_us(url: str, folder: Path, calls: int, batches: int) -> tuple[float, float]:
    """CPU of a row, microseconds: until it is in the spool, and in SQL."""
    ledger = Ledger(url, folder, "worker")
    spooled, shipped = [], []
    for number in range(batches):
        made = list(races(calls, Random(number), NAMES))
        before_s = time.process_time()
        tell(ledger, made)
        told_s = time.process_time()
        await ledger.flush()
        spooled.append(told_s - before_s)
        shipped.append(time.process_time() - told_s)
    await ledger.close()
    rows = calls * ROWS_PER_CALL
    return median_high(spooled) / rows * 1e6, median_high(shipped) / rows * 1e6


async def bare_us(url: str, calls: int, batches: int) -> float:
    """CPU of a row that asyncpg copies straight into its table, of tuples that are ready."""
    connection = await asyncpg.connect(url)
    await connection.execute("set timezone to 'UTC'")
    columns = {table: [row[0] for row in await connection.fetch(_COLUMNS, table)] for table in ("calls", "attempts")}
    spent = []
    for number in range(batches):
        made = list(races(calls, Random(number), NAMES))
        rows: dict[str, list[tuple[object, ...]]] = {
            "calls": [_values(record, columns["calls"]) for _, record in made],
            "attempts": [_values(one, columns["attempts"]) for _, record in made for one in record.attempts],
        }
        before_s = time.process_time()
        for table, records in rows.items():
            await connection.copy_records_to_table(table, records=records, columns=columns[table])
        spent.append(time.process_time() - before_s)
    await connection.close()
    return median_high(spent) / (calls * ROWS_PER_CALL) * 1e6


def _values(record: CallRecord | AttemptRecord, columns: list[str]) -> tuple[object, ...]:
    return tuple(_JSON[name] if name in _JSON else getattr(record, name) for name in columns)


class Hot(asyncio.Protocol):
    """The hot path: each question is the instant at which it was asked; it works a while, then notes how late it is."""

    def __init__(self, latencies_ms: list[float]) -> None:
        self._latencies_ms = latencies_ms

    def data_received(self, data: bytes) -> None:
        for (asked_s,) in struct.iter_unpack("d", data):
            until_s = time.perf_counter() + WORK_S
            while time.perf_counter() < until_s:
                pass
            self._latencies_ms.append((time.perf_counter() - asked_s) * 1000)


def ask(port: int, told: Connection) -> None:
    """Ask at random instants for as many seconds as told, whether the last question was answered or not."""
    random = Random(1)
    with socket.create_connection(("127.0.0.1", port)) as hot:
        hot.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while seconds := told.recv():
            due_s = time.perf_counter()
            end_s = due_s + seconds
            while due_s < end_s:
                due_s = max(due_s, time.perf_counter()) + random.expovariate(ASKS_PER_S)  # never to catch up in a burst
                time.sleep(max(0.0, due_s - time.perf_counter()))
                hot.send(struct.pack("d", time.perf_counter()))
            told.send("asked")


async def hot_path(
    url: str, folder: Path, seconds: float, turns: int, other_cores: list[int]
) -> dict[str, list[float]]:
    """Latencies without and with rows on their way, all turns together, sorted."""
    loop = asyncio.get_running_loop()
    latencies_ms: list[float] = []
    server = await loop.create_server(lambda: Hot(latencies_ms), "127.0.0.1", 0)
    ledger = Ledger(url, folder, "hot")
    await ledger.start()
    ours, theirs = multiprocessing.Pipe()
    asker = multiprocessing.get_context("spawn").Process(
        target=ask, args=(server.sockets[0].getsockname()[1], theirs), daemon=True
    )
    asker.start()
    os.sched_setaffinity(asker.pid or 0, other_cores)
    found: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(2 * turns):
        kind = "with" if turn % 2 else "without"
        ours.send(seconds)
        working = asyncio.create_task(write(ledger if kind == "with" else None, seconds))
        await asyncio.to_thread(ours.recv)
        found[kind] += latencies_ms
        await working
        await ledger.emptied()
        latencies_ms.clear()
    ours.send(0)
    await asyncio.to_thread(asker.join)
    server.close()
    await ledger.close()
    return {kind: sorted(found[kind]) for kind in found}


async def write(ledger: Ledger | None, seconds: float) -> None:
    """Make calls, fresh ones, as often as 5,000 rows a second need; tell ``ledger`` of them, if there is one."""
    random = Random(2)
    began_s, done = time.perf_counter(), 0
    while (now_s := time.perf_counter() - began_s) < seconds:
        due = int(now_s * CALLS_PER_S) - done
        fresh = list(races(due, random, NAMES))
        if ledger is not None:
            tell(ledger, fresh)
        done += due
        await asyncio.sleep(TICK_S)


def at(latencies_ms: list[float], share: float) -> float:
    return latencies_ms[min(len(latencies_ms) - 1, int(share * len(latencies_ms)))]


async def measure(postgres_url: str, folder: Path, seconds: float, other_cores: list[int]) -> None:
    await migrate(postgres_url)
    bare = await bare_us(postgres_url, 500, 20)
    print(f"asyncpg alone, ready tuples: {bare:.2f} µs of CPU a row")
    for calls in (50, 500, 2000):
        spooled, shipped = await row_us(postgres_url, folder / f"{calls}", calls, 12)
        print(
            f"Postgres, {calls:4} calls a batch: spool {spooled:.2f} + shipping {shipped:.2f} = "
            f"{spooled + shipped:.2f} µs of CPU a row, {(spooled + shipped) / bare:.1f} x asyncpg alone"
        )
    sqlite_url = f"sqlite:///{folder}/ledger.db"
    await migrate(sqlite_url)
    for calls in (10, 100, 1000):
        spooled, shipped = await row_us(sqlite_url, folder / f"sqlite-{calls}", calls, 8)
        print(f"SQLite, {calls:4} calls a batch: {(spooled + shipped) * ROWS_PER_CALL:.1f} µs of CPU a call")
    found = await hot_path(postgres_url, folder / "hot", seconds, 4, other_cores)
    for kind, latencies_ms in found.items():
        figures = ", ".join(f"p{share * 100:g} {at(latencies_ms, share):.2f}" for share in (0.5, 0.9, 0.99, 0.999))
        print(f"hot path {kind:>7} 5,000 rows a second, ms: {figures}, worst {latencies_ms[-1]:.2f}")


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    gc.freeze()
    collect_less()  # as the gateway does
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:])  # whoever is started from here on: a database has a machine of its own
    with tempfile.TemporaryDirectory(prefix="holeshot-rows-") as folder, postgres() as url:
        os.sched_setaffinity(0, cores[:1])
        uvloop.run(measure(url, Path(folder), seconds, cores[1:]))


_COLUMNS = "select column_name from information_schema.columns where table_name = $1 order by ordinal_position"

if __name__ == "__main__":
    main()
