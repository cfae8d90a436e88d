"""The seam between a delivered text and its continuation, where no character may be wrong.

The deployment that continues gets the delivered text as the beginning of its answer, without the last word, which may
be unfinished. For example, "The capital of Fra" was delivered. The deployment gets "The capital of ", and its text must
begin with "Fra" ("France is Paris"), which is not sent to the client again. A text that begins otherwise does not
continue this answer. If nothing visible was delivered, nothing is continued: the request is sent again.
"""

from collections.abc import Sequence

from gateway.racing.measurement import estimated_tokens

MOST_TAIL = 20  # characters of a word; longer text without spaces (Chinese, an address): its last ``FEW`` suffice
FEW = 6
MOST_SPACES = 100  # before the tail, at most; a server that sends more has failed
MOST_STOPS, LONGEST_STOP = 64, 1_000  # strings, and characters of one; a search for more would block the event loop


class SeamMismatchError(Exception):
    """The continuation does not begin with the last word that was delivered."""


def split(text: str) -> tuple[str, str]:
    """Return ``text`` in two parts: what is sent as the answer's beginning, and the tail that must be repeated."""
    shown = text.rstrip()
    word = shown.rsplit(maxsplit=1)[-1] if shown else ""
    at = len(shown[: len(shown) - len(word)].rstrip())
    if len(word) > MOST_TAIL:
        at = len(shown) - FEW
    return text[:at], text[at:]


def is_blank(text: str) -> bool:
    """Whether a text has nothing visible. If so, a new answer replaces the text instead of continuing it."""
    return not text or text.isspace()


def again_tokens(text: str) -> int:
    """Return the estimated number of tokens in the tail of a text, which the continuation writes again."""
    if is_blank(text):
        return 0
    return estimated_tokens(len(text)) - estimated_tokens(len(split(text)[0]))


class Seam:
    """Removes the repeated tail from a continuation.

    ``stops`` are the request's stop strings: one may begin before the seam and end after it.
    """

    def __init__(self, tail: str, *, before: str = "", stops: Sequence[str] = ()) -> None:
        """``before``: the delivered text, tail included."""
        self.passed = not tail
        self.stopped: str | None = None  # the stop string across the seam, after which nothing follows
        self._tail = tail
        self._came = ""
        self._stops = [stop for stop in stops if 0 < len(stop) <= LONGEST_STOP][:MOST_STOPS]
        longest = max(map(len, self._stops), default=0)
        self._window = before[-(longest - 1) :] if longest > 1 else ""
        self._behind = len(self._window)  # characters of the window that were delivered before the seam

    def take(self, text: str) -> str:
        """Compare text of the continuation with the tail; return the part that is new to the client.

        Raises:
            SeamMismatchError: the continuation does not begin with the tail.

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
        """Handle the end of the continuation. One that its token limit cut short within the tail adds nothing.

        Raises:
            SeamMismatchError: the continuation ended within the tail.

        """
        if not (self.passed or is_cut_short) and self._came.strip() != self._tail.strip():
            raise SeamMismatchError
        is_spaces = not self.passed and self._came.startswith(self._tail) and is_blank(self._came)
        if is_spaces and (added := self._until_stop(self._came[len(self._tail) :])):
            self._window, self._behind = added, 0
        self.passed = True

    def held_back(self) -> str:
        """Return, at the end, the text that was held back as the possible beginning of a stop string."""
        text = "" if self.stopped is not None else self._window[self._behind :]
        self._window = ""
        return text

    def _rest(self) -> str | None:
        """Return the text after the tail; None while that is undecided."""
        came, tail = self._came, self._tail
        if is_blank(tail):
            return self._first_line()
        if came.startswith(tail):
            return came[len(tail) :]
        if tail.startswith(came):
            return None
        if tail[:1].isspace():
            # A template may strip or add a space at the seam. All other spaces belong to the text.
            bare_came, bare_tail = came.lstrip(), tail.lstrip()
            if bare_came.startswith(bare_tail) and (bare_tail or bare_came == came):
                return bare_came[len(bare_tail) :]
            if bare_tail.startswith(bare_came) and len(came) <= len(tail) + MOST_SPACES:
                return None
        raise SeamMismatchError

    def _first_line(self) -> str | None:
        """Return what a new answer adds to delivered white space; None until something visible has come.

        The new answer may begin with other empty lines, but the indent of its first line is kept.
        """
        came, tail, text = self._came, self._tail, self._came.lstrip()
        if not text and len(came) <= len(tail) + MOST_SPACES:
            return None
        indent, has = (each.rpartition("\n")[2] for each in (came[: len(came) - len(text)], tail))
        if not text or not (came.startswith((tail, text)) or indent.startswith(has)):
            raise SeamMismatchError
        return came[len(tail) :] if came.startswith(tail) else indent[len(has) :] + text

    def _until_stop(self, text: str) -> str:
        """Cut the text at a stop string that began before the seam; hold back a possible rest of such a string.

        The provider itself handles stop strings that begin after the seam.
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
