"""An interaction that broke off inside its text, continued by a provider of another API."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from providers.dialects.continuing import (
    ASKS_NOTHING,
    ContinuationEnd,
    Continuing,
    DeliveredPart,
    Way,
    asks_for_thoughts,
    begun_by,
    decoded_in,
    objects_in,
    strings_of,
    with_less,
)
from providers.dialects.interactions.events import COMPLETED, CREATED, DELTA, START, STATE, STOP
from providers.dialects.interactions.fields import ENDING, IN_CONFIG, event
from providers.dialects.wording import Fields

_OBSTACLES: Mapping[str, str] = {
    "tools": "tools",
    "background": "background",
    "agent": "background",
    "response_modalities": "response_format",
    # The provider has the conversation, or keeps the answer.
    "cached_content": "stored",
    "continuation_token": "stored",
    "environment": "stored",
    "previous_interaction_id": "stored",
    "store": "stored",
}
_FORMATS = ("response_format", "response_mime_type")
_OUTPUT = "model_output"
_KINDS: Mapping[str, str] = {"thought": "reasoning"}  # kinds of steps; any other step is a tool's
_LIMIT = IN_CONFIG + "max_output_tokens"


class _Delta(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None


class _Step(msgspec.Struct, gc=False):
    type: str | None = None
    content: list[_Delta] | None = None


class _Event(msgspec.Struct, gc=False):
    event_type: str | None = None
    index: int | None = None
    interaction: dict[str, Any] | None = None
    step: _Step | None = None
    delta: _Delta | None = None


class _Head(msgspec.Struct):
    """The interaction, and its only step."""

    interaction: dict[str, Any]
    index: int = 0
    is_open: bool = False


class _Format(msgspec.Struct, forbid_unknown_fields=True):
    """A format that asks for text as it comes."""

    type: Literal["text"] = "text"
    mime_type: Literal["text/plain"] = "text/plain"


_formats = msgspec.json.Decoder(_Format | Literal["text/plain"] | None)


def _is_plain(form: msgspec.Raw) -> bool:
    try:
        _formats.decode(form)
    except msgspec.DecodeError:
        return False
    return True


_events = msgspec.json.Decoder(_Event)
_heads = msgspec.json.Decoder(_Head)


class InteractionContinuing(Continuing):
    """Interactions: the delivered text is the beginning of the model's output."""

    ways: frozenset[Way] = frozenset()
    always_counts = True

    def obstacle(self, fields: Fields) -> str | None:
        """Return the kind of answer that cannot be continued."""
        for name, kind in _OBSTACLES.items():
            if bytes(fields.get(name, b"")).strip() not in ASKS_NOTHING:
                return kind
        if (level := fields.get(IN_CONFIG + "thinking_level")) is not None and asks_for_thoughts(level):
            return "reasoning"
        return None if all(_is_plain(fields[name]) for name in _FORMATS if name in fields) else "response_format"

    def begun(self, events: Iterable[bytes]) -> DeliveredPart:
        """Read the events that were delivered."""
        return begun_by(_Reading(), decoded_in(events, _events))

    def stops(self, fields: Fields) -> Sequence[str]:
        """Return the stop strings."""
        return strings_of(fields.get(IN_CONFIG + "stop_sequences"))

    def own_prefix(self, fields: Fields) -> str:  # noqa: ARG002 - what a client has begun, the answer does not repeat
        """Return ""."""
        return ""

    def request(self, fields: Fields, begun: str, way: Way | None, spent_tokens: int) -> Fields:  # noqa: ARG002 - none
        """Return the request with a lower limit: interactions have no way to ask for a continuation."""
        return with_less(fields, (_LIMIT,), spent_tokens)

    def splice(self, begun: DeliveredPart) -> "InteractionSplice":
        """Return a writer of events of the same step."""
        assert begun.head is not None  # without a head the part has an obstacle
        return InteractionSplice(_heads.decode(begun.head))


class InteractionSplice:
    """Makes events of the step that is open."""

    def __init__(self, head: _Head) -> None:
        self._head = head

    def text(self, text: str) -> bytes:
        """Return a delta with text, after the step's start if none was sent yet."""
        index = self._head.index
        delta = event(DELTA, {"index": index, "delta": {"type": "text", "text": text}})
        if self._head.is_open:
            return delta
        self._head.is_open = True
        return event(START, {"index": index, "step": {"type": _OUTPUT}}) + delta

    def end(self, ended: ContinuationEnd) -> bytes:
        """Return the end of the step and of the interaction."""
        stop = event(STOP, {"index": self._head.index}) if self._head.is_open else b""
        said: dict[str, Any] = {}
        for last in objects_in([] if ended.event is None else [ended.event]):
            said = last.get("interaction") or {}
        over = {**self._head.interaction, "status": said.get("status") or "completed"}
        over |= {name: said[name] for name in ("created", "updated") if said.get(name)}
        if ended.usage is not None:
            prompt, answer = ended.usage
            counts = {"total_input_tokens": prompt, "total_output_tokens": answer, "total_tokens": prompt + answer}
            over["usage"] = {**counts, "total_cached_tokens": 0, "total_thought_tokens": 0}
        return stop + event(COMPLETED, {"interaction": over}) + ENDING


class _Reading:
    """What the delivered events say."""

    def __init__(self) -> None:
        self.head: _Head | None = None
        self.pieces: list[str] = []

    def take(self, said: _Event) -> str | None:
        """Read an event; return why the answer cannot be continued after it."""
        obstacle = None
        match said.event_type:
            case kind if kind == CREATED:
                self.head = _Head(said.interaction or {})
            case kind if kind == STATE:
                pass
            case kind if kind == START:
                obstacle = self._open(said)
            case kind if kind == DELTA:
                obstacle = self._add(said.delta or _Delta())
            case kind if kind == STOP:
                obstacle = "closed"
            case kind:
                obstacle = "ended" if kind == COMPLETED else "format"
        return obstacle

    def _open(self, said: _Event) -> str | None:
        step = said.step or _Step()
        if step.type != _OUTPUT:
            return _KINDS.get(step.type or "", "tools")
        if self.head is None or self.head.is_open:
            return "format" if self.head is None else "blocks"
        self.head.index, self.head.is_open = said.index or 0, True
        for content in step.content or ():
            if content.type != "text":
                return "format"
            self.pieces.append(content.text or "")
        return None

    def _add(self, delta: _Delta) -> str | None:
        if self.head is None or not self.head.is_open:
            return "format"
        if delta.type != "text":
            return "citations" if delta.type == "text_annotation_delta" else "format"
        self.pieces.append(delta.text or "")
        return None
