"""Writes the typed events of a Responses stream, with their sequence numbers."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.responses.errors import error_event


class Telling:
    """Events that were written and not taken yet. ``number`` is the first one's."""

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self._told: list[bytes] = []

    def say(self, kind: str, **fields: Any) -> None:
        """Write one event."""
        data = msgspec.json.encode({"type": kind, "sequence_number": self._number, **fields})
        if b"\n" in data or b"\r" in data:  # raw JSON may be pretty-printed; an event's data is one line
            data = msgspec.json.format(data, indent=-1)
        self._told.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))
        self._number += 1

    def fail(self, error: Mapping[str, Any]) -> None:
        """Write an error, which must be the last event."""
        self._told.append(error_event(error, self._number))
        self._number += 1

    def take(self) -> bytes:
        """Return the events that were written since the last call."""
        told = b"".join(self._told)
        self._told.clear()
        return told
