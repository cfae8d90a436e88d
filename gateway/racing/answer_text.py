"""The text of an answer that is to be JSON, kept until its end to be judged, and then forgotten."""

from collections.abc import Iterable

import msgspec

MOST_CHARS = 256 * 1024  # beyond, the answer is not judged


class _Content(msgspec.Struct, gc=False):
    content: str | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Content | None = None
    text: str | None = None  # of /completions
    index: int | None = None


class _Delta(msgspec.Struct, gc=False):
    text: str | None = None


class _Event(msgspec.Struct, gc=False):
    """An event with text, of any dialect."""

    type: str | None = None
    choices: list[_Choice] | None = None
    delta: str | _Delta | None = None
    output_index: int | None = None  # Responses
    index: int | None = None  # Messages


_events = msgspec.json.Decoder(_Event)
_TEXT = frozenset({"response.output_text.delta", "content_block_delta"})


class AnswerText:
    """Collects the text; only of one choice, item or block, for several together are no JSON."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._chars = 0
        self._place: int | None = None
        self._lost = False

    def add(self, texts: Iterable[str]) -> None:
        """Take text that follows."""
        if self._lost:
            return
        for text in texts:
            self._chars += len(text)
            self._pieces.append(text)
        if self._chars > MOST_CHARS:
            self._lose()

    def take(self, data: bytes) -> None:
        """Take the data of an event that adds to the answer."""
        if self._lost:
            return
        try:
            event = _events.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._lose()
            return
        for choice in event.choices or ():
            self._take(choice.index or 0, choice.text if choice.delta is None else choice.delta.content)
        if event.type in _TEXT:
            place = event.index if event.output_index is None else event.output_index
            self._take(place or 0, event.delta.text if isinstance(event.delta, _Delta) else event.delta)

    def whole(self) -> str | None:
        """Return the text; None where it was too long, or could not be put together."""
        return None if self._lost else "".join(self._pieces)

    def _take(self, place: int, text: str | None) -> None:
        if not text:
            return
        if self._place is None:
            self._place = place
        if place == self._place:
            self.add((text,))
        else:
            self._lose()

    def _lose(self) -> None:
        self._lost = True
        self._pieces = []
