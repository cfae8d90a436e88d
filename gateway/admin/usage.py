"""GET /api/usage and /api/teams: what clients, teams, end users and models have used, and the rest of their limits."""

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from gateway.access import Client
from gateway.admin import answers
from gateway.admin.keys import CLIENTS_A_TURN
from gateway.admin.operations import OPERATIONS
from gateway.admin.queries import WindowQuery, answer, parse_query
from gateway.admin.visitors import admit_person, admit_visitor
from gateway.api import CONTEXT, Context
from gateway.core.calls import Level
from gateway.core.reports import Reports, Table
from gateway.limits import SUMMED, UTC_ZONE, LimitStanding, level_of_key, level_of_model

_DAY = "usd_per_day"


async def usage(request: web.Request) -> web.Response:
    """Return the clients that called, the most expensive first, then those that did not."""
    admit_visitor(request)
    query = parse_query(request, WindowQuery)
    context = request.app[CONTEXT]
    reports = request.app[OPERATIONS].reports
    table = await reports.usage(query.window)
    clients = _clients(context)
    spent = await reports.spent() if any(SUMMED & each.limits.keys() for each in clients.values()) else {}
    rows = {row["client"]: row for row in table.rows}
    rows |= {name: {"client": name} for name in clients if name not in rows}
    used = (answers.Used(**row, limits=_limits(context, clients.get(name), spent)) for name, row in rows.items())
    data = await context.body_work.pieces(used, CLIENTS_A_TURN)
    teams = [answers.TeamLimits(name, limits) for name, limits in (await _teams(context, reports)).items()]
    models = await _models(context, reports)
    trails_s, lag_s = await reports.sums_trail_s(), await reports.replica_lag_s()
    return answer(
        request,
        answers.Usage(data=data, teams=teams, models=models, sums_trail_s=trails_s, replica_lag_s=lag_s, sql=table.sql),
    )


def _clients(context: Context) -> dict[str | None, Client]:
    """Return every client; without keys, the programs on this machine."""
    admission = context.admission
    if not admission.keys.table.is_required:
        return {None: admission.local}
    return {client.name: client for client in admission.keys.table.holders}


def _limits(
    context: Context, client: Client | None, spent: Mapping[str | None, tuple[float, float]]
) -> list[LimitStanding]:
    if client is None:
        return []
    zone = client.zone or context.settings.limits_zone
    return _stands(context, level_of_key(client.name, client.limits, zone), spent.get(client.name))


async def _teams(context: Context, reports: Reports) -> dict[str, list[LimitStanding]]:
    """Return the configured teams, each with the used part of its limits."""
    teams = context.payers.teams
    spent = await reports.spent_by_teams() if any(SUMMED & each.limits.keys() for _, each in teams) else {}
    return {name: _stands(context, team, spent.get(name)) for name, team in teams}


async def _models(context: Context, reports: Reports) -> list[answers.ModelLimits]:
    """Return the models that have limits of their own, each with the used part."""
    zone = context.settings.limits_zone
    limited = {each.name: each.use_limits for each in context.fleet.models.values() if each.use_limits}
    spent = await spent_by_models(context, reports) if any(_DAY in each for each in limited.values()) else {}
    found = (
        answers.ModelLimits(name, _stands(context, level_of_model(name, limits, zone), spent.get(name)))
        for name, limits in limited.items()
    )
    return await context.body_work.pieces(found, CLIENTS_A_TURN)


async def spent_by_models(context: Context, reports: Reports) -> Mapping[str | None, tuple[float, float]]:
    """Return what models have spent today, with what a model pays for as the first of a list; models have no months."""
    found: dict[str | None, tuple[float, float]] = {}
    for model, usd in (await reports.spent_by_models()).items():
        payer = context.fleet.payer_of(model)
        found[payer] = (found.get(payer, (0.0, 0.0))[0] + usd, 0.0)
    return found


def _stands(context: Context, level: Level, spent: tuple[float, float] | None) -> list[LimitStanding]:
    return [
        msgspec.structs.replace(each, used=max(each.used or 0.0, _spent(each.limit, spent)))
        if each.limit in SUMMED and level.zone == UTC_ZONE
        else each
        for each in context.limits.standings(level)
    ]


def _spent(limit: str, spent: tuple[float, float] | None) -> float:
    """Return the ledger's figure, which covers all processes: one that just began, or has no calls, knows less."""
    day_usd, month_usd = spent or (0.0, 0.0)
    return day_usd if limit == _DAY else month_usd


# GET /api/own: the usage of one person, who asks.


async def own(request: web.Request) -> web.Response:
    """Return what the person who asks has used, in all and by model, and how fast it was."""
    whose = admit_person(request)
    query = parse_query(request, WindowQuery)
    context = request.app[CONTEXT]
    table = await request.app[OPERATIONS].reports.own_usage(whose, query.window)
    known = context.admission.keys.table.named(whose.client)
    client = None if known is None else known.client
    level = None if client is None else context.payers.level_of(client, whose)
    return answer(
        request,
        answers.OwnUsage(
            client=whose.client,
            team=whose.team,
            end_user=whose.end_user,
            data=[answers.OwnUsed(**row) for row in table.rows if row["calls"]],
            limits=[] if level is None else context.limits.standings(level),
            sql=table.sql,
        ),
    )


# GET /api/teams: the usage of each team and its end users.


async def teams(request: web.Request) -> web.Response:
    """Return the teams that called, the most expensive first, then those that did not, and models with limits.

    ``team`` null: keys without a team, in calls that named an end user.
    """
    admit_visitor(request)
    query = parse_query(request, WindowQuery)
    context, reports = request.app[CONTEXT], request.app[OPERATIONS].reports
    payers, configured = context.payers, await _teams(context, reports)
    table = await reports.payers(query.window) if payers.is_used else Table([], "")
    rows = {row["team"]: _without(row, "end_user", "client") for row in table.rows if row["end_user"] is None}
    rows |= {name: {"team": name} for name in configured if name not in rows}
    end_users: dict[str | None, list[answers.EndUserUsed]] = {name: [] for name in rows}
    clients = _clients(context)
    for row in table.rows:
        if row["end_user"] is not None and row["team"] in end_users:
            name = payers.name_of(row["end_user"], row["team"], row["client"])
            level = payers.level_of_end_user(row["end_user"], row["team"], clients.get(row["client"]))
            limits = [] if level is None else context.limits.standings(level)
            said = _without(row, "team", "end_users")
            end_users[row["team"]].append(answers.EndUserUsed(**said, name=name, limits=limits))
    data = [
        answers.TeamUsed(**row, configured=name in configured, limits=configured.get(name, []), dearest=end_users[name])
        for name, row in rows.items()
    ]
    models = await _models(context, reports)
    return answer(request, answers.Teams(data=data, models=models, sql=table.sql or None))


def _without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}
