"""A worker's spool: what it has to tell the ledger, on local disk before anyone hears of it.

``SPOOL_DIR/WORKER/`` holds ``lock``, held for as long as the worker lives, and segments ``00000001.jsonl``, written in
order. One entry is one ``write(2)``: it survives ``kill -9``; an fsync a second covers a power loss. The latest entries
are kept in memory as well, to be shipped from there: the files are read only when SQL has been away for long, or by
whoever adopts them.

A segment is deleted once all of it is in SQL. So that a call under way is not forgotten with it, each new segment
begins with the starts of the calls still open: the newest segment always knows every open call, and the end of a call
never lies in an older segment than its start does.
"""

import os
import shutil
from collections import deque
from contextlib import suppress
from pathlib import Path

import structlog

from gateway.calls import AttemptRecord, CallRecord, CallStart
from gateway.ledger.entries import Audited, Entry, Finished, Shippable, Started, decode, encode, encode_into
from gateway.ledger.errors import SpoolError
from gateway.ledger.folders import make_locked, segment_path
from gateway.ledger.reader import Batch

SEGMENT_MAX_BYTES = 8 * 1024 * 1024  # what is shipped again, at most, after a crash with the database reachable
SEGMENT_MAX_AGE_S = 60.0
LATEST_MAX_ENTRIES = 4_000  # kept in memory until they are in SQL; some 10 MB, or two seconds of 5,000 rows each
MEMORY_MAX_ENTRIES = 10_000  # kept for SQL while the disk takes nothing; some 25 MB

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class Spool:
    """The owner's side of a spool folder. Appending is synchronous, quick and never raises.

    ``spooled`` counts entries on disk that are to become rows, ``unspooled`` all those that the disk did not take; they
    are kept in memory for SQL. ``lost`` counts those that were dropped from there as well, and those that could not
    even be encoded.
    """

    def __init__(self, folder: Path, *, now_s: float) -> None:
        """Make ``folder``, lock it and open its first segment; ``now_s`` is the monotonic clock.

        Raises:
            SpoolError: the folder cannot be made or written.

        """
        self.folder = folder
        self.spooled = 0
        self.unspooled = 0
        self.lost = 0
        self.appended = 0  # entries that are to become rows
        self._log = structlog.get_logger()
        self._open_calls: dict[str, CallStart] = {}
        self._latest: deque[tuple[Shippable, int, int]] = deque(maxlen=LATEST_MAX_ENTRIES)  # with segment and end there
        self._memory: deque[Shippable] = deque()
        self._line = bytearray()
        self._number = 1
        self._opened_at_s = now_s
        self._size_bytes = 0
        self._synced_bytes = 0
        self._torn = False
        self._failing = False
        self._retired: list[int] = []
        try:
            self._lock = make_locked(folder)
            self._descriptor = os.open(segment_path(folder, self._number), _APPEND, 0o600)
        except OSError as error:
            raise SpoolError(
                f"the spool {folder} cannot be written: {error.strerror}; make spool_dir writable or set another"
            ) from error

    def call_started(self, start: CallStart) -> None:
        """Remember a call as begun."""
        self._open_calls[start.id] = start
        self._append(Started(start))

    def call_finished(self, record: CallRecord) -> None:
        """Remember a call and its attempts as ended."""
        self._open_calls.pop(record.id, None)
        self._append(Finished(record))

    def attempts_ended(self, call_id: str, attempts: tuple[AttemptRecord, ...]) -> None:
        """Remember attempts that ended after their call."""
        self._append(Audited(call_id, attempts))

    def rotate_if_due(self, now_s: float) -> None:
        """Begin a new segment when this one is large or old; a disk that takes none keeps this one."""
        if self._size_bytes == 0:
            self._opened_at_s = now_s
        elif self._size_bytes >= SEGMENT_MAX_BYTES or now_s - self._opened_at_s >= SEGMENT_MAX_AGE_S:
            self.rotate(now_s)

    def rotate(self, now_s: float) -> None:
        """Begin a new segment with the starts of the calls still open."""
        carried = b"".join(encode(Started(start)) for start in self._open_calls.values())
        path = segment_path(self.folder, self._number + 1)
        unfinished = path.with_suffix(".new")  # readers take a segment for whole as soon as they see the next
        descriptor = -1
        try:
            descriptor = os.open(unfinished, _APPEND, 0o600)
            if os.write(descriptor, carried) != len(carried):
                raise OSError("short write")  # noqa: TRY301 - handled as any other refusal of the disk
            unfinished.rename(path)
        except OSError as error:
            self._note_failure(error)
            if descriptor >= 0:
                os.close(descriptor)
            with suppress(OSError):
                unfinished.unlink()
            return
        self._retired.append(self._descriptor)
        self._descriptor = descriptor
        self._number += 1
        self._opened_at_s = now_s
        self._size_bytes = len(carried)
        self._synced_bytes = 0
        self._torn = False

    def take_unsynced(self) -> list[int]:
        """Return file descriptors to fsync and close, off the loop; none when nothing was written since."""
        descriptors, self._retired = self._retired, []
        if self._synced_bytes != self._size_bytes:
            descriptors.append(os.dup(self._descriptor))
            self._synced_bytes = self._size_bytes
        return descriptors

    def take_latest(self, shipped: int, limit: int) -> Batch | None:
        """Take up to ``limit`` of the entries on disk after the first ``shipped`` out of memory.

        None when it does not hold all of them: the next ones are to be read from disk, as are those taken that could
        not be shipped.
        """
        latest, waiting = self._latest, self.spooled - shipped
        if waiting > len(latest):
            return None
        while waiting < len(latest):
            latest.popleft()
        entries: list[Entry] = []
        segment, end_bytes = self._number, self._size_bytes
        for _ in range(min(limit, waiting)):
            entry, segment, end_bytes = latest.popleft()
            entries.append(entry)
        return Batch(entries, [], segment, end_bytes)

    def take_memory(self, limit: int) -> list[Shippable]:
        """Take up to ``limit`` of the entries that the disk did not take, the oldest first."""
        return [self._memory.popleft() for _ in range(min(limit, len(self._memory)))]

    def give_back(self, entries: list[Shippable]) -> None:
        """Take entries back that could not be shipped."""
        self._memory.extendleft(reversed(entries))

    def close(self, *, remove: bool) -> None:
        """Give the folder up; ``remove`` it when all of it is shipped, otherwise it waits to be adopted."""
        for descriptor in (*self._retired, self._descriptor):
            os.close(descriptor)
        self._retired, self._descriptor = [], -1  # whatever is still told to us must not land in somebody else's file
        if remove and not self._open_calls:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)

    def _append(self, entry: Entry) -> None:
        line = self._line
        try:
            if not encode_into(entry, line):
                entry = decode(line)  # what is shipped from memory is what would be read from disk
        except (TypeError, ValueError) as error:
            self._drop_unencodable(entry, error)
            return
        if self._torn:
            line[:0] = b"\n"  # what the full disk took of an earlier line ends here
        try:
            written = os.write(self._descriptor, line)
            self._size_bytes += written
            self._torn = written != len(line)
            if self._torn:
                raise OSError("short write")  # noqa: TRY301 - handled as any other refusal of the disk
        except OSError as error:
            self._keep_in_memory(entry)
            self._note_failure(error)
            return
        if not isinstance(entry, Started):
            self.appended += 1
            self.spooled += 1
            self._latest.append((entry, self._number, self._size_bytes))
        if self._failing:
            self._failing = False
            with suppress(OSError):
                self._log.info("ledger.spool_recovered", folder=str(self.folder), unspooled=self.unspooled)

    def _drop_unencodable(self, entry: Entry, error: Exception) -> None:
        if isinstance(entry, Started):
            self._open_calls.pop(entry.call.id, None)  # it would spoil the next segment as well
        else:
            self.appended += 1
            self.lost += 1
        with suppress(OSError):
            self._log.error("ledger.entry_lost", cause=str(error), hint="no JSON; this is a bug, report it")

    def _keep_in_memory(self, entry: Entry) -> None:
        self.unspooled += 1
        if isinstance(entry, Started):
            return  # still open, so the next segment begins with it
        self.appended += 1
        if len(self._memory) >= MEMORY_MAX_ENTRIES:
            self._memory.popleft()
            self.lost += 1
        self._memory.append(entry)

    def _note_failure(self, error: OSError) -> None:
        if self._failing:
            return  # once an outage
        self._failing = True
        with suppress(OSError):  # the log may lie on the same full disk
            self._log.error(
                "ledger.spool_unwritable",
                folder=str(self.folder),
                cause=error.strerror or str(error),
                hint="free disk space; calls go on, their rows are kept in memory",
            )


def sync_files(descriptors: list[int]) -> None:
    """Fsync and close what ``take_unsynced`` returned; blocks, so call it in a thread.

    Raises:
        OSError: the disk refused one of them; all are closed.

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
