"""Converse's answers as chat chunks: a stream's messages as they arrive, or a whole answer."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.chat.deltas import no_place
from providers.dialects.chat.references import of_converse
from providers.dialects.converse.frames import FrameMessage
from providers.dialects.events import (
    DONE_EVENT,
    EarlyObject,
    Pieces,
    chat_reason,
    ended_with,
    few,
    fit,
    is_unread,
    no_answer,
)
from providers.dialects.wording import REDACTED, SIGNED
from providers.models import Usage, tier_of, written_usage
from providers.refusals import (
    SURPRISES,
    UNREADABLE,
    ErrorKind,
    UpstreamError,
    error_in,
    identifier,
    kind_of_status,
    read_answer,
)

# The model's answer, or its last call, could not be read. This is an error unless something came before, and before a
# call another call. A client of a stream has pieces of such a call, which only an error takes back.
_MALFORMED = frozenset({"malformed_model_output", "malformed_tool_use"})
# The HTTP statuses of the errors in botocore's description of the service, without "Exception", in lower case.
_STATUSES: Mapping[str, int] = {
    "accessdenied": 403,
    "internalserver": 500,
    "modelerror": 424,
    "modelnotready": 429,
    "modelstreamerror": 424,
    "modeltimeout": 408,
    "resourcenotfound": 404,
    "serviceunavailable": 503,
    "throttling": 429,
    "validation": 400,
}
_ITSELF = frozenset({400, 403, 404, 429})  # for these statuses the kind says more than that a stream has failed


class _ToolPiece(msgspec.Struct, gc=False):
    input: str | None = None


class _Thought(msgspec.Struct, gc=False):
    text: str | None = None
    signature: str | None = None
    redactedContent: str | None = None  # noqa: N815 - Converse's name


class _Source(msgspec.Struct, gc=False):
    bytes: str = ""  # Base64


class _ImagePiece(msgspec.Struct, gc=False):
    source: _Source | None = None
    error: Any = None


class _Delta(msgspec.Struct, gc=False):
    text: msgspec.Raw = msgspec.Raw()  # passed on unchanged
    citation: Any = None
    image: _ImagePiece | None = None
    toolUse: _ToolPiece | None = None  # noqa: N815 - Converse's name
    reasoningContent: _Thought | None = None  # noqa: N815 - Converse's name


class _Life(msgspec.Struct, gc=False):
    """Tokens that were written to the cache, and how long the cache keeps them."""

    ttl: str = ""
    inputTokens: int = 0  # noqa: N815 - Converse's name


class _DeltaEvent(msgspec.Struct, gc=False):
    delta: _Delta
    contentBlockIndex: int = 0  # noqa: N815 - Converse's name


_deltas = msgspec.json.Decoder(_DeltaEvent)
_objects = msgspec.json.Decoder(dict[str, Any])


class ConverseToChat:
    """Translates one answer. ``feed`` returns the chunks before an error; the error is raised by the next call.

    Reasoning becomes ``reasoning_content``, with its signature ``thinking_blocks``; a picture becomes one of
    ``images``. Parts that chat does not have (tools that run at Bedrock) are left out.
    """

    def __init__(
        self,
        model: str,
        answer_id: str,
        secrets: Sequence[str] = (),
        unix_s: Callable[[], float] = time.time,
        *,
        cites: bool = False,
    ) -> None:
        """``cites``: the request asks for citations; all citations are of one block's text."""
        self._secrets = secrets
        self._cites = cites
        top = {"id": answer_id, "object": "chat.completion.chunk", "created": int(unix_s()), "model": model}
        self._head = b"data: " + msgspec.json.encode(top)[:-1] + b',"choices":['
        self._texts = self._head + b'{"index":0,"delta":{"content":'
        self._begun = False
        self._calls: dict[int, int] = {}  # by a block's index, the index of its tool call in chat
        self._early: dict[int, EarlyObject] = {}  # of open blocks of calls
        self._silent: set[int] = set()  # open blocks of calls without arguments so far
        self._pictures: dict[int, tuple[str, list[str]]] = {}  # by a block's index: the format, and pieces in Base64
        self._thoughts: dict[int, list[str]] = {}  # the text of thoughts, by a block's index
        self._written: list[str] | None = None  # the arguments of the last call
        self._text_block: int | None = None  # the index of the last block of text
        self._spoken = False  # the answer has said something besides thoughts and calls
        self._finished = False
        self._ended = False
        self.usage: Usage | None = None
        self._failure: UpstreamError | None = None

    @property
    def finished(self) -> bool:
        """Whether the answer has its end, or its stop reason."""
        return self._finished

    def feed(self, messages: Iterable[FrameMessage]) -> bytes:
        """Return the chunks of ``messages``.

        Raises:
            UpstreamError: a message is malformed, or is the provider's error.

        """
        if self._failure is not None:
            raise self._failure
        said: list[bytes] = []
        try:
            said.extend(map(self._chunks, messages))
        except UpstreamError as error:
            if not any(said):
                raise
            self._failure = error
        return b"".join(said)

    def end(self) -> bytes:
        """Return the usage and [DONE] at the stream's end; nothing if the stream broke off before its stop reason."""
        if self._failure is not None:
            raise self._failure
        if self._ended or not self._finished:
            return b""
        self._ended = True
        if self.usage is None:
            return DONE_EVENT
        return self._head + b'],"usage":' + msgspec.json.encode(written_usage(self.usage)) + b"}\n\n" + DONE_EVENT

    def _chunks(self, message: FrameMessage) -> bytes:
        headers = message.headers
        name = headers.get(":event-type", "")
        if headers.get(":message-type") != "event" or name.endswith("xception"):
            raise failure_in(message, self._secrets)
        try:
            if name == "contentBlockDelta":  # nearly all events
                return self._delta(message.payload)
            return self._beside(name, _objects.decode(message.payload))
        except SURPRISES as error:
            problem = f"sent an event that Converse does not have: {type(error).__name__}"
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, problem) from None

    def _beside(self, name: str, event: Mapping[str, Any]) -> bytes:
        """Return the chunks of an event that is no delta."""
        said = b""
        match name:
            case "messageStart":
                said = self._begin()
            case "contentBlockStart":
                said = self._start(event)
            case "contentBlockStop":
                said = self._stop(event.get("contentBlockIndex", 0))
            case "messageStop":
                said = self._finish(event["stopReason"])
            case "metadata":
                tier = event.get("serviceTier")
                self.usage = usage_of(event.get("usage"), tier.get("type") if isinstance(tier, dict) else tier)
                said = self.end()
        return said

    def _delta(self, payload: bytes) -> bytes:
        event = _deltas.decode(payload)
        delta = event.delta
        text = bytes(delta.text)
        if text:
            if not text.startswith(b'"'):
                raise TypeError
            if text == b'""':
                return b""
            self._spoken = True
            if self._cites and event.contentBlockIndex != self._text_block:
                before, self._text_block = self._text_block, event.contentBlockIndex
                if before is not None:  # the pivot's own field, not chat's
                    text += b',"content_block":%d' % event.contentBlockIndex
            return self._said(self._texts + text + b'},"finish_reason":null}]}\n\n')
        if delta.toolUse is not None:
            number = self._calls.get(event.contentBlockIndex)
            piece = self._early[event.contentBlockIndex].add(delta.toolUse.input or "") if number is not None else ""
            if number is None or not piece:
                return b""
            self._silent.discard(event.contentBlockIndex)
            return self._arguments(number, piece)
        if delta.citation is not None:
            return self._cite(delta.citation)
        if delta.image is not None:
            self._add_to_picture(event.contentBlockIndex, delta.image)
        return b"" if delta.reasoningContent is None else self._think(event.contentBlockIndex, delta.reasoningContent)

    def _cite(self, citation: Any) -> bytes:
        annotations = of_converse(citation)
        return self._chunk({"annotations": annotations}) if annotations else b""

    def _think(self, place: int, thought: _Thought) -> bytes:
        """Return a thought's text; a signed or encrypted thought comes whole, as one of ``thinking_blocks``."""
        if thought.text:
            self._thoughts.setdefault(place, []).append(thought.text)
            return self._chunk({"reasoning_content": thought.text})
        if thought.signature:
            text = "".join(self._thoughts.pop(place, ()))
            return self._chunk(
                {"thinking_blocks": [{"type": SIGNED, "thinking": text, "signature": thought.signature}]}
            )
        if thought.redactedContent:
            return self._chunk({"thinking_blocks": [{"type": REDACTED, "data": thought.redactedContent}]})
        return b""

    def _add_to_picture(self, place: int, piece: _ImagePiece) -> None:
        if piece.error:
            raise UpstreamError(ErrorKind.STREAM_ERROR, "the answer's picture could not be made")
        picture = self._pictures.setdefault(place, ("png", []))
        picture[1].append(piece.source.bytes if piece.source is not None else "")

    def _start(self, event: Mapping[str, Any]) -> bytes:
        start = event.get("start") or {}
        if (picture := start.get("image")) is not None:
            self._pictures[event.get("contentBlockIndex", 0)] = (picture.get("format") or "png", [])
        tool = start.get("toolUse")
        if not tool or tool.get("type") == "server_tool_use":
            return b""
        place = event.get("contentBlockIndex", 0)
        number = self._calls[place] = len(self._calls)
        self._early[place] = EarlyObject()
        self._silent.add(place)
        self._written = []
        function = {"name": tool["name"], "arguments": ""}
        return self._chunk(
            {"tool_calls": [{"index": number, "id": tool["toolUseId"], "type": "function", "function": function}]}
        )

    def _stop(self, place: int) -> bytes:
        """Return the arguments of a call that had none, or a picture."""
        if place in self._pictures:
            form, pieces = self._pictures.pop(place)
            self._spoken = True
            url = f"data:image/{form};base64,{Pieces(pieces, is_base64=True).joined()}"
            return self._chunk({"images": [{"type": "image_url", "image_url": {"url": url}}]})
        if place not in self._silent:
            return b""
        self._silent.discard(place)
        return self._arguments(self._calls[place], self._early[place].end() or "{}")

    def _finish(self, reason: str) -> bytes:
        is_answer = self._spoken if self._written is None else _are_arguments(self._written)
        if reason in _MALFORMED and (not is_answer or (not self._calls and is_unread(reason, after_text=True))):
            raise ended_with(reason)
        if self._finished:
            return b""
        self._finished = True
        choice = {"index": 0, "delta": {}, "finish_reason": chat_reason(reason, calls=self._calls)}
        return self._said(self._head + msgspec.json.encode(choice) + b"]}\n\n")

    def _arguments(self, number: int, piece: str) -> bytes:
        if self._written is not None and number == len(self._calls) - 1:
            self._written.append(piece)
        return self._chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})

    def _chunk(self, delta: Mapping[str, Any]) -> bytes:
        return self._said(
            self._head + b'{"index":0,"delta":' + msgspec.json.encode(delta) + b',"finish_reason":null}]}\n\n'
        )

    def _said(self, chunk: bytes) -> bytes:
        return chunk if self._begun else self._begin() + chunk

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return self._head + b'{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'


def exception_in(message: FrameMessage, secrets: Sequence[str]) -> UpstreamError | None:
    """Return the error for which a message of a Bedrock stream stands; None: the message is an event."""
    name = message.headers.get(":event-type", "")
    is_event = message.headers.get(":message-type") == "event" and not name.endswith("xception")
    return None if is_event else failure_in(message, secrets)


def failure_in(message: FrameMessage, secrets: Sequence[str]) -> UpstreamError:
    """Return the error in an exception, of the service's model, or in an error, of the stream itself."""
    headers = message.headers
    name = headers.get(":exception-type") or headers.get(":event-type") or headers.get(":error-code") or "error"
    payload = message.payload
    if told := headers.get(":error-message"):
        payload = msgspec.json.encode({"message": told})
    status = _STATUSES.get(name.lower().removesuffix("exception"))
    kind = kind_of_status(status) if status in _ITSELF else ErrorKind.STREAM_ERROR
    error = error_in(payload, secrets, otherwise=kind)
    if not payload.strip() or payload.strip() == b"{}":
        error.message = f"the stream ended with {identifier(name) or 'an error'}"
    error.status = error.status or status
    return error


def events_of_converse(body: bytes, to_chat: ConverseToChat, secrets: Sequence[str] = ()) -> bytes:
    """Return a whole Converse answer as chat chunks.

    Raises:
        UpstreamError: as ``read_answer``; also if the body is no answer of Converse's (invalid_response).

    """
    answer = read_answer(body, secrets)
    try:
        blocks = msgspec.json.decode(answer["output"], type=_Output).message.content
        events: list[tuple[str, dict[str, Any]]] = [("messageStart", {})]
        reason = msgspec.json.decode(answer["stopReason"], type=str)
        if reason in _MALFORMED and few(blocks, "blocks") and not _is_read(blocks[-1]):
            del blocks[-1]
        for place, block in enumerate(few(blocks, "blocks")):
            events += _events_of_block(place, block)
        events.append(("messageStop", {"stopReason": reason}))
        events.append(("metadata", {name: answer[name] for name in ("usage", "serviceTier") if name in answer}))
    except SURPRISES:
        raise no_answer(body, "Converse's", secrets) from None
    messages = [
        FrameMessage({":message-type": "event", ":event-type": name}, msgspec.json.encode(event))
        for name, event in events
    ]
    said = to_chat.feed(messages)
    return said + to_chat.end()


def _is_read(block: Mapping[str, Any]) -> bool:
    """Whether an answer whose end could not be read ends with a block that is no call, or a call that could be read."""
    tool = block.get("toolUse")
    return tool is None or bool(fit(tool.get("input"), dict[str, Any]))


def _are_arguments(pieces: Sequence[str]) -> bool:
    try:
        return bool(_objects.decode("".join(pieces)))
    except UNREADABLE:
        return False


class _Message(msgspec.Struct):
    content: list[dict[str, Any]]


class _Output(msgspec.Struct):
    message: _Message


def _events_of_block(place: int, block: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    start: dict[str, Any] = {}
    deltas: list[dict[str, Any]] = []
    match block:
        case {"text": str(text)}:
            deltas = [{"text": text}]
        case {"toolUse": {"input": arguments, **tool}}:
            start = {"toolUse": tool}
            deltas = [{"toolUse": {"input": msgspec.json.encode(arguments).decode()}}]
        case {"reasoningContent": {"reasoningText": {"text": str(thought), "signature": str(signature)}}} if signature:
            deltas = [{"reasoningContent": {"text": thought}}, {"reasoningContent": {"signature": signature}}]
        case {"reasoningContent": {"reasoningText": {"text": str(thought)}}}:
            deltas = [{"reasoningContent": {"text": thought}}]
        case {"reasoningContent": {"redactedContent": str(data)}}:
            deltas = [{"reasoningContent": {"redactedContent": data}}]
        case {"citationsContent": {"content": list(pieces), **more}}:
            deltas = [{"text": "".join(piece.get("text") or "" for piece in pieces)}]
            deltas += [
                {"citation": each}
                for each in few(fit(more.get("citations"), list[Any]) or (), "citations of one block")
            ]
        case {"image": {"format": form, "source": source}}:
            start, deltas = {"image": {"format": form}}, [{"image": {"source": source}}]
        case {"audio": _} | {"document": _} | {"video": _}:
            raise no_place(f"a file ({', '.join(block)})", "chat completions")
    at = {"contentBlockIndex": place}
    return [
        *([("contentBlockStart", {"start": start, **at})] if start else []),
        *(("contentBlockDelta", {"delta": delta, **at}) for delta in deltas),
        ("contentBlockStop", at),
    ]


def usage_of(told: Any, tier: Any = None) -> Usage | None:
    """Return Converse's counts as ours: Converse's input leaves out tokens that the cache gave, or that it got."""
    if not isinstance(told, dict) or not isinstance(told.get("inputTokens"), int):
        return None
    names = ("outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
    completion, read, written = (count if isinstance(count := told.get(name), int) else None for name in names)
    prompt = told["inputTokens"] + (read or 0) + (written or 0)
    hour = sum(life.inputTokens for life in fit(told.get("cacheDetails"), list[_Life]) or () if life.ttl == "1h")
    units = {"cache_write_1h": hour} if hour else None
    return Usage(prompt, completion, None, read, written, tier_of(tier), units)
