"""SQLite ledgers without rows, made once a process, to be copied: migrating one costs more than most tests."""

import asyncio
import atexit
import os
import shutil
import sqlite3
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from pathlib import Path

from gateway.ledger import migrate
from tests.patience import PATIENCE_S

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
    """Return the file of a ledger without views, but the two that a gateway asks, and which adds nothing up.

    Each connection reads the texts of all views and triggers there are: most of what one costs, and more than half of
    what a gateway's test took. Who asks for a view that is not there fails; for sums see ``settle``.
    """
    path = _folder() / "plain.db"
    shutil.copy(migrated(), path)
    with closing(sqlite3.connect(path)) as connection:
        for (name,) in connection.execute("select name from sqlite_master where type = 'view'").fetchall():
            if name not in _ASKED:
                connection.execute(f"drop view {name}")
        _replace(connection, _NOTHING)
        connection.execute("vacuum")
    return path


def settle(path: Path, *, counts: bool = False) -> bool:
    """Have a plain ledger that has rows add them up, all of them, as somebody reads their sums.

    ``counts``: one without rows, too. Return whether it still is plain.
    """
    if _is_untouched(path):
        if counts:
            shutil.copy(_counting(), path)
        return not counts
    with closing(sqlite3.connect(path, timeout=PATIENCE_S)) as connection:
        if not connection.execute("select 1 from sqlite_master where sql = ?", [_NOTHING]).fetchone():
            return False
        if not (counts or connection.execute("select 1 from attempts limit 1").fetchone()):
            return True
        _count(connection)
    return False


@cache
def _counting() -> Path:
    """Return the file of a plain ledger that adds its rows up."""
    path = _folder() / "counting.db"
    shutil.copy(plain(), path)
    with closing(sqlite3.connect(path)) as connection:
        _count(connection)
    return path


def _count(connection: sqlite3.Connection) -> None:
    _replace(connection, _adding_up())
    connection.execute("delete from rollup_pending")
    connection.commit()


_NOTHING = "CREATE TRIGGER roll_up instead of delete on rollup_pending begin select 1; end"


def _is_untouched(path: Path) -> bool:
    """Tell a plain ledger that nobody has opened since it was copied: to read its schema takes longer."""
    has_log = path.with_name(f"{path.name}-wal").exists()
    return not has_log and path.exists() and path.read_bytes() == _plain_bytes()


@cache
def _plain_bytes() -> bytes:
    return plain().read_bytes()


@cache
def _adding_up() -> str:
    with closing(sqlite3.connect(migrated())) as connection:
        return str(connection.execute("select sql from sqlite_master where name = 'roll_up'").fetchone()[0])


def _replace(connection: sqlite3.Connection, trigger: str) -> None:
    """Put another trigger, which runs where rows are added up, in the place of the one that is there."""
    connection.execute("drop trigger roll_up")
    connection.execute(trigger)
    connection.commit()


def lay(file: Path, path: Path) -> None:
    """Copy a ledger's file to a path at which there is none."""
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        shutil.copy(file, path)


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="holeshot-ledgers-"))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, maker: int) -> None:
    """Remove it at the end of the process that has made it, and not of its forks."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)
