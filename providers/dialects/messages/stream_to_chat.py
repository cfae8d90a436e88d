"""Translates a Messages stream into chat chunks as it arrives."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.chat.deltas import TranslationIntoChunks, complaint, written_arguments
from providers.dialects.chat.references import of_citation
from providers.dialects.events import DONE_EVENT, EarlyObject, chat_reason
from providers.dialects.messages.events import add_usage, error_of_event, told_usage
from providers.dialects.wording import REDACTED, SIGNED, UniqueIds
from providers.models import Usage, written_usage
from providers.refusals import ErrorKind

_NO_COUNT = (None, 0)
_decoder = msgspec.json.Decoder(dict[str, Any])


class ToChat(TranslationIntoChunks):
    """Translates one answer. Thinking becomes ``reasoning_content``, a refusal's explanation ``refusal``.

    Signed thinking comes a second time, whole and with its signature, as one of LiteLLM's ``thinking_blocks``.

    The stop sequence that ended the answer is in the choice's ``stop_reason``, as with vLLM. Citations of pages become
    annotations. What chat does not have (citations of documents, calls of Anthropic's own tools) is left out. The usage
    chunk is missing only if the provider sent no usage.
    """

    api = "Messages"
    finishing = False  # an end is passed on as soon as the end comes

    def __init__(self, secrets: Sequence[str] = (), unix_s: Callable[[], float] = time.time) -> None:
        self._secrets = secrets
        self._unix_s = unix_s
        self._head = b""  # the beginning of every chunk, up to its choices
        self._id = ""
        self._last = -1  # the index of the block that began last
        self._usage: dict[str, Any] = {}
        self._calls = 0
        self._ids = UniqueIds()
        self._call_at: dict[int, int] = {}  # by a block's index, the index of its tool call in chat
        self._inputs: dict[int, str] = {}  # the arguments at a block's start, which count only if no deltas follow
        self._early: dict[int, EarlyObject] = {}  # empty objects in a call's deltas
        self._thoughts: dict[int, list[str]] = {}  # the text of blocks of thinking, for which signatures follow
        self._finish_reason: str | None = None
        self._ended = False

    @property
    def usage_so_far(self) -> Usage | None:
        """The usage that the message's events have reported."""
        return told_usage(self._usage) if self._usage else None

    def end(self) -> bytes:
        """Return the usage and [DONE] if the source sent its stop reason, but no message_stop."""
        return b"" if self._ended or self._finish_reason is None else self._end()

    def _take(self, data: bytes, said: list[bytes]) -> None:
        event = _decoder.decode(data)
        match event.get("type"):
            case "content_block_delta":
                chunks = self._delta(event.get("index", self._last), event["delta"])
            case "content_block_start":
                self._last = event.get("index", self._last + 1)
                chunks = self._start(self._last, event["content_block"])
            case "content_block_stop":
                chunks = self._rest_of(event.get("index", self._last))
            case "message_start":
                chunks = self._begin(event["message"])
            case "message_delta":
                chunks = self._change(event)
            case "message_stop":
                chunks = self.end()  # without a stop reason the answer has broken off: no end is sent
            case "error" | None if event.get("error"):
                raise error_of_event(data, self._secrets, otherwise=ErrorKind.STREAM_ERROR)
            case _:
                chunks = complaint(data)
        said.append(chunks)

    def _begin(self, message: Mapping[str, Any]) -> bytes:
        # The completion tokens and the cost here are not the answer's.
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
                call_id = self._ids.of_call(block.get("id") or f"toolu_{self._id}_{number}")
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
        """Return the arguments of a call that has ended, as far as they are not sent yet."""
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
