"""Translates a stream of chat chunks into Messages events as it arrives."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from providers.bodies import events
from providers.dialects.chat.deltas import (
    OF_CALLS,
    THINKS,
    CallNumbers,
    ChunkTranslation,
    calls_in,
    complaint,
    delta_of,
    googles_in,
    no_place,
    pictures_in,
    said_in,
    signed_in,
    sound_in,
    string,
    usage_in,
    written_arguments,
)
from providers.dialects.chat.references import BESIDE, ChunkReferences, of_citation, to_citation
from providers.dialects.dialect import Offered, check_none
from providers.dialects.events import (
    CUT_SHORT,
    DONE,
    DONE_EVENT,
    FILTERED,
    SHORT,
    Arguments,
    EarlyObject,
    chat_reason,
    is_empty_object,
)
from providers.dialects.messages.answers import ENDING, event
from providers.dialects.messages.events import add_usage, error_of_event, told_usage
from providers.dialects.messages.fields import allowed_id
from providers.dialects.messages.toolsets import offered_members
from providers.dialects.wording import (
    BLANK,
    OF_CALL,
    OF_TEXT,
    REDACTED,
    SIGNED,
    UniqueIds,
    arguments_object,
    sealed_data,
    short_name,
)
from providers.models import Usage, written_usage
from providers.refusals import SURPRISES, ErrorKind, UpstreamError

_OBJECTS = frozenset({"{", '"', "n"})  # the first characters of an object, one that is encoded twice, and null

# Tool calls between chat and Messages: chat may stream several at a time, Messages one after the other.


class PartialCall:
    """One tool call, and the part of its arguments that has not been sent yet."""

    def __init__(self) -> None:
        self.call_id = ""
        self.name = ""
        self.is_custom = False  # its argument is a text: it may be whole at any time, or go on
        self.signature = ""  # Google's, of the thoughts before it
        self._unsaid: list[str] = []
        self._arguments = Arguments()
        self._begin = ""  # their first character

    def add(self, piece: Mapping[str, Any]) -> None:
        """Add a piece of the call from a chunk; the name arrives in one piece."""
        custom = piece.get("custom")
        self.is_custom = self.is_custom or isinstance(custom, dict)
        called = custom if isinstance(custom, dict) else piece.get("function")
        called = called if isinstance(called, dict) else {}
        self.call_id = self.call_id or string(piece.get("id"))
        self.name = self.name or string(called.get("name"))
        if "extra_content" in piece:
            self.signature = googles_in(piece)
        if arguments := written_arguments(called.get("input" if self.is_custom else "arguments")):
            self._unsaid.append(arguments)
            self._arguments.pieces.append(arguments)
            self._begin = self._begin or arguments.lstrip(BLANK)[:1]

    def take(self, *, finished: bool = True) -> str:
        """Return the arguments that have not been sent yet, and count them as sent.

        What does not begin as an object is kept until it is whole: ``null`` is sent as an empty one, one that was
        encoded twice as what it is.
        """
        is_object = self.is_custom or self._begin in {"", "{"}
        if not (is_object or finished or self.is_whole()):
            return ""
        unsaid = "".join(self._unsaid)
        self._unsaid.clear()
        said = None if is_object or not unsaid.strip(BLANK) else arguments_object(unsaid)
        return unsaid if said is None else bytes(said).decode()

    def has_none(self) -> bool:
        """Whether there are no arguments: they are blank, ``null``, or one of both encoded as text."""
        return "".join(self._arguments.pieces).strip(BLANK + '"') in {"", "null"}

    def is_empty_object(self) -> bool:
        """Whether the arguments are an empty object."""
        return is_empty_object("".join(self._arguments.pieces))

    def is_whole(self) -> bool:
        """Whether the arguments are complete, so far as is known: one without any may get some, a text may go on."""
        return not self.is_custom and self._arguments.is_whole() and self._begin in _OBJECTS


class PartialCalls:
    """The tool calls of one answer, in the order of their beginnings. The first incomplete one is being sent."""

    def __init__(self) -> None:
        self._calls: list[PartialCall] = []
        self._numbers = CallNumbers()
        self._said = 0  # how many have been sent completely

    def add(self, piece: Mapping[str, Any], *, waits: bool) -> None:
        """Add a piece to its call, as ``CallNumbers`` finds it.

        ``waits``: what it keeps is only said at the end. Otherwise a call that grows behind it is not kept waiting.

        Raises:
            UpstreamError: that call has been sent completely (invalid_response).

        """
        number, each = self._numbers.say(piece)
        if not waits and self._numbers.is_behind(number):
            self.finish()
        self._add(number, each)

    def _add(self, number: int, piece: Mapping[str, Any]) -> None:
        if number == len(self._calls):
            self._calls.append(PartialCall())
        call = self._calls[number]
        call.add(piece)
        late = call.take().strip() if number < self._said else ""
        if late and not (is_empty_object(late) and call.is_empty_object()):  # else it is what was said
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, "continued a tool call that had ended")

    def finish(self) -> None:
        """Add what was kept of their arguments: they have ended."""
        for number, piece in self._numbers.rest():
            self._add(number, piece)

    def check(self) -> None:
        """Check at the end that every call could be sent.

        Raises:
            UpstreamError: one has no name (invalid_response).

        """
        if any(not call.name for call in self._calls):
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, "called a tool without a name")

    def without_arguments(self) -> list[PartialCall]:
        """Return the calls that have none."""
        return [call for call in self._calls if call.has_none()]

    def __len__(self) -> int:
        return len(self._calls)

    def has_rest(self) -> bool:
        """Whether there is a call that is not sent completely."""
        return self._said < len(self._calls)

    def are_cut(self) -> bool:
        """Whether the arguments of one of those are not complete."""
        return not all(call.is_whole() for call in self._calls[self._said :])

    def current(self) -> tuple[int, PartialCall] | None:
        """Return the number of the call to be sent now, and the call; None while it has no name."""
        if self._said < len(self._calls) and self._calls[self._said].name:
            return self._said, self._calls[self._said]
        return None

    def advance(self, *, finished: bool) -> bool:
        """Go on to the next call, if the current one is complete and a next one exists or will not come.

        ``finished``: the answer has ended, so every call counts as complete.
        """
        calls, said = self._calls, self._said
        if said < len(calls) and (finished or (said + 1 < len(calls) and calls[said].is_whole())):
            self._said += 1
            return True
        return False


_STOP_REASONS: Mapping[str, str] = {  # any other reason becomes end_turn
    **dict.fromkeys(CUT_SHORT, "max_tokens"),
    **dict.fromkeys(FILTERED, "refusal"),
    "tool_calls": "tool_use",
    "function_call": "tool_use",
}
_DELTAS: Mapping[str, tuple[str, str]] = {  # by a block's type, the type of its delta and the field in that
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}
_decoder = msgspec.json.Decoder(dict[str, Any])


class FromChat(ChunkTranslation):
    """Translates one answer: every choice is a part of it, however the server numbers them.

    One block follows the other, as in Anthropic's streams. Reasoning becomes thinking, with its signature if the server
    sends one (LiteLLM's ``thinking_blocks``, OpenRouter's ``reasoning_details``, Google's ``extra_content``), only if
    the client has requested thinking, or at the end if there is nothing else: other clients expect the text first. The
    text of a refusal becomes text. Where a server reports which stop sequence it met (vLLM's ``stop_reason``), that is
    passed on; otherwise such an answer ends with end_turn.
    """

    def __init__(
        self,
        asked: Mapping[str, msgspec.Raw],
        secrets: Sequence[str] = (),
        *,
        offered: Offered = lambda _: (),
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """``offered`` reads the tools of the request ``asked``; ``new_id`` makes ids where a server sends none."""
        super().__init__(asked, secrets, offered=offered)
        thinking = _thinking(asked)
        self._keeps_signatures = thinking.get("type", "disabled") != "disabled"
        self._shows_thinking = self._keeps_signatures and thinking.get("display") != "omitted"
        self._forbids_thinking = thinking.get("type") == "disabled"
        self._unshown: list[Mapping[str, Any]] = []  # what is sealed, where thinking is not asked for
        self._stops = _stops(asked)
        self._named = _named(asked)
        self._ids = UniqueIds(allowed_id, asked.get("messages", b""))
        self._new_id = new_id
        self._begun = False
        self._blocks = 0
        self._open: str | None = None  # the type of the block that is open
        self._hidden: list[str] = []  # thinking that is not shown, while there is nothing else
        self._calls = PartialCalls()
        self._call_open: int | None = None
        self._is_cut = False  # more of a call's arguments is to come: what is beside them waits
        self._waiting: list[Mapping[str, Any]] = []  # deltas
        self._late: list[Mapping[str, Any]] = []  # what was signed while a call is open, until that has ended
        self._sealed = ""  # Google's signature of the message, until its texts have ended
        self._id = ""
        self._references = ChunkReferences()
        self._uncited: list[Mapping[str, Any]] = []  # references for which there is no text yet
        self._refused = False
        self._stop: dict[str, Any] | None = None
        self._usage: dict[str, Any] | None = None

    @property
    def finishing(self) -> bool:
        """Whether there was a finish reason, and the message has no end yet."""
        return self._stop is not None and not self._ended

    def end(self) -> bytes:
        """Return the end of the message if the source sent a finish reason, but no [DONE].

        Raises:
            UpstreamError: it sent none, but an error by its message alone.

        """
        if self._stop is None:
            self._errors.check()
        said: list[bytes] = []
        self._done(said)
        return b"".join(said)

    def _take(self, chunk: Mapping[str, Any], choices: Sequence[Mapping[str, Any]], said: list[bytes]) -> None:
        if choices and not self._begun:
            self._begin(chunk, said)
        if (usage := usage_in(chunk)) and self._counted.take(usage, chunk) and self._counted.told is not None:
            self._usage = _messages_usage(self._counted.told) or self._usage
        if not BESIDE.isdisjoint(chunk):
            self._references.take(chunk)
        for choice in choices:
            if delta := delta_of(choice):
                if self._is_cut or delta.get("tool_calls"):
                    self._add_calls(delta, said)
                else:
                    self._add(delta, said)
            reason = choice.get("finish_reason")
            if reason and isinstance(reason, str) and (self._stop is None or reason in SHORT):
                self._finish(choice, said)

    def _begin(self, chunk: Mapping[str, Any], said: list[bytes]) -> None:
        self._begun = True
        self._id = string(chunk.get("id")) or f"chatcmpl-{self._new_id()}"  # clients tell answers apart by it
        message: dict[str, Any] = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": chunk.get("model") or "",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},  # chat sends usage at the end
        }
        said.append(event("message_start", {"message": message}))

    def _add_calls(self, delta: Mapping[str, Any], said: list[bytes]) -> None:
        """Add pieces of calls. Anything else within a call's arguments waits until they are whole."""
        if not self._is_cut:
            self._add(delta, said)
        elif any(value for name, value in delta.items() if name not in OF_CALLS):
            self._waiting.append(delta)
        for call in calls_in(delta) if delta.get("tool_calls") else ():
            self._calls.add(call, waits=False)
        self._say_calls(said, finished=False)
        self._is_cut = self._calls.are_cut()
        if not self._is_cut:
            self._add_waiting(said)

    def _add_waiting(self, said: list[bytes]) -> None:
        waiting, self._waiting = self._waiting, []
        for delta in waiting:
            self._add(delta, said)

    def _add(self, delta: Mapping[str, Any], said: list[bytes]) -> None:
        """Add all of a delta but its calls."""
        if pictures_in(delta):
            raise no_place("a picture", "the Messages API")
        if any(sound_in(delta)):
            raise no_place("sound", "the Messages API")
        text = delta.get("content") or ""
        thought, text = ("", text) if isinstance(text, str) and THINKS.isdisjoint(delta) else said_in(delta)
        signed, signature = signed_in(delta), ""
        if "extra_content" in delta or "reasoning_details" in delta:
            signature = googles_in(delta)
        if thought or signed or signature:
            self._think(thought, signed, signature, said)
        if text:
            self._say("text", text, said, apart="content_block" in delta)
        if refusal := delta.get("refusal"):
            self._refused = True
            self._say("text", refusal, said)
        if self._uncited or delta.get("annotations"):
            self._cite(self._references.annotations_in(delta), said)

    def _cite(self, annotations: Sequence[Mapping[str, Any]], said: list[bytes]) -> None:
        """Add references to the open block of text, or to the next one; others have no place for them."""
        self._uncited += annotations
        if self._open == "text":
            for citation in map(to_citation, self._uncited):
                if citation is not None:
                    delta = {"type": "citations_delta", "citation": citation}
                    said.append(event("content_block_delta", {"index": self._blocks, "delta": delta}))
            self._uncited.clear()

    def _say(self, kind: str, text: str, said: list[bytes], *, apart: bool = False) -> None:
        """Send a piece of text or thinking in the open block of its type, or in a new one: also if it is ``apart``."""
        if self._open == "tool_use":
            self._calls.finish()
            self._say_calls(said, finished=True)
        if self._sealed and self._open is None and kind == "text":
            self._seal(OF_TEXT, self._sealed, said)
        if self._open != kind or apart:
            self._close(said)
            empty = {"text": ""} if kind == "text" else {"thinking": "", "signature": ""}
            self._open_block(kind, empty, said)
        self._say_delta(text, said)

    def _say_calls(self, said: list[bytes], *, finished: bool) -> None:
        """Send the arguments of the current tool call, and of the next ones once it is complete."""
        while (current := self._calls.current()) is not None:
            number, call = current
            if self._call_open != number:
                self._seal(OF_TEXT, self._sealed, said)
                self._seal(OF_CALL, call.signature, said)
                for block in self._unshown:  # an agent goes on with it; who reads a text alone expects that first
                    self._sign(block, said)
                self._unshown.clear()
                self._close(said)
                call_id = self._ids.of_call(call.call_id or f"toolu_{self._id}_{number}")
                named = self._named.get(call.name) or {"name": call.name}
                self._open_block("tool_use", {"id": call_id, **named, "input": {}}, said)
                self._call_open = number
            if arguments := call.take(finished=finished):
                self._say_delta(arguments, said)
            if not self._calls.advance(finished=finished):
                break
            self._close(said)

    def _think(self, thought: str, signed: Sequence[Mapping[str, Any]], signature: str, said: list[bytes]) -> None:
        if self._open != SIGNED and (whole := "".join(string(block.get("thinking")) for block in signed)):
            thought = "" if self._shows_thinking else whole  # these have it
        if thought and self._shows_thinking:
            self._say("thinking", thought, said)
        elif thought and not self._blocks and self._open is None:
            self._hidden.append(thought)
        for block in signed:
            is_sealed = bool(sealed_data(block))
            if self._shows_thinking or (is_sealed and self._keeps_signatures):
                self._sign(block, said)
            elif is_sealed and not self._forbids_thinking:
                self._unshown.append(block)
        if signature:
            self._sealed = signature
            if self._open == SIGNED:
                self._seal(OF_TEXT, signature, said)

    def _seal(self, kind: str, signature: str, said: list[bytes]) -> None:
        """Say what Google has signed, if anything: at the end of the thinking before it, or in a block without text."""
        if kind == OF_TEXT:
            self._sealed = ""
        # Without what a call was signed with its model does not think on: an agent needs it, whether it asks or not.
        is_needed = kind == OF_CALL and not self._forbids_thinking
        if signature and (self._keeps_signatures or is_needed):
            self._sign({"type": SIGNED, "signature": f"{kind}:{signature}"}, said)

    def _sign(self, block: Mapping[str, Any], said: list[bytes]) -> None:
        """End a block of thinking with its signature. One whose text was not streamed is whole."""
        if self._open == "tool_use":
            self._late.append(block)
            return
        if block["type"] == REDACTED:
            self._close(said)
            self._open_block(REDACTED, {"data": block["data"]}, said)
        else:
            if self._open != SIGNED:
                self._close(said)
                self._open_block(SIGNED, {"thinking": "", "signature": ""}, said)
                if text := block.get("thinking"):
                    self._say_delta(text, said)
            delta = {"type": "signature_delta", "signature": block["signature"]}
            said.append(event("content_block_delta", {"index": self._blocks, "delta": delta}))
        self._close(said)

    def _open_block(self, kind: str, fields: Mapping[str, Any], said: list[bytes]) -> None:
        block = {"type": kind, **fields}
        said.append(event("content_block_start", {"index": self._blocks, "content_block": block}))
        self._open = kind
        self._hidden.clear()

    def _say_delta(self, text: str, said: list[bytes]) -> None:
        kind, field = _DELTAS[self._open or "text"]
        delta = {"type": kind, field: text}
        said.append(event("content_block_delta", {"index": self._blocks, "delta": delta}))

    def _close(self, said: list[bytes]) -> None:
        if self._open == "text" and self._references.beside:
            self._cite(self._references.rest(), said)
        if self._open is not None:
            said.append(event("content_block_stop", {"index": self._blocks}))
            self._open = None
            self._blocks += 1
            if self._late:
                late, self._late = self._late, []
                for block in late:
                    self._sign(block, said)

    def _finish(self, choice: Mapping[str, Any], said: list[bytes]) -> None:
        """Close the open block, but one of text. The stop reason is sent at the end, with the last usage.

        Some servers send one with every chunk, and some even a finish reason: more text may follow, and references.
        """
        self._end_calls(said)
        self._is_cut = False
        if self._waiting:
            self._add_waiting(said)
        if self._open != "text":
            self._close_all(said)
        reason = _STOP_REASONS.get(choice["finish_reason"], "end_turn")
        met = choice.get("stop_reason")
        if self._refused:
            reason = "refusal"
        elif reason in {"end_turn", "tool_use"}:  # some servers say stop for tool calls, or tool_calls without any
            met_one = isinstance(met, str) and met in self._stops
            reason = "tool_use" if len(self._calls) else "stop_sequence" if met_one else "end_turn"
        if reason == "tool_use":  # else its arguments may have been cut off
            for call in self._calls.without_arguments():
                named = self._named.get(call.name) or {"name": call.name}
                check_none(named["name"], self._tools, self._offered)
        self._stop = {"stop_reason": reason, "stop_sequence": met if reason == "stop_sequence" else None}

    def _end_calls(self, said: list[bytes]) -> None:
        self._calls.finish()
        self._say_calls(said, finished=True)
        self._calls.check()

    def _close_all(self, said: list[bytes]) -> None:
        self._end_calls(said)
        # Nothing may follow a text: programs take the last block for the answer, and Google needs no text's signature.
        if self._sealed and self._open != "text":
            self._seal(OF_TEXT, self._sealed, said)
        self._close(said)

    def _done(self, said: list[bytes]) -> None:
        if self._stop is not None and not self._ended:
            self._ended = True
            if self._hidden:  # an answer that has only thinking is shown as that: it would be empty
                self._say("thinking", "".join(self._hidden), said)
            self._close_all(said)
            usage = self._usage or {"output_tokens": 0}  # SDKs need a count: 0 stands for unknown
            said += event("message_delta", {"delta": self._stop, "usage": usage}), ENDING


def _thinking(asked: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    """Return how the client has requested thinking; nothing where that cannot be read."""
    try:
        return msgspec.json.decode(asked.get("thinking", b"null"), type=dict[str, Any] | None) or {}
    except (msgspec.DecodeError, RecursionError):
        return {}


def _stops(asked: Mapping[str, msgspec.Raw]) -> list[str]:
    try:
        return msgspec.json.decode(asked.get("stop_sequences", b"null"), type=list[str] | None) or []
    except msgspec.DecodeError:
        return []


def _named(asked: Mapping[str, msgspec.Raw]) -> Mapping[str, Mapping[str, str]]:
    """Return how the client names tools, by the names that were sent in chat where those are others."""
    if "tools" not in asked:
        return {}
    raw = asked["tools"]
    try:
        tools = msgspec.json.decode(raw, type=list[dict[str, Any]] | None) or []
    except (msgspec.DecodeError, RecursionError):
        return {}
    members = {each.function: {"name": each.name, "toolset_name": each.toolset} for each in offered_members(raw)}
    names = [name for tool in tools if isinstance(name := tool.get("name"), str)]
    return members | {short: {"name": name} for name in names if (short := short_name(name)) != name}


def _messages_usage(usage: Usage) -> dict[str, Any] | None:
    """Return chat's counts as Anthropic's, whose input excludes cached tokens; None without completion tokens.

    Servers that send usage with every chunk may begin without completion tokens.
    """
    if usage.completion_tokens is None:
        return None
    written, units = usage.cache_write_tokens, usage.units or {}
    said: dict[str, Any] = {}
    if usage.prompt_tokens is not None:
        said["input_tokens"] = max(usage.prompt_tokens - (usage.cached_tokens or 0) - (written or 0), 0)
    if written is not None:
        said["cache_creation_input_tokens"] = written
    if hour := units.get("cache_write_1h"):
        said["cache_creation"] = {"ephemeral_5m_input_tokens": max((written or 0) - hour, 0)}
        said["cache_creation"]["ephemeral_1h_input_tokens"] = hour
    if searches := units.get("web_search"):
        said["server_tool_use"] = {"web_search_requests": searches}
    if usage.cached_tokens is not None:
        said["cache_read_input_tokens"] = usage.cached_tokens
    said["output_tokens"] = usage.completion_tokens
    if usage.reasoning_tokens is not None:
        said["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    if usage.stated_usd is not None:
        said["cost"] = usage.stated_usd
    return said


# Translates a Messages stream into chat chunks as it arrives.

_NO_COUNT = (None, 0)


class ToChat:
    """Translates one answer. Thinking becomes ``reasoning_content``, a refusal's explanation ``refusal``.

    Once it is signed, all of it comes again with its signature, as one of LiteLLM's ``thinking_blocks``.

    The stop sequence that ended the answer is in the choice's ``stop_reason``, as with vLLM. Citations of pages become
    annotations. What chat does not have (citations of documents, calls of Anthropic's own tools) is left out. The usage
    chunk is missing only if the provider sent no usage.
    """

    finishing = False  # an end is passed on as soon as it comes

    def __init__(self, secrets: Sequence[str] = (), unix_s: Callable[[], float] = time.time) -> None:
        self._secrets = secrets
        self._unix_s = unix_s
        self._head = b""  # the beginning of every chunk, up to its choices
        self._id = ""
        self._last = -1  # the index of the block that began last
        self._usage: dict[str, Any] = {}
        self._calls = 0
        self._call_at: dict[int, int] = {}  # by a block's index, the index of its tool call in chat
        self._inputs: dict[int, str] = {}  # the arguments at a block's start, which count only if no deltas follow
        self._early: dict[int, EarlyObject] = {}  # of its deltas
        self._thoughts: dict[int, list[str]] = {}  # the text of blocks of thinking, which their signatures are of
        self._finish_reason: str | None = None
        self._ended = False

    @property
    def usage_so_far(self) -> Usage | None:
        """The usage that the message's events have reported."""
        return told_usage(self._usage) if self._usage else None

    def feed(self, block: bytes) -> bytes:
        """Translate whole events; return the chunks.

        Raises:
            UpstreamError: an event is malformed, or is the provider's error.

        """
        said = []
        for arrived in events(block):
            data = arrived.data.strip()
            if data == DONE:
                said.append(self.end())
            elif data:
                try:
                    said.append(self._chunks(data))
                except UpstreamError as error:
                    raise error.after(said) from None
                except SURPRISES as error:
                    message = f"sent an event that Messages does not have: {type(error).__name__}"
                    raise UpstreamError(ErrorKind.INVALID_RESPONSE, message).after(said) from None
        return b"".join(said)

    def end(self) -> bytes:
        """Return the usage and [DONE] if the source sent its stop reason, but no message_stop."""
        return b"" if self._ended or self._finish_reason is None else self._end()

    def _chunks(self, data: bytes) -> bytes:
        event = _decoder.decode(data)
        said = b""
        match event.get("type"):
            case "content_block_delta":
                said = self._delta(event.get("index", self._last), event["delta"])
            case "content_block_start":
                self._last = event.get("index", self._last + 1)
                said = self._start(self._last, event["content_block"])
            case "content_block_stop":
                said = self._rest_of(event.get("index", self._last))
            case "message_start":
                said = self._begin(event["message"])
            case "message_delta":
                said = self._change(event)
            case "message_stop":
                said = self.end()  # without a stop reason it has broken off: the reader of the chunks is told of no end
            case "error" | None if event.get("error"):
                raise error_of_event(data, self._secrets, otherwise=ErrorKind.STREAM_ERROR)
            case _:
                said = complaint(data)
        return said

    def _begin(self, message: Mapping[str, Any]) -> bytes:
        # What is sent here is not the answer's.
        self._use({**(message.get("usage") or {}), "output_tokens": None, "cost": None})
        self._id = message.get("id") or ""
        top = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": int(self._unix_s()),
            "model": message.get("model") or "",
        }
        self._head = b"data: " + msgspec.json.encode(top)[:-1] + b',"choices":['
        return self._chunk({"role": "assistant", "content": ""})

    def _start(self, index: int, block: Mapping[str, Any]) -> bytes:
        match block["type"]:
            case "text":
                return self._chunk({"content": block["text"]}) if block.get("text") else b""
            case "thinking":
                return self._think(index, block.get("thinking") or "")
            case "redacted_thinking" if block.get("data"):
                return self._chunk({"thinking_blocks": [{"type": REDACTED, "data": block["data"]}]})
            case "tool_use":
                number = self._call_at[index] = self._calls
                self._calls += 1
                self._inputs[index] = written_arguments(block.get("input")) or "{}"
                function = {"name": block["name"], "arguments": ""}
                call_id = block.get("id") or f"toolu_{self._id}_{number}"
                call = {"index": number, "id": call_id, "type": "function", "function": function}
                return self._chunk({"tool_calls": [call]})
            case _:
                return b""

    def _delta(self, index: int, delta: Mapping[str, Any]) -> bytes:
        match delta["type"]:
            case "text_delta":
                return self._chunk({"content": delta["text"]}) if delta["text"] else b""
            case "thinking_delta":
                return self._think(index, delta["thinking"] or "")
            case "signature_delta" if delta["signature"]:
                text = "".join(self._thoughts.pop(index, ()))
                signed = {"type": SIGNED, "thinking": text, "signature": delta["signature"]}
                return self._chunk({"thinking_blocks": [signed]})
            case "citations_delta":
                annotations = of_citation(delta["citation"])
                return self._chunk({"annotations": annotations}) if annotations else b""
            case "input_json_delta" if delta["partial_json"]:
                self._inputs.pop(index, None)
                early = self._early.setdefault(index, EarlyObject())
                return self._arguments(self._call_at.get(index), early.add(delta["partial_json"]))
            case _:
                return b""

    def _think(self, index: int, text: str) -> bytes:
        self._thoughts.setdefault(index, []).append(text)
        return self._chunk({"reasoning_content": text}) if text else b""

    def _arguments(self, number: int | None, piece: str) -> bytes:
        if number is None or not piece:
            return b""
        return self._chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})

    def _rest_of(self, index: int) -> bytes:
        """Return the arguments of a call that has ended, as far as they are not said."""
        early = self._early.pop(index, None)
        return self._arguments(self._call_at.get(index), self._inputs.pop(index, "") if early is None else early.end())

    def _change(self, event: Mapping[str, Any]) -> bytes:
        self._use(event.get("usage") or {})
        delta = event.get("delta") or {}
        reason = delta.get("stop_reason")
        if not reason or self._finish_reason is not None:
            return b""
        said = b""
        if explanation := (delta.get("stop_details") or {}).get("explanation"):
            said = self._chunk({"refusal": explanation})
        return said + self._finish(chat_reason(reason, calls=self._calls), delta.get("stop_sequence"))

    def _finish(self, reason: str, stop_sequence: str | None) -> bytes:
        begin = b"" if self._head else self._begin({})
        begin += b"".join(map(self._rest_of, [*self._inputs, *self._early]))
        self._finish_reason = reason
        choice: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": reason}
        if stop_sequence is not None:
            choice["stop_reason"] = stop_sequence
        return begin + self._head + msgspec.json.encode(choice) + b"]}\n\n"

    def _end(self) -> bytes:
        self._ended = True
        told = told_usage(self._usage)
        if told.completion_tokens is None:
            return DONE_EVENT
        return self._head + b'],"usage":' + msgspec.json.encode(written_usage(told)) + b"}\n\n" + DONE_EVENT

    def _use(self, usage: Mapping[str, Any]) -> None:
        add_usage(self._usage, {name: count for name, count in usage.items() if count is not None}, _NO_COUNT)

    def _chunk(self, delta: Mapping[str, Any]) -> bytes:
        begin = b"" if self._head else self._begin({})  # some servers send no message_start
        return (
            begin + self._head + b'{"index":0,"delta":' + msgspec.json.encode(delta) + b',"finish_reason":null}]}\n\n'
        )
