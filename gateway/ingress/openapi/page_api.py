"""The API under /api, which the page shows. Queries are described from the structs that they are read into."""

from collections.abc import Mapping

import msgspec

from gateway.errors import (
    ApiError,
    BodyTimeout,
    BodyTooLarge,
    Forbidden,
    InvalidRequest,
    ModelNotFound,
    TooManyViewers,
    UnsupportedMediaType,
    WrongKey,
)
from gateway.ingress.api.calls import CallsQuery
from gateway.ingress.api.history import HeatQuery, HistoryQuery
from gateway.ingress.api.refusals import RefusalsQuery
from gateway.ingress.api.replays import ReplayQuery
from gateway.ingress.api.slowdowns import SlowdownsQuery
from gateway.ingress.api.usage import UsageQuery
from gateway.ingress.api.worth import WorthQuery
from gateway.ingress.explaining import Explained
from gateway.ingress.openapi import raced
from gateway.ingress.openapi.operation import (
    ANYBODY,
    CALLING_VISITOR,
    EVENTS,
    JSON,
    TEXT,
    VISITOR,
    Answer,
    Body,
    Operation,
    Parameter,
    Schema,
    Tag,
    array,
    nullable,
    record,
    ref,
    text,
)
from gateway.ingress.openapi.page import UNCHANGED
from gateway.ingress.openapi.page_schemas import NEXT, REPLAYED, ROW, SQL, WORTH
from gateway.ingress.openapi.slo_schemas import STANDING
from gateway.ingress.openapi.status import HYPOTHETICAL_CALL, MODEL
from gateway.ingress.openapi.structs import of, of_type
from gateway.ingress.surfaces.chat import CHAT_SURFACE
from gateway.key_errors import KeyExpired, KeysNotLoaded, KeyUnusable
from gateway.live.viewer import Wanted
from gateway.reports import CallNotFound, ReportsUnreachable, ReportTooSlow

_ABOUT: Mapping[str, str] = {
    "window": "How far back.",
    "model": "Only this model.",
    "client": "Only this client; empty: calls without one.",
    "tag": "`name:value`: only calls with this tag.",
    "outcome": "Only calls that ended so.",
    "slower_than_ms": "Only calls whose first token took longer, or that took longer and had none.",
    "error": "Only calls with this `error_kind`.",
    "request_id": "Only calls with this `x-request-id`, of all time.",
    "deployment": "Only this deployment.",
    "attempts": "Each call with its attempts.",
    "after": "`next` of the page before.",
    "limit": "How many at most.",
    "metric": "Which figure.",
    "by": "By what it is summed up.",
    "without": "As if these providers had not been there; with commas.",
    "budget": "Extra attempts per call, several with commas.",
}
_OF_REPORTS: tuple[type[ApiError], ...] = (InvalidRequest, ReportsUnreachable, ReportTooSlow)


def operations() -> list[Operation]:
    """Return the operations."""
    return [
        _get("/session", "getSession", "Who looks, and at which gateway", ref("Session")),
        _get(
            "/leaderboard",
            "getBoards",
            "How fast and how good each deployment is",
            record({"models": array(ref("PageBoard"))}),
            parameters=(MODEL,),
            errors=(ModelNotFound,),
        ),
        _get(
            "/explain",
            "getPlans",
            "Who would run for a model's next call, and why",
            record({"models": array(of(Explained))}),
            parameters=(MODEL, *HYPOTHETICAL_CALL),
            errors=(InvalidRequest, ModelNotFound),
        ),
        _get(
            "/calls",
            "listCalls",
            "Calls, the newest first",
            record({"data": array(ref("ListedCall")), "next": NEXT, "sql": SQL}),
            parameters=_query(CallsQuery),
            errors=_OF_REPORTS,
        ),
        _get(
            "/calls/{id}",
            "getCall",
            "One call with its attempts",
            record(
                {
                    "call": ROW,
                    "attempts": array(ROW),
                    "source": text("Where it was found.", one_of=("ledger", "memory", "running")),
                    "sql": SQL,
                    "call_sql": SQL,
                }
            ),
            parameters=(Parameter(name="id", place="path", description="As in `x-holeshot-call-id`."),),
            errors=(*_OF_REPORTS, CallNotFound),
        ),
        _report("/history", "getHistory", "How fast and reliable deployments were, over time", "History", HistoryQuery),
        _report("/heat", "getHeat", "One figure by weekday and hour", "Heat", HeatQuery),
        _report("/slowdowns", "getSlowdowns", "When deployments were slower than usual", "Slowdowns", SlowdownsQuery),
        _get(
            "/race-value",
            "getRaceValue",
            "What racing saved, and what it cost",
            record({"data": array(WORTH), "sql": SQL}),
            parameters=_query(WorthQuery),
            errors=_OF_REPORTS,
        ),
        _get(
            "/replay",
            "getReplay",
            "What other settings would have done with a model's calls",
            record(
                {
                    "models": array(text("With calls, the busiest first.")),
                    "data": array(REPLAYED),
                    "note": nullable(text("Why there is no data.")),
                }
            ),
            parameters=_query(ReplayQuery),
            errors=_OF_REPORTS,
        ),
        _get(
            "/slo",
            "getTargets",
            "Whether the targets are kept, and what is left of their error budgets",
            record({"targets": array(STANDING)}),
            errors=_OF_REPORTS,
        ),
        _report("/refusals", "getRefusals", "What was refused, and who guesses keys", "Refused", RefusalsQuery),
        _get(
            "/alerts",
            "getAlerts",
            "What is wrong now, and what was",
            ref("Alerts"),
            errors=(InvalidRequest,),
        ),
        _report("/usage", "getUsage", "What each client has used, and its limits", "Usage", UsageQuery),
        _get(
            "/configuration",
            "getConfiguration",
            "What is configured, without secrets",
            ref("Configuration"),
            errors=(InvalidRequest,),
        ),
        Operation(
            method="GET",
            path="/api/live",
            id="watchRaces",
            tag=Tag.PAGE_API,
            summary="Races as they happen",
            description="Server-sent events: docs/operations.md lists them. A comment every 15 seconds.",
            access=VISITOR,
            parameters=_query(Wanted),
            answers={200: Answer(description="The events.", content={EVENTS: TEXT})},
            errors=(InvalidRequest, TooManyViewers),
        ),
        _playground(),
    ]


def sessions() -> list[Operation]:
    """Return the operations that sign in and out."""
    done = Answer(description="Done; the cookie is set, or gone.")
    body = Body(content={JSON: record({"key": text("`hs-…`")})}, example={"key": "hs-…"})
    return [
        Operation(
            method="POST",
            path="/api/session",
            id="signIn",
            tag=Tag.PAGE_API,
            summary="Exchange the key of an admin or a viewer for a session",
            description="From the gateway's own page only.",
            access=ANYBODY,
            body=body,
            answers={204: done},
            errors=(
                WrongKey,
                KeyExpired,
                KeysNotLoaded,
                KeyUnusable,
                Forbidden,
                InvalidRequest,
                UnsupportedMediaType,
                BodyTooLarge,
                BodyTimeout,
            ),
        ),
        Operation(
            method="DELETE",
            path="/api/session",
            id="signOut",
            tag=Tag.PAGE_API,
            summary="End the session",
            access=ANYBODY,
            answers={204: done},
            errors=(Forbidden,),
        ),
    ]


def _playground() -> Operation:
    """Return the chat of the page: as any other, but with the page's session."""
    [chat] = (each for each in raced.operations() if each.path == CHAT_SURFACE.route)
    return msgspec.structs.replace(
        chat,
        path="/api/playground",
        id="play",
        tag=Tag.PAGE_API,
        summary=f"{chat.summary}, from the page",
        access=CALLING_VISITOR,
    )


def _report(path: str, name: str, summary: str, schema: str, query: type[msgspec.Struct]) -> Operation:
    return _get(path, name, summary, ref(schema), parameters=_query(query), errors=_OF_REPORTS)


def _query(kind: type[msgspec.Struct]) -> tuple[Parameter, ...]:
    """Return the parameters that are read into a struct."""
    return tuple(
        Parameter(name=field.encode_name, schema=_value(field), description=_ABOUT[field.encode_name])
        for field in msgspec.structs.fields(kind)
    )


def _value(field: msgspec.structs.FieldInfo) -> Schema:
    """Return the schema of a parameter: without null, which no query has, and with its default."""
    schema = of_type(field.type)
    [value] = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    return value if field.default in {None, msgspec.NODEFAULT} else {**value, "default": field.default}


def _get(
    path: str,
    name: str,
    summary: str,
    schema: Schema,
    *,
    description: str = "",
    parameters: tuple[Parameter, ...] = (),
    errors: tuple[type[ApiError], ...] = (),
) -> Operation:
    return Operation(
        method="GET",
        path=f"/api{path}",
        id=name,
        tag=Tag.PAGE_API,
        summary=summary,
        description=description,
        access=VISITOR,
        parameters=parameters,
        answers={200: Answer(description="The figures.", content={JSON: schema}, headers=("etag",)), 304: UNCHANGED},
        errors=errors,
    )
