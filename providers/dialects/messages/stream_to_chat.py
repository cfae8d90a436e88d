"""Translates a Messages stream into chat chunks as it arrives."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.messages.errors import error_of_event
from providers.errors import ErrorKind, UpstreamError
from providers.sse import events

_DONE = b"data: [DONE]\n\n"
_FINISH_REASONS: Mapping[str, str] = {  # any other reason becomes stop
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "tool_use": "tool_calls",
}
_decoder = msgspec.json.Decoder(dict[str, Any])
# Raised for JSON that is valid, but not an event of Messages.
_SURPRISES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError, TypeError, KeyError)


class ToChat:
    """Translates one answer. Thinking becomes ``reasoning_content``, a refusal's explanation ``refusal``.

    The stop sequence that ended the answer is in the choice's ``stop_reason``, as with vLLM. What chat does not have
    (citations, signatures, calls of Anthropic's own tools, which no chat client can request) is left out. The usage
    chunk is missing only if the provider sent no usage.
    """

    finishing = False  # an end is passed on as soon as it comes

    def __init__(self, secrets: Sequence[str] = (), unix_s: Callable[[], float] = time.time) -> None:
        self._secrets = secrets
        self._unix_s = unix_s
        self._head = b""  # the beginning of every chunk, up to its choices
        self._usage: dict[str, Any] = {}
        self._calls = 0
        self._call_at: dict[int, int] = {}  # by a block's index, the index of its tool call in chat
        self._inputs: dict[int, str] = {}  # the arguments at a block's start, which count only if no deltas follow
        self._finish_reason: str | None = None
        self._ended = False

    def feed(self, block: bytes) -> bytes:
        """Translate whole events; return the chunks.

        Raises:
            UpstreamError: an event is malformed, or is the provider's error.

        """
        said = []
        for event in events(block):
            if event.data.strip():
                try:
                    said.append(self._chunks(event.data))
                except _SURPRISES as error:
                    message = f"sent an event that Messages does not have: {type(error).__name__}"
                    raise UpstreamError(ErrorKind.INVALID_RESPONSE, message) from None
        return b"".join(said)

    def end(self) -> bytes:
        """Return the usage and [DONE] if the source sent its stop reason, but no message_stop."""
        return b"" if self._ended or self._finish_reason is None else self._end()

    def _chunks(self, data: bytes) -> bytes:
        event = _decoder.decode(data)
        said = b""
        match event.get("type"):
            case "content_block_delta":
                said = self._delta(event["index"], event["delta"])
            case "content_block_start":
                said = self._start(event["index"], event["content_block"])
            case "content_block_stop":
                said = self._arguments(self._call_at.get(event["index"]), self._inputs.pop(event["index"], ""))
            case "message_start":
                said = self._begin(event["message"])
            case "message_delta":
                said = self._change(event)
            case "message_stop":
                said = self._stop()
            case "error" | None if event.get("error"):
                raise error_of_event(data, self._secrets, otherwise=ErrorKind.STREAM_ERROR)
        return said

    def _begin(self, message: Mapping[str, Any]) -> bytes:
        self._use(message.get("usage"))
        top = {
            "id": message.get("id") or "",
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
                return self._chunk({"reasoning_content": block["thinking"]}) if block.get("thinking") else b""
            case "tool_use":
                number = self._call_at[index] = self._calls
                self._calls += 1
                self._inputs[index] = msgspec.json.encode(block.get("input") or {}).decode()
                function = {"name": block["name"], "arguments": ""}
                call = {"index": number, "id": block["id"], "type": "function", "function": function}
                return self._chunk({"tool_calls": [call]})
            case _:
                return b""

    def _delta(self, index: int, delta: Mapping[str, Any]) -> bytes:
        match delta["type"]:
            case "text_delta":
                return self._chunk({"content": delta["text"]}) if delta["text"] else b""
            case "thinking_delta":
                return self._chunk({"reasoning_content": delta["thinking"]}) if delta["thinking"] else b""
            case "input_json_delta" if delta["partial_json"]:
                self._inputs.pop(index, None)
                return self._arguments(self._call_at.get(index), delta["partial_json"])
            case _:
                return b""

    def _arguments(self, number: int | None, piece: str) -> bytes:
        if number is None or not piece:
            return b""
        return self._chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})

    def _change(self, event: Mapping[str, Any]) -> bytes:
        self._use(event.get("usage"))
        delta = event["delta"]
        reason = delta.get("stop_reason")
        if not reason or self._finish_reason is not None:
            return b""
        said = b""
        if explanation := (delta.get("stop_details") or {}).get("explanation"):
            said = self._chunk({"refusal": explanation})
        return said + self._finish(_FINISH_REASONS.get(reason, "stop"), delta.get("stop_sequence"))

    def _stop(self) -> bytes:
        # Without a stop reason it has broken off: the reader of the chunks is told of no end.
        return b"" if self._ended or self._finish_reason is None else self._end()

    def _finish(self, reason: str, stop_sequence: str | None) -> bytes:
        begin = b"" if self._head else self._begin({})
        self._finish_reason = reason
        choice: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": reason}
        if stop_sequence is not None:
            choice["stop_reason"] = stop_sequence
        return begin + self._head + msgspec.json.encode(choice) + b"]}\n\n"

    def _end(self) -> bytes:
        self._ended = True
        usage = _chat_usage(self._usage)
        return _DONE if usage is None else self._head + b'],"usage":' + msgspec.json.encode(usage) + b"}\n\n" + _DONE

    def _use(self, usage: Mapping[str, Any] | None) -> None:
        """Take counts of tokens. Each is a total so far, so the last one counts; what is not a number is ignored."""
        self._usage.update({name: count for name, count in (usage or {}).items() if isinstance(count, int | dict)})

    def _chunk(self, delta: Mapping[str, Any]) -> bytes:
        begin = b"" if self._head else self._begin({})  # some servers send no message_start
        return (
            begin + self._head + b'{"index":0,"delta":' + msgspec.json.encode(delta) + b',"finish_reason":null}]}\n\n'
        )


def _chat_usage(told: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return Anthropic's counts as chat's; None without any, or with an answer of 0 tokens."""
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    uncached, completion, cached, written = (count if isinstance(count := told.get(name), int) else 0 for name in names)
    if not completion:
        return None
    prompt = uncached + cached + written
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
    }
    details = told.get("output_tokens_details")
    if isinstance(details, dict) and details.get("thinking_tokens") is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": details["thinking_tokens"]}
    return usage
