"""Translates a stream of chat chunks into Messages events as it arrives."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.chunk import DONE
from providers.dialects.messages.answers import ENDING, event
from providers.dialects.messages.tool_blocks import Calls
from providers.dialects.messages.tool_ids import allowed_id
from providers.dialects.tool_names import short_name
from providers.error_bodies import error_in
from providers.errors import ErrorKind, UpstreamError
from providers.sse import events
from providers.usage import usage_of

_STOP_REASONS: Mapping[str, str] = {  # any other reason becomes end_turn
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_DELTAS: Mapping[str, tuple[str, str]] = {  # by a block's type, the type of its delta and the field in that
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}
_decoder = msgspec.json.Decoder(dict[str, Any])
_SURPRISES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError, TypeError, KeyError)


class FromChat:
    """Translates one answer: its first choice. One block follows the other, as in Anthropic's streams.

    Reasoning becomes thinking, without a signature, only if the client has requested thinking: other clients expect the
    text first. The text of a refusal becomes text. Where a server reports which stop sequence it met (vLLM's
    ``stop_reason``), that is passed on; otherwise such an answer ends with end_turn.
    """

    def __init__(self, asked: Mapping[str, msgspec.Raw], secrets: Sequence[str] = ()) -> None:
        self._secrets = secrets
        self._shows_thinking = _shows_thinking(asked)
        self._stops = _stops(asked)
        self._names = _shortened(asked)
        self._begun = self._ended = False
        self._blocks = 0
        self._open: str | None = None  # the type of the block that is open
        self._calls = Calls()
        self._call_open: int | None = None
        self._id = ""
        self._refused = False
        self._stop: dict[str, Any] | None = None
        self._usage: dict[str, Any] | None = None

    @property
    def finishing(self) -> bool:
        """Whether there was a finish reason, and the message has no end yet."""
        return self._stop is not None and not self._ended

    def feed(self, block: bytes) -> bytes:
        """Translate whole chunks; return the events.

        Raises:
            UpstreamError: a chunk is malformed, or is the provider's error.

        """
        said: list[bytes] = []
        for item in events(block):
            data = item.data.strip()
            if not data or self._ended:
                continue
            if data == DONE:
                self._end(said)
                continue
            try:
                self._take(data, said)
            except _SURPRISES as error:
                message = f"sent an invalid chunk: {type(error).__name__}"
                raise UpstreamError(ErrorKind.INVALID_RESPONSE, message) from None
        return b"".join(said)

    def end(self) -> bytes:
        """Return the end of the message if the source sent a finish reason, but no [DONE]."""
        said: list[bytes] = []
        self._end(said)
        return b"".join(said)

    def _take(self, data: bytes, said: list[bytes]) -> None:
        chunk = _decoder.decode(data)
        choices = chunk.get("choices") or ()
        choice: dict[str, Any] = next((one for one in choices if not one.get("index")), {})
        if chunk.get("error") or chunk.get("object") == "error" or choice.get("error"):
            raise error_in(data, self._secrets, otherwise=ErrorKind.STREAM_ERROR)
        reason = choice.get("finish_reason")
        if reason == "error":
            raise error_in(data, self._secrets, otherwise=ErrorKind.STREAM_ERROR)
        if choice and not self._begun:
            self._begin(chunk, said)
        if delta := choice.get("delta"):
            self._add(delta, said)
        usage = chunk.get("usage")
        if usage is None:
            usage = (chunk.get("x_groq") or {}).get("usage")
        if isinstance(usage, dict):
            self._usage = _messages_usage(usage)
        if reason and self._stop is None:
            self._finish(choice, said)
        if self._stop is not None and self._usage is not None and isinstance(usage, dict):
            self._say_stop(said)  # otherwise the final count may still follow: some servers send one with every chunk

    def _begin(self, chunk: Mapping[str, Any], said: list[bytes]) -> None:
        self._begun = True
        self._id = chunk.get("id") or ""
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

    def _add(self, delta: Mapping[str, Any], said: list[bytes]) -> None:
        content = delta.get("content")
        parts = content if isinstance(content, list) else ()
        thought = delta.get("reasoning_content") or delta.get("reasoning")  # some servers send both
        if parts:
            thought = thought or "".join(_thought(part) for part in parts)
            content = "".join(part.get("text") or "" for part in parts)
        if thought and self._shows_thinking:
            self._say("thinking", thought, said)
        if content:
            self._say("text", content, said)
        if refusal := delta.get("refusal"):
            self._refused = True
            self._say("text", refusal, said)
        if calls := delta.get("tool_calls"):
            for call in calls:
                self._calls.add(call)
            self._say_calls(said, finished=False)

    def _say(self, kind: str, text: str, said: list[bytes]) -> None:
        """Send a piece of text or thinking in the open block of its type, or in a new one."""
        if self._open == "tool_use":
            self._say_calls(said, finished=True)
        if self._open != kind:
            self._close(said)
            empty = {"text": ""} if kind == "text" else {"thinking": "", "signature": ""}
            self._open_block(kind, empty, said)
        self._say_delta(text, said)

    def _say_calls(self, said: list[bytes], *, finished: bool) -> None:
        """Send the arguments of the current tool call, and of the next ones once it is complete."""
        while (current := self._calls.current()) is not None:
            number, call = current
            if self._call_open != number:
                self._close(said)
                call_id = allowed_id(call.call_id or f"toolu_{self._id}_{number}")
                self._open_block(
                    "tool_use", {"id": call_id, "name": self._names.get(call.name, call.name), "input": {}}, said
                )
                self._call_open = number
            if arguments := call.take():
                self._say_delta(arguments, said)
            if not self._calls.advance(finished=finished):
                break
            self._close(said)

    def _open_block(self, kind: str, fields: Mapping[str, Any], said: list[bytes]) -> None:
        block = {"type": kind, **fields}
        said.append(event("content_block_start", {"index": self._blocks, "content_block": block}))
        self._open = kind

    def _say_delta(self, text: str, said: list[bytes]) -> None:
        kind, field = _DELTAS[self._open or "text"]
        delta = {"type": kind, field: text}
        said.append(event("content_block_delta", {"index": self._blocks, "delta": delta}))

    def _close(self, said: list[bytes]) -> None:
        if self._open is not None:
            said.append(event("content_block_stop", {"index": self._blocks}))
            self._open = None
            self._blocks += 1

    def _finish(self, choice: Mapping[str, Any], said: list[bytes]) -> None:
        """Close the open block. The stop reason is sent with the usage, which usually follows."""
        self._say_calls(said, finished=True)
        self._calls.check()
        self._close(said)
        reason = _STOP_REASONS.get(choice["finish_reason"], "end_turn")
        met = choice.get("stop_reason")
        if self._refused:
            reason = "refusal"
        elif reason in {"end_turn", "tool_use"}:  # some servers say stop for tool calls, or tool_calls without any
            met_one = isinstance(met, str) and met in self._stops
            reason = "tool_use" if len(self._calls) else "stop_sequence" if met_one else "end_turn"
        self._stop = {"stop_reason": reason, "stop_sequence": met if reason == "stop_sequence" else None}

    def _say_stop(self, said: list[bytes]) -> None:
        """Send the stop reason and the usage, once. SDKs need a count: 0 stands for unknown."""
        if self._stop:
            usage = self._usage or {"output_tokens": 0}
            said.append(event("message_delta", {"delta": self._stop, "usage": usage}))
            self._stop = {}

    def _end(self, said: list[bytes]) -> None:
        if self._stop is not None and not self._ended:
            self._ended = True
            self._say_stop(said)
            said.append(ENDING)


def _shows_thinking(asked: Mapping[str, msgspec.Raw]) -> bool:
    """Whether the client requested thinking, and not to omit it."""
    try:
        thinking = msgspec.json.decode(asked.get("thinking", b"null"), type=dict[str, Any] | None) or {}
    except msgspec.DecodeError:
        return False
    return thinking.get("type", "disabled") != "disabled" and thinking.get("display") != "omitted"


def _stops(asked: Mapping[str, msgspec.Raw]) -> list[str]:
    try:
        return msgspec.json.decode(asked.get("stop_sequences", b"null"), type=list[str] | None) or []
    except msgspec.DecodeError:
        return []


def _shortened(asked: Mapping[str, msgspec.Raw]) -> Mapping[str, str]:
    """Return the original names of tools by the shortened names that were sent in chat."""
    try:
        tools = msgspec.json.decode(asked.get("tools", b"null"), type=list[dict[str, Any]] | None) or []
    except msgspec.DecodeError:
        return {}
    names = [name for tool in tools if isinstance(name := tool.get("name"), str)]
    return {short: name for name in names if (short := short_name(name)) != name}


def _thought(part: Mapping[str, Any]) -> str:
    """Return the thinking in a typed part, the form in which Mistral sends it."""
    thinking = part.get("thinking") or ""
    return thinking if isinstance(thinking, str) else "".join(piece.get("text") or "" for piece in thinking)


def _messages_usage(reported: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return chat's counts as Anthropic's, whose input excludes cached tokens; None without completion tokens.

    Servers that send usage with every chunk may begin without completion tokens.
    """
    usage = usage_of(reported)
    if usage.completion_tokens is None:
        return None
    written = usage.cache_write_tokens
    said: dict[str, Any] = {}
    if usage.prompt_tokens is not None:
        said["input_tokens"] = max(usage.prompt_tokens - (usage.cached_tokens or 0) - (written or 0), 0)
    if written is not None:
        said["cache_creation_input_tokens"] = written
    if usage.cached_tokens is not None:
        said["cache_read_input_tokens"] = usage.cached_tokens
    said["output_tokens"] = usage.completion_tokens
    if usage.reasoning_tokens is not None:
        said["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return said
