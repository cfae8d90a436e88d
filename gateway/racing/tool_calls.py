"""The tool calls of one answer: their number, their tools, and whether their arguments are JSON."""

from collections.abc import Iterable

import msgspec

MOST_CHARS = 256 * 1024  # of arguments; with more it is unknown whether they parse
MOST_CALLS = 1024  # with more the number is unknown
_anything = msgspec.json.Decoder(msgspec.Raw)


class ToolCalls(msgspec.Struct):
    """The tool calls received so far. They are released with the attempt."""

    _pieces: dict[int, list[str]] = {}  # of arguments, by the call's index in the answer
    _chars: int = 0
    _too_many: bool = False
    names: list[str] = []  # of the called tools, at most ``MOST_CALLS``

    def add(self, pieces: Iterable[tuple[int, str]]) -> None:
        """Add pieces of arguments, each with its call's index."""
        for place, piece in pieces:
            kept = self._pieces.get(place)
            if kept is None:
                if len(self._pieces) == MOST_CALLS:
                    self._too_many = True
                    continue
                kept = self._pieces[place] = []
            self._chars += len(piece)
            if piece and self._chars <= MOST_CHARS:
                kept.append(piece)

    def named(self, names: Iterable[str]) -> None:
        """Add names of called tools."""
        for name in names:
            if len(self.names) < MOST_CALLS:
                self.names.append(name)

    def number(self) -> int | None:
        """Return the number of calls; None if there are more than ``MOST_CALLS``."""
        return None if self._too_many else len(self._pieces)

    @property
    def is_too_long(self) -> bool:
        """Whether not all arguments were kept."""
        return self._too_many or self._chars > MOST_CHARS

    def arguments(self) -> list[str] | None:
        """Return the arguments of each call, in order; None if not all were kept."""
        if self.is_too_long:
            return None
        return ["".join(pieces) for pieces in self._pieces.values()]

    def valid(self) -> bool | None:
        """Whether the arguments of all calls are JSON; None if unknown. Empty arguments are valid."""
        arguments = self.arguments()
        return None if arguments is None else all(map(_parses, arguments))


def _parses(text: str) -> bool:
    try:
        _anything.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):  # nested deeper than anybody can read
        return False
    return True
