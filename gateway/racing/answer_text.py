"""The text of an answer that must be JSON, kept until it has been judged."""

from collections.abc import Callable, Iterable

import msgspec

MOST_CHARS = 256 * 1024  # longer answers are not judged
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class AnswerText:
    """Collects the text of one choice, item or block; several together would not be JSON."""

    def __init__(self, texts: Callable[[bytes], Iterable[tuple[int, str]]]) -> None:
        """``texts`` returns the texts of one event's data, each with the index of its choice, item or block."""
        self._texts = texts
        self._pieces: list[str] = []
        self._chars = 0
        self._place: int | None = None
        self._lost = False

    def add(self, texts: Iterable[str]) -> None:
        """Append text to the current place."""
        if self._lost:
            return
        for text in texts:
            self._chars += len(text)
            self._pieces.append(text)
        if self._chars > MOST_CHARS:
            self._lose()

    def take(self, data: bytes) -> None:
        """Add the texts in the data of an event."""
        if self._lost:
            return
        try:
            for place, text in self._texts(data):
                self._take(place, text)
        except _UNREADABLE:
            self._lose()

    @property
    def is_too_long(self) -> bool:
        """Whether it was too long, or came from several places: it is not judged."""
        return self._lost

    def whole(self) -> str | None:
        """Return the text; None if it was too long, or came from several places."""
        return None if self._lost else "".join(self._pieces)

    def _take(self, place: int, text: str) -> None:
        if self._place is None:
            self._place = place
        if place == self._place:
            self.add((text,))
        else:
            self._lose()

    def _lose(self) -> None:
        self._lost = True
        self._pieces = []
