"""A response that broke off inside its text, continued by another provider."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from providers.bodies import raw_json
from providers.dialects.continuing import (
    ASKS_NOTHING,
    ContinuationEnd,
    Continuing,
    DeliveredPart,
    Way,
    asks_for_format,
    asks_for_thoughts,
    begun_by,
    decoded_in,
    objects_in,
    with_last,
    with_less,
)
from providers.dialects.responses.events import ENDS
from providers.dialects.responses.fields import LEAST_TOKENS, EventWriter, responses_usage
from providers.dialects.wording import Fields

_OBSTACLES: Mapping[str, str] = {
    "tools": "tools",
    "include": "include",
    "top_logprobs": "logprobs",
    "background": "background",
    # The provider has the conversation, or keeps the answer.
    "conversation": "stored",
    "previous_response_id": "stored",
    "prompt": "stored",
    "store": "stored",
}
_OTHERS: Mapping[str, str] = {  # why an answer with such an event cannot be continued
    "response.output_text.annotation.added": "citations",
    **dict.fromkeys(ENDS, "ended"),
}


class _Event(msgspec.Struct):
    type: str = ""
    sequence_number: int | None = None
    output_index: int | None = None
    content_index: int | None = None
    delta: Any = None
    item: dict[str, Any] | None = None
    part: dict[str, Any] | None = None
    response: dict[str, Any] | None = None


class _Head(msgspec.Struct):
    """The response, its only item and the item's only part, as they were before the text."""

    response: dict[str, Any]
    sequence_number: int = 0  # of the next event
    item: dict[str, Any] | None = None
    part: dict[str, Any] | None = None
    output_index: int = 0
    content_index: int = 0


class _Text(msgspec.Struct):
    format: msgspec.Raw = msgspec.Raw(b"null")


_texts = msgspec.json.Decoder(_Text | None)
_events = msgspec.json.Decoder(_Event)
_heads = msgspec.json.Decoder(_Head)


class ResponseContinuing(Continuing):
    """Responses: the delivered text is the beginning of a message that is not finished."""

    ways: frozenset[Way] = frozenset({"in_progress"})
    always_counts = True

    def obstacle(self, fields: Fields) -> str | None:
        """Return the kind of answer that cannot be continued."""
        for name, kind in _OBSTACLES.items():
            if bytes(fields.get(name, b"")).strip() not in ASKS_NOTHING:
                return kind
        if "reasoning" in fields and asks_for_thoughts(fields["reasoning"]):
            return "reasoning"
        try:
            text = _texts.decode(fields.get("text", b"null"))
        except msgspec.DecodeError:
            return "response_format"
        return "response_format" if text is not None and asks_for_format(text.format) else None

    def begun(self, events: Iterable[bytes]) -> DeliveredPart:
        """Read the events that were delivered."""
        return begun_by(_Reading(), decoded_in(events, _events))

    def stops(self, fields: Fields) -> Sequence[str]:  # noqa: ARG002 - this API has no stop strings
        """Return no strings."""
        return ()

    def own_prefix(self, fields: Fields) -> str:  # noqa: ARG002 - what a client has begun, the answer does not repeat
        """Return ""."""
        return ""

    def request(self, fields: Fields, begun: str, way: Way | None, spent_tokens: int) -> Fields:  # noqa: ARG002 - one
        """Return the request with the beginning as the last item."""
        changed = with_less(fields, ("max_output_tokens",), spent_tokens, least=LEAST_TOKENS)
        if not begun:
            return changed
        given = fields["input"]
        if bytes(given).lstrip().startswith(b'"'):
            given = raw_json([{"role": "user", "content": given}])
        part = {"type": "output_text", "text": begun, "annotations": []}
        item = {"type": "message", "id": "msg_begun", "role": "assistant", "status": "in_progress", "content": [part]}
        changed["input"] = with_last(given, item)
        return changed

    def splice(self, begun: DeliveredPart) -> "ResponseSplice":
        """Return a writer of events of the same text."""
        assert begun.head is not None  # without a head the part has an obstacle
        return ResponseSplice(_heads.decode(begun.head), begun.text)


class ResponseSplice:
    """Makes events of the text that is open. The last events repeat the whole text."""

    def __init__(self, head: _Head, text: str) -> None:
        self._head = head
        self._writer = EventWriter(head.sequence_number)
        self._pieces = [text]

    def text(self, text: str) -> bytes:
        """Return a delta, after the starts of item and part if these were not sent yet."""
        head = self._head
        if head.item is None:
            head.item = {"id": "msg_begun", "type": "message", "status": "in_progress", "role": "assistant"}
            head.item["content"] = []
            self._writer.say("response.output_item.added", output_index=head.output_index, item=head.item)
        if head.part is None:
            head.part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            self._say("content_part.added", part=head.part)
        self._pieces.append(text)
        self._say("output_text.delta", delta=text, logprobs=[])
        return self._writer.take()

    def end(self, ended: ContinuationEnd) -> bytes:
        """Return the ends of part, item and response."""
        head = self._head
        said: dict[str, Any] = {}
        for last in objects_in([] if ended.event is None else [ended.event]):
            said = last.get("response") or {}
        state = "incomplete" if said.get("incomplete_details") else "completed"
        output = []
        if head.item is not None and head.part is not None:
            output = [self._close(head.item, {**head.part, "text": "".join(self._pieces)}, state)]
        response = {**head.response, "status": state, "output": output}
        response |= {name: said[name] for name in ("completed_at", "incomplete_details") if said.get(name) is not None}
        if ended.usage is not None:
            prompt, completion = ended.usage
            response["usage"] = responses_usage({"prompt_tokens": prompt, "completion_tokens": completion})
        self._writer.say(f"response.{state}", response=response)
        return self._writer.take()

    def _close(self, item: Mapping[str, Any], part: Mapping[str, Any], state: str) -> dict[str, Any]:
        self._say("output_text.done", text=part["text"], logprobs=[])
        self._say("content_part.done", part=part)
        done = {**item, "status": state, "content": [part]}
        self._writer.say("response.output_item.done", output_index=self._head.output_index, item=done)
        return done

    def _say(self, kind: str, **fields: Any) -> None:
        head = self._head
        item_id = (head.item or {}).get("id")
        place = {"item_id": item_id, "output_index": head.output_index, "content_index": head.content_index}
        self._writer.say(f"response.{kind}", **place, **fields)


class _Reading:
    """What the delivered events say."""

    def __init__(self) -> None:
        self.head: _Head | None = None
        self.pieces: list[str] = []

    def take(self, said: _Event) -> str | None:
        """Read an event; return why the answer cannot be continued after it."""
        if said.type == "response.created" and said.response is not None:
            self.head = _Head(said.response)
        head = self.head
        if head is None:
            return "format"
        number = head.sequence_number if said.sequence_number is None else said.sequence_number
        head.sequence_number = number + 1
        obstacle = None
        match said.type:
            case "response.created" | "response.in_progress" | "response.queued":
                pass
            case "response.output_item.added":
                obstacle = self._open_item(head, said)
            case "response.content_part.added":
                obstacle = self._open_part(head, said)
            case "response.output_text.delta":
                self.pieces.append(str(said.delta or ""))
                obstacle = None if head.part is not None else "format"
            case kind:
                obstacle = _OTHERS.get(kind, "closed" if kind.endswith(".done") else "format")
        return obstacle

    def _open_item(self, head: _Head, said: _Event) -> str | None:
        item = said.item or {}
        if item.get("type") != "message":
            return "reasoning" if item.get("type") == "reasoning" else "tools"
        if head.item is not None:
            return "blocks"
        head.item, head.output_index = item, said.output_index or 0
        return None

    def _open_part(self, head: _Head, said: _Event) -> str | None:
        part = said.part or {}
        if part.get("type") != "output_text":
            return "refusal"
        if head.item is None or head.part is not None:
            return "blocks"
        head.part, head.content_index = part, said.content_index or 0
        self.pieces.append(str(part.get("text") or ""))
        return None
