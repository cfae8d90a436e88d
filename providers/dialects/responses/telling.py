"""The typed events of a Responses stream, numbered as they are told."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.responses.errors import error_event


class Telling:
    """Events told and not yet taken."""

    def __init__(self) -> None:
        self._number = 0
        self._told: list[bytes] = []

    def say(self, kind: str, **fields: Any) -> None:
        """Tell one event."""
        data = msgspec.json.encode({"type": kind, "sequence_number": self._number, **fields})
        if b"\n" in data or b"\r" in data:  # in raw JSON that somebody has laid out; an event's data is one line
            data = msgspec.json.format(data, indent=-1)
        self._told.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))
        self._number += 1

    def fail(self, error: Mapping[str, Any]) -> None:
        """Tell an error, after which nothing is to be told."""
        self._told.append(error_event(error, self._number))
        self._number += 1

    def take(self) -> bytes:
        """Return what has been told since the last time."""
        told = b"".join(self._told)
        self._told.clear()
        return told
