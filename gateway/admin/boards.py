"""The leaderboard, and the plans of next calls explained."""

import asyncio
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import HttpVersion11, web
from aiohttp.hdrs import METH_HEAD
from pydantic import BaseModel, SecretStr

from gateway.admin import answers
from gateway.admin.explain import Plans, explained
from gateway.admin.keys import MERGE_PATCH, Clients, changed, created, found, listed, revoked, rotated
from gateway.admin.operations import OPERATIONS
from gateway.admin.queries import NoQuery, answer, parse_query
from gateway.admin.visitors import admit_visitor
from gateway.api.auth import JSON
from gateway.api.client import Client
from gateway.api.context import CONTEXT, Context
from gateway.core.calls import Level
from gateway.core.errors import ApiError, ModelNotFound
from gateway.core.reports import Gaps, Reports, Table, Window
from gateway.fleet.models import Deployment, Model
from gateway.limits import DOLLARS, Standing, level_of_key
from gateway.live.events import Viewer, Wanted
from gateway.settings import ModelSettings
from providers import MASK, Price, redact

# GET /api/configuration: the settings, without secrets.

# Other places where an operator may have put a secret: parameters of bodies and of URLs.
_SECRET = re.compile(
    r"key|secret|tokens?$|passw|passphrase|credential|authoriz|authentic|signature|cookie|bearer|webhook"
    r"|(?<![a-z])(auth|code|dsn|pat|pwd|sas|sig)(?![a-z])",
    re.IGNORECASE,
)
_COUNT = re.compile(r"tokens?$", re.IGNORECASE)  # a count is not a secret
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PARAMETER = re.compile(r"(?<==)[^&#\s]+")
_PER_MILLION = 1_000_000


async def configuration(request: web.Request) -> web.Response:
    """Return the settings in force, defaults included, and the facts known of each model's deployments."""
    admit_visitor(request)
    parse_query(request, NoQuery)
    context = request.app[CONTEXT]
    settings = context.settings
    secrets = tuple(_secrets(settings))
    return answer(
        request,
        answers.Configuration(
            settings=shown({name: getattr(settings, name) for name in _plain_names(context)}, secrets)
            | {name: _address(getattr(settings, name)) for name in _ADDRESSES if getattr(settings, name) is not None},
            models=[_model(context, name, model, secrets) for name, model in settings.models.items()],
            providers=[{"name": name, **shown(each, secrets)} for name, each in settings.providers.items()],
        ),
    )


def shown(value: Any, secrets: Collection[str] = ()) -> Any:
    """Return a value of the settings as JSON; secrets, and values that look like secrets, become ``***``.

    ``secrets`` are masked in every text: an operator may have put a key into an address too.
    """
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        value = {field.alias or name: getattr(value, name) for name, field in fields.items()}
    if isinstance(value, Mapping):
        return {str(name): _under(str(name), entry, secrets) for name, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [shown(entry, secrets) for entry in value]
    if isinstance(value, str):
        return _text(value, secrets)
    return value if value is None or isinstance(value, bool | int | float | datetime) else str(value)


def _under(name: str, value: Any, secrets: Collection[str]) -> Any:
    if name in _HARMLESS or not _SECRET.search(name):
        return shown(value, secrets)
    if isinstance(value, Mapping) and all(isinstance(entry, SecretStr) for entry in value.values()):
        return shown(value, secrets)  # a provider's keys have names
    is_secret = isinstance(value, str | list | tuple | Mapping) and value
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and not _COUNT.search(name)
    return MASK if is_secret or is_number else shown(value, secrets)


def _text(value: str, secrets: Collection[str]) -> str:
    """Return a text without secrets; from an address, the values of its parameters are removed too."""
    value = redact(value, secrets)
    if not _URL.match(value) or "?" not in value:
        return value
    address, _, query = value.partition("?")
    return f"{address}?{_PARAMETER.sub(MASK, query)}"


_ADDRESSES = ("database_url", "reports_database_url", "redis_url")


def _address(secret: SecretStr) -> str:
    """Return the address of a store: which one it is, without password and parameters.

    All of it is masked if a password has characters that belong elsewhere in an address.
    """
    address = secret.get_secret_value()
    parts = urlsplit(address)
    if address.count("@") > parts.netloc.count("@") or parts.netloc.count("@") > 1:
        return MASK
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{parts.scheme}://{name}{f':{MASK}' if colon else ''}{at}{host}{parts.path}"


def _secrets(value: Any) -> Iterator[str]:
    """Yield the secrets of the settings, except plain words, which the value of a header may be."""
    if isinstance(value, SecretStr):
        written = value.get_secret_value()
        yield from (each for each in {written, *written.split()} if not each.isalpha())
        if _URL.match(written) and (password := urlsplit(written).password):
            yield password
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from _secrets(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _secrets(entry)


_HARMLESS = frozenset({"keys", "region", "regions"})  # keys: where they are, file or database


def _plain_names(context: Context) -> list[str]:
    return [name for name in type(context.settings).model_fields if name not in {"models", "providers"}]


def _model(context: Context, name: str, settings: ModelSettings, secrets: Collection[str]) -> dict[str, Any]:
    """Return a model with its deployments, each with the values that its settings leave to the catalog."""
    known = context.fleet.models[name].deployments
    described = shown(settings, secrets)
    described["deployments"] = [
        {**written, "name": each.name, **_resolved(known.get(each.name))}
        for each, written in zip(settings.deployments, described["deployments"], strict=True)
    ]
    return {"name": name, **described}


def _resolved(deployment: Deployment | None) -> dict[str, Any]:
    """Return the facts of a deployment in use; those of a disabled one are not resolved."""
    if deployment is None:
        return {"provider": None, "price": None}
    return {
        "provider": deployment.provider,
        "price": priced(deployment.price),
        "capabilities": msgspec.structs.asdict(deployment.capabilities),
        "apis": sorted(deployment.apis),
        "bills_after_disconnect": deployment.bills_after_disconnect,
        "zdr": deployment.zdr,
        "region": deployment.region,
        "quantization": deployment.quantization,
    }


def priced(price: Price | None) -> answers.PagePrice | None:
    """Return a price in US dollars per million tokens; None if it is unknown."""
    if price is None:
        return None
    return answers.PagePrice(*(round(usd * _PER_MILLION, 6) for usd in (price.input_usd, price.output_usd)))


class BoardQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of which model; None: of all."""

    model: str | None = None


async def leaderboard(request: web.Request) -> web.Response:
    """Return the standings of every model, or of one, with prices and the gaps between chunks of the last day."""
    admit_visitor(request)
    context = request.app[CONTEXT]
    models = _wanted(context, parse_query(request, BoardQuery).model)
    gaps = await request.app[OPERATIONS].reports.gaps()
    return answer(request, answers.PageBoards([_board(context, model, gaps) for model in models]))


async def explain(request: web.Request) -> web.Response:
    """Return the plan of the next call of every model, or of ``?model=``, with reasons."""
    client = admit_visitor(request)
    context = request.app[CONTEXT]
    models = _wanted(context, request.query.get("model"))
    return answer(request, Plans([explained(context, model, request.query, client) for model in models]))


def _board(context: Context, model: Model, gaps: Gaps) -> answers.PageBoard:
    board = context.steering.leaderboard(model.name)
    rows = []
    for row in board.deployments:
        deployment = model.deployments.get(row.deployment)
        p50_ms, p95_ms = gaps.get((model.name, row.deployment), (None, None))
        price = None if deployment is None else priced(deployment.price)
        known = msgspec.structs.asdict(row)
        rows.append(answers.PageRow(**known, price=price, itl_p50_ms=p50_ms, itl_p95_ms=p95_ms))
    return answers.PageBoard(**msgspec.structs.asdict(board) | {"deployments": tuple(rows)})


def _wanted(context: Context, name: str | None) -> list[Model]:
    """Return the requested models.

    Raises:
        ModelNotFound: the one that is named is not configured.

    """
    models = context.fleet.models
    if name is None:
        return list(models.values())
    if name not in models:
        raise ModelNotFound(f"the model {name!r} is not configured; known models: {', '.join(models) or 'none'}")
    return [models[name]]


# GET /api/live: races as they happen, as server-sent events.

HEARTBEAT_S = 15.0  # between two comments, so that proxies keep an idle stream open
LAST_WORDS_S = 1.0  # for the end of a stream to go out
_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # else nginx would buffer the stream
}
_COMMENT = b":\n\n"


async def live(request: web.Request) -> web.StreamResponse:
    """Stream the events of the calls that the query selects, beginning with running ones."""
    client = admit_visitor(request)
    wanted = parse_query(request, Wanted)
    response = web.StreamResponse(headers=_HEADERS)
    if request.method == METH_HEAD:  # a body would be read as the next answer
        return response
    with request.app[OPERATIONS].live.watch(wanted, client.name) as viewer:
        viewer.on_end(lambda: _hang_up(request, only_if_blocked=True))
        with suppress(ConnectionError):  # the client has disconnected
            await response.prepare(request)
            await _stream(request, response, viewer)
    return response


async def _stream(request: web.Request, response: web.StreamResponse, viewer: Viewer) -> None:
    if request.version >= HttpVersion11:
        viewer.push_to(partial(_push, request))
    while (events := await viewer.take(HEARTBEAT_S)) is not None:
        try:
            admit_visitor(request)  # its key or session may have ended, or lost its role
        except ApiError:
            break
        await response.write(events or _COMMENT)
        if request.protocol.writing_paused:  # aiohttp would wait only before the next write
            await request.writer.drain()
    viewer.push_to(_keep)  # nothing may follow the end
    try:
        async with asyncio.timeout(LAST_WORDS_S):
            await response.write_eof()
    except TimeoutError:
        _hang_up(request)


def _push(request: web.Request, events: bytes) -> bool:
    """Send events at once, as a chunk of HTTP/1.1, unless the client is slow."""
    transport = request.transport
    if transport is None or transport.is_closing() or transport.get_write_buffer_size():
        return False
    transport.write(b"%x\r\n%b\r\n" % (len(events), events))
    return True


def _keep(_: bytes) -> bool:
    """Send nothing."""
    return False


def _hang_up(request: web.Request, *, only_if_blocked: bool = False) -> None:
    """Abort the connection of a client that does not read, so that nothing waits for it."""
    if request.transport is not None and (request.protocol.writing_paused or not only_if_blocked):
        request.transport.abort()


# GET /api/usage: the usage of each client, and the rest of its limits.


class UsageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of when."""

    window: Window = Window.DAY


async def usage(request: web.Request) -> web.Response:
    """Return the clients that called, the most expensive first, then those that did not."""
    admit_visitor(request)
    query = parse_query(request, UsageQuery)
    context = request.app[CONTEXT]
    reports = request.app[OPERATIONS].reports
    table = await reports.usage(query.window)
    clients = _clients(context)
    spent = await reports.spent() if any(DOLLARS & each.limits.keys() for each in clients.values()) else {}
    rows = {row["client"]: row for row in table.rows}
    rows |= {name: {"client": name} for name in clients if name not in rows}
    data = [answers.Used(**row, limits=_limits(context, clients.get(name), spent)) for name, row in rows.items()]
    teams = [answers.TeamLimits(name, limits) for name, limits in (await _teams(context, reports)).items()]
    trails_s, lag_s = await reports.sums_trail_s(), await reports.replica_lag_s()
    return answer(
        request,
        answers.Usage(data=data, teams=teams, sums_trail_s=trails_s, replica_lag_s=lag_s, sql=table.sql),
    )


def _clients(context: Context) -> dict[str | None, Client]:
    """Return every client; without keys, the programs on this machine."""
    admission = context.admission
    if not admission.keys.table.is_required:
        return {None: admission.local}
    return {client.name: client for client in admission.keys.table.holders}


def _limits(context: Context, client: Client | None, spent: Mapping[str | None, tuple[float, float]]) -> list[Standing]:
    if client is None:
        return []
    return _stands(context, level_of_key(client.name, client.limits), spent.get(client.name))


async def _teams(context: Context, reports: Reports) -> dict[str, list[Standing]]:
    """Return the configured teams, each with the used part of its limits."""
    teams = context.payers.teams
    spent = await reports.spent_by_teams() if any(DOLLARS & each.limits.keys() for _, each in teams) else {}
    return {name: _stands(context, team, spent.get(name)) for name, team in teams}


def _stands(context: Context, level: Level, spent: tuple[float, float] | None) -> list[Standing]:
    return [
        msgspec.structs.replace(each, used=max(each.used or 0.0, _spent(each.limit, spent)))
        if each.limit in DOLLARS
        else each
        for each in context.limits.standings(level)
    ]


def _spent(limit: str, spent: tuple[float, float] | None) -> float:
    """Return the ledger's figure, of all processes: a process that just began, or has no calls, knows less."""
    day_usd, month_usd = spent or (0.0, 0.0)
    return day_usd if limit == "usd_per_day" else month_usd


# GET /api/teams: the usage of each team and its end users.


async def teams(request: web.Request) -> web.Response:
    """Return the teams that called, the most expensive first, then those that did not; empty where there are no teams.

    ``team`` null: keys without a team, in calls that named an end user.
    """
    admit_visitor(request)
    query = parse_query(request, UsageQuery)
    context, reports = request.app[CONTEXT], request.app[OPERATIONS].reports
    payers, configured = context.payers, await _teams(context, reports)
    table = await reports.payers(query.window) if payers.is_used else Table([], "")
    rows = {row["team"]: _without(row, "end_user", "client") for row in table.rows if row["end_user"] is None}
    rows |= {name: {"team": name} for name in configured if name not in rows}
    end_users: dict[str | None, list[answers.EndUserUsed]] = {name: [] for name in rows}
    for row in table.rows:
        if row["end_user"] is not None and row["team"] in end_users:
            name = payers.name_of(row["end_user"], row["team"], row["client"])
            end_users[row["team"]].append(answers.EndUserUsed(**_without(row, "team", "end_users"), name=name))
    data = [
        answers.TeamUsed(**row, configured=name in configured, limits=configured.get(name, []), dearest=end_users[name])
        for name, row in rows.items()
    ]
    return answer(request, answers.Teams(data, table.sql or None))


def _without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


# /api/keys: clients' keys for the page. Only administrators see and change them.


class KeysQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether revoked keys are listed too."""

    all: bool = False


class RevokeQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which key is revoked, by its id or hint; None: all of the client's."""

    key: str | None = None


async def list_keys(request: web.Request) -> web.Response:
    """Return every client with its keys. Those of the file are there also where keys cannot be changed."""
    admit_visitor(request, admin=True)
    query = parse_query(request, KeysQuery)
    keys = request.app[CONTEXT].admission.keys
    if not keys.are_stored:
        return answer(request, Clients(keys.configured()))
    return answer(request, await listed(request, revoked=query.all))


async def get_key(request: web.Request) -> web.Response:
    """Return one client."""
    admit_visitor(request, admin=True)
    parse_query(request, NoQuery)
    return answer(request, await found(request))


async def create_key(request: web.Request) -> web.Response:
    """Make a client with a key, which is in this answer only."""
    admin = admit_visitor(request, admin=True)
    parse_query(request, NoQuery)
    return await created(request, admin)


async def change_key(request: web.Request) -> web.Response:
    """Change a client's settings by a merge patch."""
    admin = admit_visitor(request, admin=True, takes=(JSON, MERGE_PATCH))
    parse_query(request, NoQuery)
    return await changed(request, admin)


async def rotate_key(request: web.Request) -> web.Response:
    """Give a client a new key, which is in this answer only."""
    admin = admit_visitor(request, admin=True)
    parse_query(request, NoQuery)
    return await rotated(request, admin)


async def revoke_key(request: web.Request) -> web.Response:
    """End the keys of a client, or one of them."""
    admin = admit_visitor(request, admin=True)
    return await revoked(request, admin, key=parse_query(request, RevokeQuery).key)
