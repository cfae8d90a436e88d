"""A worker's spool: its entries for the ledger, on local disk before they are reported.

``SPOOL_DIR/WORKER/`` has ``lock``, held while the worker lives, and segments ``00000001.jsonl``, written in order (see
``Segments``). One entry is one ``write(2)``: it survives ``kill -9``, and an fsync per second limits the loss at a
power failure. The latest entries are also kept in memory and shipped from there. Files are read only after a long
absence of SQL, or when they are adopted.

A segment is deleted when all its entries are in SQL. Open calls, losers that are watched longer than their call, and
outages must not be lost with the segment. So each new segment begins with these: the newest segment has every open
call, and a call's end is never in an older segment than its start.
"""

import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import structlog

from gateway.core.attempts import AttemptRecord
from gateway.core.calls import CallRecord, CallStart
from gateway.core.records import OutageRecord, RefusalRecord, StoredName
from gateway.ledger.entries import (
    NO_ROWS,
    Audited,
    Entry,
    Finished,
    Named,
    OpenOutages,
    OutageChange,
    RefusedRequests,
    Shippable,
    Started,
    Watched,
    decode,
    encode,
    encode_into,
)
from gateway.ledger.errors import SpoolError
from gateway.ledger.folders import segment_numbers, segment_path
from gateway.ledger.segments import Segments

# Reads a spool in order and in batches: a running spool from its open files, a dead one from its folder.

_APPENDED = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class Batch(msgspec.Struct, frozen=True):
    """Some entries of a spool, the invalid lines among them with reasons, and the position after them."""

    entries: list[Entry]
    corrupt: list[tuple[bytes, str]]
    segment: int
    offset_bytes: int


class SpoolReader:
    """A position in a spool. Reading does not move the position; ``advance`` does, once a batch is safe.

    Invalid lines are set aside in ``WORKER.bad`` beside the folder. For one thread at a time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.segment = 0
        self._offset_bytes = 0
        self._log = structlog.get_logger()

    def read(self, limit: int, held: Mapping[int, int] | None = None) -> Batch:
        """Return the next entries, at most ``limit``; none if everything has been read.

        ``held``: the segments from this position on, as returned by ``Segments.open_from``; they are closed here.
        Without ``held`` the folder's files are read.
        """
        batch = Batch([], [], self.segment, self._offset_bytes)
        segment, offset_bytes = self.segment, self._offset_bytes
        # Listed before reading: a segment with a successor is complete, so its end is final.
        files = dict.fromkeys(segment_numbers(self.folder), -1) if held is None else dict(held)
        try:
            for number in sorted(files):
                if number < segment:
                    continue
                start_bytes = offset_bytes if number == segment else 0
                try:
                    opened = self._open(number, files.pop(number), start_bytes)
                except FileNotFoundError:
                    break  # the owner counts lost entries; a dead owner's folder is being deleted after the adoption
                with opened:
                    segment, offset_bytes = number, _read_segment(opened, start_bytes, limit, batch)
                if len(batch.entries) >= limit:
                    break
        finally:
            for descriptor in files.values():
                if descriptor >= 0:
                    os.close(descriptor)
        return Batch(batch.entries, batch.corrupt, segment, offset_bytes)

    def advance(self, batch: Batch) -> None:
        """Move to the end of ``batch``."""
        for line, cause in batch.corrupt:
            self.set_aside(line, cause)
        self.segment, self._offset_bytes = batch.segment, batch.offset_bytes

    def set_aside(self, line: bytes, cause: str) -> None:
        """Keep a line that cannot become a row, for the operator."""
        bad_file = self.folder.with_name(f"{self.folder.name}.bad")
        # Event ledger.entry_set_aside: One line of the spool cannot become a row (`cause`), and was moved to `file`.
        # Do: Report it with the line.
        self._log.error("ledger.entry_set_aside", file=str(bad_file), cause=cause)
        try:
            with os.fdopen(os.open(bad_file, _APPENDED, 0o600), "ab") as bad_lines:
                os.fchmod(bad_lines.fileno(), 0o600)  # the file may be there already
                bad_lines.write(line if line.endswith(b"\n") else line + b"\n")
        except OSError as error:
            # Event ledger.entry_lost: One row is lost: it could not be encoded, or could not be set aside.
            # Do: With a `hint` it is a bug: report it. Else make `spool_dir` writable.
            self._log.error("ledger.entry_lost", cause=error.strerror)

    def _open(self, number: int, descriptor: int, offset_bytes: int) -> BinaryIO:
        if descriptor >= 0:
            return io.BufferedReader(_Held(descriptor, offset_bytes))
        opened = segment_path(self.folder, number).open("rb")
        opened.seek(offset_bytes)
        return opened


class _Held(io.RawIOBase):
    """An open file that is being written, read at a separate position, as duplicated descriptors share the file's."""

    def __init__(self, descriptor: int, offset_bytes: int) -> None:
        self._descriptor = descriptor
        self._offset_bytes = offset_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = os.pread(self._descriptor, len(buffer), self._offset_bytes)
        buffer[: len(block)] = block
        self._offset_bytes += len(block)
        return len(block)

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def _read_segment(lines: Iterable[bytes], offset_bytes: int, limit: int, batch: Batch) -> int:
    """Add the entries of a segment from ``offset_bytes`` to ``batch``; return where reading ended."""
    for line in lines:
        if not line.endswith(b"\n"):
            break  # being written, or incomplete after a crash: then the entry's call counts as interrupted
        offset_bytes += len(line)
        if line == b"\n":
            continue
        try:
            batch.entries.append(decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            batch.corrupt.append((line, str(error)))
        if len(batch.entries) >= limit:
            break
    return offset_bytes


SEGMENT_MAX_BYTES = 8 * 1024 * 1024  # at most so much is shipped again after a crash while the database is available
SEGMENT_MAX_AGE_S = 60.0
LATEST_MAX_ENTRIES = 4_000  # kept in memory until they are in SQL; about 10 MB, or two seconds with 5,000 rows each
MEMORY_MAX_ENTRIES = 10_000  # kept for SQL while the disk refuses writes; about 25 MB


Completed = Callable[[Path, int, int], None]  # the folder, the segment's number, and an open descriptor of the segment


class Spool:
    """The owner's side of a spool folder. Appending is synchronous, fast and never raises.

    ``spooled``: entries on disk that will become rows. ``unspooled``: entries that the disk refused; these are kept in
    memory for SQL, and written when the disk accepts them (``resume``). ``lost``: entries dropped from memory, in
    deleted files that are not held open, or impossible to encode. ``refusal``: the disk's last error, until ``resume``
    has succeeded.
    """

    def __init__(self, folder: Path, *, now_s: float, completed: Completed | None = None) -> None:
        """Make ``folder``, lock it and open its first segment. ``now_s``: of the monotonic clock.

        ``completed``: called for each complete segment with rows, before the segment may be deleted.

        Raises:
            SpoolError: the folder cannot be made or written.

        """
        self.spooled = 0
        self.unspooled = 0
        self.lost = 0
        self.appended = 0  # entries that will become rows
        self.refusal: str | None = None
        self._log = structlog.get_logger()
        self._open_calls: dict[str, CallStart] = {}
        self._watched: dict[str, CallStart] = {}  # ended calls, with the attempts that have not ended
        self._outages = OpenOutages()
        self._latest: deque[tuple[Shippable, int, int]] = deque(maxlen=LATEST_MAX_ENTRIES)  # each with segment and end
        self._memory: deque[Shippable] = deque()
        self._line = bytearray()
        self._opened_at_s = now_s
        self._completed = completed
        self._torn = False
        self._rotation_refused = False  # or the disk refused the line of a start, which the next segment will contain
        try:
            self.files = Segments(folder)
        except OSError as error:
            raise SpoolError(
                f"the spool {folder} cannot be written: {error.strerror}; make spool_dir writable or set another"
            ) from error

    @property
    def folder(self) -> Path:
        """The current folder."""
        return self.files.folder

    @property
    def only_in_memory(self) -> int:
        """The number of entries that are neither on disk nor in SQL."""
        return len(self._memory)

    def call_started(self, start: CallStart) -> None:
        """Append the start of a call."""
        self._open_calls[start.id] = start
        self._append(Started(start))

    def call_finished(self, record: CallRecord) -> None:
        """Append the end of a call with its attempts."""
        start = self._open_calls.pop(record.id, None)
        if start is not None and record.launched > len(record.attempts):
            self._watch(start, record.attempts)
        self._append(Finished(record))

    def attempts_ended(self, call_id: str, attempts: tuple[AttemptRecord, ...]) -> None:
        """Append attempts that ended after their call."""
        if (start := self._watched.pop(call_id, None)) is not None:
            self._watch(start, attempts)
        self._append(Audited(call_id, attempts))

    def refused(self, refusals: tuple[RefusalRecord, ...]) -> None:
        """Append the refusals of a minute."""
        self._append(RefusedRequests(refusals))

    def outage(self, outage: OutageRecord) -> None:
        """Append the beginning or the end of an outage."""
        self._outages.note(outage)
        self._append(OutageChange(outage))

    def named(self, names: tuple[StoredName, ...]) -> None:
        """Append names of resources at a provider."""
        self._append(Named(names))

    def note_lasting(self, now_s: float, utc_now: datetime) -> None:
        """Append, if due, that open outages still last; if this process is killed, that time becomes their end."""
        if self._outages.is_due(now_s):
            self._append(self._outages.now(utc_now))

    def rotate_if_due(self, now_s: float) -> None:
        """Start a new segment if this one is large, or is old and the only one. If the disk refuses, keep this one.

        An old segment is closed so that it can be deleted. This is useless while earlier segments wait for SQL, unless
        ClickHouse waits for complete ones.
        """
        files = self.files
        if files.size_bytes == 0:
            self._opened_at_s = now_s
        elif files.size_bytes >= SEGMENT_MAX_BYTES or (
            now_s - self._opened_at_s >= SEGMENT_MAX_AGE_S and (not files.older or self._completed is not None)
        ):
            self.rotate(now_s)

    def rotate(self, now_s: float) -> bool:
        """Start a new segment that begins with everything unfinished; return whether the disk accepted it."""
        carried: list[Entry] = [
            *map(Started, self._open_calls.values()),
            *map(Watched, self._watched.values()),
            *self._outages.carried(),
        ]
        number, descriptor, has_rows = self.files.number, self.files.descriptor, self.files.entries > 0
        try:
            self.files.begin(b"".join(map(encode, carried)))
        except OSError as error:
            self._rotation_refused = True
            self._note_refusal(error)
            return False
        self._opened_at_s = now_s
        self._torn = self._rotation_refused = False
        if self._completed is not None and has_rows:
            self._completed(self.folder, number, descriptor)
        return True

    def resume(self, limit: int, now_s: float) -> bool:
        """Write up to ``limit`` of the entries that the disk refused; return whether more are left.

        When all are written, and the starts of open calls, too, ``refusal`` becomes None.
        """
        for _ in range(min(limit, len(self._memory))):
            entry = self._memory[0]
            encode_into(entry, self._line)
            if not self._write():
                return False
            self._memory.popleft()
            self._note_spooled(entry)
        if self._memory:
            return True
        self._line[:] = b"\n"  # no entry, but writing the line needs disk space
        if self._write() and (not self._rotation_refused or self.rotate(now_s)):
            self.refusal = None
        return False

    def drop_lost(self, taken: int) -> int:
        """Count entries that were only in deleted files not held open; the first ``taken`` entries are safe."""
        lost = self.files.drop_lost(taken)
        self.spooled -= lost
        self.lost += lost
        return lost

    def take_latest(self, shipped: int, limit: int) -> Batch | None:
        """Return up to ``limit`` of the entries on disk after the first ``shipped``, from memory.

        None: memory does not have all of these. Then the next entries must be read from disk. So must the entries
        returned here, if shipping fails.
        """
        latest, waiting = self._latest, self.spooled - shipped
        if waiting > len(latest):
            return None
        while waiting < len(latest):
            latest.popleft()
        entries: list[Entry] = []
        segment, end_bytes = self.files.number, self.files.size_bytes
        for _ in range(min(limit, waiting)):
            entry, segment, end_bytes = latest.popleft()
            entries.append(entry)
        return Batch(entries, [], segment, end_bytes)

    def waiting(self, shipped: int) -> Iterator[Shippable]:
        """Yield the entries after the first ``shipped`` that are in memory, then the entries that the disk refused."""
        latest = self._latest
        for entry, _, _ in islice(latest, max(0, len(latest) - (self.spooled - shipped)), None):
            yield entry
        yield from self._memory

    def open_call(self, call_id: str) -> CallStart | None:
        """Return the start of a call that has not ended."""
        return self._open_calls.get(call_id)

    def take_memory(self, limit: int) -> list[Shippable]:
        """Return, and remove, up to ``limit`` of the entries that the disk refused, the oldest first."""
        return [self._memory.popleft() for _ in range(min(limit, len(self._memory)))]

    def give_back(self, entries: list[Shippable]) -> None:
        """Put entries back that could not be shipped."""
        self._memory.extendleft(reversed(entries))

    def close(self, *, remove: bool) -> None:
        """Close the folder. ``remove``: delete the folder if all is shipped; otherwise it waits for adoption."""
        remove = remove and not self._open_calls and not self._watched and not self._outages
        if remove and self._completed is not None and self.files.entries:
            self._completed(self.folder, self.files.number, self.files.descriptor)
        self.files.close(remove=remove)

    def _watch(self, start: CallStart, ended: tuple[AttemptRecord, ...]) -> None:
        """Remember the attempts of a call that have not ended, and are watched longer than the call."""
        ids = {attempt.id for attempt in ended}
        rest = tuple(each for each in start.attempts if each.id not in ids)
        if rest:
            self._watched[start.id] = msgspec.structs.replace(start, attempts=rest)

    def _append(self, entry: Entry) -> None:
        line = self._line
        try:
            if not encode_into(entry, line):
                entry = decode(line)  # an entry from memory must equal the entry on disk
        except (TypeError, ValueError) as error:
            self._drop_unencodable(entry, error)
            return
        if not self._write():
            self._keep_in_memory(entry)
        elif not isinstance(entry, NO_ROWS):
            self.appended += 1
            self._note_spooled(entry)

    def _write(self) -> bool:
        """Write the line; return whether the disk accepted it."""
        line, files = self._line, self.files
        if self._torn:
            line[:0] = b"\n"  # ends the part of an earlier line that the full disk accepted
        try:
            written = os.write(files.descriptor, line)
            files.size_bytes += written
            self._torn = written != len(line)
            if self._torn:
                raise OSError("short write")  # noqa: TRY301 - handled as any other error of the disk
        except OSError as error:
            self._note_refusal(error)
            return False
        return True

    def _note_spooled(self, entry: Shippable) -> None:
        self.spooled += 1
        self.files.entries += 1
        self._latest.append((entry, self.files.number, self.files.size_bytes))

    def _drop_unencodable(self, entry: Entry, error: Exception) -> None:
        if isinstance(entry, Started):
            self._open_calls.pop(entry.call.id, None)  # otherwise the start would fail in the next segment, too
        else:
            self.appended += 1
            self.lost += 1
        with suppress(OSError):
            self._log.error("ledger.entry_lost", cause=str(error), hint="not JSON; this is a bug, report it")

    def _keep_in_memory(self, entry: Entry) -> None:
        self.unspooled += 1
        if isinstance(entry, NO_ROWS):
            self._rotation_refused = True  # still open, so the next segment begins with the call
            return
        self.appended += 1
        if len(self._memory) >= MEMORY_MAX_ENTRIES:
            self._memory.popleft()
            self.lost += 1
        self._memory.append(entry)

    def _note_refusal(self, error: OSError) -> None:
        earlier, self.refusal = self.refusal, error.strerror or str(error)
        if earlier is None:  # once per outage; the keeper repeats it
            self.say_refused()

    def say_refused(self) -> None:
        """Log that the disk refuses writes."""
        with suppress(OSError):  # the log may be on the same full disk
            # Event ledger.spool_unwritable: The disk refuses waiting rows (`cause`), which stay in memory.
            # Do: Free disk space, or make the folder writable, before you restart: rows in memory would be lost.
            self._log.error(
                "ledger.spool_unwritable",
                folder=str(self.folder),
                cause=self.refusal,
                hint="free disk space; calls go on, their rows are kept in memory",
            )


def sync_files(descriptors: list[int]) -> None:
    """Fsync and close the descriptors of ``take_unsynced``; blocks, so call it in a thread.

    Raises:
        OSError: fsync failed for one of the descriptors; all are closed.

    """
    refusal: OSError | None = None
    for descriptor in descriptors:
        try:
            os.fsync(descriptor)
        except OSError as error:
            refusal = error
        finally:
            os.close(descriptor)
    if refusal is not None:
        raise refusal
