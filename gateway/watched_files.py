"""Files that are looked at again and again, to be read again when they have changed."""

from collections.abc import Sequence
from pathlib import Path

State = tuple[tuple[int, ...] | None, ...]


class WatchedFiles:
    """Some files that belong together: a change of any is a change of all."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Take the ``paths``. Their first state is news, unless it is noted: what was read may be older."""
        self._paths = paths
        self._taken: State = ()
        self._last: State = ()

    def note(self) -> None:
        """Take them for known as they are now. They are about to be read."""
        self._taken = self._last = tuple(map(_state, self._paths))

    def have_changed(self) -> bool:
        """Tell whether any changed, and all have stayed as they are since the last look: nobody is writing any more."""
        state, last = tuple(map(_state, self._paths)), self._last
        self._last = state
        if state in (self._taken, ()) or state != last:
            return False
        self._taken = state
        return True


def _state(path: Path) -> tuple[int, ...] | None:
    """Return what is another whenever the file is; None where there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
