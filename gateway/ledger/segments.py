"""The files of a running spool: its lock and its segments, all held open, so that deletion does not destroy them.

A process can still read a deleted file that it holds open. So missing files are restored byte for byte; positions in
segments stay valid.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from gateway.ledger.folders import LOCK_NAME, is_at, make_locked, mark_moved, segment_path

HELD_MAX = 32  # older segments held open: 256 MB of rows that wait for SQL; earlier ones are only in the folder
_COPIED_BYTES = 1024 * 1024

_OPENED = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class _Older(msgspec.Struct):
    """A segment that is complete, but not yet entirely in SQL."""

    number: int
    descriptor: int  # -1: not held open
    entries: int
    synced: bool = False


class Segments:
    """A spool's folder, for its owner: the newest segment is being written, older ones wait to be shipped.

    ``descriptor`` and ``size_bytes`` are the newest segment's; ``entries`` counts its entries that will become rows.
    """

    def __init__(self, folder: Path) -> None:
        """Make ``folder``, its lock and its first segment.

        Raises:
            OSError: it cannot be made or written.

        """
        self.folder = folder
        self.number = 1
        self.size_bytes = 0
        self.entries = 0
        self._synced_bytes = 0
        self._older: list[_Older] = []
        self._released_entries = 0  # in segments that were deleted because they are in SQL
        self._elsewhere: list[int] = []  # locks of moved folders: not to be adopted while we hold their data
        self._lock = make_locked(folder)
        self._comparable = is_at(self._lock, folder / LOCK_NAME)  # false on file systems without stable inodes
        try:
            self.descriptor = os.open(segment_path(folder, self.number), _OPENED, 0o600)
        except OSError:
            os.close(self._lock)
            raise

    @property
    def older(self) -> int:
        """The number of segments before the newest."""
        return len(self._older)

    def begin(self, carried: bytes) -> None:
        """Start a new segment that begins with ``carried``.

        Raises:
            OSError: the disk refuses; the newest segment does not change.

        """
        path = segment_path(self.folder, self.number + 1)
        unfinished = path.with_suffix(".new")  # readers take a segment as complete when they see the next one
        descriptor = os.open(unfinished, _OPENED | os.O_TRUNC, 0o600)
        try:
            if os.write(descriptor, carried) != len(carried):
                raise OSError("short write")  # noqa: TRY301 - handled as any other error of the disk
            unfinished.rename(path)
        except OSError:
            os.close(descriptor)
            with suppress(OSError):
                unfinished.unlink()
            raise
        self._older.append(_Older(self.number, self.descriptor, self.entries))
        held = [segment for segment in self._older if segment.descriptor >= 0]
        if len(held) > HELD_MAX:
            os.close(held[0].descriptor)
            held[0].descriptor = -1
        self.descriptor = descriptor
        self.number += 1
        self.size_bytes = len(carried)
        self.entries = 0
        self._synced_bytes = 0

    def take_unsynced(self) -> list[int]:
        """Return descriptors to fsync and close in a thread; none if nothing was written since the last call."""
        descriptors = []
        for segment in self._older:
            if not segment.synced and segment.descriptor >= 0:
                descriptors.append(os.dup(segment.descriptor))
            segment.synced = True
        if self._synced_bytes != self.size_bytes:
            descriptors.append(os.dup(self.descriptor))
            self._synced_bytes = self.size_bytes
        return descriptors

    def open_from(self, number: int) -> dict[int, int]:
        """Return descriptors of segment ``number`` and later ones, for another thread to read and close.

        -1: the segment is not held open; open it by its name.
        """
        found = {
            segment.number: segment.descriptor if segment.descriptor < 0 else os.dup(segment.descriptor)
            for segment in self._older
            if segment.number >= number
        }
        return found | {self.number: os.dup(self.descriptor)}

    def release(self, number: int) -> list[Path]:
        """Release the segments before ``number``, all of which are in SQL; return their files, to be deleted."""
        released = [segment for segment in self._older if segment.number < number]
        for segment in released:
            self._older.remove(segment)
            self._released_entries += segment.entries
            if segment.descriptor >= 0:
                os.close(segment.descriptor)
        return [segment_path(self.folder, segment.number) for segment in released]

    def lock_is_missing(self) -> bool:
        """Whether the folder is gone, belongs to another process, or has lost its lock."""
        return not self._is_at(self._lock, self.folder / LOCK_NAME)

    def missing(self) -> list[int]:
        """Return the numbers of segments that are missing in the folder, or are other files there."""
        newest = (self.number, self.descriptor)
        return [
            number
            for number, descriptor in (*((segment.number, segment.descriptor) for segment in self._older), newest)
            if not self._is_at(descriptor, segment_path(self.folder, number))
        ]

    def drop_lost(self, taken: int) -> int:
        """Forget segments that are missing and not held open; return how many entries are lost with them.

        The first ``taken`` entries are in SQL, or in memory on their way there.
        """
        lost = 0
        first = self._released_entries
        for segment in list(self._older):
            last = first + segment.entries
            if segment.descriptor < 0 and not _exists(segment_path(self.folder, segment.number)):
                self._older.remove(segment)
                shipped = min(max(taken - first, 0), segment.entries)
                self._released_entries += shipped
                lost += segment.entries - shipped
                last = first + shipped
            first = last
        return lost

    def take_over(self, folder: Path, lock: int) -> None:
        """Use ``folder`` from now on, whose ``lock`` is ours."""
        if _is_linked(self._lock):
            self._elsewhere.append(self._lock)
        else:
            os.close(self._lock)
        self.folder, self._lock = folder, lock

    def mark_moved(self) -> None:
        """Mark a folder that was moved away: its data are also in the current folder, and continued there."""
        for lock in self._elsewhere:
            mark_moved(lock)

    def open_segment(self, number: int) -> int | None:
        """Return a descriptor of segment ``number`` for ``copy_segment``; None if it is no longer held open."""
        if number == self.number:
            return os.dup(self.descriptor)
        held = next((segment.descriptor for segment in self._older if segment.number == number), -1)
        return os.dup(held) if held >= 0 else None

    def put_back(self, number: int, descriptor: int, copied_bytes: int) -> None:
        """Continue with a copy of segment ``number``, after adding what was written since the copy was made.

        Raises:
            OSError: the disk refuses; the copy is closed.

        """
        segment = next((segment for segment in self._older if segment.number == number), None)
        source = self.descriptor if number == self.number else -1 if segment is None else segment.descriptor
        if source < 0:  # it is entirely in SQL by now
            os.close(descriptor)
            segment_path(self.folder, number).unlink(missing_ok=True)
            return
        try:
            _copy(source, descriptor, copied_bytes)
        except OSError:
            os.close(descriptor)
            raise
        os.close(source)
        if segment is None:
            self.descriptor, self._synced_bytes = descriptor, 0
        else:
            segment.descriptor, segment.synced = descriptor, False

    def close(self, *, remove: bool) -> None:
        """Close everything; ``remove`` the folder, if it is ours."""
        is_ours = not self.lock_is_missing()
        for segment in self._older:
            if segment.descriptor >= 0:
                os.close(segment.descriptor)
        os.close(self.descriptor)
        self._older, self.descriptor = [], -1  # later writes must not go to a reused descriptor
        if remove and is_ours:
            shutil.rmtree(self.folder, ignore_errors=True)
        for lock in (self._lock, *self._elsewhere):
            os.close(lock)

    def _is_at(self, descriptor: int, path: Path) -> bool:
        return is_at(descriptor, path) if self._comparable and descriptor >= 0 else _exists(path)


def copy_segment(source: int, path: Path) -> tuple[int, int]:
    """Write all of ``source`` to ``path`` and close ``source``; return the arguments of ``put_back``.

    Blocks: call it in a thread.

    Raises:
        OSError: the disk or the folder refuses.

    """
    unfinished = path.with_suffix(".new")
    target = -1
    try:
        target = os.open(unfinished, _OPENED | os.O_TRUNC, 0o600)
        copied_bytes = _copy(source, target, 0)
        unfinished.rename(path)
    except OSError:
        if target >= 0:
            os.close(target)
        with suppress(OSError):
            unfinished.unlink()
        raise
    finally:
        os.close(source)
    return target, copied_bytes


def _copy(source: int, target: int, offset_bytes: int) -> int:
    """Append the content of ``source`` from an offset on; return where it ended."""
    while block := os.pread(source, _COPIED_BYTES, offset_bytes):
        offset_bytes += len(block)
        while block:
            block = block[os.write(target, block) :]
    return offset_bytes


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except OSError:
        return False
    return True


def _is_linked(descriptor: int) -> bool:
    try:
        return os.fstat(descriptor).st_nlink > 0
    except OSError:
        return False
