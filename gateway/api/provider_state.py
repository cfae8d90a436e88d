"""Who may name what a provider stores under the operator's key: files, conversations, items, MCP servers."""

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from gateway.api.client import Client
from gateway.api.json_body import too_many_values, values_outside_strings
from gateway.api.request import ParsedRequest
from gateway.core.errors import Forbidden, InvalidRequest, NothingStored
from gateway.settings import Settings
from providers import Steps, finished
from providers.dialects import Named, StoredKind, asked_fields, named_in_answer, plain

if TYPE_CHECKING:
    from gateway.api.context import Context

MOST_NAMES = 5_000  # of a request: an agent names each item of a long conversation
MOST_GIVEN = 1_000  # of an answer: what it names beyond these is nobody's
LONGEST_NAME = 500  # characters; all known ids are far shorter
_SMALL_BYTES = 2**16  # searched in one turn of the loop
_AT_ONCE = 50  # questions to Redis
_CALLED = frozenset({StoredKind.SERVER, StoredKind.CONNECTOR})
_HOST = re.compile(r"https?://([a-z0-9.-]+)(?::\d+)?(?:[/?#][^\\\s]*)?", re.IGNORECASE | re.ASCII)


class StoredAt(msgspec.Struct, frozen=True):
    """The deployment that has what a request names."""

    deployment: str
    field: str
    is_exact: bool = False  # only this deployment has it; else every deployment of its provider


class Known(Protocol):
    """Knows the ids that a client's answers named."""

    async def find(self, client: str | None, response_id: str) -> str | None:
        """Return the deployment that gave ``client`` an id; None if none did, or it is too long ago."""


class Watch(msgspec.Struct, frozen=True):
    """What of a client's requests is checked."""

    client: str | None
    ids: bool
    servers: bool


def watch_of(client: Client, settings: Settings) -> Watch | None:
    """Return what of a client's requests is checked; None: nothing.

    Without clients there is one owner of all, who may also call every MCP server, unless the operator says otherwise.
    """
    has_owner = client.name is not None
    ids = settings.provider_state == "none" or (settings.provider_state == "own" and has_owner)
    servers = settings.mcp_hosts is not None or has_owner
    return Watch(client.name, ids, servers) if ids or servers else None


def names_of(api: str, fields: Mapping[str, msgspec.Raw], most_values: int) -> Steps[list[Named]]:
    """Return what the ``fields`` of a request name, in slices.

    Raises:
        TooManyValues: a field with names has more than ``most_values``, which are built to find them.
        InvalidRequest: they name too much.

    """
    table, found = asked_fields(api), list[Named]()
    for name, raw in fields.items():
        field = table.get(plain(name))
        if field is None or not (yield from field.hinted(raw)):
            continue
        size = len(memoryview(raw))
        if size > most_values and (yield from values_outside_strings(raw, most_values)) > most_values:
            raise too_many_values(most_values, "where something stored at a provider is named", name)
        for each in field.named_in(name, raw):
            if each is None:
                yield
            else:
                found.append(each)
        if len(found) > MOST_NAMES:
            raise InvalidRequest(f"{name!r} names more than {MOST_NAMES} things that a provider stores", param=name)
    return found


def check_servers(named: list[Named], hosts: tuple[str, ...] | None) -> None:
    """Check that a provider may call the MCP servers and connectors of a request.

    Raises:
        Forbidden: the operator does not allow one of them.

    """
    for each in named:
        if each.kind not in _CALLED or _is_allowed(each, hosts or ()):
            continue
        raise Forbidden(
            f"'{each.field}': providers may not call {each.value[:100]!r} for clients: the operator lists the allowed"
            " hosts and connectors in 'mcp_hosts'",
            param=each.field,
        )


def _is_allowed(named: Named, hosts: tuple[str, ...]) -> bool:
    if "*" in hosts:
        return True
    if named.kind is StoredKind.CONNECTOR:
        return named.value in hosts
    url = _HOST.fullmatch(named.value)  # others may be read as another host by the provider than by us
    if url is None:
        return False
    host = url[1].lower().rstrip(".")
    return any(host == each or (each.startswith("*.") and host.endswith(each[1:])) for each in map(str.lower, hosts))


async def stored_at(
    named: list[Named], watch: Watch, known: Known, settings: Settings, before: StoredAt | None = None
) -> StoredAt | None:
    """Return which deployment's provider has what a request names, also ``before``; None if it names nothing stored.

    Raises:
        NothingStored: this client was not given one of the names.
        InvalidRequest: several providers have them.

    """
    ids = [each for each in named if each.kind not in _CALLED]
    found = before
    for at in range(0, len(ids), _AT_ONCE):
        part = ids[at : at + _AT_ONCE]
        is_none = settings.provider_state == "none"
        for each in part:
            if is_none or len(each.value) > LONGEST_NAME:
                raise _unknown(each, settings)
        places = await asyncio.gather(*(known.find(watch.client, each.value) for each in part))
        for each, deployment in zip(part, places, strict=True):
            if deployment is None:
                raise _unknown(each, settings)
            if found is None:
                found = StoredAt(deployment, each.field)
            elif _provider(found.deployment) != _provider(deployment):
                raise InvalidRequest(
                    f"'{found.field}' is stored at {_provider(found.deployment)}, but '{each.field}' at"
                    f" {_provider(deployment)}: no provider has both",
                    param=each.field,
                )
    return found


def _provider(deployment: str) -> str:
    return deployment.partition("/")[0]


def _unknown(named: Named, settings: Settings) -> NothingStored:
    why = f"no answer to this key named it in the last {settings.response_ids_ttl_s / 86_400:g} days"
    if settings.provider_state == "none":
        why = "requests may name nothing that a provider stores (provider_state: none)"
    return NothingStored(
        f"'{named.field}': the {named.kind} {named.value[:100]!r} is not this key's: {why}; send its content instead",
        param=named.field,
    )


async def check_names(
    context: "Context",
    client: Client,
    api: str,
    fields: Mapping[str, msgspec.Raw],
    *,
    before: StoredAt | None = None,
) -> StoredAt | None:
    """Return which deployment's provider has what a request of ``client`` names; None: any may be asked.

    ``before`` is the place of what it is already known to name.

    Raises:
        NothingStored: this client was not given one of the names.
        Forbidden: it names an MCP server that is not allowed.
        InvalidRequest: it names too much, or what several providers have.

    """
    settings = context.settings
    watch = watch_of(client, settings)
    if watch is None:
        return before
    steps = names_of(api, fields, settings.limits.max_values)
    size = sum(len(memoryview(raw)) for raw in fields.values())
    named = finished(steps) if size <= _SMALL_BYTES else await context.body_work.run(steps)
    if watch.servers:
        check_servers(named, settings.mcp_hosts)
    return await stored_at(named, watch, context.responses, settings, before) if watch.ids else before


def gives(asked: ParsedRequest) -> bool:
    """Whether the answer to a request may name what its provider stores from then on."""
    return asked.stores or asked.stateful or "audio" in asked.fields or "container" in asked.fields


class Given:
    """Gathers what the answer to one call names, for ``StoredResponses``."""

    def __init__(self, api: str) -> None:
        self._api = api
        self.names: dict[str, None] = {}

    def add(self, said: bytes) -> None:
        """Gather the names of a whole answer, or of one event's data."""
        for named in named_in_answer(self._api, said):
            if len(self.names) < MOST_GIVEN and len(named.value) <= LONGEST_NAME:
                self.names[named.value] = None
