"""Translates a Responses stream into a stream of chat chunks."""

from typing import TYPE_CHECKING, Any

import msgspec

from providers.bodies import events
from providers.dialects.chat.deltas import complaint, written_arguments
from providers.dialects.events import DONE, DONE_EVENT, EarlyObject, chat_reason, few
from providers.dialects.responses.events import ENDS, FAILED, lenient, read, usage_in
from providers.dialects.responses.fields import chat_usage
from providers.dialects.sealed import Seal, ThoughtPlace
from providers.dialects.wording import OPENAIS, UniqueIds
from providers.refusals import UNREADABLE

if TYPE_CHECKING:
    from providers.models import Usage

_NULL = msgspec.Raw(b"null")
_PLAIN = {  # by the type of an event: the kind of its delta, and chat's field
    "response.output_text.delta": ("text", "content"),
    "response.refusal.delta": ("refusal", "refusal"),
    "response.audio.delta": ("audio", "data"),
    "response.audio.transcript.delta": ("audio", "transcript"),
}
_ITEMS = {  # by the kind of a delta, the type of its item
    **dict.fromkeys(("annotation", "audio", "refusal", "text"), "message"),
    **dict.fromkeys(("argument", "call"), "function_call"),
    "image": "image_generation_call",
    **dict.fromkeys(("reasoning", "sealed"), "reasoning"),
}
_MOVED = 1_000_000  # no output has an item at such an index
_ARGUMENTS = {"function_call": ("function", "arguments"), "custom_tool_call": ("custom", "input")}


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    delta: str | None = None
    output_index: int = 0
    item_id: str | None = None
    summary_index: int = 0
    logprobs: list[Any] | None = None
    item: msgspec.Raw = _NULL
    response: msgspec.Raw = _NULL
    annotation: dict[str, Any] | None = None
    error: Any = None
    code: str | None = None
    message: str | None = None
    arguments: Any = None  # some servers send the object itself
    input: str | None = None
    text: str | None = None
    refusal: str | None = None


class _Part(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    logprobs: list[Any] | None = None
    annotations: list[dict[str, Any]] | None = None


class _Item(msgspec.Struct, gc=False):
    type: str | None = None
    id: str | None = None
    call_id: str | None = None
    status: str | None = None
    name: str | None = None
    arguments: Any = None
    input: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    encrypted_content: str | None = None
    result: str | None = None  # an image in base64
    output_format: str | None = None


class _Details(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    created_at: float | None = None
    status: str | None = None
    service_tier: str | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    incomplete_details: _Details | None = None
    output: list[msgspec.Raw] | None = None


_events = msgspec.json.Decoder(_Event)


class ToChat:
    """Translates one answer. Content that comes only in complete items, or only in the last event, is sent then.

    Deltas are identified by their item and kind, not by the index of their part: some servers count parts wrongly.
    """

    finishing = False  # an end is passed on as soon as the end comes

    def __init__(self, seal: Seal | None = None) -> None:
        """``seal``: closes encrypted reasoning; without a seal such reasoning is left out."""
        self.usage_so_far: Usage | None = None
        self._seal = seal
        self._sealed = 0
        self._top: dict[str, Any] = {"id": "", "object": "chat.completion.chunk", "created": 0, "model": ""}
        self._began = False
        self._over = False
        self._sent: set[tuple[int, str]] = set()  # item and kind of the deltas that were sent
        self._at_ends: set[tuple[int, str]] = set()  # of ``_sent``: those that came only in an event at a text's end
        # By the item's index in the output, unless another call has it:
        self._calls: dict[int, tuple[int, str, str]] = {}  # the call's index in chat, its kind, its argument's name
        self._early: dict[int, EarlyObject] = {}  # an empty object in the arguments of the item's function
        self._call_ids: dict[str | None, int] = {}  # the index of the item with this call
        self._item_ids: dict[str | None, int] = {}  # the index of the item with this id
        self._id_at: dict[int, str | None] = {}  # the id of the call at this place
        self._moved: dict[int, int] = {}  # by an index that several calls share: the place of the last call
        self._ids = UniqueIds()
        self._thoughts: dict[int, str] = {}  # the event that brings the item's reasoning: the text itself or a summary
        self._out: list[bytes] = []

    def feed(self, block: bytes) -> bytes:
        """Translate whole events of a response; return ``b""`` if there is nothing to send.

        Raises:
            UpstreamError: an event is not a JSON object (invalid_response). A provider's error becomes an error event.

        """
        for event in events(block):
            data = event.data.strip()
            if data and data != DONE and not self._over:
                self._take(_read(data), data)
        told = b"".join(self._out)
        self._out.clear()
        return told

    def end(self) -> bytes:
        """Return ``b""``: a response without a last event broke off."""
        return b""

    def _take(self, event: _Event, data: bytes) -> None:
        index, delta = event.output_index, event.delta
        if delta and event.type in _PLAIN:
            kind, field = _PLAIN[event.type]
            more = {"logprobs": {"content": event.logprobs, "refusal": None}} if event.logprobs else {}
            self._delta(index, kind, {"audio": {field: delta}} if kind == "audio" else {field: delta}, **more)
            return
        match event.type:
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" if delta:
                if self._thoughts.setdefault(index, event.type) == event.type:
                    self._delta(index, "reasoning", {"reasoning_content": delta})
            case "response.reasoning_summary_part.added" if event.summary_index and (index, "reasoning") in self._sent:
                self._delta(index, "reasoning", {"reasoning_content": "\n\n"})
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" if delta:
                self._argument(self._place_of(event), delta)
            case "response.output_text.annotation.added" if event.annotation:
                self._delta(index, "annotation", {"annotations": [_nested(event.annotation)]})
            case "response.output_item.added":
                self._begin_call(index, lenient(event.item, _Item))
            case "response.output_item.done":
                self._finish_item(index, lenient(event.item, _Item))
            case str(kind) if kind.endswith(".done") and (
                event.text or event.refusal or event.arguments or event.input
            ):
                self._end_text(index, event)
            case _:
                self._take_state(event, data)

    def _end_text(self, index: int, event: _Event) -> None:
        """Send the text or the arguments that an event ends, if no delta had any of it."""
        if whole := written_arguments(event.arguments) or event.input:
            if ((place := self._place_of(event)), "argument") not in self._sent:
                self._argument(place, whole)
            return
        kind = "refusal" if event.refusal else "text" if event.type == "response.output_text.done" else "reasoning"
        if (index, kind) in self._sent - self._at_ends:
            return
        self._at_ends.add((index, kind))
        if kind == "text":
            self._text(index, event.text or "", event.logprobs)
        elif kind == "refusal":
            self._delta(index, kind, {"refusal": event.refusal})
        elif self._thoughts.setdefault(index, event.type or "") == event.type:
            self._delta(index, kind, {"reasoning_content": event.text})

    def _take_state(self, event: _Event, data: bytes) -> None:
        """Translate an event with the state of the whole response."""
        if event.type == "error" or event.error:
            error = event.error or {"code": event.code, "message": event.message}
            self._fail(error if isinstance(error, dict) else {"message": str(error)})
            return
        if event.response == _NULL:
            self._out.append(complaint(data))
            return
        response = lenient(event.response, _Response)
        told = usage_in(data, event.response, response.usage, response.service_tier)
        self.usage_so_far = told or self.usage_so_far
        self._note(response)
        kind = event.type or ""
        if kind in ENDS and (response.status in FAILED or kind == "response.done"):
            kind = f"response.{response.status or 'completed'}"
        match kind:
            case "response.created":
                self._begin()
            case "response.failed" | "response.cancelled":
                error = response.error or f"the provider says that the response is {kind.removeprefix('response.')}"
                self._say_usage(response)
                self._fail(error if isinstance(error, dict) else {"message": str(error)})
            case "response.completed":
                self._complete(response, chat_reason("completed", calls=self._send_rest(response)))
            case "response.incomplete":
                self._send_rest(response)
                details = response.incomplete_details
                why = chat_reason((details and details.reason) or "length", calls=None)
                self._complete(response, "length" if why == "stop" else why)

    def _note(self, response: _Response) -> None:
        top = self._top
        top["id"] = response.id or top["id"]
        top["model"] = response.model or top["model"]
        top["created"] = int(response.created_at or top["created"])
        if response.service_tier:
            top["service_tier"] = response.service_tier

    def _send_rest(self, response: _Response) -> bool:
        """Send the parts of the output that no event had; return whether it has calls.

        If there was any text, only calls are sent: a text in the output could have been sent under another index.
        """
        kinds = {kind for _, kind in self._sent}
        sent = {_ITEMS[kind] for kind in kinds} | ({"reasoning"} if kinds else set())
        items = [(number, lenient(raw, _Item)) for number, raw in enumerate(few(response.output or (), "items"))]
        for number, item in sorted(items, key=lambda each: each[1].call_id not in self._call_ids):  # begun calls first
            if item.type in _ARGUMENTS or item.type not in sent:
                self._finish_item(self._call_ids.get(item.call_id, -1 - number), item)
        return bool(self._calls)

    def _begin(self) -> None:
        if not self._began:
            self._began = True
            self._chunk({"role": "assistant", "content": ""})

    def _delta(self, index: int, kind: str, delta: dict[str, Any], **more: Any) -> None:
        self._begin()
        self._sent.add((index, kind))
        self._chunk(delta, **more)

    def _text(self, index: int, text: str, logprobs: list[Any] | None) -> None:
        more = {"logprobs": {"content": logprobs, "refusal": None}} if logprobs else {}
        self._delta(index, "text", {"content": text}, **more)

    def _place_of(self, event: _Event) -> int:
        """Return the place of the call to which a piece of arguments belongs."""
        index = self._item_ids.get(event.item_id) if event.item_id else None
        return self._moved.get(event.output_index, event.output_index) if index is None else index

    def _begin_call(self, index: int, item: _Item) -> int:
        """Begin the call of an item that is a new call; return its place. Some servers give all calls one index."""
        if item.type not in _ARGUMENTS:
            return index
        last = self._moved.get(index, index)
        if last in self._calls:
            if not item.call_id or self._id_at[last] == item.call_id:
                return last
            if (known := self._call_ids.get(item.call_id)) is not None:
                return known
            self._moved[index] = index = _MOVED + len(self._calls)
        kind, argument = _ARGUMENTS[item.type]
        number = len(self._calls)
        self._calls[index] = number, kind, argument
        self._call_ids[item.call_id] = self._item_ids[item.id] = index
        self._id_at[index] = item.call_id
        call_id = self._ids.of_call(item.call_id or item.id or f"call_{number}")
        call = {"index": number, "id": call_id, "type": kind, kind: {"name": item.name or "", argument: ""}}
        self._delta(index, "call", {"tool_calls": [call]})
        return index

    def _argument(self, index: int, piece: str) -> None:
        if index not in self._calls:
            return
        number, kind, argument = self._calls[index]
        if kind == "function":
            piece = self._early.setdefault(index, EarlyObject()).add(piece)
        if piece:
            self._delta(index, "argument", {"tool_calls": [{"index": number, kind: {argument: piece}}]})

    def _end_argument(self, index: int, *, is_cut: bool) -> None:
        """Send an empty object if one was kept, or no arguments came: the call has ended."""
        number, kind, argument = self._calls.get(index, (0, "", ""))
        early = self._early.pop(index, None)
        rest = "" if early is None else early.end()
        if kind == "function" and not (rest or is_cut or (index, "argument") in self._sent):
            rest = "{}"
        if rest:
            self._delta(index, "argument", {"tool_calls": [{"index": number, kind: {argument: rest}}]})

    def _finish_item(self, index: int, item: _Item) -> None:
        """Send the parts of an item that no delta had."""
        index = self._begin_call(index, item)
        if (index, "argument") not in self._sent and (whole := written_arguments(item.arguments) or item.input):
            self._argument(index, whole)
        self._end_argument(index, is_cut=item.status == "incomplete")
        if (index, "reasoning") not in self._sent and item.type == "reasoning":
            parts = item.summary or item.content or ()
            if thought := "\n\n".join(part.text for part in parts if part.text):
                self._delta(index, "reasoning", {"reasoning_content": thought})
        if item.type == "reasoning":
            self._say_sealed(index, item.encrypted_content)
        if item.type == "image_generation_call" and item.result and (index, "image") not in self._sent:
            url = f"data:image/{item.output_format or 'png'};base64,{item.result}"
            self._delta(index, "image", {"images": [{"type": "image_url", "image_url": {"url": url}}]})
        if item.type == "message":
            self._finish_message(index, item)

    def _finish_message(self, index: int, item: _Item) -> None:
        is_sent = [(index, kind) in self._sent for kind in ("text", "refusal", "annotation")]
        for part in few(item.content or (), "parts"):
            if part.text and not is_sent[0]:
                self._text(index, part.text, part.logprobs)
            if part.refusal and not is_sent[1]:
                self._delta(index, "refusal", {"refusal": part.refusal})
            if part.annotations and not is_sent[2]:
                annotations = [*map(_nested, few(part.annotations, "annotations"))]
                self._delta(index, "annotation", {"annotations": annotations})

    def _say_sealed(self, index: int, encrypted: str | None) -> None:
        """Send encrypted reasoning in the field in which OpenRouter has it."""
        seal = self._seal
        if seal is None or not encrypted:
            return
        place = ThoughtPlace(len(self._calls), behind_text=any(kind == "text" for _, kind in self._sent))
        closed = {"type": "reasoning.encrypted", "data": seal.closed(encrypted, place), "format": OPENAIS}
        self._delta(index, "sealed", {"reasoning_details": [{**closed, "index": self._sealed}]})
        self._sealed += 1

    def _complete(self, response: _Response, reason: str) -> None:
        self._over = True
        self._begin()
        for index in self._calls:
            self._end_argument(index, is_cut=reason not in {"stop", "tool_calls"})
        self._chunk({}, reason)
        self._say_usage(response)
        self._out.append(DONE_EVENT)

    def _say_usage(self, response: _Response) -> None:
        if response.usage is not None:
            self._event({**self._top, "choices": [], "usage": chat_usage(response.usage)})

    def _fail(self, error: dict[str, Any]) -> None:
        """Send an error as an event. The reader of the chunks classifies it, and masks secrets in it."""
        self._over = True
        self._event({"error": error})

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None, **more: Any) -> None:
        choice = {"index": 0, "delta": delta, **more, "finish_reason": finish_reason}
        self._event({**self._top, "choices": [choice]})

    def _event(self, data: dict[str, Any]) -> None:
        self._out.append(b"data: " + msgspec.json.encode(data) + b"\n\n")


def _read(data: bytes) -> _Event:
    try:
        return _events.decode(data)
    except UNREADABLE:
        return read(data, _Event)


def _nested(annotation: dict[str, Any]) -> dict[str, Any]:
    """Return an annotation in chat's form, its fields nested in an object named by its type."""
    kind = str(annotation.get("type"))
    return {"type": kind, kind: {name: value for name, value in annotation.items() if name != "type"}}
