"""The upstream of all measurements: answers from prebuilt bytes behind a bare asyncio protocol.

The path's first element says how it answers (``answers.py``). Whoever asks for no stream gets one JSON body, at the
time of the first byte. ``GET /counts`` tells how many connections there were and how many of them are gone, and how
many requests were begun, answered, and cut before or after their first byte.
"""

import re
import sys
from collections import Counter

import uvloop

from tests.support.measured.answers import (
    BEHAVIOURS,
    HEAD,
    JSON_RESPONSE,
    MESSAGES,
    MESSAGES_STREAM,
    NAMED,
    PIECES,
    PIECES_WITH_USAGE,
    STREAM,
    STREAM_WITH_USAGE,
    Behaviour,
)
from tests.support.measured.serving import Serving, response, serve

_MESSAGES = BEHAVIOURS[MESSAGES]
_BEHAVIOURS = {name.encode(): behaviour for name, behaviour in BEHAVIOURS.items()}
_STREAMED = re.compile(rb'"stream" *: *true')
_MODEL = re.compile(rb'"model" *: *"([^"]+)"')


class Connection(Serving):
    """One connection; all count together."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts
        self._counts["connections"] += 1
        self._silent = False  # a request is under way, and nothing of its answer is sent
        self._answering = False  # part of the answer is sent

    def lost(self) -> None:
        """Count it, and what was cut with it."""
        if self._silent:
            self._counts["cut_before_first_byte"] += 1
        elif self._answering:
            self._counts["cut_later"] += 1
        self._counts["hung_up"] += 1

    def answer(self, request: bytes) -> None:
        """Begin as its path says."""
        name = request.split(b"/", 2)[1].split(b" ")[0]
        if name == b"counts":
            self.write(response(self._counts))
            return
        if name == NAMED.encode():
            named = _MODEL.search(request)
            name = named[1] if named is not None else b""
        behaviour = _BEHAVIOURS[name]
        self._counts["begun"] += 1
        self._silent = True
        if behaviour.first_s:
            self.after(behaviour.first_s, self._begin, behaviour, request)
        elif behaviour.first_s is not None:
            self._begin(behaviour, request)

    def _begin(self, behaviour: Behaviour, request: bytes) -> None:
        with_usage = b'"include_usage"' in request
        if not _STREAMED.search(request):
            self._finish(JSON_RESPONSE)
        elif behaviour is _MESSAGES:
            self._finish(MESSAGES_STREAM)
        elif behaviour.gap_s is behaviour.rest_s is behaviour.turns is None:
            self._finish(STREAM_WITH_USAGE if with_usage else STREAM)
        else:
            self._silent, self._answering = False, True
            pieces = PIECES_WITH_USAGE if with_usage else PIECES
            self.write(HEAD + pieces[0])
            if behaviour.rest_s is not None:
                self.after(behaviour.rest_s, self._finish, b"".join(pieces[1:]))
            elif behaviour.gap_s is not None:
                self._next_in_time(pieces, 1, self.loop.time(), behaviour.gap_s)
            elif behaviour.turns is not None:
                self._turn(pieces, 1, behaviour.turns, behaviour.turns)

    def _turn(self, pieces: tuple[bytes, ...], number: int, left: int, turns: int) -> None:
        if left:
            self.loop.call_soon(self._turn, pieces, number, left - 1, turns)
        elif number + 1 == len(pieces):
            self._finish(pieces[number])
        else:
            self.write(pieces[number])
            self._turn(pieces, number + 1, turns, turns)

    def _next_in_time(self, pieces: tuple[bytes, ...], number: int, began_at: float, gap_s: float) -> None:
        self.at(began_at + number * gap_s, self._pace, pieces, number, began_at, gap_s)

    def _pace(self, pieces: tuple[bytes, ...], number: int, began_at: float, gap_s: float) -> None:
        if number + 1 == len(pieces):
            self._finish(pieces[number])
        else:
            self.write(pieces[number])
            self._next_in_time(pieces, number + 1, began_at, gap_s)

    def _finish(self, last: bytes) -> None:
        self._silent = self._answering = False
        self._counts["answered"] += 1
        self.write(last)


if __name__ == "__main__":
    counts: Counter[str] = Counter()
    uvloop.run(serve(int(sys.argv[1]), lambda: Connection(counts)))
