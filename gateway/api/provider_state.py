"""Checks who may name what a provider stores under the operator's key: files, conversations, items, MCP servers."""

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from gateway.access import Client
from gateway.api.request import ParsedRequest
from gateway.core.calls import Maker
from gateway.core.errors import Forbidden, InvalidRequest, NothingStored, ResponseNotFound
from gateway.fleet import Fleet
from gateway.http import too_many_values, values_outside_strings
from gateway.settings import Settings
from providers import Steps, finished
from providers.dialects import (
    GIVES_STORED,
    GIVING_HEADERS,
    HELD,
    HOLDING,
    NamedId,
    StoredKind,
    asked_field,
    named_in_answer,
)

if TYPE_CHECKING:
    from gateway.api.context import Context

# Names of stored objects.

MOST_NAMES = 5_000  # of a request: an agent names each item of a long conversation
MOST_GIVEN = 1_000  # of an answer; further names belong to no client
LONGEST_NAME = 10_000  # characters: known ids are far shorter, but credits are sealed texts
_SMALL_BYTES = 2**16  # searched in one turn of the loop
_AT_ONCE = 50  # questions to Redis
_CALLED = frozenset({StoredKind.SERVER, StoredKind.CONNECTOR})
_HOST = re.compile(r"https?://([a-z0-9.-]+)(?::\d+)?(?:[/?#][^\\\s]*)?", re.IGNORECASE | re.ASCII)


class StoredAt(msgspec.Struct, frozen=True):
    """The deployment that has the objects that a request names."""

    deployment: str
    field: str
    is_exact: bool = False  # only this deployment has them; otherwise all deployments of the provider do
    key_name: str | None = None  # the provider's only key that has them; None: any key


class KnownIds(Protocol):
    """Knows the ids in a client's answers."""

    async def maker(self, client: str | None, name: str) -> Maker | None:
        """Return the maker of the answer that gave ``client`` an id; None: unknown or expired."""


class StateChecks(msgspec.Struct, frozen=True):
    """What is checked in a client's requests: ids, and MCP servers."""

    client: str | None
    ids: bool
    servers: bool


def watch_of(client: Client, settings: Settings) -> StateChecks | None:
    """Return what is checked in a client's requests; None: nothing.

    Without clients everything has one owner, who may also call every MCP server, unless the operator says otherwise.
    """
    has_owner = client.name is not None or client.tenant is not None
    ids = settings.provider_state == "none" or (settings.provider_state == "own" and has_owner)
    servers = settings.mcp_hosts is not None or has_owner
    return StateChecks(client.name, ids, servers) if ids or servers else None


def names_of(api: str, fields: Mapping[str, msgspec.Raw], most_values: int) -> Steps[list[NamedId]]:
    """Return the ids that the ``fields`` of a request name; in slices.

    Raises:
        TooManyValues: a field with names has more than ``most_values`` JSON values, which would be decoded.
        InvalidRequest: there are too many names.

    """
    names = list[NamedId]()
    for name, raw in fields.items():
        field = asked_field(api, name)
        if not (yield from field.hinted(raw)):
            continue
        size = len(memoryview(raw))
        if size > most_values and (yield from values_outside_strings(raw, most_values)) > most_values:
            raise too_many_values(most_values, "where something stored at a provider is named", name)
        for each in field.named_in(name, raw):
            if each is None:
                yield
                continue
            names.append(each)
            if len(names) > MOST_NAMES:
                raise InvalidRequest(f"{name!r} names more than {MOST_NAMES} things that a provider stores", param=name)
    return names


def check_servers(named: list[NamedId], hosts: tuple[str, ...] | None) -> None:
    """Check that a provider may call the MCP servers and connectors in a request.

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


def _is_allowed(named: NamedId, hosts: tuple[str, ...]) -> bool:
    if "*" in hosts:
        return True
    if named.kind is StoredKind.CONNECTOR:
        return named.value in hosts
    url = _HOST.fullmatch(named.value)  # another text may be one host for the provider and another one for us
    if url is None:
        return False
    host = url[1].lower().rstrip(".")
    return any(host == each or (each.startswith("*.") and host.endswith(each[1:])) for each in map(str.lower, hosts))


async def stored_at(
    named: list[NamedId], watch: StateChecks, known: KnownIds, settings: Settings, before: StoredAt | None = None
) -> StoredAt | None:
    """Return the deployment of the provider that has the named objects, and ``before``; None: none are stored.

    Raises:
        NothingStored, ResponseNotFound: this client was not given one of the names.
        InvalidRequest: several providers have some of them.

    """
    ids = [each for each in named if each.kind not in _CALLED and (watch.ids or each.kind in HELD)]
    place = before
    is_any = settings.provider_state == "any"
    for at in range(0, len(ids), _AT_ONCE):
        part = ids[at : at + _AT_ONCE]
        is_none = settings.provider_state == "none"
        for each in part:
            if is_none or len(each.value) > LONGEST_NAME:
                raise _unknown(each, settings)
        makers = await asyncio.gather(*(known.maker(watch.client, each.value) for each in part))
        for each, maker in zip(part, makers, strict=True):
            if maker is None:
                if is_any or (not watch.ids and each.kind is StoredKind.CONTAINER):
                    continue
                raise _unknown(each, settings)
            deployment = maker.deployment
            if place is None:
                place = StoredAt(deployment, each.field, key_name=maker.key_name)
            elif _provider(place.deployment) != _provider(deployment):
                raise InvalidRequest(
                    f"'{place.field}' is stored at {_provider(place.deployment)}, but '{each.field}' at"
                    f" {_provider(deployment)}: no provider has both",
                    param=each.field,
                )
    return place


def _provider(deployment: str) -> str:
    return deployment.partition("/")[0]


def _unknown(named: NamedId, settings: Settings) -> NothingStored | ResponseNotFound:
    why = f"no answer to this key is known here that named it ({not_known(settings)})"
    if settings.provider_state == "none":
        why = "requests may name nothing that a provider stores (provider_state: none)"
    if named.kind in {StoredKind.ITEM, StoredKind.RESPONSE}:
        why += f", and {not_recent(settings)}"
    unknown = ResponseNotFound if named.field == "previous_response_id" else NothingStored
    return unknown(
        f"'{named.field}': the {named.kind} {named.value[:100]!r} is not this key's: {why}; send its content instead",
        param=named.field,
    )


def not_known(settings: Settings) -> str:
    """Return, for a message, how long names of stored objects are known."""
    return f"such names are kept for {settings.response_ids_ttl_s / 86_400:g} days"


def not_recent(settings: Settings) -> str:
    """Return, for the end of a sentence, why the gateway itself does not know an answer."""
    memory = settings.responses_memory
    if not memory.max_mb:
        return "answers that no provider stores are not kept here (responses_memory: off)"
    is_shared = settings.redis_url is not None and memory.redis
    lost = "" if is_shared else " (without 'redis_url' a restart forgets them, and replicas do not share them)"
    return (
        f"it is not among the recent answers that the gateway keeps, for {memory.ttl_s / 60:g} minutes, as far as"
        f" 'responses_memory' allows{lost}"
    )


async def check_names(
    context: "Context",
    client: Client,
    api: str,
    fields: Mapping[str, msgspec.Raw],
    *,
    before: StoredAt | None = None,
) -> StoredAt | None:
    """Return the deployment of the provider that has what a request of ``client`` names; None: any may be asked.

    ``before``: where objects are stored that the request is known to name.

    Raises:
        NothingStored: this client was not given one of the names.
        Forbidden: the request names an MCP server that is not allowed.
        InvalidRequest: there are too many names, or several providers have some of them.

    """
    settings = context.settings
    watch = watch_of(client, settings)
    if watch is None:
        fields = {name: fields[name] for name in HOLDING.intersection(fields)}
        if not fields:
            return before
        watch = StateChecks(client.name, ids=False, servers=False)
    steps = names_of(api, fields, settings.limits.max_values)
    size = sum(len(memoryview(raw)) for raw in fields.values())
    named = finished(steps) if size <= _SMALL_BYTES else await context.body_work.run(steps)
    if watch.servers:
        check_servers(named, settings.mcp_hosts)
    return await stored_at(named, watch, _Given(context.responses, client, context.fleet), settings, before)


class _Given:
    """Objects of a client that can be reached with the client's present keys: its own, else the operator's."""

    def __init__(self, known: KnownIds, client: Client, fleet: Fleet) -> None:
        self._known, self._client, self._fleet = known, client, fleet

    async def maker(self, client: str | None, name: str) -> Maker | None:
        """Return the maker of the answer that gave ``client`` an id, if that key is used now."""
        maker = await self._known.maker(client, name)
        return maker if self._client.made(maker, self._fleet) else None


def given_by(parsed: ParsedRequest, headers: Mapping[str, str], client: Client) -> "ReturnedNames | None":
    """Return the gatherer of names in the answer to a request; None if the answer names nothing stored."""
    relayed = parsed.relayed
    if relayed is None:
        gives = parsed.stores or parsed.stateful or not GIVES_STORED.isdisjoint(parsed.fields)
        for name, part in GIVING_HEADERS.items():  # no generator: it would be one call more for each call
            gives = gives or (name in headers and part in headers[name])
    else:
        gives = relayed.gives
    if not gives:
        return None
    is_owned = client.name is not None or client.tenant is not None
    return ReturnedNames(parsed.dialect.name if relayed is None else relayed.of, is_owned=is_owned)


class ReturnedNames:
    """Gathers the names in the answer to one call, for ``StoredResponses``."""

    def __init__(self, api: str, *, is_owned: bool) -> None:
        """``is_owned``: whether other clients may not use the names. Without clients everything has one owner."""
        self._api = api
        self._is_owned = is_owned
        self.names: dict[str, StoredKind] = {}

    def add(self, data: bytes) -> None:
        """Gather the names in a whole answer, or in the data of one event."""
        for named in named_in_answer(self._api, data):
            if not self._is_owned and named.kind not in HELD and named.kind is not StoredKind.ITEM:
                continue  # all may name it, and one provider has all
            if len(self.names) < MOST_GIVEN and len(named.value) <= LONGEST_NAME:
                self.names[named.value] = named.kind
