"""Whole Messages answers: a whole answer as an event stream, and an event stream gathered into a whole answer."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from providers.bodies import complains
from providers.dialects.events import Chunk, Gathering, few, joined_arguments, no_answer
from providers.dialects.meanings import Details
from providers.dialects.messages.events import add_usage, error_of_event, type_of_kind
from providers.dialects.wording import SAYS_NOTHING, arguments_object
from providers.refusals import UNREADABLE, ErrorKind, UpstreamError, read_answer

_RawObject = dict[str, msgspec.Raw]

_objects = msgspec.json.Decoder(_RawObject)
_lists = msgspec.json.Decoder(list[msgspec.Raw])
_strings = msgspec.json.Decoder(str)
_indexes = msgspec.json.Decoder(int)
_objects_or_null = msgspec.json.Decoder(_RawObject | None)
_strings_or_null = msgspec.json.Decoder(str | None)

_NULL = msgspec.Raw(b"null")
_EMPTY_LIST = msgspec.Raw(b"[]")
_EMPTY_OBJECT = msgspec.Raw(b"{}")
_EMPTY_STRING = msgspec.Raw(b'""')
_SURPRISES = (*UNREADABLE, KeyError)

# By a block's type, the fields that deltas fill; other blocks arrive complete.
_GROWING: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "thinking": ("thinking", "signature"),
    "tool_use": ("input",),
    "server_tool_use": ("input",),
}
_DELTAS: Mapping[str, tuple[str, str]] = {  # by such a field, the type of its delta and the delta's field
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "signature": ("signature_delta", "signature"),
    "input": ("input_json_delta", "partial_json"),
}
_UNBEGUN: Mapping[str, Mapping[str, msgspec.Raw]] = {  # by a delta's type, the block that it begins
    "text_delta": {"type": msgspec.Raw(b'"text"'), "text": _EMPTY_STRING},
    "thinking_delta": {"type": msgspec.Raw(b'"thinking"'), "thinking": _EMPTY_STRING, "signature": _EMPTY_STRING},
}
_NO_COUNT = (_NULL, msgspec.Raw(b"0"))
_AT_THE_END = ("stop_reason", "stop_sequence", "stop_details", "container")  # fields that message_delta sends


def event(type_: str, fields: Mapping[str, Any]) -> bytes:
    """Return an event in its wire format."""
    data = msgspec.json.encode({"type": type_, **fields})
    return b"event: " + type_.encode() + b"\ndata: " + data + b"\n\n"


ENDING = event("message_stop", {})


def failure(kind: str, message: str, details: Details = (), request_id: str | None = None) -> bytes:
    """Return the event of an error of the gateway's ``kind``, or Anthropic's; SDKs raise an exception for this event.

    Anthropic's errors have the request's id: platform.claude.com/docs/en/api/errors. Qwen Code asks for the rest of an
    answer that breaks off only if the error has an id: packages/core/src/utils/retryErrorClassification.ts of
    https://github.com/QwenLM/qwen-code, in its 0.24.4, read on 2026-11-30.
    """
    more = {"details": details[0]} if details else {}
    named = {} if request_id is None else {"request_id": request_id}
    return event("error", {"error": {"type": type_of_kind(kind), "message": message, **more}, **named})


def events_of_answer(body: bytes, secrets: Sequence[str] = ()) -> bytes:
    """Return a whole message as an event stream, from which gathering makes the same message with every field.

    Raises:
        UpstreamError: as of ``read_answer``, with the kind of the error's type; also if the body is no message
            (invalid_response).

    """
    try:
        message = read_answer(body, secrets)
    except UpstreamError as error:
        if error.kind is ErrorKind.SERVER_ERROR:
            raise error_of_event(body, secrets, otherwise=ErrorKind.SERVER_ERROR) from None
        raise
    try:
        blocks = [_objects.decode(block) for block in few(_lists.decode(message["content"]), "blocks")]
        stream = [event("message_start", {"message": _unfinished(message)})]
        for index, block in enumerate(blocks):
            stream += _block(index, block)
    except _SURPRISES:
        raise no_answer(body, "a message", secrets) from None
    delta = {name: message[name] for name in _AT_THE_END if name in message}
    delta.setdefault("stop_sequence", _NULL)
    if bytes(delta.get("stop_reason", _NULL)) == b"null":  # the answer is complete
        delta["stop_reason"] = msgspec.Raw(b'"end_turn"')
    usage = message.get("usage", _NULL)
    if bytes(usage) == b"null":  # SDKs need a count
        usage = msgspec.Raw(b'{"output_tokens":0}')
    stream += [event("message_delta", {"delta": delta, "usage": usage}), ENDING]
    return b"".join(stream)


def _unfinished(message: Mapping[str, msgspec.Raw]) -> _RawObject:
    """Return a message in its state before the first block."""
    begun = {name: value for name, value in message.items() if name not in _AT_THE_END}
    return {**begun, "content": _EMPTY_LIST, "stop_reason": _NULL, "stop_sequence": _NULL}


def _block(index: int, block: _RawObject) -> list[bytes]:
    """Return a block's events: the start of an empty block, and one delta for each of its fields."""
    begun = dict(block)
    deltas: list[dict[str, Any]] = []
    growing = _GROWING.get(_strings.decode(block["type"]), ())
    for name in growing:
        kind, field = _DELTAS[name]
        value = block.get(name, _NULL)
        if bytes(value) in SAYS_NOTHING:
            continue
        if name == "input":
            written = value if _is_string(value) else msgspec.Raw(msgspec.json.encode(bytes(value).decode()))
            begun[name], piece = _EMPTY_OBJECT, written
        else:
            _strings.decode(value)  # raises if the value is not a string
            begun[name], piece = _EMPTY_STRING, value
        deltas.append({"type": kind, field: piece})
    if "text" in growing and bytes(block.get("citations", _NULL)) not in SAYS_NOTHING:
        begun["citations"] = _EMPTY_LIST
        citations = few(_lists.decode(block["citations"]), "citations of one block")
        deltas += [{"type": "citations_delta", "citation": one} for one in citations]
    return [
        event("content_block_start", {"index": index, "content_block": begun}),
        *(event("content_block_delta", {"index": index, "delta": delta}) for delta in deltas),
        event("content_block_stop", {"index": index}),
    ]


def _is_string(value: msgspec.Raw) -> bool:
    return bytes(memoryview(value)[:1]) == b'"'


def _index_of(event_: Mapping[str, msgspec.Raw], otherwise: int) -> int:
    """Return the index of an event's block; ``otherwise`` if a server sends no index."""
    return _indexes.decode(event_["index"]) if "index" in event_ else otherwise


class _Block:
    """One block of the message that is being gathered, and the pieces from its deltas."""

    def __init__(self, begun: _RawObject) -> None:
        self._fields = begun
        self._pieces: dict[str, list[str]] = {}
        self._citations: list[msgspec.Raw] = []

    def add(self, delta: _RawObject) -> None:
        kind = _strings.decode(delta["type"])
        if kind == "text_delta":
            self._add_piece("text", delta["text"])
        elif kind == "thinking_delta":
            self._add_piece("thinking", delta["thinking"])
        elif kind == "input_json_delta":
            self._add_piece("input", delta["partial_json"])
        elif kind == "signature_delta":  # a signature arrives complete
            self._fields["signature"] = delta["signature"]
        elif kind == "citations_delta":
            self._citations.append(delta["citation"])
        else:
            self._add_unknown(delta)

    def _add_piece(self, name: str, piece: msgspec.Raw) -> None:
        self._pieces.setdefault(name, []).append(_strings_or_null.decode(piece) or "")

    def _add_unknown(self, delta: _RawObject) -> None:
        """Add a delta of an unknown type: strings are appended, anything else replaces the value."""
        for name, value in delta.items():
            if name == "type":
                continue
            if _is_string(value):
                self._pieces.setdefault(name, []).append(_strings.decode(value))
            else:
                self._fields[name] = value

    def whole(self) -> _RawObject:
        fields = dict(self._fields)
        for name, pieces in self._pieces.items():
            text = joined_arguments(pieces) if name == "input" else "".join(pieces)
            if name == "input":
                fields[name] = _input(text) if text else fields.get(name, _EMPTY_OBJECT)
            else:
                begun = fields.get(name, _EMPTY_STRING)
                before = _strings.decode(begun) if _is_string(begun) else ""
                fields[name] = msgspec.Raw(msgspec.json.encode(before + text))
        if self._citations:
            begun = fields.get("citations", _NULL)
            before_them = _lists.decode(begun) if bytes(memoryview(begun)[:1]) == b"[" else []
            fields["citations"] = msgspec.Raw(msgspec.json.encode([*before_them, *self._citations]))
        return fields


def _input(text: str) -> msgspec.Raw:
    """Return a tool's input. Incomplete JSON is wrapped, as Anthropic's docs advise."""
    said = arguments_object(text)
    return msgspec.Raw(msgspec.json.encode({"INVALID_JSON": text})) if said is None else said


class MessageGathering(Gathering):
    """Makes one message of its events; unknown blocks, deltas and fields are kept unchanged."""

    def __init__(self) -> None:
        self._message: _RawObject = {}
        self._usage: _RawObject = {}
        self._blocks: list[tuple[int, _Block]] = []  # each with its index, which several blocks may share
        self._latest: dict[int, _Block] = {}  # by index
        self._last = -1  # the index of the block that began last

    def take(self, chunk: Chunk) -> None:
        """Read one event.

        Raises:
            UpstreamError: the data are valid JSON, but no event of Messages (invalid_response).

        """
        try:
            said = _objects.decode(chunk.data)
            if "type" in said or not complains(chunk.data):  # the text of an error belongs to no message
                self._take(said)
        except _SURPRISES as error:
            message = f"sent an event that Messages does not have: {type(error).__name__}"
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, message) from None

    def body(self) -> bytes:
        """Return the whole message as JSON."""
        content = [block.whole() for _, block in sorted(self._blocks, key=itemgetter(0))]
        message: dict[str, Any] = {**self._message, "content": content}
        if self._usage:
            message["usage"] = self._usage
        return msgspec.json.encode(message)

    def _take(self, event_: _RawObject) -> None:
        match _strings.decode(event_["type"]):
            case "content_block_delta":
                self._add(_index_of(event_, self._last), _objects.decode(event_["delta"]))
            case "content_block_start":
                self._begin(_index_of(event_, self._last + 1), _objects.decode(event_["content_block"]))
            case "message_start":
                self._message = _objects.decode(event_["message"])
                self._use(self._message.get("usage", _NULL))
            case "message_delta":
                self._message.update(_objects_or_null.decode(event_.get("delta", _NULL)) or {})
                self._use(event_.get("usage", _NULL))
                self._message.update(
                    {name: value for name, value in event_.items() if name not in {"type", "delta", "usage"}}
                )

    def _begin(self, index: int, begun: _RawObject) -> None:
        self._last = index
        block = self._latest[index] = _Block(begun)
        self._blocks.append((index, block))

    def _add(self, index: int, delta: _RawObject) -> None:
        """Add a delta to its block. Some servers do not send the beginning of a text or a thought."""
        if index not in self._latest:
            self._begin(index, {**_UNBEGUN[_strings.decode(delta["type"])]})
        self._latest[index].add(delta)

    def _use(self, usage: msgspec.Raw) -> None:
        add_usage(self._usage, _objects_or_null.decode(usage) or {}, _NO_COUNT)
