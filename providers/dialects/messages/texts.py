"""The text that one event of a Messages stream adds to the answer."""

from collections.abc import Iterator

import msgspec


class _Delta(msgspec.Struct, gc=False):
    text: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    delta: _Delta | None = None
    index: int | None = None


_events = msgspec.json.Decoder(_Event)


def texts(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the text of a block's delta, with the block's index.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the event has another format.

    """
    event = _events.decode(data)
    if event.type == "content_block_delta" and event.delta is not None and event.delta.text:
        yield event.index or 0, event.delta.text
