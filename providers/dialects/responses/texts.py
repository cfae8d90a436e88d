"""The text that one event of a Responses stream adds to the answer."""

from collections.abc import Iterator
from typing import Any

import msgspec


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    delta: Any = None
    output_index: int | None = None


_events = msgspec.json.Decoder(_Event)


def texts(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the text of a delta, with the index of the item it belongs to.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the event has another format.

    """
    event = _events.decode(data)
    if event.type == "response.output_text.delta" and isinstance(event.delta, str) and event.delta:
        yield event.output_index or 0, event.delta
