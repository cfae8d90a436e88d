"""A conversation over several turns: the items so far, which the next turn sends again, as it sends only new input."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.responses.fields import EventWriter, Object, responses_usage
from providers.dialects.responses.stream_from_chat import TRANSLATED, Echo
from providers.errors import UNREADABLE

_TELLING = re.compile(rb'"type"\s*:\s*"response\.(?:created|completed|incomplete|output_item\.done)"')
_ENDS = frozenset({"response.completed", "response.incomplete"})
# Items whose ids are names only: another provider may refuse a foreign one.
_ID_IS_NAME = frozenset({"message", "function_call", "custom_tool_call", "reasoning"})
_EMPTY = (b"", b"null", b"[]", b'""')

_item = msgspec.json.Decoder(Object)
_text = msgspec.json.Decoder(str)


def items_of(prompt: msgspec.Raw | None) -> bytes | None:
    """Return the items of an ``input``, as JSON without the brackets; None: it is neither a text nor an array."""
    if prompt is None:
        return b""
    raw = bytes(prompt).strip()
    if raw.startswith(b'"'):
        return b'{"role":"user","content":%b}' % raw
    return raw[1:-1].strip() if raw.startswith(b"[") else None


def joined(*items: bytes) -> bytes:
    """Return several lists of items as one; each is JSON without the brackets."""
    return b",".join(each for each in items if each)


class _Response(msgspec.Struct, gc=False):
    id: str | None = None
    output: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    response: _Response | None = None
    item: msgspec.Raw = msgspec.Raw()


_event = msgspec.json.Decoder(_Event)


MOST_HEARD_BYTES = 8 * 2**20  # of an answer's items


class Heard:
    """The parts of an answer's events that the next turn needs."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.is_over = False  # whether the answer is complete, or was cut by a limit of its own
        self.is_lost = False  # whether its output was longer than is kept
        self._done: list[bytes] = []
        self._done_bytes = 0
        self._output: list[bytes] | None = None

    def hear(self, data: bytes) -> None:
        """Read the data of one event."""
        if _TELLING.search(data) is None:
            return
        try:
            event = _event.decode(data)
        except UNREADABLE:  # another attempt's business: the client gets it as it is
            return
        if event.response is not None:
            self.id = event.response.id or self.id
        if event.type == "response.output_item.done":
            self._done_bytes += len(bytes(event.item))
            if self._done_bytes > MOST_HEARD_BYTES:
                self.is_lost = True
                self._done.clear()
            if not self.is_lost:
                self._done.append(bytes(event.item))
        elif event.type in _ENDS:
            self.is_over = True
            if not self.is_lost and len(data) <= 2 * MOST_HEARD_BYTES:
                self._output = [bytes(raw) for raw in (event.response and event.response.output) or ()]
            else:
                self.is_lost = True

    @property
    def output(self) -> bytes:
        """The items of the answer as input of the next turn, as JSON without the brackets.

        Some servers leave them out of the last event.
        """
        said = (_as_input(raw) for raw in self._output or self._done)
        return joined(*(item for item in said if item is not None))


def _as_input(raw: bytes) -> bytes | None:
    """Return an item of an output as one of an input; None if it stands for something that one provider has.

    Reasoning that is neither text nor encrypted can be named only to who stored it.
    """
    try:
        item = _item.decode(raw)
        kind = _text.decode(item.get("type", b'""'))
    except UNREADABLE:
        return raw
    if kind == "reasoning":
        if bytes(item.get("id", b"")).startswith(b'"%b' % TRANSLATED.encode()):
            return raw  # taken out, or translated back, where it is sent
        if all(bytes(item.get(name, b"")) in _EMPTY for name in ("encrypted_content", "content")):
            return None
    if kind in _ID_IS_NAME and "id" in item:
        del item["id"]
        return msgspec.json.encode(item)
    return raw


def warmed_up(fields: Mapping[str, msgspec.Raw], *, response_id: str, created_at: int, model: str) -> bytes:
    """Return the events of a response without an output, for a turn that only prepares the next one.

    Raises:
        Malformed: a field that is repeated has another type than the API requires.

    """
    echo, writer = Echo(fields, response_id=response_id, created_at=created_at, model=model), EventWriter()
    nothing: dict[str, Any] = responses_usage({})
    writer.say("response.created", response=echo.state("in_progress"))
    writer.say("response.in_progress", response=echo.state("in_progress"))
    writer.say("response.completed", response=echo.state("completed", usage=nothing))
    return writer.take()
