"""Whether a provider stores an answer: if the API's default forbids a race, the gateway has its own default."""

from collections.abc import Mapping

import msgspec

from gateway.http import is_set

STORE_HEADER = "x-holeshot-store"
_STORE = "store"
_ADDED = frozenset({_STORE})
_TRUE, _FALSE = msgspec.Raw(b"true"), msgspec.Raw(b"false")


class Storing(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a provider stores the answer to a request, and who has decided that."""

    stores: bool
    added: frozenset[str] = frozenset()  # the field that the gateway has set
    response_headers: Mapping[str, str] = {}  # tell what the gateway has decided


def storing_of(fields: dict[str, msgspec.Raw], *, default: bool, keeps_default: bool) -> Storing:
    """Return whether the answer to a request is stored. If the client does not say, ``store`` is set in its ``fields``.

    ``default``: the gateway's. ``keeps_default``: whether the API's own default, true, holds instead: nothing is set.
    """
    asked = fields.get(_STORE)
    if asked is not None and is_set(asked):
        return Storing(stores=bytes(asked) == b"true")
    if keeps_default:
        return Storing(stores=True)
    fields[_STORE] = _TRUE if default else _FALSE
    told = {STORE_HEADER: "true" if default else "false"}
    return Storing(stores=default, added=_ADDED, response_headers=told)
