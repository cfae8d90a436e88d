"""The parameters of a request that have a column in the ledger."""

from collections.abc import Mapping

import msgspec

from providers.dialects.dialect import Dialect
from providers.dialects.index import DIALECTS

_float = msgspec.json.Decoder(float)
_items = msgspec.json.Decoder(list[msgspec.Raw])
_LARGEST = 2**31 - 1  # the column's maximum


class Requested(msgspec.Struct, frozen=True):
    """Parameters; None: not given, or invalid."""

    max_tokens: int | None = None
    temperature: float | None = None
    tools: int | None = None  # number of tools offered


def requested(fields: Mapping[str, msgspec.Raw], dialect: Dialect) -> Requested:
    """Read the parameters from the top level of a body in ``dialect``."""
    if fields.keys().isdisjoint(REQUESTED):
        return _NOTHING
    length = next((fields[name] for name in dialect.requests.parameters.answer_limits if name in fields), None)
    max_tokens = None if length is None else _number(length)
    temperature = _number(fields["temperature"]) if "temperature" in fields else None  # a float, as the column is
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
# The fields that are read, in all dialects.
REQUESTED = frozenset({"temperature", "tools"}).union(
    *(dialect.requests.parameters.answer_limits for dialect in DIALECTS.values())
)
