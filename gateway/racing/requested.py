"""What a request asked for besides its prompt, as far as it is a column."""

from collections.abc import Mapping

import msgspec

from providers.dialects.dialect import Dialect
from providers.dialects.index import DIALECTS

_float = msgspec.json.Decoder(float)
_items = msgspec.json.Decoder(list[msgspec.Raw])
_LARGEST = 2**31 - 1  # that the column takes


class Requested(msgspec.Struct, frozen=True):
    """None: not said, or nothing that makes sense."""

    max_tokens: int | None = None
    temperature: float | None = None
    tools: int | None = None  # how many the model may call


def requested(fields: Mapping[str, msgspec.Raw], dialect: Dialect) -> Requested:
    """Return what the top level of a body in ``dialect`` says."""
    if fields.keys().isdisjoint(REQUESTED):
        return _NOTHING
    length = next((fields[name] for name in dialect.requests.parameters.answer_limits if name in fields), None)
    max_tokens = None if length is None else _number(length)
    temperature = _number(fields["temperature"]) if "temperature" in fields else None  # as a float: any of them fits
    return Requested(
        int(max_tokens) if max_tokens is not None and 0 < max_tokens <= _LARGEST else None,
        temperature,
        _count(fields["tools"]) if "tools" in fields else None,
    )


def _number(raw: msgspec.Raw) -> float | None:
    try:
        return _float.decode(raw)
    except msgspec.DecodeError:
        return None


def _count(raw: msgspec.Raw) -> int | None:
    try:
        return len(_items.decode(raw))
    except msgspec.DecodeError:
        return None


_NOTHING = Requested()
# The fields that say it, in any dialect.
REQUESTED = frozenset({"temperature", "tools"}).union(
    *(dialect.requests.parameters.answer_limits for dialect in DIALECTS.values())
)
