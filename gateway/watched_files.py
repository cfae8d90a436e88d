"""Detects changes of files by checking them from time to time."""

from collections.abc import Sequence
from pathlib import Path

State = tuple[tuple[int, ...] | None, ...]


class WatchedFiles:
    """Some files that belong together: a change of one is a change of all."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Watch ``paths``. Unless ``note`` is called, their current state is a change: what was read may be older."""
        self._paths = paths
        self._taken: State = ()
        self._last: State = ()

    def note(self) -> None:
        """Record their current state as known. Call it before reading them."""
        self._taken = self._last = tuple(map(_state, self._paths))

    def have_changed(self) -> bool:
        """Whether any has changed, and none since the last check: they are no longer being written."""
        state, last = tuple(map(_state, self._paths)), self._last
        self._last = state
        if state in (self._taken, ()) or state != last:
            return False
        self._taken = state
        return True


def _state(path: Path) -> tuple[int, ...] | None:
    """Return a value that changes with the file; None if there is no file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
