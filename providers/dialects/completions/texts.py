"""The text that one event of a completions stream adds to the answer."""

from collections.abc import Iterator

import msgspec


class _Choice(msgspec.Struct, gc=False):
    text: str | None = None
    index: int | None = None


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None


_events = msgspec.json.Decoder(_Event)


def texts(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the text of each choice, with its index.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the event has another format.

    """
    for choice in _events.decode(data).choices or ():
        if choice.text:
            yield choice.index or 0, choice.text
