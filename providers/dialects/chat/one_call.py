"""One tool call at a time, of a model whose API cannot be asked for that: calls after the first are left out.

So a client that takes one call gets one, and the model asks for the others after its result.
"""

from typing import Any

import msgspec

from providers.dialects.wording import Fields
from providers.errors import UNREADABLE
from providers.large_bodies import encoded
from providers.sse import events
from providers.usage import Usage

_CALLS = b'"tool_calls"'
_chunk = msgspec.json.Decoder(dict[str, Any])


def wants_one_call(fields: Fields) -> bool:
    """Whether a request says ``parallel_tool_calls: false``."""
    return bytes(fields.get("parallel_tool_calls", b"")) == b"false"


class OneCall:
    """A ``Translation`` of chat chunks: of each choice, tool calls after the first are left out."""

    @property
    def finishing(self) -> bool:
        """False: it holds no end back."""
        return False

    @property
    def usage_so_far(self) -> Usage | None:
        """None: it holds no usage back."""
        return None

    def feed(self, block: bytes) -> bytes:
        """Return whole chunks without later calls."""
        if _CALLS not in block:
            return block
        return b"".join(_with_first_call(event.raw, event.data) for event in events(block))

    def end(self) -> bytes:
        """Return nothing: it holds nothing back."""
        return b""


def _with_first_call(raw: bytes, data: bytes) -> bytes:
    """Return an event without calls after the first, ``b""`` if it has nothing else."""
    if _CALLS not in data:
        return raw
    try:
        chunk = _chunk.decode(data)
        choices = [each for each in chunk["choices"] if _keeps_something(each)]
    except (*UNREADABLE, AttributeError, KeyError, TypeError):
        return raw
    if not choices and not chunk.get("usage"):
        return b""
    return b"data: %b\n\n" % encoded({**chunk, "choices": choices})


def _keeps_something(choice: dict[str, Any]) -> bool:
    """Remove later calls from a choice; return whether anything is left of it."""
    delta = choice["delta"]
    if "tool_calls" not in delta:
        return True
    delta["tool_calls"] = [call for call in delta["tool_calls"] if call["index"] == 0]
    if not delta["tool_calls"]:
        del delta["tool_calls"]
    return bool(delta) or choice.get("finish_reason") is not None
