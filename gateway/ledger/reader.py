"""Reading a spool folder back: its entries in order, in batches, each segment deleted when all of it is shipped."""

from pathlib import Path

import msgspec
import structlog

from gateway.ledger.entries import Entry, decode
from gateway.ledger.folders import segment_numbers, segment_path


class Batch(msgspec.Struct, frozen=True):
    """Some entries of a spool, what among them was none and why, and where the next ones lie."""

    entries: list[Entry]
    corrupt: list[tuple[bytes, str]]
    segment: int
    offset_bytes: int


class Reader:
    """A place in a spool folder. Reading does not move it: ``advance`` does, once a batch is safe.

    Lines that are no entry are set aside in ``WORKER.bad`` beside the folder. Used by one thread at a time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.segment = 0
        self._offset_bytes = 0
        self._log = structlog.get_logger()

    def read(self, limit: int) -> Batch:
        """Return the next entries, up to ``limit``; none when all that is written has been read."""
        batch = Batch([], [], self.segment, self._offset_bytes)
        segment, offset_bytes = self.segment, self._offset_bytes
        # Listed before reading: what has a successor now is complete, so its end is final when we come to it.
        for number in segment_numbers(self.folder):
            if number < segment:
                continue
            if number > segment:
                segment, offset_bytes = number, 0
            offset_bytes = self._read_segment(number, offset_bytes, limit, batch)
            if len(batch.entries) >= limit:
                break
        return Batch(batch.entries, batch.corrupt, segment, offset_bytes)

    def advance(self, batch: Batch, *, delete: bool) -> None:
        """Go to the end of ``batch``; ``delete`` the segments that lie wholly before it."""
        for line, cause in batch.corrupt:
            self.set_aside(line, cause)
        self.segment, self._offset_bytes = batch.segment, batch.offset_bytes
        if delete:
            for number in segment_numbers(self.folder):
                if number < batch.segment:
                    segment_path(self.folder, number).unlink(missing_ok=True)

    def set_aside(self, line: bytes, cause: str) -> None:
        """Keep what cannot be a row, for a human to look at."""
        bad_file = self.folder.with_name(f"{self.folder.name}.bad")
        self._log.error("ledger.entry_set_aside", file=str(bad_file), cause=cause)
        try:
            with bad_file.open("ab") as kept:
                kept.write(line if line.endswith(b"\n") else line + b"\n")
        except OSError as error:
            self._log.error("ledger.entry_lost", cause=error.strerror)

    def _read_segment(self, number: int, offset_bytes: int, limit: int, batch: Batch) -> int:
        """Add the entries of a segment to ``batch``, from ``offset_bytes``; return where the reading ended."""
        try:
            segment = segment_path(self.folder, number).open("rb")
        except FileNotFoundError:
            return offset_bytes
        with segment:
            segment.seek(offset_bytes)
            for line in segment:
                if not line.endswith(b"\n"):
                    break  # being written just now, or torn by a crash: its call then counts as interrupted
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
