"""Reads from an answer which thoughts of earlier turns its model was not shown, and why.

The field ``input_transformations`` of the answer's first event lists these thoughts, in some APIs also of other events.
Where a vendor's own fallback answers, the last event has another list, which counts instead.
"""

import re
from collections.abc import Callable, Sequence

import msgspec

from providers.refusals import UNREADABLE

# The checks, by how an entry's reason begins; any other check that a thought has failed is ``OTHER``.
OTHER, OF_AN_ACCOUNT = "other", "account"
_CHECKS = {"prefix": "prefix", "model": "model", "organization": OF_AN_ACCOUNT, "end_user": "user"}
CHECKS = (*_CHECKS.values(), OTHER)

TELLS = b'"input_transformations"'
_DROPPED, _MISMATCH = "_dropped", re.compile("_(?:binding_)?mismatch$")
_DATA = b"data:"


class UnshownThought(msgspec.Struct, frozen=True):
    """A thought that the model was not shown: its place in the request, and which check it failed."""

    path: str
    check: str  # one of ``CHECKS``


class UnshownEntry(msgspec.Struct):
    """An entry of the list, as vendors write it."""

    type: str = ""
    reason: str = ""
    path: str = ""  # in Messages
    id: str = ""  # in Responses


class _Holder(msgspec.Struct):
    input_transformations: list[UnshownEntry] | None = None


class _Event(msgspec.Struct):
    input_transformations: list[UnshownEntry] | None = None
    message: _Holder | None = None
    response: _Holder | None = None


_events = msgspec.json.Decoder(_Event)


def unshown(lines: bytes, place: Callable[[UnshownEntry], str]) -> Sequence[UnshownThought] | None:
    """Return the thoughts in the last of the complete ``lines`` that lists any; None: no line has a list."""
    if TELLS not in lines:
        return None
    told = None
    for line in lines.splitlines():
        if TELLS in line and line.startswith(_DATA):
            try:
                event = _events.decode(line[len(_DATA) :])
            except UNREADABLE:
                continue
            for holder in (event, event.message, event.response):
                if holder is not None and holder.input_transformations is not None:
                    told = holder.input_transformations
    if told is None:
        return None
    return [UnshownThought(place(each), _check(each.reason)) for each in told if each.type.endswith(_DROPPED)]


def _check(reason: str) -> str:
    return _CHECKS.get(_MISMATCH.sub("", reason), OTHER)
