"""The note of where a gateway listens, beside its spool: commands on the same machine ask the one that runs.

So ``HOLESHOT_PORT=4001 make run`` in one terminal and ``holeshot leaderboard`` in the next one agree.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from providers import encoded

_NAME: Final = "address.json"


class Note(msgspec.Struct, frozen=True):
    """Where a gateway listens, and its process, which may have ended."""

    url: str
    pid: int

    def is_alive(self) -> bool:
        """Whether its process runs, on this machine and in this container."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # the process is another user's
            return True
        return True


def leave_note(spool_dir: str, url: str, pid: int) -> None:
    """Write where this gateway listens; without effect where the folder cannot be written."""
    path = _path(spool_dir)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_bytes(encoded(Note(url, pid)))
        path.with_suffix(".new").replace(path)


def remove_note(spool_dir: str, pid: int) -> None:
    """Remove the note of this process; that of a gateway which has started since stays."""
    if (note := read_note(spool_dir)) is not None and note.pid == pid:
        with suppress(OSError):
            _path(spool_dir).unlink()


def read_note(spool_dir: str) -> Note | None:
    """Return the note beside ``spool_dir``; None: there is none, or it cannot be read."""
    try:
        return msgspec.json.decode(_path(spool_dir).read_bytes(), type=Note)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _path(spool_dir: str) -> Path:
    return Path(spool_dir).absolute().parent / _NAME
