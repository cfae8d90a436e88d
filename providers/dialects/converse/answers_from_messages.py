"""Writes answers of Messages as Converse's: events in AWS's frames, or one whole answer.

Parts for which Converse has no place (tools that run at Anthropic) are left out, as Bedrock leaves them out of its own
answers.
"""

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from providers.bodies import encoded
from providers.dialects.chat.references import IN_DOCUMENTS
from providers.dialects.converse.frames import framed
from providers.dialects.messages.in_frames import exception_in_frame

_REASONS: Mapping[str, str] = {
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "model_context_window_exceeded",
    "refusal": "content_filtered",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
}
_PLACES = {kind: (name, begin, end) for name, (kind, begin, end) in IN_DOCUMENTS.items()}
_objects = msgspec.json.Decoder(dict[str, Any])


def _reason(reason: str | None) -> str:
    return _REASONS.get(reason or "", "end_turn")


def _usage(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return Messages' counts in Converse's words: in both, the input excludes tokens in the cache."""
    read, written = told.get("cache_read_input_tokens") or 0, told.get("cache_creation_input_tokens") or 0
    asked, answered = told.get("input_tokens") or 0, told.get("output_tokens") or 0
    counts = {"inputTokens": asked, "outputTokens": answered, "totalTokens": asked + answered + read + written}
    lives = told.get("cache_creation") or {}
    details = [
        {"ttl": ttl, "inputTokens": count}
        for ttl, name in (("5m", "ephemeral_5m_input_tokens"), ("1h", "ephemeral_1h_input_tokens"))
        if (count := lives.get(name))
    ]
    more: dict[str, Any] = {"cacheDetails": details} if details else {}
    return {**counts, "cacheReadInputTokens": read, "cacheWriteInputTokens": written, **more}


def _blob(data: str) -> str:
    """Return a sealed thought of Messages as a blob of AWS's. SDKs decode blobs, so any text goes into Base64."""
    return base64.b64encode(data.encode()).decode()


def _citation(citation: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the place that a text cites; None: Converse has no such place."""
    kind, location = citation.get("type", ""), {}
    if kind in _PLACES:
        name, begin, end = _PLACES[kind]
        where = {"start": citation.get(begin), "end": citation.get(end)}
        location = {name: {"documentIndex": citation.get("document_index"), **where}}
        title = citation.get("document_title")
    elif kind == "search_result_location":
        where = {"start": citation.get("start_block_index"), "end": citation.get("end_block_index")}
        location = {"searchResultLocation": {"searchResultIndex": citation.get("search_result_index"), **where}}
        title = citation.get("title")
    elif url := citation.get("url"):
        location, title = {"web": {"url": url}}, citation.get("title")
    else:
        return None
    source = {"source": citation["source"]} if citation.get("source") else {}
    named = {"title": title} if title else {}
    return {**named, **source, "sourceContent": [{"text": citation.get("cited_text") or ""}], "location": location}


def _block(block: Mapping[str, Any]) -> dict[str, Any] | None:
    match block:
        case {"type": "text", "text": str(text), "citations": [*given]} if given:
            return {"citationsContent": {"content": [{"text": text}], "citations": _cited(given)}}
        case {"type": "text", "text": str(text)}:
            return {"text": text}
        case {"type": "tool_use", "id": id_, "name": name, "input": arguments}:
            return {"toolUse": {"toolUseId": id_, "name": name, "input": arguments}}
        case {"type": "thinking", "thinking": text}:
            signed = {"signature": block["signature"]} if block.get("signature") else {}
            return {"reasoningContent": {"reasoningText": {"text": text, **signed}}}
        case {"type": "redacted_thinking", "data": data}:
            return {"reasoningContent": {"redactedContent": _blob(data)}}
    return None


def _cited(given: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [told for each in given if (told := _citation(each)) is not None]


def _own(paths: Sequence[str], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model's own fields that were asked for; ``paths`` point to fields at the top, ``/stop_sequence``."""
    found = {name: said[name] for path in paths if (name := path.removeprefix("/")) in said}
    return {"additionalModelResponseFields": found} if found else {}


class ConverseAnswer:
    """The answer to one request, whole or streamed. Its latency is the time since this object was made."""

    def __init__(self, paths: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        """``paths``: the model's own fields that the client wants in the answer."""
        self._paths = paths
        self._clock = clock
        self._began_s = clock()
        self._places: dict[int, int] = {}  # the numbers of the blocks that are sent, by their index in Messages
        self._usage: dict[str, Any] = {}

    def whole(self, body: bytes) -> bytes:
        """Return a whole answer of Messages as one of Converse."""
        said = _objects.decode(body)
        content = [told for block in said["content"] if (told := _block(block)) is not None]
        answer = {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": _reason(said.get("stop_reason")),
            "usage": _usage(said.get("usage") or {}),
            "metrics": self._metrics(),
            **_own(self._paths, said),
        }
        return encoded(answer)

    def _metrics(self) -> dict[str, Any]:
        return {"latencyMs": round((self._clock() - self._began_s) * 1000)}

    def frames_of(self, data: bytes) -> bytes:
        """Return the frames of one event of Messages; ``b""``: Converse has no such event."""
        event = _objects.decode(data)
        said = b""
        match event["type"]:
            case "content_block_delta" if event["index"] in self._places:  # nearly all events
                said = self._delta(self._places[event["index"]], event["delta"])
            case "message_start":
                self._usage = dict(event["message"].get("usage") or {})
                said = _event("messageStart", {"role": "assistant"})
            case "content_block_start":
                said = self._start(event["index"], event["content_block"])
            case "content_block_stop" if event["index"] in self._places:
                said = _event("contentBlockStop", {"contentBlockIndex": self._places[event["index"]]})
            case "message_delta":
                counts, delta = event.get("usage") or {}, event["delta"]
                self._usage |= {name: count for name, count in counts.items() if count is not None}
                reason = _reason(delta.get("stop_reason"))
                said = _event("messageStop", {"stopReason": reason, **_own(self._paths, delta)})
            case "message_stop":
                said = _event("metadata", {"usage": _usage(self._usage), "metrics": self._metrics()})
            case "error":
                said = exception_in_frame(data)
        return said

    def _start(self, index: int, block: Mapping[str, Any]) -> bytes:
        kind = block["type"]
        if kind not in {"text", "tool_use", "thinking", "redacted_thinking"}:
            return b""
        place = self._places[index] = len(self._places)
        at = {"contentBlockIndex": place}
        if kind == "tool_use":
            start = {"toolUse": {"toolUseId": block["id"], "name": block["name"]}}
            return _event("contentBlockStart", {"start": start, **at})
        if kind == "redacted_thinking":
            return _event(
                "contentBlockDelta", {"delta": {"reasoningContent": {"redactedContent": _blob(block["data"])}}, **at}
            )
        return _event("contentBlockDelta", {"delta": {"text": block["text"]}, **at}) if block.get("text") else b""

    def _delta(self, place: int, delta: Mapping[str, Any]) -> bytes:
        told: dict[str, Any] | None = None
        match delta:
            case {"type": "text_delta", "text": text}:
                told = {"text": text}
            case {"type": "input_json_delta", "partial_json": piece}:
                told = {"toolUse": {"input": piece}}
            case {"type": "thinking_delta", "thinking": text}:
                told = {"reasoningContent": {"text": text}}
            case {"type": "signature_delta", "signature": signature}:
                told = {"reasoningContent": {"signature": signature}}
            case {"type": "citations_delta", "citation": dict(citation)}:
                cited = _citation(citation)
                told = None if cited is None else {"citation": cited}
        return b"" if told is None else _event("contentBlockDelta", {"delta": told, "contentBlockIndex": place})


def _event(kind: str, payload: Mapping[str, Any]) -> bytes:
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return framed(encoded(payload), headers)
