"""Whole chat completions as event streams, and the last event of a stream that ends or breaks off.

Some servers answer a request for a stream with one JSON body, and some deployments cannot stream. Gathering these
events gives the same answer: every field of the answer, of its choices and of their messages is kept byte for byte.
"""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from providers.dialects.chat.deltas import CallNumbers, usage_after
from providers.dialects.chat.references import BESIDE
from providers.dialects.events import (
    DONE_EVENT,
    ENTRY,
    TOKENS,
    Chunk,
    Entries,
    FieldTable,
    Gathering,
    Join,
    Pattern,
    Run,
    few,
    index_of,
    join,
    join_entries,
    no_answer,
    whole,
)
from providers.dialects.meanings import Details
from providers.refusals import SURPRISES, ErrorKind, UpstreamError, read_answer

ENDING = DONE_EVENT

_Object = dict[str, msgspec.Raw]

_objects = msgspec.json.Decoder(_Object)
_lists = msgspec.json.Decoder(list[_Object])

_NULL = msgspec.Raw(b"null")
_EMPTY_OBJECT = msgspec.Raw(b"{}")
_STOP = msgspec.Raw(b'"stop"')
_CHUNK = msgspec.Raw(b'"chat.completion.chunk"')
# GPT-5 answers so with 400, where the limit leaves no room for one visible token. With little more room GPT-5 answers,
# and ends with "length": BerriAI/litellm/issues/35061, nextlevelbuilder/goclaw/issues/245, read on 2026-12-01.
_NO_ROOM = re.compile(
    r"could not finish the message because max_tokens or model output limit was reached", re.IGNORECASE
)
_NO_TEXT = {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "length"}
_NOT_BEGUN = frozenset({"message", "delta", "finish_reason", "native_finish_reason"})  # sent as a delta, or at the end


def failure(kind: str, message: str, _: Details = (), __: str | None = None) -> bytes:
    """Return the event of an error; no [DONE] follows, so that SDKs raise instead of returning half an answer."""
    body = {"message": message, "type": "upstream_error", "param": None, "code": kind}
    return b"data: " + msgspec.json.encode({"error": body}) + b"\n\n"


def answer_of_refusal(refusal: str, model: str) -> bytes | None:
    """Return the empty chat completion for which a ``refusal`` stands: the limit left no room for text.

    None: the refusal says something else.
    """
    if _NO_ROOM.search(refusal) is None:
        return None
    said = {"id": f"chatcmpl-{uuid4().hex}", "object": "chat.completion", "created": int(time.time()), "model": model}
    return msgspec.json.encode({**said, "choices": [_NO_TEXT]})


def events_of_answer(body: bytes, secrets: Sequence[str] = ()) -> bytes:
    """Return a chat completion as stream events: its messages, their ends, the usage, ``[DONE]``.

    Raises:
        UpstreamError: as ``read_answer``; also when the answer has no choices (invalid_response).

    """
    answer = read_answer(body, secrets)
    try:
        choices = few(_lists.decode(answer.pop("choices", _EMPTY_OBJECT)), "choices")
        deltas = [_with_delta(choice) for choice in choices]
    except msgspec.ValidationError:
        raise no_answer(body, "a chat completion", secrets) from None
    answer["object"] = _CHUNK
    return events_of(answer, deltas, choices, {"delta": _EMPTY_OBJECT})


def events_of(
    answer: dict[str, msgspec.Raw],
    begun: Sequence[Mapping[str, Any]],
    choices: Sequence[Mapping[str, msgspec.Raw]],
    nothing: Mapping[str, msgspec.Raw],
) -> bytes:
    """Return the events of an ``answer``: its choices as ``begun``, their ends, the usage, ``[DONE]``.

    ``nothing``: the fields of a choice at its end. A whole answer has a finish reason, whatever the answer says.
    """
    ends = []
    for choice, said in zip(choices, begun, strict=True):
        reason = choice.get("finish_reason", _NULL)
        end = {"index": said["index"], **nothing, "finish_reason": _STOP if reason == _NULL else reason}
        if (native := choice.get("native_finish_reason")) is not None:
            end["native_finish_reason"] = native
        ends.append(end)
    usage = answer.pop("usage", _NULL)
    stream = [*_event(answer, begun), *_event(answer, ends)]
    if usage != _NULL:
        stream += _event({**answer, "usage": usage}, [])
    stream.append(ENDING)
    return b"".join(stream)  # once: the answer may be large


def _with_delta(choice: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    """Return a choice as in its first chunk: its message as a delta, its tool calls numbered, no finish reason."""
    rest = {name: value for name, value in choice.items() if name not in _NOT_BEGUN}
    message = _objects.decode(choice.get("message", choice.get("delta", _EMPTY_OBJECT)))
    if (calls := message.get("tool_calls", _NULL)) != _NULL:
        numbered = [
            {"index": msgspec.Raw(b"%d" % i), **call} for i, call in enumerate(few(_lists.decode(calls), "tool calls"))
        ]
        message["tool_calls"] = msgspec.Raw(msgspec.json.encode(numbered))
    return {"index": msgspec.Raw(b"0"), **rest, "delta": message, "finish_reason": _NULL}


def _event(top: Mapping[str, msgspec.Raw], choices: Sequence[Mapping[str, Any]]) -> tuple[bytes, bytes, bytes]:
    data = msgspec.json.encode({**top, "choices": choices})
    if b"\n" in data or b"\r" in data:  # raw JSON may be pretty-printed; an event's data is one line
        data = msgspec.json.format(data, indent=-1)
    return b"data: ", data, b"\n\n"


# Gathers a stream of chunks into one chat completion. Choices are merged by index, tool calls as ``CallNumbers`` finds
# them, and all other fields by these tables. Content keeps its order, texts and typed parts.

DELTA = FieldTable({**ENTRY.fields, "audio": FieldTable({**ENTRY.fields, "data": Join.BASE64})})
CHOICE = FieldTable(
    {"delta": DELTA, "message": DELTA, "logprobs": TOKENS, "text": Join.TEXT, "token_ids": Join.LIST}, Join.LAST
)
CHUNK = FieldTable(
    {
        "logprobs": TOKENS,
        "token_ids": Join.LIST,
        **dict.fromkeys(BESIDE, Join.SET),  # some servers send all of these each time, some only new ones
    },
    Join.LAST,
)

_OF_CHUNKS = frozenset({"choices", "obfuscation"})  # no fields of the answer: OpenAI pads its chunks to one length


class _PlainDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    content: str
    role: str | None = None


class _PlainChoice(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    delta: _PlainDelta
    index: int = 0
    logprobs: None = None
    finish_reason: None = None


class _PlainChunk(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A chunk that only adds text, as nearly all chunks of a stream do."""

    choices: list[_PlainChoice]
    id: str = ""
    object: str = ""
    created: float = 0
    model: str = ""
    system_fingerprint: str | None = None
    service_tier: str | None = None
    obfuscation: str | None = None
    usage: None = None


_PLAIN = msgspec.json.Decoder(_PlainChunk)
_anything = msgspec.json.Decoder()  # made once, as is the encoder: each call would check its options
_encoder = msgspec.json.Encoder(enc_hook=whole)


class ChatGathering(Gathering):
    """Makes one ``chat.completion``."""

    def __init__(self) -> None:
        self._answer: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._texts: dict[int, list[str]] = {}
        self._calls: dict[int, CallNumbers] = {}  # by choice, the numbers of its tool calls
        self._pattern: Pattern | None = None  # of the last plain events
        self._choice: int | None = None  # the choice to which plain events add text; None: these events do more

    def take(self, chunk: Chunk) -> None:
        """Merge a chunk.

        Raises:
            UpstreamError: the data are valid JSON, but no chunk of a chat completion (invalid_response).

        """
        try:
            # The first chunk is always merged in full: it has the fields that plain chunks only repeat.
            if not (chunk.meaningful and self._answer and self._add_plain(chunk.data)):
                self._merge(_anything.decode(chunk.data))
        except SURPRISES as error:
            message = f"sent an invalid chunk: {type(error).__name__}"
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, message) from None

    def take_run(self, run: Run, pattern: Pattern) -> bool:
        """Add the texts of plain events at once, if the pattern's example adds text to one known choice."""
        if pattern is not self._pattern:
            plain = _plain(pattern.example.data)
            self._pattern = pattern
            self._choice = (
                None if plain is None or len(plain.choices) != 1 else 0 if self.single else plain.choices[0].index
            )
        if self._choice not in self._choices:
            return False
        self._texts.setdefault(self._choice, []).append(run.text())
        return True

    def body(self) -> bytes:
        """Return the whole answer as JSON."""
        choices = []
        for index in sorted(self._choices):
            choice = self._choices[index]
            message = choice.setdefault("message", {})
            for number, piece in self._calls[index].rest() if index in self._calls else ():
                _merge_tool_call(message["tool_calls"], number, piece)
            if isinstance(message.get("content"), Entries):
                self._add_text(index, message)
            elif text := "".join(self._texts.pop(index, ())):
                message["content"] = text
            for call in message.get("tool_calls") or ():
                call.pop("index", None)  # an index is for streams only
            message["role"] = message.get("role") or "assistant"  # "" in every chunk of some servers
            message.setdefault("content", None)
            # Sound may end without a finish reason, as OpenAI's does: all other answers without one have broken off.
            choice["finish_reason"] = choice.get("finish_reason") or ("stop" if message.get("audio") else None)
            if isinstance(usage := choice.pop("usage", None), dict):  # where Moonshot puts usage in streams
                self._answer.setdefault("usage", usage)
            choices.append(choice)
        answer = {**self._answer, "object": "chat.completion", "choices": choices}
        return _encoder.encode(answer)

    def _add_text(self, index: int, message: dict[str, Any]) -> None:
        """Add the text so far, at the end of the parts if there are any."""
        if text := "".join(self._texts.pop(index, ())):
            if isinstance(parts := message.get("content"), Entries):
                join_entries(parts, [{"type": "text", "text": text}])
            else:
                message["content"] = text

    def _add_plain(self, data: bytes) -> bool:
        """Add the texts of a chunk; return False if it has other fields, or text of a choice not seen before."""
        plain = _plain(data)
        if plain is None or not all(self.single or choice.index in self._choices for choice in plain.choices):
            return False
        for choice in plain.choices:
            self._texts.setdefault(0 if self.single else choice.index, []).append(choice.delta.content)
        return True

    def _merge(self, chunk: dict[str, Any]) -> None:
        for key, value in chunk.items():
            before = self._answer.get(key)
            if key in CHUNK.fields:
                join(self._answer, key, value, CHUNK)
            elif key not in _OF_CHUNKS and (before is None or (value is not None and value != "")):  # as ``join`` does
                is_more = key == "usage" and isinstance(before, dict) and isinstance(value, dict)
                self._answer[key] = usage_after(before, value) if is_more else value
        for piece in chunk.get("choices") or ():
            index = 0 if self.single else index_of(piece)
            choice = self._choices.setdefault(index, {"index": index, "message": {}})
            few(self._choices, "choices")
            for key, value in piece.items():
                if key == "delta":
                    if value:
                        self._merge_delta(index, choice["message"], value)
                elif value is not None and key in CHOICE.fields:
                    join(choice, key, value, CHOICE)
                elif key != "index" and (choice.get(key) is None or (value is not None and value != "")):
                    choice[key] = value

    def _merge_delta(self, index: int, message: dict[str, Any], delta: dict[str, Any]) -> None:
        for key, value in delta.items():
            if key == "content" and isinstance(value, str):
                self._texts.setdefault(index, []).append(value)
                message.setdefault("content", "")
            elif key == "content" and isinstance(value, list | dict):
                self._add_text(index, message)
                if not isinstance(parts := message.get("content"), Entries):
                    parts = message["content"] = Entries([{"type": "text", "text": parts}] if parts else ())
                join_entries(parts, value if isinstance(value, list) else [value])
            elif key == "tool_calls" and value is not None:
                calls = message.get("tool_calls")
                if not isinstance(calls, list):
                    calls = message["tool_calls"] = []
                numbers = self._calls.setdefault(index, CallNumbers())
                for call in value if isinstance(value, list) else [value]:  # some servers send no list around the call
                    _merge_tool_call(calls, *numbers.say(call))
                few(calls, "tool calls")
            elif key == "role":  # the same each time
                message[key] = value or message.get(key)
            else:
                join(message, key, value, DELTA)


def _plain(data: bytes) -> _PlainChunk | None:
    try:
        return _PLAIN.decode(data)
    except msgspec.ValidationError:
        return None


def _merge_tool_call(calls: list[dict[str, Any]], number: int, piece: Mapping[str, Any]) -> None:
    """Add a piece to the call with its ``number``; this may be the next number."""
    while number >= len(calls):
        calls.append({})
    for key, value in piece.items():
        join(calls[number], key, value, ENTRY)
