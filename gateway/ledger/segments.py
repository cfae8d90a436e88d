"""The files of a live spool: its lock and its segments, all held open, so that deleting them does not destroy them.

What a process holds open it can still read when it has been deleted. So whatever is missing from the folder is put
back byte for byte: places in segments stay what they were.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from gateway.ledger.folders import LOCK_NAME, is_at, make_locked, mark_moved, segment_path

HELD_MAX = 32  # older segments held open: 256 MB of rows that wait for SQL; only the folder has those before them
_COPIED_BYTES = 1024 * 1024

_OPENED = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class _Older(msgspec.Struct):
    """A segment that is written no more, and not yet wholly in SQL."""

    number: int
    descriptor: int  # -1: not held open
    entries: int
    synced: bool = False


class Segments:
    """A spool's folder as its owner holds it: the newest segment is written, older ones wait to be shipped.

    ``descriptor`` and ``size_bytes`` are the newest segment's; ``entries`` counts those in it that are to become rows.
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
        self._released_entries = 0  # of segments that are gone because all of them is in SQL
        self._elsewhere: list[int] = []  # locks of folders that were moved away: nobody may adopt what we still hold
        self._lock = make_locked(folder)
        self._comparable = is_at(self._lock, folder / LOCK_NAME)  # not so on file systems without stable inodes
        try:
            self.descriptor = os.open(segment_path(folder, self.number), _OPENED, 0o600)
        except OSError:
            os.close(self._lock)
            raise

    @property
    def older(self) -> int:
        """How many segments wait beside the newest."""
        return len(self._older)

    def begin(self, carried: bytes) -> None:
        """Begin a new segment, with ``carried`` in it.

        Raises:
            OSError: the disk does not take it; the newest segment stays what it was.

        """
        path = segment_path(self.folder, self.number + 1)
        unfinished = path.with_suffix(".new")  # readers take a segment for whole as soon as they see the next
        descriptor = os.open(unfinished, _OPENED | os.O_TRUNC, 0o600)
        try:
            if os.write(descriptor, carried) != len(carried):
                raise OSError("short write")  # noqa: TRY301 - handled as any other refusal of the disk
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
        """Return file descriptors to fsync and close, off the loop; none when nothing was written since."""
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
        """Return descriptors of segment ``number`` and those after it, for another thread to read and close.

        -1 stands for one that is not held open: it is to be opened by its name.
        """
        found = {
            segment.number: segment.descriptor if segment.descriptor < 0 else os.dup(segment.descriptor)
            for segment in self._older
            if segment.number >= number
        }
        return found | {self.number: os.dup(self.descriptor)}

    def release(self, number: int) -> list[Path]:
        """Let go of the segments before ``number``, all of which are in SQL; return their files, to be deleted."""
        released = [segment for segment in self._older if segment.number < number]
        for segment in released:
            self._older.remove(segment)
            self._released_entries += segment.entries
            if segment.descriptor >= 0:
                os.close(segment.descriptor)
        return [segment_path(self.folder, segment.number) for segment in released]

    def lock_is_missing(self) -> bool:
        """Whether the folder is gone, or is another's, or has lost its lock."""
        return not self._is_at(self._lock, self.folder / LOCK_NAME)

    def missing(self) -> list[int]:
        """Return the numbers of the segments that are not where they belong, or are other files there."""
        newest = (self.number, self.descriptor)
        return [
            number
            for number, descriptor in (*((segment.number, segment.descriptor) for segment in self._older), newest)
            if not self._is_at(descriptor, segment_path(self.folder, number))
        ]

    def drop_lost(self, taken: int) -> int:
        """Forget segments that are missing and not held open; return how many entries were in no other place.

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
        """Live in ``folder`` from now on, whose ``lock`` is ours."""
        if _is_linked(self._lock):
            self._elsewhere.append(self._lock)
        else:
            os.close(self._lock)
        self.folder, self._lock = folder, lock

    def mark_moved(self) -> None:
        """Tell whoever will adopt a folder that was moved away that all of it is here, and goes on here."""
        for lock in self._elsewhere:
            mark_moved(lock)

    def open_segment(self, number: int) -> int | None:
        """Return a descriptor of segment ``number``, for ``copy_segment``; None when it is not held open any more."""
        if number == self.number:
            return os.dup(self.descriptor)
        held = next((segment.descriptor for segment in self._older if segment.number == number), -1)
        return os.dup(held) if held >= 0 else None

    def put_back(self, number: int, descriptor: int, copied_bytes: int) -> None:
        """Go on with a copy of segment ``number``, once it has what was written since the copy was made.

        Raises:
            OSError: the disk does not take that; the copy is closed.

        """
        segment = next((segment for segment in self._older if segment.number == number), None)
        source = self.descriptor if number == self.number else -1 if segment is None else segment.descriptor
        if source < 0:  # all of it came into SQL meanwhile
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
        """Let go of everything; ``remove`` the folder, if it is ours."""
        is_ours = not self.lock_is_missing()
        for segment in self._older:
            if segment.descriptor >= 0:
                os.close(segment.descriptor)
        os.close(self.descriptor)
        self._older, self.descriptor = [], -1  # whatever is still told to us must not land in somebody else's file
        if remove and is_ours:
            shutil.rmtree(self.folder, ignore_errors=True)
        for lock in (self._lock, *self._elsewhere):
            os.close(lock)

    def _is_at(self, descriptor: int, path: Path) -> bool:
        return is_at(descriptor, path) if self._comparable and descriptor >= 0 else _exists(path)


def copy_segment(source: int, path: Path) -> tuple[int, int]:
    """Write to ``path`` all that ``source`` holds, and close ``source``; return what ``put_back`` wants.

    Blocks, so call it in a thread.

    Raises:
        OSError: the disk, or the folder, does not take it.

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
    """Append what ``source`` holds from an offset on; return where it ended."""
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
