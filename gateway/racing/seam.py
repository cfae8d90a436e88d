"""Where an answer that broke off is continued by somebody else, so that no character is wrong.

Of the text that was delivered all but the last, perhaps unfinished word is sent as the beginning of the answer. Whoever
continues must begin with that word: it is swallowed, as the client has it. If the continuation begins otherwise, it is
not this answer's.
"""

from collections.abc import Sequence

import regex

_TAIL = regex.compile(r"\s*\S*\s*\Z")
MOST_TAIL = 20  # characters of a word; beyond, the text has no spaces (Chinese, an address), and a few must do
FEW = 6
MOST_SPACES = 100  # that a continuation may put before the tail; a server that sends nothing else is not waited for
MOST_STOPS, LONGEST_STOP = 64, 1_000  # characters; to look for more of them would block the event loop


class SeamMismatchError(Exception):
    """The continuation does not begin with the last word that was delivered."""


def split(text: str) -> tuple[str, str]:
    """Return what is sent as the answer's beginning, and the tail that the continuation must repeat."""
    found = _TAIL.search(text)
    at = len(text) if found is None else found.start()
    word = text[at:].strip()
    if len(word) > MOST_TAIL:
        at = len(text.rstrip()) - FEW
    return text[:at], text[at:]


class Seam:
    """Swallows the tail. ``stops`` are the request's stop strings: one may begin before the seam and end after it."""

    def __init__(self, tail: str, *, before: str = "", stops: Sequence[str] = ()) -> None:
        """``before`` is the text that was delivered, with the tail."""
        self.passed = not tail
        self.stopped: str | None = None  # the stop string across the seam, after which nothing follows
        self._tail = tail
        self._came = ""
        self._stops = [stop for stop in stops if 0 < len(stop) <= LONGEST_STOP][:MOST_STOPS]
        longest = max(map(len, self._stops), default=0)
        self._window = before[-(longest - 1) :] if longest > 1 else ""
        self._behind = len(self._window)  # of the window, what was delivered before the seam

    def take(self, text: str) -> str:
        """Take text of the continuation; return what of it the client does not have yet.

        Raises:
            SeamMismatchError: it does not begin with the tail.

        """
        if self.stopped is not None:
            return ""
        if not self.passed:
            self._came += text
            rest = self._rest()
            if rest is None:
                return ""
            self.passed, text = True, rest
        return self._until_stop(text)

    def end(self, *, is_cut_short: bool = False) -> None:
        """Note the end of the continuation. One that its limit has cut short within the tail adds nothing.

        Raises:
            SeamMismatchError: it has ended within the tail.

        """
        if not (self.passed or is_cut_short) and self._came.strip() != self._tail.strip():
            raise SeamMismatchError
        self.passed = True

    def held_back(self) -> str:
        """Return what was held back, at the end: it was no stop string."""
        held = "" if self.stopped is not None else self._window[self._behind :]
        self._window = ""
        return held

    def _rest(self) -> str | None:
        """Return what follows the tail; None while that cannot be told."""
        came, tail = self._came, self._tail
        if came.startswith(tail):
            return came[len(tail) :]
        if tail.startswith(came):
            return None
        if tail[:1].isspace():
            # A template may strip the space at the seam, or put one there. All other spaces are the text's own.
            bare_came, bare_tail = came.lstrip(), tail.lstrip()
            if bare_came.startswith(bare_tail) and (bare_tail or bare_came == came):
                return bare_came[len(bare_tail) :]
            if bare_tail.startswith(bare_came) and len(came) <= len(tail) + MOST_SPACES:
                return None
        raise SeamMismatchError

    def _until_stop(self, text: str) -> str:
        """Cut the text at a stop string that began before the seam; hold back what may be the rest of one.

        Stop strings that begin after the seam are the provider's.
        """
        if not (self._window and text):
            return text
        joined, behind = self._window + text, self._behind
        places = [(at, stop) for at in range(behind) for stop in self._stops if at + len(stop) > behind]
        self.stopped = next((stop for at, stop in places if joined.startswith(stop, at)), None)
        if self.stopped is not None:
            return ""
        if any(stop.startswith(joined[at:]) for at, stop in places):
            self._window = joined
            return ""
        self._window = ""
        return joined[behind:]
