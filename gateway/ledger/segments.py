"""The files of a running spool: the lock and the segments, all held open, so that deletion does not destroy rows.

A process can read a deleted file as long as the file is open: the rows are shipped all the same.
"""

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from gateway.ledger.folders import LOCK_NAME, is_at, lock_again, make_locked, segment_path

HELD_MAX = 32  # older segments held open: 256 MB of rows that wait for SQL; earlier ones are only in the folder

_OPENED = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class _Older(msgspec.Struct):
    """A complete segment with entries that are not in SQL yet."""

    number: int
    descriptor: int  # -1: not held open
    entries: int
    synced: bool = False


class Segments:
    """A spool's folder, for the owner: the newest segment is being written, and older segments wait to be shipped.

    ``descriptor`` and ``size_bytes``: of the newest segment. ``entries``: how many of its entries will become rows.
    """

    def __init__(self, folder: Path) -> None:
        """Make ``folder``, its lock and its first segment.

        Raises:
            OSError: the folder cannot be made or written.

        """
        self.folder = folder
        self.number = 1
        self.size_bytes = 0
        self.entries = 0
        self._synced_bytes = 0
        self._older: list[_Older] = []
        self._released_entries = 0  # in segments that were deleted after they came into SQL
        self._lock = make_locked(folder)
        self._comparable = is_at(self._lock, folder / LOCK_NAME)  # False on file systems without stable inodes
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
            OSError: the disk refuses; the newest segment stays the same.

        """
        path = segment_path(self.folder, self.number + 1)
        unfinished = path.with_suffix(".new")  # for readers the next segment is the sign that a segment is complete
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
        if len(held) > HELD_MAX and self._is_at(held[0].descriptor, segment_path(self.folder, held[0].number)):
            os.close(held[0].descriptor)  # a deleted segment stays open, as its rows are nowhere else
            held[0].descriptor = -1
        self.descriptor = descriptor
        self.number += 1
        self.size_bytes = len(carried)
        self.entries = 0
        self._synced_bytes = 0

    def take_unsynced(self) -> list[int]:
        """Return descriptors for a thread to fsync and close; empty if nothing was written since the last call."""
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
        """Return, by number, descriptors of segment ``number`` and later ones, for another thread to read and close.

        -1: the segment is not held open, and has to be opened by name.
        """
        descriptors = {
            segment.number: segment.descriptor if segment.descriptor < 0 else os.dup(segment.descriptor)
            for segment in self._older
            if segment.number >= number
        }
        return descriptors | {self.number: os.dup(self.descriptor)}

    def release(self, number: int) -> list[Path]:
        """Release the segments before ``number``, which are in SQL; return the files to delete."""
        released = [segment for segment in self._older if segment.number < number]
        for segment in released:
            self._older.remove(segment)
            self._released_entries += segment.entries
            if segment.descriptor >= 0:
                os.close(segment.descriptor)
        return [segment_path(self.folder, segment.number) for segment in released]

    def lock_is_missing(self) -> bool:
        """Whether the folder is missing, belongs to another process, or has lost the lock."""
        return not self._is_at(self._lock, self.folder / LOCK_NAME)

    def newest_is_missing(self) -> bool:
        """Whether the next gateway would not find what is written now."""
        return self.lock_is_missing() or not self._is_at(self.descriptor, segment_path(self.folder, self.number))

    def lock_again(self) -> None:
        """Make the folder and the lock again if they were deleted.

        Raises:
            OSError: the folder was moved, and the files are still written there; or no folder can be made.

        """
        if not self.lock_is_missing():
            return
        if _is_linked(self._lock):
            raise OSError(errno.EEXIST, "it was moved away; move it back")
        lock = lock_again(self.folder)
        os.close(self._lock)
        self._lock = lock

    def missing(self) -> list[int]:
        """Return the numbers of segments that are missing in the folder, or are other files there."""
        newest = (self.number, self.descriptor)
        return [
            number
            for number, descriptor in (*((segment.number, segment.descriptor) for segment in self._older), newest)
            if not self._is_at(descriptor, segment_path(self.folder, number))
        ]

    def drop_lost(self, taken: int) -> int:
        """Forget segments that are missing and not held open; return how many entries are lost.

        The first ``taken`` entries are in SQL already, or in memory on their way there.
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

    def close(self, *, remove: bool) -> None:
        """Close all files. ``remove``: delete the folder, if it is still ours."""
        is_ours = not self.lock_is_missing()
        for segment in self._older:
            if segment.descriptor >= 0:
                os.close(segment.descriptor)
        os.close(self.descriptor)
        self._older, self.descriptor = [], -1  # so that later writes do not go to a reused descriptor
        if remove and is_ours:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)

    def _is_at(self, descriptor: int, path: Path) -> bool:
        return is_at(descriptor, path) if self._comparable and descriptor >= 0 else _exists(path)


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
