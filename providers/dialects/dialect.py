"""What a dialect is: one of the APIs that clients and providers speak, and what may be lost between two of them."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from providers.chunks import Chunk


class Dialect(StrEnum):
    """An API in which an answer is asked for and streamed."""

    CHAT = "chat"  # OpenAI's /chat/completions
    COMPLETIONS = "completions"  # OpenAI's older /completions: a raw prompt is continued
    RESPONSES = "responses"  # OpenAI's /responses
    MESSAGES = "messages"  # Anthropic's /messages


class Malformed(Exception):
    """A request that is not what its dialect demands; ``param`` names the field as a path, ``messages[2].content``."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class Loss(msgspec.Struct, frozen=True):
    """Something of a request that cannot be said in another dialect, or that a deployment does not hear.

    A ``hint`` changes cost or speed at most, never the answer (a cache marker): the client is told that it was left
    out, and that is all. Anything else keeps the deployment out of the race unless it may drop parameters.
    """

    field: str  # as the client wrote it: logprobs, tools[1].type
    reason: str  # "Messages has no log probabilities"
    hint: bool = False


class Wording(msgspec.Struct, frozen=True):
    """A request as one dialect says it: the body's top level, values still raw JSON, and what was lost on the way."""

    fields: Mapping[str, msgspec.Raw]
    losses: tuple[Loss, ...] = ()


class Translation(Protocol):
    """Turns one answer's event stream into another dialect's. Use one for each answer."""

    def feed(self, block: bytes) -> bytes:
        """Return what whole events of the source say in the target, ``b""`` while there is nothing to be said yet.

        Raises:
            UpstreamError: an event is malformed, or is the provider's error.

        """

    def end(self) -> bytes:
        """Return what is still to be said when the source has ended, whether or not it was whole.

        An answer that broke off before its end is not given one: the reader of the target must see that it did.
        """


class Gathering(Protocol):
    """Makes one whole answer, as the dialect's API returns it to who does not stream, out of its events."""

    def take(self, data: bytes) -> None:
        """Take one event's data (never empty, never [DONE]).

        Raises:
            UpstreamError: it is valid JSON, but not what the dialect says (invalid_response).

        """

    def body(self) -> bytes:
        """Return the whole answer as JSON."""


ReadEvent = Callable[[bytes, Sequence[str]], Chunk]


def decoded(raw: msgspec.Raw | None, type_: Any, field: str) -> Any:
    """Return ``raw`` as ``type_``, None where it is missing or null.

    Raises:
        Malformed: it is of another type.

    """
    if raw is None or bytes(raw) == b"null":
        return None
    try:
        return msgspec.json.decode(raw, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"{field!r} is invalid: {error}", field) from None


def raw_json(value: Any) -> msgspec.Raw:
    """Return ``value`` as raw JSON."""
    return msgspec.Raw(msgspec.json.encode(value))
