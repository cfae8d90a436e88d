"""A message that broke off inside its text block, continued by another provider."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from providers.bodies import raw_json
from providers.dialects.continuing import (
    ContinuationEnd,
    Continuing,
    DeliveredPart,
    Way,
    asks_for_thoughts,
    begun_by,
    decoded_in,
    objects_in,
    strings_of,
    with_last,
    with_less,
)
from providers.dialects.dialect import json_format, json_format_within
from providers.dialects.messages.answers import ENDING, event
from providers.dialects.wording import Fields

_NOTHING = frozenset({b"", b"null", b"[]", b"{}"})
_FORMATS = {"output_format": json_format, "output_config": json_format_within}
_KINDS: Mapping[str, str] = {"thinking": "reasoning", "redacted_thinking": "reasoning"}  # of blocks; others: tools
_ENDED = {"stop_reason": "end_turn", "stop_sequence": None}


class _Delta(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None


class _Block(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None


class _Message(msgspec.Struct, gc=False):
    usage: _Usage | None = None


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    index: int | None = None
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None


class _Head(msgspec.Struct):
    """The text block of the answer, which has no other block."""

    index: int = 0
    is_open: bool = False
    counts_prompt: bool = False  # the prompt's tokens were told with the start of the message


class _Turn(msgspec.Struct):
    role: str
    content: str | list[dict[str, msgspec.Raw]]


_events = msgspec.json.Decoder(_Event)
_heads = msgspec.json.Decoder(_Head)


class MessageContinuing(Continuing):
    """Messages: the delivered text is the beginning of the assistant's turn."""

    ways: frozenset[Way] = frozenset({"prefill"})
    always_counts = True

    def obstacle(self, fields: Fields) -> str | None:
        """Return the kind of answer that cannot be continued."""
        if any(bytes(fields.get(name, b"")).strip() not in _NOTHING for name in ("tools", "mcp_servers")):
            return "tools"
        if "thinking" in fields and asks_for_thoughts(fields["thinking"]):
            return "reasoning"
        wants_json = any(name in fields and read(fields[name]) is not None for name, read in _FORMATS.items())
        return "response_format" if wants_json else None

    def begun(self, events: Iterable[bytes]) -> DeliveredPart:
        """Read the events that were delivered."""
        return begun_by(_Reading(), decoded_in(events, _events))

    def stops(self, fields: Fields) -> Sequence[str]:
        """Return the stop strings."""
        return strings_of(fields.get("stop_sequences"))

    def own_prefix(self, fields: Fields) -> str:  # noqa: ARG002 - what a client has begun, the answer does not repeat
        """Return ""."""
        return ""

    def request(self, fields: Fields, begun: str, way: Way | None, spent_tokens: int) -> Fields:  # noqa: ARG002 - one
        """Return the request with the beginning as the last turn, or after the client's own beginning."""
        changed = with_less(fields, ("max_tokens",), spent_tokens)
        if not begun:
            return changed
        *before, last = msgspec.json.decode(fields["messages"], type=list[msgspec.Raw])
        own = _own_beginning(last)
        if own is None:
            changed["messages"] = with_last(fields["messages"], {"role": "assistant", "content": begun})
        else:
            turn = {"role": "assistant", "content": _and(own.content, begun)}
            changed["messages"] = raw_json([*before, turn])
        return changed

    def splice(self, begun: DeliveredPart) -> "MessageSplice":
        """Return a writer of events of the same block."""
        return MessageSplice(begun.head)


class MessageSplice:
    """Makes events of the text block that is open."""

    def __init__(self, head: bytes | None) -> None:
        self._head = _Head() if head is None else _heads.decode(head)

    def text(self, text: str) -> bytes:
        """Return a delta with text, after the block's start if none was sent yet."""
        delta = event("content_block_delta", {"index": self._head.index, "delta": {"type": "text_delta", "text": text}})
        if self._head.is_open:
            return delta
        self._head.is_open = True
        start = {"index": self._head.index, "content_block": {"type": "text", "text": ""}}
        return event("content_block_start", start) + delta

    def end(self, ended: ContinuationEnd) -> bytes:
        """Return the end of the block and of the message."""
        stop = event("content_block_stop", {"index": self._head.index}) if self._head.is_open else b""
        delta: dict[str, Any] = dict(_ENDED)
        if ended.stop is not None:
            delta = {"stop_reason": "stop_sequence", "stop_sequence": ended.stop}
        elif ended.event is not None:
            (said,) = objects_in([ended.event])
            delta |= said.get("delta") or {}
        prompt, answer = ended.usage or (0, 0)
        usage = {"output_tokens": answer} | ({} if self._head.counts_prompt else {"input_tokens": prompt})
        return stop + event("message_delta", {"delta": delta, "usage": usage}) + ENDING


class _Reading:
    """What the delivered events say."""

    def __init__(self) -> None:
        self.head: _Head | None = None
        self.pieces: list[str] = []

    def take(self, said: _Event) -> str | None:
        """Read an event; return why the answer cannot be continued after it."""
        match said.type:
            case "message_start":
                usage = said.message.usage if said.message is not None else None
                self.head = _Head(counts_prompt=usage is not None and bool(usage.input_tokens))
            case "content_block_start":
                return self._open(said)
            case "content_block_delta":
                return self._add(said.delta or _Delta())
            case "content_block_stop":
                return "closed"
            case "message_delta" | "message_stop":
                return "ended"
        return None

    def _open(self, said: _Event) -> str | None:
        block = said.content_block or _Block()
        if block.type != "text":
            return _KINDS.get(block.type or "", "tools")
        if self.head is None or self.head.is_open:
            return "format" if self.head is None else "blocks"
        self.head.index, self.head.is_open = said.index or 0, True
        self.pieces.append(block.text or "")
        return None

    def _add(self, delta: _Delta) -> str | None:
        if self.head is None or not self.head.is_open:
            return "format"
        if delta.type != "text_delta":
            return "citations"
        self.pieces.append(delta.text or "")
        return None


def _own_beginning(last: msgspec.Raw) -> _Turn | None:
    """Return the last turn if the client itself has begun the answer."""
    try:
        turn = msgspec.json.decode(last, type=_Turn)
    except msgspec.DecodeError:
        return None
    return turn if turn.role == "assistant" else None


def _and(content: str | list[dict[str, msgspec.Raw]], begun: str) -> object:
    if isinstance(content, str):
        return content + begun
    if content and (text := content[-1].get("text")) is not None:
        own = msgspec.json.decode(text, type=str)
        return [*content[:-1], content[-1] | {"text": raw_json(own + begun)}]
    return [*content, {"type": "text", "text": begun}]
