"""Continuing an answer that another provider has begun: the dialect's part.

Servers want to be asked in different ways. A ``Way`` is declared for each vendor, with the source of that fact, in
``providers/vendors/vendors.toml``, or for a deployment. Only models that are known to continue are asked.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from providers.bodies import check_room, raw_json
from providers.dialects.wording import Fields
from providers.refusals import LARGE_BYTES

# How to ask for the rest of an answer. prefix: the last message has ``prefix: true`` (DeepSeek). repeated_prefix: the
# same, and the answer begins with that message (Mistral). final_message: the request says ``continue_final_message``
# (vLLM, SGLang). prefill: a last message of the assistant is continued (Anthropic). in_progress: a last item with this
# status is continued (vLLM).
Way = Literal["prefix", "repeated_prefix", "final_message", "prefill", "in_progress"]

T = TypeVar("T")
S_contra = TypeVar("S_contra", contravariant=True)

ASKS_NOTHING = frozenset({b"", b"null", b"[]", b"{}", b"false", b"0"})  # values with which a field asks for nothing

_objects = msgspec.json.Decoder(dict[str, Any])


class DeliveredPart(msgspec.Struct, frozen=True):
    """The delivered part of an answer that broke off."""

    text: str
    head: bytes | None  # the dialect's own, as JSON: what later events must repeat
    obstacle: str | None = None  # why no other deployment can continue the answer


class ContinuationEnd(msgspec.Struct, frozen=True):
    """How a continuation ended."""

    event: bytes | None = None  # the data of the event with the finish reason, in the client's dialect
    stop: str | None = None  # a stop string that began before the seam; text after it was dropped
    usage: tuple[int, int] | None = None  # tokens of prompt and whole answer; None if the client did not ask for usage


class Splice(Protocol):
    """Turns another deployment's text into events that continue a running answer."""

    def text(self, text: str) -> bytes:
        """Return the events that add ``text``."""

    def end(self, ended: ContinuationEnd) -> bytes:
        """Return the events that end the answer."""


class Continuing(Protocol):
    """How answers of a dialect are continued."""

    ways: frozenset[Way]  # ways in which the API can ask
    always_counts: bool  # answers have usage, whether or not the client asks for it

    def obstacle(self, fields: Fields) -> str | None:
        """Return why answers to this request cannot be continued; None if they can."""

    def begun(self, events: Iterable[bytes]) -> DeliveredPart:
        """Read the delivered part, from the data of each event.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError: an event does not have the API's format.

        """

    def stops(self, fields: Fields) -> Sequence[str]:
        """Return the strings at which the client wants the answer to end."""

    def own_prefix(self, fields: Fields) -> str:
        """Return the beginning of the answer that the client itself sent as a prefix; "" without one."""

    def request(self, fields: Fields, begun: str, way: Way | None, spent_tokens: int) -> Fields:
        """Return the request to continue the answer after ``begun``; its limit is lower by ``spent_tokens``."""

    def splice(self, begun: DeliveredPart) -> Splice:
        """Return a writer of events that follow those of ``begun``."""


def continued(continuing: Continuing, fields: Fields, begun: str, way: Way | None, spent_tokens: int) -> Fields:
    """Return the request to continue the answer, made by ``continuing``, which may read a long prompt.

    Raises:
        MemoryError: there is no room for the request.

    """
    size = len(begun) + sum(len(memoryview(raw)) for raw in fields.values())
    if size > LARGE_BYTES:
        check_room(3 * size)
    return continuing.request(fields, begun, way, spent_tokens)


class _Thoughts(msgspec.Struct):
    type: str | None = None
    effort: str | None = None
    enabled: bool | None = None


class _Format(msgspec.Struct):
    type: str | None = None


_formats = msgspec.json.Decoder(_Format | None)
_thoughts = msgspec.json.Decoder(str | _Thoughts | None)


def asks_for_thoughts(raw: msgspec.Raw) -> bool:
    """Whether a field about reasoning, of any name, requests reasoning; unknown values count as requests."""
    try:
        asked = _thoughts.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return True
    if asked is None or isinstance(asked, str):
        return asked not in {None, "none"}
    return asked.type != "disabled" and asked.effort != "none" and asked.enabled is not False


def asks_for_format(raw: msgspec.Raw) -> bool:
    """Whether a field about the answer's format asks for anything but text."""
    try:
        asked = _formats.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return True
    return asked is not None and asked.type != "text"


def objects_in(events: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the events that are JSON objects; other events are comments, or [DONE]."""
    return decoded_in(events, _objects)


def decoded_in(events: Iterable[bytes], decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
    """Yield the events that are JSON objects, decoded.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: an event has another type.

    """
    for data in events:
        if data.strip().startswith(b"{"):
            yield decoder.decode(data)


class DeliveredReading(Protocol[S_contra]):
    """What delivered events say."""

    pieces: list[str]  # of the choice's text

    @property
    def head(self) -> msgspec.Struct | None:
        """What later events must repeat; None: the answer has not begun."""

    def take(self, said: S_contra) -> str | None:
        """Read an event; return why the answer cannot be continued after it."""


def begun_by(reading: DeliveredReading[T], events: Iterable[T]) -> DeliveredPart:
    """Return what the ``events`` that were delivered have begun."""
    for said in events:
        if (obstacle := reading.take(said)) is not None:
            return DeliveredPart("", None, obstacle)
    if reading.head is None:
        return DeliveredPart("", None, "format")
    return DeliveredPart("".join(reading.pieces), msgspec.json.encode(reading.head))


def with_less(fields: Fields, limits: Iterable[str], spent_tokens: int, *, least: int = 1) -> dict[str, msgspec.Raw]:
    """Return the fields, each limit of the answer lowered by ``spent_tokens``, but not below ``least``."""
    changed = dict(fields)
    for name in limits:
        limit = _number(fields.get(name))
        if limit is not None:
            changed[name] = msgspec.Raw(b"%d" % max(least, limit - spent_tokens))
    return changed


def with_last(values: msgspec.Raw, last: object) -> msgspec.Raw:
    """Return a JSON array with one more value."""
    return raw_json([*msgspec.json.decode(values, type=list[msgspec.Raw]), last])


def strings_of(raw: msgspec.Raw | None) -> Sequence[str]:
    """Return the strings of a field that has one or several; none if the field has anything else."""
    try:
        value = None if raw is None else msgspec.json.decode(raw, type=str | list[str] | None)
    except msgspec.DecodeError:
        return ()
    return (value,) if isinstance(value, str) else value or ()


def _number(raw: msgspec.Raw | None) -> int | None:
    try:
        return None if raw is None else msgspec.json.decode(raw, type=int | None)
    except msgspec.DecodeError:
        return None
