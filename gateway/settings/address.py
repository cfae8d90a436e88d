"""Notes of where gateways listen, one note a process, beside the spool: this machine's commands ask the running one.

So ``HOLESHOT_PORT=4001 make run`` in one terminal and ``holeshot leaderboard`` in the next terminal agree.
"""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from providers import encoded


class Note(msgspec.Struct, frozen=True):
    """Where a gateway listens, and the gateway's process, which may have ended."""

    url: str
    pid: int

    def is_alive(self) -> bool:
        """Whether the gateway's process runs, on this machine and in this container."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # the process is another user's
            return True
        return True


def leave_note(spool_dir: str, url: str, pid: int) -> None:
    """Write where this gateway listens, beside other gateways' notes; no effect if the folder cannot be written.

    Notes of gateways that were killed are removed.
    """
    path = _path(spool_dir, pid)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        for other, note in _notes(spool_dir):
            if not note.is_alive():
                other.unlink(missing_ok=True)  # another gateway that starts may have removed the note
        path.with_suffix(".new").write_bytes(encoded(Note(url, pid)))
        path.with_suffix(".new").replace(path)


def remove_note(spool_dir: str, pid: int) -> None:
    """Remove the note of this process; the notes of other gateways stay."""
    with suppress(OSError):
        _path(spool_dir, pid).unlink()


def read_note(spool_dir: str) -> Note | None:
    """Return the note of the running gateway beside ``spool_dir`` that started last, else of the last that ended.

    None: there is no note that can be read.
    """
    notes = [note for _, note in _notes(spool_dir)]
    return next((note for note in notes if note.is_alive()), notes[0] if notes else None)


def _notes(spool_dir: str) -> list[tuple[Path, Note]]:
    """Return the notes beside ``spool_dir`` that can be read, the newest first."""
    found: list[tuple[int, Path, Note]] = []
    pattern = _path(spool_dir, "*")
    for path in pattern.parent.glob(pattern.name):
        with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            note = msgspec.json.decode(path.read_bytes(), type=Note)
            found.append((path.stat().st_mtime_ns, path, note))
    return [(path, note) for _, path, note in sorted(found, key=lambda each: each[:2], reverse=True)]


def _path(spool_dir: str, pid: int | str) -> Path:
    return Path(spool_dir).absolute().parent / f"address-{pid}.json"
