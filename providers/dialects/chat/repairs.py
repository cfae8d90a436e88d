"""Repairs of chunks that some vendors stream in a wrong form; applied only where a vendor's catalog row names them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.chunk import DONE
from providers.dialects.dialect import Translation
from providers.sse import events

_decoder = msgspec.json.Decoder(dict[str, Any])


class ToolIndex:
    """Numbers tool calls that come without ``index``, or all with 0, as from Gemini's OpenAI surface.

    A call with an id not seen before, or with a name and no id, is the next one; anything else continues the last.
    """

    finishing = False  # an end is passed on as soon as it comes

    def __init__(self) -> None:
        self._ids: dict[tuple[int, str], int] = {}  # of choice and call id: index
        self._counts: dict[int, int] = {}  # of choice: calls so far

    def feed(self, block: bytes) -> bytes:
        """Return whole events with every tool call numbered; all others unchanged."""
        if b'"tool_calls"' not in block:
            return block
        return b"".join(self._event(event.raw, event.data) for event in events(block))

    def end(self) -> bytes:
        """Return nothing: every event has been passed on."""
        return b""

    def _event(self, raw: bytes, data: bytes) -> bytes:
        if b'"tool_calls"' not in data:
            return raw
        try:
            chunk = _decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return raw  # the reader of the stream reports the error
        changed = False
        for choice in chunk.get("choices") or ():
            match choice:
                case {"delta": {"tool_calls": [*calls]}}:
                    changed |= self._number(choice.get("index") or 0, calls)
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n" if changed else raw

    def _number(self, choice: int, calls: list[Any]) -> bool:
        changed = False
        for call in calls:
            if isinstance(call, dict) and call.get("index") != (index := self._index(choice, call)):
                call["index"] = index
                changed = True
        return changed

    def _index(self, choice: int, call: dict[str, Any]) -> int:
        count = self._counts.get(choice, 0)
        call_id = call.get("id")
        if not call_id and not (call.get("function") or {}).get("name"):
            given = call.get("index")
            return given if isinstance(given, int) else max(count - 1, 0)
        if call_id and (choice, call_id) in self._ids:
            return self._ids[choice, call_id]
        if call_id:
            self._ids[choice, call_id] = count
        self._counts[choice] = count + 1
        return count


class FinishReason:
    """Adds the finish reason of each choice before [DONE], for a server that is known to leave it out.

    What such a server stopped at is not known: it is ``tool_calls`` after a tool call, else ``stop``. A stream without
    [DONE] has broken off, and gets none.
    """

    finishing = False  # an end is passed on as soon as it comes

    def __init__(self, empty: Mapping[str, Any]) -> None:
        """``empty`` is what a choice has that adds nothing: an empty delta, or an empty text."""
        self._empty = empty
        self._top: dict[str, Any] = {}  # of the last chunk
        self._reasons: dict[int, str | None] = {}  # of each choice; None: it was sent

    def feed(self, block: bytes) -> bytes:
        """Return whole events, with the missing finish reasons before [DONE]."""
        return b"".join(self._missing(event.data) + event.raw for event in events(block))

    def end(self) -> bytes:
        """Return nothing: every event has been passed on."""
        return b""

    def _missing(self, data: bytes) -> bytes:
        if data.strip() == DONE:
            ends = [
                {"index": index, **self._empty, "finish_reason": reason}
                for index, reason in self._reasons.items()
                if reason is not None
            ]
            return b"data: " + msgspec.json.encode({**self._top, "choices": ends}) + b"\n\n" if ends else b""
        try:
            chunk = _decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return b""  # the reader of the stream reports the error
        choices = chunk.pop("choices", None)
        self._top = {name: value for name, value in chunk.items() if name != "usage"}
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._note(choice)
        return b""

    def _note(self, choice: Mapping[str, Any]) -> None:
        index, delta = choice.get("index") or 0, choice.get("delta")
        if choice.get("finish_reason"):
            self._reasons[index] = None
        elif isinstance(delta, dict) and delta.get("tool_calls"):
            self._reasons[index] = "tool_calls"
        else:
            self._reasons.setdefault(index, "stop")


def repairs_of(names: frozenset[str]) -> list[Translation]:
    """Return new repairs for one stream, by their names in the catalog."""
    found: list[Translation] = [ToolIndex()] if "tool_index" in names else []
    return [*found, FinishReason({"delta": {}})] if "finish_reason" in names else found


def repairs_of_completions(names: frozenset[str]) -> list[Translation]:
    """Return new repairs for one stream of completions."""
    return [FinishReason({"text": ""})] if "finish_reason" in names else []
