"""Which path of ours was meant by one that is not here."""

import difflib
import re
from collections.abc import Sequence

_ALIKE = 0.8  # of difflib's ratio, 0 to 1: a slip of the keyboard, not another word
_VERSION = re.compile(r"^v\d+$")


def nearest_path(path: str, known: Sequence[str]) -> str | None:
    """Return the one of ``known`` that ``path`` most probably means, None where it is like none of them.

    What base URLs are mostly wrong by counts for nothing: a slash too many, and ``/v1`` left out, doubled or behind
    another prefix.
    """
    words = [word for word in path.split("/") if word]
    for start in range(len(words)):
        bare = _bare(words[start:])
        for candidate in known:
            if bare and bare == _bare(candidate.strip("/").split("/")):
                return candidate
    near = difflib.get_close_matches("/" + "/".join(words), known, n=1, cutoff=_ALIKE)
    return near[0] if near else None


def _bare(words: Sequence[str]) -> list[str]:
    """Return ``words`` without the versions they begin with."""
    start = next((at for at, word in enumerate(words) if not _VERSION.match(word)), len(words))
    return list(words[start:])
