"""A request as a dialect words it, and what may be lost between two of them."""

from collections.abc import Mapping
from typing import Any

import msgspec

Fields = Mapping[str, msgspec.Raw]  # a body's top level, values still raw JSON


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
