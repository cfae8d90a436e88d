"""A Responses stream, told as a chat completion's event stream."""

from typing import Any

import msgspec

from providers.dialects.chunk import DONE
from providers.dialects.responses.errors import with_status
from providers.dialects.responses.reading import lenient, read
from providers.dialects.responses.usage import chat_usage
from providers.sse import events

_NULL = msgspec.Raw(b"null")
_FINISH_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}
_ARGUMENTS = {"function_call": ("function", "arguments"), "custom_tool_call": ("custom", "input")}


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    delta: str | None = None
    output_index: int = 0
    summary_index: int = 0
    logprobs: list[Any] | None = None
    item: msgspec.Raw = _NULL
    response: msgspec.Raw = _NULL
    annotation: dict[str, Any] | None = None
    error: Any = None
    code: str | None = None
    message: str | None = None


class _Part(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    logprobs: list[Any] | None = None


class _Item(msgspec.Struct, gc=False):
    type: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None


class _Details(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    created_at: float | None = None
    status: str | None = None
    service_tier: str | None = None
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    incomplete_details: _Details | None = None
    output: list[msgspec.Raw] | None = None


_events = msgspec.json.Decoder(_Event)


class ToChat:
    """Tells one answer. What a server tells only when an item, or all of the answer, is whole is told then.

    Deltas are known by their item and kind, not by the index of their part: there are servers that count it wrongly.
    """

    def __init__(self) -> None:
        self._top: dict[str, Any] = {"id": "", "object": "chat.completion.chunk", "created": 0, "model": ""}
        self._began = False
        self._over = False
        self._told: set[tuple[int, str]] = set()  # kinds of deltas told, of each item of the output
        self._calls: dict[int, tuple[int, str, str]] = {}  # by their items' place: index, kind and argument in chat
        self._thoughts: dict[int, str] = {}  # the event whose deltas tell an item's reasoning: summary or itself
        self._out: list[bytes] = []

    def feed(self, block: bytes) -> bytes:
        """Return what whole events of a response say, ``b""`` where they say nothing.

        Raises:
            UpstreamError: an event is no JSON object (invalid_response). The provider's error is told as one.

        """
        for event in events(block):
            data = event.data.strip()
            if data and data != DONE and not self._over:
                self._take(_read(data))
        told = b"".join(self._out)
        self._out.clear()
        return told

    def end(self) -> bytes:
        """Return nothing: a response tells its end itself, and one that does not broke off."""
        return b""

    def _take(self, event: _Event) -> None:
        index, delta = event.output_index, event.delta
        match event.type:
            case "response.output_text.delta" if delta:
                self._text(index, delta, event.logprobs)
            case "response.refusal.delta" if delta:
                self._delta(index, "refusal", {"refusal": delta})
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" if delta:
                if self._thoughts.setdefault(index, event.type) == event.type:
                    self._delta(index, "reasoning", {"reasoning_content": delta})
            case "response.reasoning_summary_part.added" if event.summary_index and (index, "reasoning") in self._told:
                self._delta(index, "reasoning", {"reasoning_content": "\n\n"})
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" if delta:
                self._argument(index, delta)
            case "response.output_text.annotation.added" if event.annotation:
                self._delta(index, "annotation", {"annotations": [_nested(event.annotation)]})
            case "response.output_item.added":
                self._begin_call(index, lenient(event.item, _Item))
            case "response.output_item.done":
                self._finish_item(index, lenient(event.item, _Item))
            case _:
                self._take_state(event)

    def _take_state(self, event: _Event) -> None:
        """Take an event of the response as a whole."""
        if event.type == "error" or event.error:
            error = event.error or {"code": event.code, "message": event.message}
            self._fail(error if isinstance(error, dict) else {"message": str(error)})
            return
        if event.response == _NULL:
            return
        response = lenient(event.response, _Response)
        self._note(response)
        match event.type:
            case "response.created":
                self._begin()
            case "response.failed" | "response.cancelled":
                kind = event.type.removeprefix("response.")
                self._fail(response.error or {"message": f"the provider says that the response is {kind}"})
            case "response.completed":
                self._complete(response, "tool_calls" if self._all_told(response) else "stop")
            case "response.incomplete":
                self._all_told(response)
                details = response.incomplete_details
                self._complete(response, _FINISH_REASONS.get((details and details.reason) or "", "length"))

    def _note(self, response: _Response) -> None:
        top = self._top
        top["id"] = response.id or top["id"]
        top["model"] = response.model or top["model"]
        top["created"] = int(response.created_at or top["created"])
        if response.service_tier:
            top["service_tier"] = response.service_tier

    def _all_told(self, response: _Response) -> bool:
        """Tell the whole output where no event did, and return whether there are calls in it."""
        if not self._told:
            for index, item in enumerate(response.output or ()):
                self._finish_item(index, lenient(item, _Item))
        return bool(self._calls)

    def _begin(self) -> None:
        if not self._began:
            self._began = True
            self._chunk({"role": "assistant", "content": ""})

    def _delta(self, index: int, kind: str, delta: dict[str, Any], **more: Any) -> None:
        self._begin()
        self._told.add((index, kind))
        self._chunk(delta, **more)

    def _text(self, index: int, text: str, logprobs: list[Any] | None) -> None:
        more = {"logprobs": {"content": logprobs, "refusal": None}} if logprobs else {}
        self._delta(index, "text", {"content": text}, **more)

    def _begin_call(self, index: int, item: _Item) -> None:
        if item.type not in _ARGUMENTS or index in self._calls:
            return
        kind, argument = _ARGUMENTS[item.type]
        number = len(self._calls)
        self._calls[index] = number, kind, argument
        call = {"index": number, "id": item.call_id, "type": kind, kind: {"name": item.name or "", argument: ""}}
        self._delta(index, "call", {"tool_calls": [call]})

    def _argument(self, index: int, piece: str) -> None:
        if index in self._calls:
            number, kind, argument = self._calls[index]
            self._delta(index, "argument", {"tool_calls": [{"index": number, kind: {argument: piece}}]})

    def _finish_item(self, index: int, item: _Item) -> None:
        """Tell what an item has and no delta of it has told."""
        self._begin_call(index, item)
        if (index, "argument") not in self._told and (whole := item.arguments or item.input):
            self._argument(index, whole)
        if (index, "reasoning") not in self._told and item.type == "reasoning":
            parts = item.summary or item.content or ()
            if thought := "\n\n".join(part.text for part in parts if part.text):
                self._delta(index, "reasoning", {"reasoning_content": thought})
        if item.type == "message":
            is_told = (index, "text") in self._told, (index, "refusal") in self._told
            for part in item.content or ():
                if part.text and not is_told[0]:
                    self._text(index, part.text, part.logprobs)
                if part.refusal and not is_told[1]:
                    self._delta(index, "refusal", {"refusal": part.refusal})

    def _complete(self, response: _Response, reason: str) -> None:
        self._over = True
        self._begin()
        self._chunk({}, reason)
        if response.usage is not None:
            self._event({**self._top, "choices": [], "usage": chat_usage(response.usage)})
        self._out.append(b"data: [DONE]\n\n")

    def _fail(self, error: dict[str, Any]) -> None:
        """Tell an error as one: it is for who reads the chunks to say what it is, and to hide what is secret in it."""
        self._over = True
        self._event({"error": with_status(error)})

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None, **more: Any) -> None:
        choice = {"index": 0, "delta": delta, **more, "finish_reason": finish_reason}
        self._event({**self._top, "choices": [choice]})

    def _event(self, data: dict[str, Any]) -> None:
        self._out.append(b"data: " + msgspec.json.encode(data) + b"\n\n")


def _read(data: bytes) -> _Event:
    try:
        return _events.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return read(data, _Event)


def _nested(annotation: dict[str, Any]) -> dict[str, Any]:
    """Return an annotation as chat has it, its facts in an object of its type."""
    kind = str(annotation.get("type"))
    return {"type": kind, kind: {name: value for name, value in annotation.items() if name != "type"}}
