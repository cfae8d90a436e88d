"""Reads a spool in order and in batches: a running one from its open files, a dead one from its folder."""

import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import structlog

from gateway.ledger.entries import Entry, decode
from gateway.ledger.folders import segment_numbers, segment_path

_APPENDED = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class Batch(msgspec.Struct, frozen=True):
    """Some entries of a spool, the invalid lines among them with reasons, and the position after them."""

    entries: list[Entry]
    corrupt: list[tuple[bytes, str]]
    segment: int
    offset_bytes: int


class Reader:
    """A position in a spool. Reading does not move it; ``advance`` does, when a batch is safe.

    Invalid lines are set aside in ``WORKER.bad`` besides the folder. For one thread at a time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.segment = 0
        self._offset_bytes = 0
        self._log = structlog.get_logger()

    def read(self, limit: int, held: Mapping[int, int] | None = None) -> Batch:
        """Return the next entries, at most ``limit``; none if everything has been read.

        ``held`` are the segments from this position on, as returned by ``Segments.open_from``; they are closed here.
        Without it the folder's files are read.
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
                    break  # the owner counts what was lost; a dead one's folder is being deleted after its adoption
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
        self._log.error("ledger.entry_set_aside", file=str(bad_file), cause=cause)
        try:
            with os.fdopen(os.open(bad_file, _APPENDED, 0o600), "ab") as kept:
                os.fchmod(kept.fileno(), 0o600)  # it may be there already
                kept.write(line if line.endswith(b"\n") else line + b"\n")
        except OSError as error:
            self._log.error("ledger.entry_lost", cause=error.strerror)

    def _open(self, number: int, descriptor: int, offset_bytes: int) -> BinaryIO:
        if descriptor >= 0:
            return io.BufferedReader(_Held(descriptor, offset_bytes))
        opened = segment_path(self.folder, number).open("rb")
        opened.seek(offset_bytes)
        return opened


class _Held(io.RawIOBase):
    """An open file that is being written, read at its own position: descriptors share the file's."""

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
            break  # being written, or incomplete after a crash: then its call counts as interrupted
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
