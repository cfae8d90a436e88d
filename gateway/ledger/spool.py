"""A worker's spool: what it has to tell the ledger, on local disk before anyone hears of it.

``SPOOL_DIR/WORKER/`` holds ``lock``, held for as long as the worker lives, and segments ``00000001.jsonl``, written in
order (see ``Segments``). One entry is one ``write(2)``: it survives ``kill -9``; an fsync a second covers a power loss.
The latest entries are kept in memory as well, to be shipped from there: the files are read only when SQL has been away
for long, or by whoever adopts them.

A segment is deleted once all of it is in SQL. So that a call under way is not forgotten with it, each new segment
begins with the starts of the calls still open: the newest segment always knows every open call, and the end of a call
never lies in an older segment than its start does.
"""

import os
from collections import deque
from contextlib import suppress
from pathlib import Path

import structlog

from gateway.attempt_records import AttemptRecord
from gateway.calls import CallRecord, CallStart
from gateway.ledger.entries import Audited, Entry, Finished, Shippable, Started, decode, encode, encode_into
from gateway.ledger.errors import SpoolError
from gateway.ledger.reader import Batch
from gateway.ledger.segments import Segments

SEGMENT_MAX_BYTES = 8 * 1024 * 1024  # what is shipped again, at most, after a crash with the database reachable
SEGMENT_MAX_AGE_S = 60.0
LATEST_MAX_ENTRIES = 4_000  # kept in memory until they are in SQL; some 10 MB, or two seconds of 5,000 rows each
MEMORY_MAX_ENTRIES = 10_000  # kept for SQL while the disk takes nothing; some 25 MB


class Spool:
    """The owner's side of a spool folder. Appending is synchronous, quick and never raises.

    ``spooled`` counts entries on disk that are to become rows, ``unspooled`` all those that the disk did not take; they
    are kept in memory for SQL, and put on disk as soon as it takes them (``resume``). ``lost`` counts those that were
    dropped from there as well, those whose file was deleted and is held by nobody, and those that could not even be
    encoded. ``refusal`` is why the disk did not take the last of them, until ``resume`` has succeeded.
    """

    def __init__(self, folder: Path, *, now_s: float) -> None:
        """Make ``folder``, lock it and open its first segment; ``now_s`` is the monotonic clock.

        Raises:
            SpoolError: the folder cannot be made or written.

        """
        self.spooled = 0
        self.unspooled = 0
        self.lost = 0
        self.appended = 0  # entries that are to become rows
        self.refusal: str | None = None
        self._log = structlog.get_logger()
        self._open_calls: dict[str, CallStart] = {}
        self._latest: deque[tuple[Shippable, int, int]] = deque(maxlen=LATEST_MAX_ENTRIES)  # with segment and end there
        self._memory: deque[Shippable] = deque()
        self._line = bytearray()
        self._opened_at_s = now_s
        self._torn = False
        self._rotation_refused = False  # or a start was, which a new segment brings
        try:
            self.files = Segments(folder)
        except OSError as error:
            raise SpoolError(
                f"the spool {folder} cannot be written: {error.strerror}; make spool_dir writable or set another"
            ) from error

    @property
    def folder(self) -> Path:
        """Where it lies at the moment."""
        return self.files.folder

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
        """Begin a new segment when this one is large, or old and the only one; a disk that takes none keeps this one.

        An old one is given up so that it can be deleted. While others wait for SQL before it, there is no point in it.
        """
        files = self.files
        if files.size_bytes == 0:
            self._opened_at_s = now_s
        elif files.size_bytes >= SEGMENT_MAX_BYTES or (
            now_s - self._opened_at_s >= SEGMENT_MAX_AGE_S and not files.older
        ):
            self.rotate(now_s)

    def rotate(self, now_s: float) -> bool:
        """Begin a new segment with the starts of the calls still open; return whether the disk took it."""
        try:
            self.files.begin(b"".join(encode(Started(start)) for start in self._open_calls.values()))
        except OSError as error:
            self._rotation_refused = True
            self._note_refusal(error)
            return False
        self._opened_at_s = now_s
        self._torn = self._rotation_refused = False
        return True

    def resume(self, limit: int, now_s: float) -> bool:
        """Put up to ``limit`` of the entries that the disk did not take on disk; return whether to go on with it.

        When all are there, and so are the starts of the calls still open, there is no ``refusal`` any more.
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
        self._line[:] = b"\n"  # means nothing, but needs room
        if self._write() and (not self._rotation_refused or self.rotate(now_s)):
            self.refusal = None
        return False

    def drop_lost(self, taken: int) -> int:
        """Count what was only in files that are gone and held by nobody; the first ``taken`` entries are safe."""
        lost = self.files.drop_lost(taken)
        self.spooled -= lost
        self.lost += lost
        return lost

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
        segment, end_bytes = self.files.number, self.files.size_bytes
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
        self.files.close(remove=remove and not self._open_calls)

    def _append(self, entry: Entry) -> None:
        line = self._line
        try:
            if not encode_into(entry, line):
                entry = decode(line)  # what is shipped from memory is what would be read from disk
        except (TypeError, ValueError) as error:
            self._drop_unencodable(entry, error)
            return
        if not self._write():
            self._keep_in_memory(entry)
        elif not isinstance(entry, Started):
            self.appended += 1
            self._note_spooled(entry)

    def _write(self) -> bool:
        """Write the line; return whether the disk took it."""
        line, files = self._line, self.files
        if self._torn:
            line[:0] = b"\n"  # what the full disk took of an earlier line ends here
        try:
            written = os.write(files.descriptor, line)
            files.size_bytes += written
            self._torn = written != len(line)
            if self._torn:
                raise OSError("short write")  # noqa: TRY301 - handled as any other refusal of the disk
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
            self._open_calls.pop(entry.call.id, None)  # it would spoil the next segment as well
        else:
            self.appended += 1
            self.lost += 1
        with suppress(OSError):
            self._log.error("ledger.entry_lost", cause=str(error), hint="not JSON; this is a bug, report it")

    def _keep_in_memory(self, entry: Entry) -> None:
        self.unspooled += 1
        if isinstance(entry, Started):
            self._rotation_refused = True  # still open, so the next segment begins with it
            return
        self.appended += 1
        if len(self._memory) >= MEMORY_MAX_ENTRIES:
            self._memory.popleft()
            self.lost += 1
        self._memory.append(entry)

    def _note_refusal(self, error: OSError) -> None:
        known, self.refusal = self.refusal, error.strerror or str(error)
        if known is None:  # once an outage; whoever keeps the disk says it again
            self.say_refused()

    def say_refused(self) -> None:
        """Log that the disk takes nothing."""
        with suppress(OSError):  # the log may lie on the same full disk
            self._log.error(
                "ledger.spool_unwritable",
                folder=str(self.folder),
                cause=self.refusal,
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
