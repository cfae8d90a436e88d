"""The API under /api, which the page shows. Queries are described from the structs that they are read into."""

from collections.abc import Mapping

import msgspec

from gateway.admin.boards import UsageQuery
from gateway.admin.explain import Explained
from gateway.admin.openapi import calls
from gateway.admin.openapi.operation import (
    ANYBODY,
    CALLING_VISITOR,
    EVENTS,
    JSON,
    TEXT,
    UNCHANGED,
    VISITOR,
    Answer,
    Body,
    Operation,
    Parameter,
    Schema,
    Tag,
    array,
    count,
    flag,
    instant,
    nullable,
    number,
    record,
    ref,
    text,
)
from gateway.admin.openapi.shapes import HYPOTHETICAL_CALL, MODEL, of, of_type
from gateway.admin.reports import (
    CallsQuery,
    HeatQuery,
    HistoryQuery,
    RefusalsQuery,
    ReplayQuery,
    SlowdownsQuery,
    WorthQuery,
)
from gateway.api.endpoints import CHAT_ENDPOINT
from gateway.core.errors import (
    ApiError,
    BodyTimeout,
    BodyTooLarge,
    Forbidden,
    InvalidRequest,
    KeyExpired,
    KeysNotLoaded,
    KeyUnusable,
    ModelNotFound,
    TooManyViewers,
    UnsupportedMediaType,
    WrongKey,
)
from gateway.core.reports import CallNotFound, ReportsUnreachable, ReportTooSlow, Window
from gateway.limits.limits import Standing
from gateway.live.events import Wanted
from gateway.settings.sections import Role

# The schemas of what the API of the page answers.

SQL = text("One statement that gives the same figures in `holeshot sql`.")
NEXT = nullable(text("What to ask with as `after` for the next page; null on the last one."))
ROW: Schema = {"type": "object", "description": "All columns of its table: docs/sql.md.", "additionalProperties": True}
WORTH: Schema = {
    "type": "object",
    "description": "`model` or `client`, and the columns of the view `race_value`: docs/sql.md.",
    "additionalProperties": True,
}
REPLAYED: Schema = {
    "type": "object",
    "description": "What other settings would have done, in milliseconds and US dollars per call: docs/replay.md.",
    "additionalProperties": True,
}
SETTINGS: Schema = {
    "type": "object",
    "description": "As in the configuration file, with defaults; secrets are `***`.",
    "additionalProperties": True,
}
_COUNTS = array(count())
_FIGURES = array(nullable(number()))

SCHEMAS: Mapping[str, Schema] = {
    "Session": record(
        {
            "user": record({"name": nullable(TEXT), "role": text(one_of=tuple(Role))}),
            "authentication": text("Whether a key is needed.", one_of=("none", "key")),
            "version": TEXT,
            "replica": TEXT,
            "region": nullable(TEXT),
            "stores": record(
                {"database": text(one_of=("sqlite", "postgresql")), "database_ok": nullable(flag()), "redis": flag()}
            ),
            "trusted_header": flag("Whether a proxy in front has said who it is."),
            "demo": flag("Whether the providers are the simulated ones, as no key was found."),
            "models": array(TEXT),
            "clients": array(TEXT),
            "calls_ever": nullable(flag("Whether there has ever been a call; null: the database cannot say.")),
        }
    ),
    "PagePrice": nullable(record({"prompt": number("US dollars per million tokens."), "completion": number()})),
    "PageBoard": record(
        {
            "model": TEXT,
            "window_s": number("Attempts launched within so many seconds."),
            "prompt_class": count("Of the scores."),
            "deployments": array(
                {
                    "allOf": [
                        ref("LeaderboardRow"),
                        record(
                            {
                                "price": ref("PagePrice"),
                                "itl_p50_ms": nullable(number("Gaps between chunks, of the last 24 hours.")),
                                "itl_p95_ms": nullable(number()),
                            }
                        ),
                    ]
                }
            ),
        }
    ),
    "ListedCall": record(
        {
            "id": text(),
            "started_at": instant(),
            "client": nullable(TEXT),
            "model": text("As asked for."),
            "answered_model": nullable(text("The one that answered.")),
            "api": text("`chat`, `messages`, `embeddings` …"),
            "streamed": nullable(flag()),
            "mode": nullable(TEXT),
            "status_code": nullable(count()),
            "error_kind": nullable(TEXT),
            "ttft_ms": nullable(number()),
            "total_ms": nullable(number()),
            "launched": nullable(count("Attempts.")),
            "deployment": nullable(text("The winner's.")),
            "prompt_tokens": nullable(count()),
            "completion_tokens": nullable(count()),
            "decode_tps": nullable(number("Tokens per second after the first.")),
            "cost_usd": nullable(number()),
            "duplicate_cost_usd": nullable(number("Of its losers.")),
            "tags": nullable({"type": "object", "additionalProperties": TEXT}),
            "request_id": nullable(TEXT),
            "replica": nullable(TEXT),
            "is_stored": flag("False: from memory, as its row is not in the database yet."),
        },
        optional={"attempts": array({**ROW, "description": "With `attempts=true`: some columns of its table."})},
    ),
    "Alerts": record(
        {
            "enabled": flag("False: `alerts.enabled` is off."),
            "webhooks": array(text("A name in `alerts.webhooks`.")),
            "open": array(ROW),
            "data": nullable(array(ROW)),
            "sql": nullable(SQL),
        },
        about="`open` is what this process knows, also while the database is away; then `data`, its rows, is null.",
    ),
    "HistorySeries": record(
        {
            "model": TEXT,
            "deployment": TEXT,
            "provider": TEXT,
            "t": array(count("The start of the step, in seconds since 1970.")),
            **dict.fromkeys(("n", "errors", "rate_limited", "won", "first_tokens"), _COUNTS),
            **dict.fromkeys(("ttft_p50_ms", "ttft_p95_ms", "ttft_p99_ms"), _FIGURES),
            **dict.fromkeys(("tps_p50", "tps_p95", "itl_p50_ms", "itl_p95_ms"), _FIGURES),
        },
        about="One deployment of one model: columns of equal length.",
    ),
    "History": record(
        {
            "window": of_type(Window),
            "from": instant(),
            "to": instant(),
            "step_s": count(),
            "series": array(ref("HistorySeries")),
            "outages": array(
                record(
                    {
                        "deployment": TEXT,
                        "from": instant(),
                        "to": nullable(instant("Null while it lasts, and if its end was not seen.")),
                        "may_last": flag("No end is known, and it began less than a day ago."),
                        "reason": nullable(TEXT),
                        "replica": nullable(TEXT),
                    }
                )
            ),
            "sql": SQL,
            "outages_sql": SQL,
        }
    ),
    "Slowdowns": record(
        {
            "data": array(
                record(
                    {
                        "id": TEXT,
                        "deployment": TEXT,
                        "model": TEXT,
                        "metric": text("What got worse.", one_of=("ttft", "tps", "itl", "errors")),
                        "began_at": instant(),
                        "noticed_at": instant(),
                        "ended_at": nullable(instant("Null while it lasts.")),
                        "ending": nullable(text("Why it is over.", one_of=("as_usual", "new_usual", "no_calls"))),
                        "ratio": number("How many times as slow, or as many errors, as expected."),
                        "low": number("The lower end of its interval of 95 %."),
                        "high": number("The upper end."),
                        "n": count("First tokens, answers or attempts it was noticed by."),
                        "evidence_sql": SQL,
                    }
                )
            ),
            "sql": SQL,
        }
    ),
    "Heat": record(
        {
            "metric": TEXT,
            "rows": array(
                record(
                    {
                        "deployment": TEXT,
                        "model": TEXT,
                        "cells": array(
                            record(
                                {
                                    "weekday": count("0 is Monday."),
                                    "hour": count("UTC."),
                                    "value": nullable(number()),
                                    "n": count("Attempts."),
                                }
                            )
                        ),
                    }
                )
            ),
            "sql": SQL,
        }
    ),
    "Refused": record(
        {
            "data": array(
                record(
                    {
                        "client": nullable(TEXT),
                        "status_code": count(),
                        "reason": TEXT,
                        "n": count(),
                        "n_addresses": count(),
                        "first_seen_at": instant(),
                        "last_seen_at": instant(),
                    }
                )
            ),
            "wrong_keys": array(
                record(
                    {
                        "address": nullable(TEXT),
                        "n": count(),
                        "n_minutes": count(),
                        "peak_per_minute": count(),
                        "first_seen_at": instant(),
                        "last_seen_at": instant(),
                    }
                )
            ),
            "sql": SQL,
            "wrong_keys_sql": SQL,
        }
    ),
    "Usage": record(
        {
            "data": array(
                record(
                    {
                        "client": nullable(TEXT),
                        "calls": count(),
                        "failed": count(),
                        "prompt_tokens": nullable(count()),
                        "completion_tokens": nullable(count()),
                        "cost_usd": nullable(number()),
                        "duplicate_cost_usd": nullable(number()),
                        "limits": array(of_type(Standing)),
                    }
                )
            ),
            "sql": SQL,
        }
    ),
    "Configuration": record({"settings": SETTINGS, "models": array(SETTINGS), "providers": array(SETTINGS)}),
}


# The schema of where a target stands.

BURN = record(
    {
        "window_s": count("Of the last so many seconds."),
        "calls": count(),
        "bad": count(),
        "burn_rate": nullable(number("1 spends the budget just within the target's days; null without calls.")),
        "sql": SQL,
    }
)
STANDING = record(
    {
        "name": TEXT,
        "model": nullable(text("Whose calls; null: any.")),
        "client": nullable(TEXT),
        "profile": nullable(TEXT),
        "ttft_ms": nullable(number("The first token comes sooner.")),
        "tok_s": nullable(number("At least, after it.")),
        "gap_ms": nullable(number("The longest between two chunks.")),
        "objective": number("The share of calls that is to be good."),
        "days": count("Over how long."),
        "subject": text("Whose calls, in words."),
        "condition": text("What a good call is, in words."),
        "calls": count("That count: docs/targets.md."),
        "bad": count(),
        "failed": count("Of the bad ones."),
        "late": count("Of the bad ones: the first token came too late, or the client left before it."),
        "slow": count("Of the bad ones."),
        "halting": count("Of the bad ones: with too long a gap."),
        "good_share": nullable(number()),
        "budget_left": nullable(number("The share of the error budget; below 0 the target is missed.")),
        "burns": array(BURN),
        "verdict": text("Whether it is kept, in words."),
        "sql": SQL,
        "misses_sql": text("A statement that lists its newest bad calls."),
    }
)


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
    [chat] = (each for each in calls.raced_operations() if each.path == CHAT_ENDPOINT.route)
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
