"""Checks a running spool every second: restores it if it was deleted, resumes refused writes, and syncs."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

import structlog

from gateway.ledger.folders import LOCK_NAME, claim, segment_path
from gateway.ledger.segments import copy_segment
from gateway.ledger.spool import Spool, sync_files

REMIND_S = 10.0  # between log lines about a problem that persists
RESUMED_AT_ONCE = 32  # entries: about 300 µs


class Keeper:
    """Keeps a spool on disk, whatever happens to its folder; ``keep`` must be called every second.

    ``problem``: None, ``missing`` (deleted and not restorable) or ``unwritable``.
    """

    def __init__(
        self, spool: Spool, clock: Callable[[], float], utc_now: Callable[[], datetime], taken: Callable[[], int]
    ) -> None:
        """``taken`` returns how many of the spooled entries are in SQL, or in memory on their way there."""
        self._spool = spool
        self._clock = clock
        self._utc_now = utc_now
        self._taken = taken
        self._missing = False
        self._said_at_s: float | None = None
        self._log = structlog.get_logger()

    @property
    def problem(self) -> str | None:
        """The reason why the spool would be lost with this process; None if there is none."""
        return "missing" if self._missing else "unwritable" if self._is_refused() else None

    async def keep(self) -> None:
        """Check that all spooled data are on disk where the next gateway looks for them. Never raises OSError."""
        await self._put_back()
        if not self._missing:
            await self._resume()
            if not self._is_refused():
                self._spool.note_lasting(self._clock(), self._utc_now())
                self._spool.rotate_if_due(self._clock())
            await self._sync()
        if self.problem is None:
            self._said_at_s = None

    async def _put_back(self) -> None:
        files = self._spool.files
        names = [LOCK_NAME] if files.lock_is_missing() else []
        names += [segment_path(files.folder, number).name for number in files.missing()]
        if not names:
            if self._missing:  # it was moved away and back
                self._missing = False
                self._say(logging.INFO, "ledger.spool_recovered", folder=str(files.folder))
            return
        self._missing = True
        cause = None
        try:
            if files.lock_is_missing():
                files.take_over(*await asyncio.to_thread(claim, files.folder))
            for number in files.missing():
                source = files.open_segment(number)
                if source is not None:
                    path = segment_path(files.folder, number)
                    files.put_back(number, *await asyncio.to_thread(copy_segment, source, path))
        except OSError as error:
            cause = error.strerror or str(error)
        else:
            files.mark_moved()
            lost = self._spool.drop_lost(self._taken())
            self._missing = False
            self._say(
                logging.ERROR,
                "ledger.spool_restored",
                folder=str(files.folder),
                missing=names,
                lost=lost,
                hint="the spool was deleted; open calls and rows not yet in SQL are on disk again",
            )
            return
        if self._is_time_to_say():
            self._say(
                logging.ERROR,
                "ledger.spool_missing",
                folder=str(files.folder),
                missing=names,
                cause=cause,
                hint="make spool_dir writable; calls go on, but rows not yet in SQL would be lost with this process",
            )

    async def _resume(self) -> None:
        if not self._is_refused():
            return
        more = True
        while more:
            more = self._spool.resume(RESUMED_AT_ONCE, self._clock())
            await asyncio.sleep(0)
        if not self._is_refused():
            self._say(
                logging.INFO, "ledger.spool_recovered", folder=str(self._spool.folder), unspooled=self._spool.unspooled
            )
        elif self._is_time_to_say(first=False):
            self._spool.say_refused()

    def _is_refused(self) -> bool:
        return self._spool.refusal is not None

    async def _sync(self) -> None:
        unsynced = self._spool.files.take_unsynced()
        if unsynced:
            try:
                await asyncio.to_thread(sync_files, unsynced)
            except OSError as error:
                self._say(logging.ERROR, "ledger.sync_failed", folder=str(self._spool.folder), cause=error.strerror)

    def _say(self, level: int, event: str, **facts: object) -> None:
        with suppress(OSError):  # the log may be on the same full disk
            self._log.log(level, event, **facts)

    def _is_time_to_say(self, *, first: bool = True) -> bool:
        """Whether to log a problem now; ``first``: also when it has just begun."""
        now_s = self._clock()
        if self._said_at_s is None:
            self._said_at_s = now_s
            return first
        if now_s - self._said_at_s < REMIND_S:
            return False
        self._said_at_s = now_s
        return True
