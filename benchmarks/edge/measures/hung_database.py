"""A database that hangs, and ``kill -9``: what is told, and which answered calls have no row.

SQLite hangs for whoever writes while another process holds its write lock.
"""

import asyncio
import json
import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from benchmarks.edge.edge import Edge, Figure, Running, ask, get
from tests.support.measured.load import asking

CALLS = 20  # at a time
LIMIT_S = 20.0  # for whatever is waited for
LOOK_S = 0.05
MODEL = "burst-single"
_CALL_ID = re.compile(rb"\r\nx-holeshot-call-id: ([^\r]+)\r\n", re.IGNORECASE)


async def measure(edge: Edge) -> list[Figure]:
    async with edge.gateway() as gateway:
        database, spool = gateway.folder / "ledger.db", gateway.folder / "spool"
        await _calls(gateway)
        await _until(time.monotonic(), lambda: _is_connected(gateway))  # else what is told would be of the start
        with closing(sqlite3.connect(database, isolation_level=None)) as holder:
            holder.execute("begin immediate")
            began = time.monotonic()
            hanging = await _calls(gateway)
            told_s = await _until(began, lambda: _is_disconnected(gateway))
            afterwards = await _calls(gateway)
            gateway.process.kill()
            await gateway.process.wait()
            holder.execute("rollback")
        settings = {"database_url": f"sqlite:///{database}", "spool_dir": str(spool)}
        async with edge.gateway(settings):
            await _until(time.monotonic(), lambda: len(_rows(database)) == 3 * CALLS)
    rows = _rows(database)
    return [
        Figure("hung database until /health/ready tells", told_s, "s"),
        Figure(f"no row, of {CALLS} answered before", float(len(hanging - rows))),
        Figure(f"no row, of {CALLS} answered afterwards", float(len(afterwards - rows))),
    ]


async def _calls(gateway: Running) -> set[str]:
    """Make calls at once and return the ids of those answered."""
    headers = {**gateway.headers, "connection": "close"}
    question = asking(gateway.port, headers, MODEL, streamed=False).rendered()
    answers = await asyncio.gather(*(ask(gateway.port, question) for _ in range(CALLS)))
    found = (_CALL_ID.search(answer.start) for answer in answers if answer.status == 200)
    return {match[1].decode() for match in found if match is not None}


async def _is_connected(gateway: Running) -> bool:
    answer = await ask(gateway.port, get("/health/ready"))
    return bool(json.loads(answer.start.partition(b"\r\n\r\n")[2])["database"]["connected"])


async def _is_disconnected(gateway: Running) -> bool:
    return not await _is_connected(gateway)


def _rows(database: Path) -> set[str]:
    with closing(sqlite3.connect(database)) as connection:
        return {call_id for (call_id,) in connection.execute("select id from calls where status_code = 200")}


async def _until(began: float, is_so: Callable[[], object]) -> float | None:
    """Return how many seconds after ``began`` it was so; None when it was not within the limit."""
    while time.monotonic() - began < LIMIT_S:
        found = is_so()
        if await found if asyncio.iscoroutine(found) else found:
            return time.monotonic() - began
        await asyncio.sleep(LOOK_S)
    return None
