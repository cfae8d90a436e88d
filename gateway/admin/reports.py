"""The reports of /api: calls, alerts, history, refusals, replays, targets, slowdowns, and what races bring.

The parameters of each are the fields of its query.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import groupby
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web

from gateway.admin import answers
from gateway.admin.operations import OPERATIONS
from gateway.admin.queries import (
    FIRST_YEAR,
    LAST_YEAR,
    MOST,
    NoQuery,
    WindowQuery,
    answer,
    answer_with_items,
    parse_query,
    position,
    written,
)
from gateway.admin.visitors import admit_reader, admit_visitor
from gateway.alerts import Alert
from gateway.api import CONTEXT
from gateway.core.errors import InvalidRequest
from gateway.core.reports import (
    By,
    CallEnd,
    CallNotFound,
    CallsFilter,
    HeatFilter,
    HeatMetric,
    HistoryFilter,
    Position,
    ReplayWanted,
    ReportsUnreachable,
    ReportTooSlow,
    SlowdownsWanted,
    Window,
)
from gateway.core.targets import shown

# GET /api/calls: calls, the newest first, and one call with its attempts.


class CallsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which calls, and how many of them at a time. ``window`` is a day, unless a request id is looked for.

    With ``attempts`` each call has its attempts.
    """

    window: Window | None = None
    model: str | None = None
    client: str | None = None
    tag: str | None = None  # name:value
    outcome: CallEnd | None = None
    slower_than_ms: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None
    error: str | None = None
    request_id: str | None = None
    deployment: str | None = None
    attempts: bool = False
    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST)] = 50


async def list_calls(request: web.Request) -> web.Response:
    """Return a page of calls; a person sees their own."""
    own = admit_reader(request)
    query = parse_query(request, CallsQuery)
    window = query.window or (Window.DAY if query.request_id is None else None)
    table = await request.app[OPERATIONS].reports.calls(
        CallsFilter(
            window=window,
            limit=query.limit,
            after=position(query.after),
            model=query.model,
            client=query.client,
            deployment=query.deployment,
            tag=_tag(query.tag),
            outcome=query.outcome,
            slower_than_ms=query.slower_than_ms,
            error=query.error,
            request_id=query.request_id,
            attempts=query.attempts,
            own=own,
        )
    )
    rows, more = table.rows[: query.limit], len(table.rows) > query.limit
    following = written(Position(rows[-1]["started_at"], rows[-1]["id"])) if more else None
    return answer(request, answers.Calls(rows, following, table.sql))


async def get_call(request: web.Request) -> web.Response:
    """Return one call; to a person one of their own.

    Raises:
        CallNotFound: there is none with this id, or it is another person's.

    """
    own = admit_reader(request)
    parse_query(request, NoQuery)
    found = await request.app[OPERATIONS].reports.call(request.match_info["id"], own)
    if found is None:
        raise CallNotFound("no call has this id: ids are in the header x-holeshot-call-id, and in GET /api/calls")
    if own is not None:
        for attempt in found.attempts:
            attempt.update(dict.fromkeys(_OPERATORS))
    return answer(request, found)


_OPERATORS = (
    "key_name",
    "in_flight",
)  # columns of attempts with names of keys, or with figures of other people's calls


def _tag(text: str | None) -> tuple[str, str] | None:
    """Return the name and the value of a tag.

    Raises:
        InvalidRequest: it is not ``name:value``.

    """
    if text is None:
        return None
    name, colon, value = text.partition(":")
    if not name or not colon:
        raise InvalidRequest("tag: write name:value", param="tag")
    return name, value


# GET /api/alerts: open alerts, and resolved ones.


async def alerts(request: web.Request) -> web.Response:
    """Return the open alerts that this process knows, even while the database is away, and those in the rows."""
    admit_visitor(request)
    parse_query(request, NoQuery)
    context = request.app[CONTEXT]
    lasting = await request.app[OPERATIONS].alerts.open_alerts()
    settings = context.settings.alerts
    table = outages = None
    with suppress(ReportsUnreachable, ReportTooSlow):  # logged; the open ones are more important
        table = await request.app[OPERATIONS].reports.alerts()
        outages = await request.app[OPERATIONS].reports.outages()
    return answer(
        request,
        answers.Alerts(
            enabled=settings.enabled,
            webhooks=sorted(settings.webhooks),
            open=[_shown(each) for each in lasting],
            building=request.app[OPERATIONS].alerts.building(),
            data=None if table is None else table.rows,
            sql=None if table is None else table.sql,
            outages=None if outages is None else [_of_day(row) for row in outages.rows],
            outages_sql=None if outages is None else outages.sql,
        ),
    )


def _of_day(row: dict[str, Any]) -> answers.DayOutage:
    known = {name: row[name] for name in ("deployment", "may_last", "reason", "replicas")}
    return answers.DayOutage(since=row["from"], until=row["to"], **known)


def _shown(alert: Alert) -> dict[str, Any]:
    return {"id": alert.id, "key": alert.key, **{name: getattr(alert, name) for name in _SHOWN}}


_SHOWN = (
    "kind", "subject", "severity", "summary", "figures", "sql",
    "opened_at", "seen_at", "resolved_at", "replica", "scope",
)  # fmt: skip


# GET /api/history and /api/heat: how fast and how reliable deployments were, over time and over the week.

LONGEST_RANGE = timedelta(days=3 * 366)


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The deployments, and the time: a window that ends now, or a range, which without ``to`` ends now."""

    window: Window = Window.DAY
    since: datetime | None = msgspec.field(default=None, name="from")
    until: datetime | None = msgspec.field(default=None, name="to")
    model: str | None = None
    deployment: str | None = None
    client: str | None = None


class HeatQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The figure, and the deployments."""

    metric: HeatMetric = HeatMetric.TTFT_P50
    window: Literal["7d", "30d"] = "7d"
    model: str | None = None
    deployment: str | None = None


async def history(request: web.Request) -> web.StreamResponse:
    """Return the series of deployments.

    Raises:
        InvalidRequest: a range has no beginning or no time zone, ends before it begins, is longer than three years, or
            is of other millennia.

    """
    admit_visitor(request)
    query = parse_query(request, HistoryQuery)
    now = request.app[CONTEXT].services.utc_now()
    _check_range(query.since, query.until, now)
    found = await request.app[OPERATIONS].reports.history(HistoryFilter(**msgspec.structs.asdict(query)))
    return await answer_with_items(
        request,
        answers.History(
            window=query.window if query.since is None else None,
            since=found.since,
            until=found.until,
            step_s=found.step_s,
            series=[],
            outages=[_outage(row) for row in found.outages],
            sql=found.sql,
            outages_sql=found.outages_sql,
        ),
        "series",
        found.series,
    )


def _check_range(since: datetime | None, until: datetime | None, now: datetime) -> None:
    for name, at in (("from", since), ("to", until)):
        if at is not None and at.tzinfo is None:
            raise InvalidRequest(f"{name} must have its zone, as in 2026-01-31T14:00:00Z", param=name)
        if at is not None and not FIRST_YEAR <= at.year <= LAST_YEAR:
            raise InvalidRequest(f"{name} must be in the years {FIRST_YEAR} to {LAST_YEAR}", param=name)
    if since is None:
        if until is not None:
            raise InvalidRequest("to is the end of a range: give its beginning, from, too", param="to")
    elif not timedelta(0) < (until or now) - since <= LONGEST_RANGE:
        raise InvalidRequest("from must be before to, by three years at most; without to, before now", param="from")


async def heat(request: web.Request) -> web.Response:
    """Return a figure by hour of the day and weekday."""
    admit_visitor(request)
    query = parse_query(request, HeatQuery)
    wanted = HeatFilter(
        metric=query.metric, window=Window(query.window), model=query.model, deployment=query.deployment
    )
    table = await request.app[OPERATIONS].reports.heat(wanted)
    return answer(request, answers.Heat(query.metric, list(_by_deployment(table.rows)), table.sql))


def _outage(row: dict[str, Any]) -> answers.Outage:
    """Return an outage; its end is null while it lasts, and if its end was not recorded."""
    known = {name: row[name] for name in ("deployment", "may_last", "reason", "replica")}
    return answers.Outage(since=row["began_at"], until=row["ended_at"], **known)


def _by_deployment(cells: list[dict[str, Any]]) -> Iterator[answers.HeatRow]:
    """Yield a row of cells for each deployment of a model; ``cells`` are in this order."""
    for (deployment, model), some in groupby(cells, key=lambda cell: (cell["deployment"], cell["model"])):
        here = [answers.HeatCell(cell["weekday"], cell["hour"], cell["value"], cell["n"]) for cell in some]
        yield answers.HeatRow(deployment, model, here)


# GET /api/refusals: refused requests by client, and addresses that send unknown keys.


async def refusals(request: web.Request) -> web.Response:
    """Return refusals by client, reason and model, and wrong keys by address; each minute is added when it is over."""
    admit_visitor(request)
    query = parse_query(request, WindowQuery)
    refused, guessed = await request.app[OPERATIONS].reports.refusals(query.window)
    data = [answers.Refusal(**row) for row in refused.rows]
    wrong_keys = [answers.WrongKeys(**row) for row in guessed.rows]
    return answer(request, answers.Refused(data, wrong_keys, refused.sql, guessed.sql))


# GET /api/regions: calls by the region of the replica that served them.


class RegionsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time to cover: at most a day, as the report reads the rows of calls."""

    window: Literal["1h", "24h"] = "24h"


async def regions(request: web.Request) -> web.Response:
    """Return the calls of each model by region."""
    admit_visitor(request)
    query = parse_query(request, RegionsQuery)
    table = await request.app[OPERATIONS].reports.regions(Window(query.window))
    data = [answers.RegionServed(**row) for row in table.rows]
    return answer(request, answers.Regions(query.window, data, table.sql))


# GET /api/replay: the effect that other settings would have had.

BUDGETS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # all at once: the page has a slider for them
_MOST_BUDGET = 7.0
_MOST_BUDGETS = 12


class ReplayQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time and the calls to replay."""

    window: Window = Window.WEEK
    model: str | None = None
    without: str | None = None
    budget: str | None = None


async def replay(request: web.Request) -> web.Response:
    """Return what other settings would have done with one model's calls."""
    admit_visitor(request)
    query = parse_query(request, ReplayQuery)
    without = () if query.without is None else tuple(sorted(set(query.without.split(","))))
    wanted = ReplayWanted(query.window, query.model, without, _budgets(query.budget))
    return answer(request, await request.app[OPERATIONS].reports.replay(wanted))


def _budgets(written: str | None) -> tuple[float, ...]:
    if written is None:
        return BUDGETS
    try:
        found = tuple(sorted({float(each) for each in written.split(",")}))
    except ValueError:
        found = ()
    if not found or len(found) > _MOST_BUDGETS or not all(0 < each <= _MOST_BUDGET for each in found):
        raise InvalidRequest(
            f"budget: numbers above 0 and at most {_MOST_BUDGET:g}, with commas, {_MOST_BUDGETS} at most",
            param="budget",
        )
    return found


# GET /api/slo: the state of the targets.


async def slo(request: web.Request) -> web.Response:
    """Return each configured target: its figures, the rest of its error budget, and a verdict."""
    admit_visitor(request)
    parse_query(request, NoQuery)
    standings = await request.app[OPERATIONS].reports.targets()
    return answer(request, answers.Targets([shown(each) for each in standings]))


# GET /api/slowdowns: times at which deployments were slower than usual, or failed more often.


class SlowdownsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time, and the deployments."""

    window: Window = Window.MONTH
    model: str | None = None
    deployment: str | None = None
    metric: Literal["ttft", "tps", "itl", "errors"] | None = None


async def slowdowns(request: web.Request) -> web.Response:
    """Return slowdowns, the newest first."""
    admit_visitor(request)
    query = parse_query(request, SlowdownsQuery)
    table = await request.app[OPERATIONS].reports.slowdowns(SlowdownsWanted(**msgspec.structs.asdict(query)))
    return answer(request, answers.Slowdowns([answers.Slowdown(**row) for row in table.rows], table.sql))


# GET /api/race-value: the savings and the cost of racing.


class WorthQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time, and whether by model or by client."""

    window: Window = Window.DAY
    by: By = By.MODEL


async def race_value(request: web.Request) -> web.Response:
    """Return the columns of the view ``race_value``, by model or by client."""
    admit_visitor(request)
    query = parse_query(request, WorthQuery)
    table = await request.app[OPERATIONS].reports.race_value(query.window, query.by)
    return answer(request, answers.RaceValue(table.rows, table.sql))
