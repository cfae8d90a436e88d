"""The tool calls of one answer: how many there are, of which tools, and whether their arguments are JSON."""

from collections.abc import Iterable

import msgspec

MOST_CHARS = 256 * 1024  # of arguments kept until the answer's end; beyond, nobody knows whether they parse
MOST_CALLS = 1024  # told apart; beyond, nobody counts them
_anything = msgspec.json.Decoder(msgspec.Raw)


class ToolCalls(msgspec.Struct):
    """What has come of an answer's tool calls. They are forgotten with the attempt."""

    _pieces: dict[int, list[str]] = {}  # of arguments, by the call's place in the answer
    _chars: int = 0
    _too_many: bool = False
    names: list[str] = []  # of the tools called, no more than are told apart

    def add(self, pieces: Iterable[tuple[int, str]]) -> None:
        """Take what an event says of them."""
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
        """Take the names of tools that are called."""
        for name in names:
            if len(self.names) < MOST_CALLS:
                self.names.append(name)

    def number(self) -> int | None:
        """Return how many there are; None for more than are told apart."""
        return None if self._too_many else len(self._pieces)

    def arguments(self) -> list[str] | None:
        """Return the arguments of each, in the order of the calls; None where not all of them were kept."""
        if self._too_many or self._chars > MOST_CHARS:
            return None
        return ["".join(pieces) for pieces in self._pieces.values()]

    def valid(self) -> bool | None:
        """Return whether the arguments of all parse as JSON; None where that is not known. No arguments are valid."""
        arguments = self.arguments()
        return None if arguments is None else all(map(_parses, arguments))


def _parses(text: str) -> bool:
    try:
        _anything.decode(text or "{}")
    except msgspec.DecodeError:
        return False
    return True
