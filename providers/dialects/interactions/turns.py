"""A conversation over several turns: the steps so far, which the gateway adds to the next turn's new input."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from providers.bodies import as_utf8, encoded, events
from providers.dialects.interactions.events import ACTS, COMPLETED, CUT, DELTA, START, InteractionGathering, read_event
from providers.dialects.reading import RawObject
from providers.dialects.recalling import MOST_ABOUT_BYTES, MOST_HEARD_BYTES
from providers.models import Usage
from providers.refusals import SURPRISES, UNREADABLE, UpstreamError

_TELLING = re.compile(rb'"(?:interaction|step|delta)"\s*:')
_OVER = frozenset({"completed", ACTS, *CUT})
_NOT_ABOUT = frozenset({"steps", "input", "system_instruction", "tools"})  # the client sends these with each request

_objects = msgspec.json.Decoder(RawObject)


class _Interaction(msgspec.Struct, gc=False):
    id: str | None = None
    status: str | None = None
    steps: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct, gc=False):
    event_type: str | None = None
    interaction: msgspec.Raw = msgspec.Raw(b"{}")


_events = msgspec.json.Decoder(_Event)
_interactions = msgspec.json.Decoder(_Interaction)


class HeardInteraction:
    """The parts of an answer's events that the next turn needs."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.is_over = False
        self.is_lost = False  # whether the answer's steps were longer than the gateway keeps
        self.about = b""  # the answer, once it is over, without its steps and its client's fields; empty: too long
        self._steps: list[bytes] = []
        self._gathering: InteractionGathering | None = InteractionGathering()
        self._bytes = 0

    def hear(self, data: bytes) -> None:
        """Read the data of one event."""
        if self._gathering is None or _TELLING.search(data) is None:
            return
        data = as_utf8(data)  # the next provider is sent these data
        try:
            event = _events.decode(data)
            if event.event_type in {START, DELTA}:
                self._bytes += len(data)
                if self._bytes > MOST_HEARD_BYTES:
                    self.is_lost, self._gathering = True, None
                else:
                    self._gathering.take(read_event(data))
                return
            told = _interactions.decode(event.interaction)
            self.id = told.id or self.id
            if event.event_type == COMPLETED:
                self._gathering.take(read_event(data))
                gathered, self._gathering = self._gathering.body(), None
                self._take(gathered)
        except (*SURPRISES, UpstreamError):  # left to the attempt itself: the client gets the data unchanged
            return

    def take(self, block: bytes) -> None:
        """Read whole events."""
        for event in events(block):
            self.hear(event.data)

    def read(self, body: bytes) -> None:
        """Read an answer that came whole."""
        self._take(as_utf8(body))

    def _take(self, body: bytes) -> None:
        try:
            whole = _interactions.decode(body)
            fields = _objects.decode(body)
        except UNREADABLE:
            return
        self.id, self.is_over = whole.id or self.id, whole.status in _OVER
        self.is_lost = self.is_lost or len(body) > 2 * MOST_HEARD_BYTES
        if self.is_lost:
            return
        self._steps = [bytes(step) for step in whole.steps or ()]
        about = encoded({name: value for name, value in fields.items() if name not in _NOT_ABOUT})
        self.about = about if len(about) <= MOST_ABOUT_BYTES else b""

    @property
    def said(self) -> Sequence[tuple[str | None, bytes]]:
        """The steps of the answer, which have no ids."""
        return [(None, step) for step in self._steps]


def answered_again(about: bytes, items: Sequence[tuple[str | None, bytes]]) -> bytes:
    """Return an interaction as it was answered, from the parts of a ``HeardInteraction``."""
    steps = msgspec.Raw(b"[%b]" % b",".join(step for _, step in items))
    return encoded({**_objects.decode(about), "steps": steps})


_ID = re.compile(rb'"interaction"\s*:\s*\{[^{}\[\]]*?"id"\s*:\s*"([^"\\]{1,200})"')


def id_of_answer(answer: bytes) -> str | None:
    """Return the id of the interaction whose JSON or events begin with ``answer``; None: no id."""
    found = _ID.search(answer)
    if found is not None:
        return found[1].decode(errors="replace")
    try:
        return _interactions.decode(answer).id
    except UNREADABLE:
        return None


def ended(data: bytes) -> bytes | None:
    """Return the interaction in the data of its last event; None: another event."""
    if COMPLETED.encode() not in data:
        return None
    try:
        said = _events.decode(data)
    except UNREADABLE:
        return None
    return bytes(said.interaction) if said.event_type == COMPLETED else None


def state_of(answer: bytes) -> tuple[str | None, Usage | None]:
    """Return the status and the usage of a stored interaction, as far as the interaction states them."""
    told: dict[str, Any] = {"event_type": COMPLETED, "interaction": msgspec.Raw(answer)}
    try:
        status = _interactions.decode(answer).status
        return status, read_event(encoded(told)).usage
    except (*UNREADABLE, UpstreamError):
        return None, None
