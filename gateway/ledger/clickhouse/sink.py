"""Ships the spool's segments to ClickHouse, separately from SQL: neither store delays the other.

A complete segment gets a second name in ``SPOOL_DIR/.clickhouse`` before SQL may delete the first name: a hard link, so
nothing is written twice. The names there are ClickHouse's cursor: a file is deleted when its rows are stored. If a
process dies before that, the next process that locks the file sends it again; rows that were sent twice have one key,
and FINAL reads one of them. The folder is bounded: beyond ``max_spool_gb`` the oldest files are dropped, with a line in
the log.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
import structlog

from gateway.core.addresses import Address
from gateway.core.log import OutageCauses
from gateway.core.tasks import pause
from gateway.ledger.clickhouse.schema import prepare_clickhouse
from gateway.ledger.clickhouse.server import ClickHouse
from gateway.ledger.entries import (
    ATTEMPT_COLUMNS,
    CALL_COLUMNS,
    Audited,
    Entry,
    Finished,
    Started,
    attempt_rows,
    call_rows,
    decode,
    encode,
)
from gateway.ledger.errors import DatabaseUnreachableError, SpoolError
from gateway.ledger.folders import LOCK_NAME, lock_file, make_private, segment_numbers, segment_path
from gateway.ledger.inserts import RowsRejectedError
from gateway.settings import ClickHouseSettings
from providers.http import TlsContexts

FOLDER = ".clickhouse"  # hidden, so the search for dead workers' spools skips it
CURSOR = "clickhouse"  # in a spool's folder: the number of the last segment that was added
INTERVAL_S = 1.0
BACKOFF_FIRST_S, BACKOFF_MAX_S = 1.0, 30.0
BATCH_MAX_BYTES = 4 * 1024 * 1024  # of lines, sent as two inserts; about a thousand calls
SLICE_ENTRIES = 16  # decoded and encoded without a pause, in about 0.4 ms
REST = 3.0  # pause after a slice, in multiples of its duration, so that a backlog does not slow calls
REMIND_S = 60.0  # between log lines about dropped files
CLOSE_TIMEOUT_S = 5.0
_ENDED = "ended"  # in the name of a file with starts of calls that never ended
_BYTES_PER_GB = 1e9

_encode = msgspec.json.Encoder().encode


class SegmentQueue:
    """The files that are not in ClickHouse yet: segments of all workers with this ``spool_dir``, live and dead."""

    def __init__(self, spool_dir: Path, max_bytes: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Make the folder.

        Raises:
            OSError: the folder cannot be made.

        """
        self.folder = spool_dir / FOLDER
        self.max_bytes = max_bytes
        self.lost = 0  # calls in files that this process has dropped
        self.waiting_bytes = 0  # at the last look
        self.oldest_at_s: float | None = None  # the last write to the oldest file, in Unix seconds
        self._clock = clock
        self._said_at_s: float | None = None
        self._log = structlog.get_logger()
        make_private(self.folder)

    def add(self, folder: Path, number: int, descriptor: int) -> None:
        """Add a complete segment of the spool ``folder``; ``descriptor`` is open on the segment. Never raises."""
        target = self.folder / f"{folder.name}.{number:08}.jsonl"
        with self._refusals(target.name):
            _add(segment_path(folder, number), descriptor, target)
            (folder / CURSOR).write_text(str(number))

    def adopt(self, folder: Path) -> None:
        """Add the segments of a dead worker's spool that were not added yet. Blocks; never raises."""
        with self._refusals(folder.name):
            added = _number_in(folder / CURSOR)
            for number in segment_numbers(folder):
                if number > added:
                    source = segment_path(folder, number)
                    with source.open("rb") as opened:
                        _add(source, opened.fileno(), self.folder / f"{folder.name}.{number:08}.jsonl")
                    (folder / CURSOR).write_text(str(number))

    def add_ended(self, folder: Path, entries: Iterable[Entry]) -> None:
        """Add the unfinished entries of a dead worker's spool, marked as ended. Blocks; never raises."""
        content = b"".join(encode(entry) for entry in entries if isinstance(entry, Started | Audited))
        if content:
            with self._refusals(folder.name):
                _write(self.folder / f"{folder.name}.{_ENDED}.jsonl", content)

    @contextmanager
    def _refusals(self, name: str) -> Iterator[None]:
        try:
            make_private(self.folder)  # the folder may have been deleted
            yield
        except OSError as error:
            # Event ledger.clickhouse_refused: The disk refuses to keep rows for ClickHouse (`cause`): SQL alone has
            # them.
            # Do: Free disk space.
            self._log.error("ledger.clickhouse_refused", segment=name, cause=error.strerror)

    def files(self) -> list[Path]:
        """Return the waiting files, the oldest first; before, drop the oldest files beyond the limit. Blocks."""
        make_private(self.folder)
        with _alone(self.folder / LOCK_NAME) as may_drop:  # two processes at the same time would drop twice as many
            all_files = []
            for path in self.folder.glob("*.jsonl"):
                with suppress(FileNotFoundError):
                    facts = path.stat()
                    all_files.append((facts.st_mtime, path.name, facts.st_size, path))
            all_files.sort()
            waiting_bytes = sum(size_bytes for _, _, size_bytes, _ in all_files)
            kept = []
            for at_s, _, size_bytes, path in all_files:
                if may_drop and waiting_bytes > self.max_bytes and self._drop(path):
                    waiting_bytes -= size_bytes
                else:
                    kept.append((at_s, path))
        self.waiting_bytes = waiting_bytes
        self.oldest_at_s = kept[0][0] if kept else None
        return [path for _, path in kept]

    def _drop(self, path: Path) -> bool:
        """Delete a file, unless a process is sending it; return whether the file was deleted."""
        descriptor = _locked(path)
        if descriptor is None:
            return False
        with os.fdopen(descriptor, "rb") as lines:
            lost = sum(line.startswith(b'{"type":"finished"') for line in lines)
            path.unlink(missing_ok=True)
        self.lost += lost
        now_s = self._clock()
        if self._said_at_s is None or now_s - self._said_at_s >= REMIND_S:
            self._said_at_s = now_s
            # Event ledger.clickhouse_dropped: More rows wait for ClickHouse than `ledger.clickhouse.max_spool_gb`
            # allows, so the oldest are not sent: so far `lost` calls. SQL has them.
            # Do: Make ClickHouse reachable, or raise the setting.
            self._log.error(
                "ledger.clickhouse_dropped",
                lost=self.lost,
                hint="SQL has them; make ClickHouse reachable, or raise ledger.clickhouse.max_spool_gb",
            )
        return True


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Yield whether this process has the lock at ``path``; if not, another process or thread holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield lock_file(descriptor, path)
    finally:
        os.close(descriptor)


def _add(source: Path, descriptor: int, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        return
    except OSError:  # the file was deleted a moment ago, or the disk has no hard links
        unfinished = target.with_suffix(".new")
        with os.fdopen(os.dup(descriptor), "rb") as opened, unfinished.open("wb") as copy:
            opened.seek(0)
            shutil.copyfileobj(opened, copy)
        unfinished.rename(target)


def _write(target: Path, content: bytes) -> None:
    unfinished = target.with_suffix(".new")
    unfinished.write_bytes(content)
    unfinished.chmod(0o600)
    unfinished.rename(target)


def _number_in(path: Path) -> int:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return 0


def _locked(path: Path) -> int | None:
    """Return a descriptor of a file that this process may send now; None if another process sends it, or it is gone."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if lock_file(descriptor, path):
        return descriptor
    os.close(descriptor)
    return None


class ClickHouseSink:
    """Sends the queue's files to ``server``. ``start`` and ``close`` it; failures delay nothing else.

    ``away``: ClickHouse's last request failed, or had no answer. ``rejected``: how many entries ClickHouse refuses for
    good; these are set aside.
    """

    def __init__(
        self,
        settings: ClickHouseSettings,
        spool_dir: Path,
        *,
        address: Address | None = None,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
        server: ClickHouse | None = None,
        tls: TlsContexts | None = None,
    ) -> None:
        """Make the queue's folder. Does not connect yet. ``server`` replaces the server of the settings.

        ``address``: that of the settings, with a login that may be renewed. ``tls``: shared contexts.

        Raises:
            SpoolError: the folder cannot be made.

        """
        try:
            self.queue = SegmentQueue(spool_dir, settings.max_spool_gb * _BYTES_PER_GB, clock)
        except OSError as error:
            raise SpoolError(
                f"the spool {spool_dir} cannot be written: {error.strerror}; make spool_dir writable or set another"
            ) from error
        self._unix_clock = unix_clock
        self.away = False
        self.rejected = 0
        self._server = server or ClickHouse(address or settings.url.get_secret_value(), tls)
        self._keep_days = settings.keep_days
        self._clock = clock
        self._prepared = False
        self._away_since_s = 0.0
        self._causes = OutageCauses()
        self._closing = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger()

    @property
    def oldest_s(self) -> float:
        """The age of the oldest waiting rows, in seconds; 0 if none wait."""
        oldest_at_s = self.queue.oldest_at_s
        return 0.0 if oldest_at_s is None else max(0.0, self._unix_clock() - oldest_at_s)

    def start(self) -> None:
        """Start sending; ClickHouse may be unreachable."""
        self._tasks = [
            asyncio.create_task(self._repeat(), name="ledger.clickhouse"),
            asyncio.create_task(self._bound(), name="ledger.clickhouse_bound"),
        ]

    async def close(self) -> None:
        """Send waiting files, for a few seconds if ClickHouse answers; another or a later process sends the rest."""
        self._closing.set()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await asyncio.gather(*self._tasks)
                if not self.away:
                    await self.ship()
        except (TimeoutError, DatabaseUnreachableError):
            pass
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._server.aclose()

    async def ship(self) -> None:
        """Send all waiting files, except files that another process is sending.

        Raises:
            DatabaseUnreachableError: ClickHouse does not answer; files that were not sent stay.

        """
        for path in await asyncio.to_thread(self.queue.files):
            if not self._prepared:
                await prepare_clickhouse(self._server, self._keep_days)
                self._prepared = True
            descriptor = _locked(path)
            if descriptor is None:
                continue
            with os.fdopen(descriptor, "rb") as opened:
                await self._ship_file(opened, never_ended=path.stem.endswith(f".{_ENDED}"))
                path.unlink(missing_ok=True)
            self._note_stored()

    async def _ship_file(self, opened: BinaryIO, *, never_ended: bool) -> None:
        while lines := await asyncio.to_thread(opened.readlines, BATCH_MAX_BYTES):
            kinds = (Started, Finished, Audited) if never_ended else (Finished, Audited)
            await self._insert([line for line in lines if line.endswith(b"\n")], kinds)

    async def _insert(self, lines: Sequence[bytes], kinds: tuple[type[Entry], ...]) -> None:
        """Store the rows of ``lines``; if ClickHouse refuses a row for good, set only its line aside."""
        calls, attempts = bytearray(), bytearray()
        for first in range(0, len(lines), SLICE_ENTRIES):
            begun_s = self._clock()
            entries = [
                entry for entry in map(_decoded, lines[first : first + SLICE_ENTRIES]) if isinstance(entry, kinds)
            ]
            for row in call_rows(entries):
                calls += _encode(row) + b"\n"
            for row in attempt_rows(entries):
                attempts += _encode(row) + b"\n"
            await asyncio.sleep(REST * (self._clock() - begun_s))
        try:
            if attempts:
                await self._server.insert("attempts", ATTEMPT_COLUMNS, bytes(attempts))
            if calls:  # after the attempts, so that a stored call has its attempts
                await self._server.insert("calls", CALL_COLUMNS, bytes(calls))
        except RowsRejectedError as error:
            if len(lines) == 1:
                self.rejected += 1
                await asyncio.to_thread(self._set_aside, lines[0], str(error))
                return
            middle = len(lines) // 2
            await self._insert(lines[:middle], kinds)
            await self._insert(lines[middle:], kinds)

    def _set_aside(self, line: bytes, cause: str) -> None:
        path = self.queue.folder / "rows.bad"
        # Event ledger.clickhouse_set_aside: ClickHouse does not accept a row (`cause`), which was moved to `file`. SQL
        # has it.
        # Do: Report it with the line.
        self._log.error("ledger.clickhouse_set_aside", file=str(path), cause=cause)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab") as bad_rows:
            bad_rows.write(line)

    async def _repeat(self) -> None:
        failures = 0
        while not self._closing.is_set():
            try:
                await self.ship()
                failures = 0
            except DatabaseUnreachableError as error:
                failures += 1
                self._note_away(error)
            except Exception:  # noqa: BLE001 - a bug or a full disk in one round must not stop all later ones
                failures += 1
                self._log.exception("ledger.task_failed", task="clickhouse")
            backoff_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 8))
            await pause(backoff_s if failures else INTERVAL_S, self._closing)

    async def _bound(self) -> None:
        """Keep the queue within its limit, also during a slow request."""
        while not self._closing.is_set():
            with suppress(OSError):
                await asyncio.to_thread(self.queue.files)
            await pause(INTERVAL_S, self._closing)

    def _note_stored(self) -> None:
        if self.away:
            self.away = False
            self._causes.end()
            # Event ledger.clickhouse_recovered: Rows are written to ClickHouse again, after `outage_s` seconds.
            # Do: Nothing.
            self._log.info("ledger.clickhouse_recovered", outage_s=round(self._clock() - self._away_since_s, 1))

    def _note_away(self, error: DatabaseUnreachableError) -> None:
        self._prepared = False  # another server may answer next time
        if not self.away:
            self.away, self._away_since_s = True, self._clock()
        if self._causes.is_new(str(error)):
            # Event ledger.clickhouse_unreachable: ClickHouse does not answer, or refuses (`cause`). Its rows wait on
            # disk, up to `ledger.clickhouse.max_spool_gb`; SQL has them.
            # Do: Make it reachable, and let its user create tables and views, and insert.
            self._log.warning(
                "ledger.clickhouse_unreachable", cause=str(error), hint="calls go on, rows wait on disk; SQL has them"
            )


def _decoded(line: bytes) -> Entry | None:
    try:
        return decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # SQL's reader has set the line aside
