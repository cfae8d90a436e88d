"""SQLite ledgers without rows, made once a process, to be copied: migrating one costs more than most tests."""

import asyncio
import atexit
import shutil
import sqlite3
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from pathlib import Path

from gateway.ledger import migrate

_ASKED = ("rollup_pending", "gaps_24h")


@cache
def migrated() -> Path:
    """Return a ledger's file."""
    path = _folder() / "holeshot.db"
    with ThreadPoolExecutor(1) as pool:  # this thread may have a loop that runs
        pool.submit(asyncio.run, migrate(f"sqlite:///{path}")).result()
    return path


@cache
def plain() -> Path:
    """Return the file of a ledger without views, but the two that a gateway asks: to add up, and for gaps.

    Each connection reads the texts of all views there are: most of what one costs, and half of what a gateway's test
    took. Who asks for one that is not there fails.
    """
    path = _folder() / "plain.db"
    shutil.copy(migrated(), path)
    with closing(sqlite3.connect(path)) as connection:
        for (name,) in connection.execute("select name from sqlite_master where type = 'view'").fetchall():
            if name not in _ASKED:
                connection.execute(f"drop view {name}")
        connection.execute("vacuum")
    return path


def lay(file: Path, path: Path) -> None:
    """Copy a ledger's file to a path at which there is none."""
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        shutil.copy(file, path)


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="holeshot-ledgers-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
