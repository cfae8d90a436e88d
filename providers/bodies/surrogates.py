r"""Mends characters of which a provider sent one half: JSON writes 😀 as ``\ud83d\ude00``, and either may come alone.

Some servers cut text between the halves, so that two events have one each; both are then no valid JSON. A half without
its other one becomes U+FFFD, the replacement character.
"""

import re
from collections.abc import Callable

from providers.bodies.sse import BACKSLASH, events

_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_PAIR, _HALF = _HIGH + _LOW, rb"(?:%s(?!%s)|%s)" % (_HIGH, _LOW, _LOW)
# Atomic groups, not `)*+`: Python before 3.11.5 handles that wrongly if the repeated group can fail.
_WHOLE = rb"(?>(?:[^\\]++|%s|\\(?!u[dD][89a-fA-F]).)*)" % _PAIR
_HALVES = re.compile(rb"(%s)((?>%s*))" % (_WHOLE, _HALF), re.DOTALL)
_FIELD = re.compile(rb'("([^"\\]+)"\s*:\s*")((?>(?:[^"\\]++|\\.)*))(?=")', re.DOTALL)
_INDEX = re.compile(rb'index"\s*:\s*(\d+)')
_LAST_HALF = re.compile(rb"(?>(?:[^\\]++|%s|(?!%s\Z)\\.)*)(?P<half>%s)" % (_PAIR, _HIGH, _HIGH), re.DOTALL)
_FIRST_HALF = re.compile(_LOW)
_REPLACED = rb"\ufffd"
_HALF_BYTES = len(_REPLACED)
_MOST_FIELDS = 64  # of one event
_LONGEST_BYTES = 1024 * 1024  # a longer event or body is not changed: mending it would block the event loop
_MOST_HELD = 64  # halves; a choice, an item and a block have one each


def _may_have_halves(data: bytes) -> bool:
    """Whether JSON may have a half of a character; fast."""
    return BACKSLASH in data and (data.find(b"\\ud") >= 0 or data.find(b"\\uD") >= 0)


def without_halves(data: bytes) -> bytes:
    """Return JSON with U+FFFD for each half of a character; without one, the same object."""
    if not _may_have_halves(data) or len(data) > _LONGEST_BYTES:
        return data
    mended = _HALVES.sub(lambda found: found[1] + _REPLACED * (len(found[2]) // _HALF_BYTES), data)
    return data if mended == data else mended


class HalfCharacters:
    """Joins the halves of characters that came in two events of one stream."""

    def __init__(self) -> None:
        # The first half of the last character of a field, by the indexes in its event and its name.
        self.held: dict[tuple[object, ...], bytes] = {}

    def mend(self, block: bytes) -> bytes:
        """Return whole events with all characters whole: a first half at the end of a text begins the next text."""
        if not self.held and not _may_have_halves(block):
            return block
        return b"".join(self._mended(event.raw) for event in events(block))

    def _mended(self, event: bytes) -> bytes:
        if len(event) > _LONGEST_BYTES or not (self.held or _may_have_halves(event)):
            return event
        return without_halves(_FIELD.sub(self._joining(tuple(_INDEX.findall(event))), event, _MOST_FIELDS))

    def _joining(self, indexes: tuple[bytes, ...]) -> Callable[[re.Match[bytes]], bytes]:
        def join(found: re.Match[bytes]) -> bytes:
            place, text = (*indexes, found[2]), found[3]
            if text and (first := self.held.pop(place, None)) is not None:
                text = (first if _FIRST_HALF.match(text) else _REPLACED) + text
            if (last := _LAST_HALF.fullmatch(text)) is not None and len(self.held) < _MOST_HELD:
                self.held[place], text = last["half"], text[: last.start("half")]
            return found[1] + text

        return join
