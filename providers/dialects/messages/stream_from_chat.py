"""Translates a stream of chat chunks into Messages events as it arrives."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.chat.deltas import (
    OF_CALLS,
    THINKS,
    ChunkTranslation,
    calls_in,
    delta_of,
    googles_in,
    no_place,
    pictures_in,
    said_in,
    signed_in,
    sound_in,
    string,
    usage_in,
)
from providers.dialects.chat.references import BESIDE, ChunkReferences, to_citation
from providers.dialects.dialect import Offered, check_none
from providers.dialects.events import CUT_SHORT, FILTERED, SHORT
from providers.dialects.messages.answers import ENDING, event
from providers.dialects.messages.fields import allowed_id
from providers.dialects.messages.toolsets import offered_members
from providers.dialects.partial_calls import PartialCalls
from providers.dialects.wording import NOBODYS, OF_CALL, OF_TEXT, REDACTED, SIGNED, UniqueIds, sealed_data, short_name
from providers.models import Usage

_STOP_REASONS: Mapping[str, str] = {  # any other reason becomes end_turn
    **dict.fromkeys(CUT_SHORT, "max_tokens"),
    **dict.fromkeys(FILTERED, "refusal"),
    "tool_calls": "tool_use",
    "function_call": "tool_use",
}
_DELTAS: Mapping[str, tuple[str, str]] = {  # by a block's type: the type of a delta, and the delta's field
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}


class FromChat(ChunkTranslation):
    """Translates one answer: every choice is a part of the answer, however the server numbers the choices.

    One block follows the other, as in Anthropic's streams. Reasoning becomes thinking, if the client has requested
    thinking. Otherwise reasoning is sent at the end if the answer has nothing else: other clients expect the text
    first. A signature of thinking is passed on (LiteLLM's ``thinking_blocks``, OpenRouter's ``reasoning_details``,
    Google's ``extra_content``). The text of a refusal becomes text. A server may report which stop sequence ended the
    answer (vLLM's ``stop_reason``): the report is passed on. Without a report the answer ends with end_turn.
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
        self._unshown: list[Mapping[str, Any]] = []  # sealed reasoning, if thinking is not asked for
        self._stops = _stops(asked)
        self._named = _named(asked)
        self._ids = UniqueIds(allowed_id, asked.get("messages", b""))
        self._new_id = new_id
        self._begun = False
        self._blocks = 0
        self._open: str | None = None  # the type of the open block
        self._hidden: list[str] = []  # thinking that is not shown, while the answer has nothing else
        self._calls = PartialCalls()
        self._call_open: int | None = None
        self._is_cut = False  # a call's arguments are not whole: everything else waits
        self._waiting: list[Mapping[str, Any]] = []  # deltas
        self._late: list[Mapping[str, Any]] = []  # signatures that came within a call: the call has to end first
        self._sealed = ""  # Google's signature of the message, which waits until the message's texts have ended
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
            UpstreamError: the source sent no finish reason, but an error in plain text.

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
        self._id = string(chunk.get("id")) or f"chatcmpl-{self._new_id()}"  # clients tell answers apart by the id
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
        """Add pieces of calls. Anything else within a call's arguments waits until the arguments are whole."""
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
        """Add all of a delta but the calls."""
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
        """Add references to the open block of text, or to the next text; other blocks have no place for references."""
        self._uncited += annotations
        if self._open == "text":
            for citation in map(to_citation, self._uncited):
                if citation is not None:
                    delta = {"type": "citations_delta", "citation": citation}
                    said.append(event("content_block_delta", {"index": self._blocks, "delta": delta}))
            self._uncited.clear()

    def _say(self, kind: str, text: str, said: list[bytes], *, apart: bool = False) -> None:
        """Send a piece of text or thinking in a block of its type: the open block, or a new one (``apart``)."""
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
        """Send the arguments of the current tool call; once that call is complete, those of the next calls."""
        while (current := self._calls.current()) is not None:
            number, call = current
            if self._call_open != number:
                self._seal(OF_TEXT, self._sealed, said)
                self._seal(OF_CALL, call.signature, said)
                for block in self._unshown:  # an agent sends thinking back; a reader of text expects the text first
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
            thought = "" if self._shows_thinking else whole  # blocks have the thoughts
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
        """Send Google's signature, if any: at the end of the thinking before it, or in a block without text."""
        if kind == OF_TEXT:
            self._sealed = ""
        # Without the signature of a call the model does not think on: an agent needs the signature, whether the request
        # asks for thinking or not.
        is_needed = kind == OF_CALL and not self._forbids_thinking
        if signature and (self._keeps_signatures or is_needed):
            self._sign({"type": SIGNED, "signature": f"{kind}:{signature}"}, said)

    def _sign(self, block: Mapping[str, Any], said: list[bytes]) -> None:
        """End a block of thinking with its signature. A block whose text was not streamed comes whole."""
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
            self._say_signature(block["signature"], said)
        self._close(said, is_signed=True)

    def _say_signature(self, signature: str, said: list[bytes]) -> None:
        delta = {"type": "signature_delta", "signature": signature}
        said.append(event("content_block_delta", {"index": self._blocks, "delta": delta}))

    def _open_block(self, kind: str, fields: Mapping[str, Any], said: list[bytes]) -> None:
        block = {"type": kind, **fields}
        said.append(event("content_block_start", {"index": self._blocks, "content_block": block}))
        self._open = kind
        self._hidden.clear()

    def _say_delta(self, text: str, said: list[bytes]) -> None:
        kind, field = _DELTAS[self._open or "text"]
        delta = {"type": kind, field: text}
        said.append(event("content_block_delta", {"index": self._blocks, "delta": delta}))

    def _close(self, said: list[bytes], *, is_signed: bool = False) -> None:
        if self._open == SIGNED and not is_signed:
            self._say_signature(NOBODYS, said)
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
        """Close the open block, unless it is a text. The stop reason is sent at the end, with the last usage.

        Some servers send usage with every chunk, and some even a finish reason: more text may follow, and references.
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
        elif reason in {"end_turn", "tool_use"}:  # some servers say stop for tool calls, or tool_calls without a call
            met_one = isinstance(met, str) and met in self._stops
            reason = "tool_use" if len(self._calls) else "stop_sequence" if met_one else "end_turn"
        if reason == "tool_use":  # else the arguments may have been cut off
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
        # Nothing may follow a text: programs take the last block for the answer, and Google needs no signature of a
        # text.
        if self._sealed and self._open != "text":
            self._seal(OF_TEXT, self._sealed, said)
        self._close(said)

    def _done(self, said: list[bytes]) -> None:
        if self._stop is not None and not self._ended:
            self._ended = True
            if self._hidden:  # an answer of thinking alone would be empty, so its thinking is shown
                self._say("thinking", "".join(self._hidden), said)
            self._close_all(said)
            if len(self._calls) and self._stop["stop_reason"] == "end_turn":  # the calls came behind the finish reason
                self._stop = {**self._stop, "stop_reason": "tool_use"}
            usage = self._usage or {"output_tokens": 0}  # SDKs need a count: 0 stands for unknown
            said += event("message_delta", {"delta": self._stop, "usage": usage}), ENDING


def _thinking(asked: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    """Return how the client has requested thinking; nothing if the request cannot be read."""
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
    """Return the client's names of tools by the names that were sent in chat, where these differ."""
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
    """Return chat's counts as Anthropic's: input excludes cached tokens. None without completion tokens.

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
