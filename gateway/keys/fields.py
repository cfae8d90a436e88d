"""The settings of a client outside the file: the same fields, checked by the same model, as JSON.

Nothing here knows a field but those that have a place of their own (keys, role, expiry): a new field of
``ClientSettings`` can be set, stored and shown without a change here.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from pydantic import ValidationError

from gateway.errors import InvalidRequest
from gateway.settings.client_checks import unknown_names
from gateway.settings.explain import explain
from gateway.settings.model import ClientSettings
from gateway.settings.problems import Complaint, written

OWN = frozenset({"name", "source", "keys", "key", "shadowed"})  # of a client's description: no setting has such a name
_APART = frozenset({"key_sha256", "admin", "role", "expires"})  # not in the JSON of a row
_NO_KEY = "0" * 64


def client_settings(
    fields: Mapping[str, Any],
    digests: Sequence[str] = (_NO_KEY,),
    *,
    models: Collection[str] | None = None,
    providers: Collection[str] | None = None,
) -> ClientSettings:
    """Return the settings that ``fields`` describe; ``models`` and ``providers`` are those that may be named, if known.

    Raises:
        InvalidRequest: fields are unknown or invalid; the message says of each what to write instead.

    """
    if "key_sha256" in fields:
        raise InvalidRequest("the gateway makes keys itself: leave out 'key_sha256'", param="key_sha256")
    if b"\\u0000" in msgspec.json.encode(fields, enc_hook=str):
        raise InvalidRequest("a value has a NUL character, which no database takes: remove it")
    place = ("clients", "")
    try:
        settings = ClientSettings.model_validate({**fields, "key_sha256": tuple(digests)})
    except ValidationError as error:
        details = error.errors(include_url=False)
        for detail in details:
            detail["loc"] = (*place, *detail["loc"])
        known = [detail for detail in details if detail["type"] != "default_factory_not_called"]
        raise _invalid([explain(detail) for detail in known]) from None
    known_models = (settings.models or ()) if models is None else models
    known_providers = (*(settings.only or ()), *settings.ignore) if providers is None else providers
    if complaints := list(unknown_names(place, settings, known_models, known_providers)):
        raise _invalid(complaints)
    return settings


def as_fields(settings: ClientSettings) -> dict[str, Any]:
    """Return what is set, as JSON: what describes the client again. The role is always there, keys never."""
    given = settings.model_dump(mode="json", exclude_unset=True, by_alias=True, exclude={"key_sha256", "admin"})
    return {"role": str(settings.role), **given, "expires": instant_text(settings.expires)}


def stored_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of ``fields`` that a row has as JSON."""
    return {name: value for name, value in fields.items() if name not in _APART}


def merged(fields: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``fields`` with ``patch`` over them, as RFC 7396 has it: null removes, sections are merged."""
    result = dict(fields)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            below = result.get(name)
            result[name] = merged(below if isinstance(below, Mapping) else {}, value)
        else:
            result[name] = value
    return result


def instant_text(instant: datetime | None, precision: str = "auto") -> str | None:
    """Return an instant of UTC as ISO 8601, with a Z; ``precision`` is ``isoformat``'s ``timespec``."""
    return None if instant is None else instant.isoformat(timespec=precision).replace("+00:00", "Z")


def _invalid(complaints: Sequence[Complaint]) -> InvalidRequest:
    said = [(written(complaint.place[2:]), complaint.message) for complaint in complaints]
    message = "; ".join(f"{field}: {words}" if field else words for field, words in said)
    return InvalidRequest(message, param=said[0][0] or None)
