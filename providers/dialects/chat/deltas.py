"""The deltas of a chat stream as all readers and translations take them, in whichever of its forms a server sends them.

Some servers call a chunk's delta ``message``, the name that it has in whole answers.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from providers.errors import UNREADABLE

_decoder = msgspec.json.Decoder(dict[str, Any])


def delta_of(choice: Mapping[str, Any]) -> Any:
    """Return the delta of a decoded choice; it is an object, unless the server sent something else. None: no delta."""
    delta = choice.get("delta")
    return choice.get("message") if delta is None else delta


def with_deltas(data: bytes) -> bytes:
    """Return a chunk whose choices have a ``message`` with that as their ``delta``, its tool calls numbered.

    What is not a chunk stays as it is.
    """
    with suppress(*UNREADABLE, TypeError, AttributeError):
        chunk = _decoder.decode(data)
        for choice in chunk["choices"]:
            if choice.get("delta") is None and isinstance(message := choice.pop("message", None), dict):
                calls = message.get("tool_calls")
                for number, call in enumerate(calls if isinstance(calls, list) else ()):
                    call.setdefault("index", number)
                choice["delta"] = message
        if chunk.get("object") == "chat.completion":
            chunk["object"] = "chat.completion.chunk"
        return msgspec.json.encode(chunk)
    return data
