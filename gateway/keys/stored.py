"""A key of the database: one row of ``client_keys``. A client has a row for each of its keys, all with its settings."""

import base64
import hashlib
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import UNSET, Meta, UnsetType
from pydantic import ValidationError

from gateway.core.errors import InvalidRequest
from gateway.settings import ClientSettings, Complaint, explain, unknown_names, written
from providers import redact


class KeyState(StrEnum):
    """Whether a key is valid now."""

    ACTIVE = "active"
    RETIRING = "retiring"  # replaced, but valid until ``retires_at``
    EXPIRED = "expired"
    REVOKED = "revoked"


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A row. Instants are UTC. ``settings`` are the client's, as in the file, without keys, role and expiry."""

    id: str
    name: str  # the client's name
    sha256: str  # 64 hexadecimal digits
    hint: str  # the key's last characters
    role: str
    settings: Mapping[str, Any]
    expires_at: datetime | None = None  # the end of the client, so of all its keys
    retires_at: datetime | None = None  # the end of this key alone: of the grace after a rotation
    created_at: datetime
    created_by: str
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None  # to the minute
    change_id: int = 0  # the last change of this row, an id of ``key_changes``

    @property
    def ends_at(self) -> datetime | None:
        """The instant from which the key is refused, unless it is revoked before; None: never."""
        ends = [instant for instant in (self.expires_at, self.retires_at) if instant is not None]
        return min(ends, default=None)

    def state(self, now: datetime) -> KeyState:
        """Return the key's state at ``now``."""
        if self.revoked_at is not None:
            return KeyState.REVOKED
        if self.ends_at is not None and self.ends_at <= now:
            return KeyState.EXPIRED
        return KeyState.ACTIVE if self.retires_at is None else KeyState.RETIRING


# The interface to the database of keys.


class KeyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one client's keys, and its row of ``key_changes``. Neither has a secret."""

    action: str  # created, changed, rotated, revoked
    name: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    rows: tuple[StoredKey, ...]  # the new and the changed rows


# Returns the change of a client that has these keys (without revoked keys, the newest last), or raises an ApiError.
Decide = Callable[[Sequence[StoredKey]], KeyChange]


class KeyStore(Protocol):
    """Stores keys and their changes. Each method raises ``KeysUnreachable`` without an answer within seconds."""

    async def version(self) -> int:
        """Return a number that each change increases; a lower one than before means that the database was replaced."""

    async def rows(self, changed_after: int | None = None) -> list[StoredKey]:
        """Return the rows that are not revoked, without their last use, which changes nothing.

        ``changed_after``: only keys that were changed after this version, revoked ones included.
        """

    async def listed(self, *, revoked: bool = False) -> list[StoredKey]:
        """Return the rows with all fields, for display; with ``revoked`` also those of revoked keys."""

    async def change(self, name: str, decide: Decide, *, who: str, at: datetime) -> KeyChange:
        """Carry out and record the change that ``decide`` returns, in one transaction; one change at a time.

        Raises:
            ApiError: ``decide`` raised it; then nothing has changed.

        """

    async def note_uses(self, ids: Collection[str], at: datetime) -> None:
        """Record that the keys with these ids were used at ``at``."""

    async def aclose(self) -> None:
        """Close all connections."""


# The settings of a client outside the file: the same fields, checked by the same model, as JSON. Nothing here knows a
# field except those with columns of their own (keys, role, expiry): a new field of ``ClientSettings`` can be set,
# stored and shown without a change here.

OWN = frozenset({"name", "source", "keys", "key", "shadowed"})  # of a client's description: no setting has such a name
OF_FILE = frozenset({"key_sha256", "admin", "provider_keys"})  # of a client in the configuration only
_APART = frozenset({"key_sha256", "admin", "role", "expires"})  # not in the JSON of a row
_NO_KEY = "0" * 64


def client_settings(
    fields: Mapping[str, Any],
    digests: Sequence[str] = (_NO_KEY,),
    *,
    models: Collection[str] | None = None,
    providers: Collection[str] | None = None,
    teams: Collection[str] | None = None,
) -> ClientSettings:
    """Return the settings that ``fields`` describe; ``models``, ``providers`` and ``teams`` are the names, if known.

    Raises:
        InvalidRequest: fields are unknown or invalid; the message says of each what to write instead.

    """
    if "key_sha256" in fields:
        raise InvalidRequest("the gateway makes keys itself: leave out 'key_sha256'", param="key_sha256")
    if "provider_keys" in fields:
        raise InvalidRequest(
            "keys of providers are not stored in the database: set 'provider_keys' for a client of the file, or let"
            " requests bring them (tenant_keys)",
            param="provider_keys",
        )
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
    known_teams = (settings.team or "",) if teams is None else teams
    if complaints := list(unknown_names(place, settings, known_models, known_providers, known_teams)):
        raise _invalid(complaints)
    return settings


def as_fields(settings: ClientSettings) -> dict[str, Any]:
    """Return the settings that are set, as JSON for ``client_settings``. The role is always included, keys never."""
    given = settings.model_dump(mode="json", exclude_unset=True, by_alias=True, exclude=set(OF_FILE))
    return {"role": str(settings.role), **given, "expires": instant_text(settings.expires)}


def stored_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of ``fields`` that a row stores as JSON."""
    return {name: value for name, value in fields.items() if name not in _APART}


def merged(fields: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``fields`` with the merge patch ``patch`` applied (RFC 7396): sections are merged.

    A null stays, although it means the default, so that ``client_settings`` can refuse it in an unknown field.
    """
    result = dict(fields)
    for name, value in patch.items():
        if isinstance(value, Mapping):
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


# Descriptions of clients and their keys, for people and as JSON, without secrets.

FILE: Literal["file"] = "file"
DATABASE: Literal["database"] = "database"
Text = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]  # an instant


class ClientKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key; of a key in the file only the state is known."""

    id: str | UnsetType = UNSET
    hint: Annotated[str | UnsetType, Meta(description="Its last characters.")] = UNSET
    created_at: Text | UnsetType = UNSET
    created_by: str | UnsetType = UNSET
    last_used_at: Text | UnsetType | None = UNSET
    retires_at: Annotated[Text | UnsetType | None, Meta(description="When a rotated key ends.")] = UNSET
    revoked_at: Text | UnsetType | None = UNSET
    state: KeyState


class ShownClient(msgspec.Struct, frozen=True, kw_only=True):
    """A client without its settings."""

    name: str
    source: Annotated[Literal["file", "database"], Meta(description="Where the client is described.")]
    expires: Text | None
    keys: list[ClientKey]
    shadowed: Annotated[
        bool | UnsetType, Meta(description="The file has a client of this name, and that one counts.")
    ] = UNSET

    def with_settings(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole description; ``fields`` are the client's settings, as far as they are set."""
        beside: dict[str, Any] = msgspec.to_builtins(self)
        return {"name": self.name, "source": self.source, **fields, **beside}


def shown_stored(name: str, rows: Sequence[StoredKey], now: datetime, *, shadowed: bool = False) -> dict[str, Any]:
    """Return a client of the database with its keys, the newest last. ``shadowed``: the file has a client so named."""
    fields = fields_of(rows[-1])
    shown = ShownClient(
        name=name,
        source=DATABASE,
        expires=fields["expires"],
        keys=[shown_key(row, now) for row in rows],
        shadowed=shadowed or UNSET,
    )
    return shown.with_settings(fields)


def shown_configured(name: str, settings: ClientSettings, now: datetime) -> dict[str, Any]:
    """Return a client of the file."""
    is_over = settings.expires is not None and settings.expires <= now
    keys = [ClientKey(state=KeyState.EXPIRED if is_over else KeyState.ACTIVE) for _ in settings.key_sha256]
    fields = as_fields(settings)
    return ShownClient(name=name, source=FILE, expires=fields["expires"], keys=keys).with_settings(fields)


def shown_all(clients: Mapping[str, ClientSettings], rows: Iterable[StoredKey], now: datetime) -> list[dict[str, Any]]:
    """Return every client, by name: those of the file, then those of the database."""
    return list(each_shown(clients, rows, now))


def each_shown(
    clients: Mapping[str, ClientSettings], rows: Iterable[StoredKey], now: datetime
) -> Iterator[dict[str, Any]]:
    """Return an iterator over the clients that exist now; each is described only when it is asked for."""
    of_file, of_database = dict(clients), sorted(by_name(rows).items())
    return chain(
        (shown_configured(name, settings, now) for name, settings in of_file.items()),
        (shown_stored(name, keys, now, shadowed=name in of_file) for name, keys in of_database),
    )


def shown_key(row: StoredKey, now: datetime) -> ClientKey:
    """Return one key of the database."""
    return ClientKey(
        id=row.id,
        hint=row.hint,
        created_at=instant_text(row.created_at, "seconds") or UNSET,
        created_by=row.created_by,
        last_used_at=instant_text(row.last_used_at, "seconds"),
        retires_at=instant_text(row.retires_at, "seconds"),
        revoked_at=instant_text(row.revoked_at, "seconds"),
        state=row.state(now),
    )


def fields_of(row: StoredKey) -> dict[str, Any]:
    """Return the settings of the row's client, as they were set."""
    return {"role": row.role, **row.settings, "expires": instant_text(row.expires_at)}


def by_name(rows: Iterable[StoredKey]) -> dict[str, list[StoredKey]]:
    """Return the rows of each client, the newest last."""
    found: dict[str, list[StoredKey]] = {}
    for row in sorted(rows, key=lambda row: (row.created_at, row.id)):
        found.setdefault(row.name, []).append(row)
    return found


# A new key: its text, which only its owner has, and the parts that are stored.

PREFIX = "hs-"
_RANDOM_BYTES = 32
_HINT_CHARS = 4
_LONGEST_NAME = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class NewKey(msgspec.Struct, frozen=True):
    """A key that was just made. ``text`` is shown once, and stored nowhere."""

    text: str
    sha256: str  # 64 hexadecimal digits
    hint: str  # its last characters, by which its owner finds it in a list: 24 bits of 256

    def __repr__(self) -> str:
        """Show it without the key."""
        return f"NewKey(hint={self.hint!r})"


def new_key(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> NewKey:
    """Return a key of 256 random bits: it cannot be guessed, so its SHA-256 needs neither salt nor many rounds."""
    text = PREFIX + base64.urlsafe_b64encode(random_bytes(_RANDOM_BYTES)).rstrip(b"=").decode()
    return NewKey(text, hashlib.sha256(text.encode()).hexdigest(), text[-_HINT_CHARS:])


def check_name(name: object) -> str:
    """Return ``name`` if it can be a client's.

    Raises:
        InvalidRequest: it cannot.

    """
    if name is None:
        raise InvalidRequest("name: is missing", param="name")
    if isinstance(name, str) and redact(name) != name:
        raise InvalidRequest("name: this looks like a key; names are not secret, so take another one", param="name")
    if not isinstance(name, str) or not is_name(name):
        shown = f"{name[:_LONGEST_NAME]!r}" if isinstance(name, str) else "name: this"
        raise InvalidRequest(
            f"{shown} is not a valid client name: use letters, digits, dots, dashes and underscores,"
            f" at most {_LONGEST_NAME}",
            param="name",
        )
    return name


def is_name(name: str) -> bool:
    """Whether ``name`` can be that of a client in the database."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None
