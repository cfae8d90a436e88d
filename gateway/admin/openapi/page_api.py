"""What is for operators and for the page: health, figures, keys, sessions, and the page's own files.

Queries are described from the structs that they are read into.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from gateway.admin.boards import UsageQuery
from gateway.admin.explain import Explained, HypotheticalCall
from gateway.admin.openapi import calls
from gateway.admin.openapi.answers import NEW_KEY, NEXT, REPLAYED, ROW, SQL, STANDING, WORTH
from gateway.admin.openapi.operation import (
    ADMIN,
    ADMIN_VISITOR,
    ANYBODY,
    CALLING_VISITOR,
    EVENTS,
    JSON,
    VIEWER,
    VISITOR,
    Access,
    Answer,
    Body,
    Operation,
    Parameter,
    Tag,
    in_path,
)
from gateway.admin.openapi.schemas import OBJECT, Made, either, of, of_type, ref, schema
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
from gateway.api.overrides import RaceOverride
from gateway.core import errors
from gateway.core.errors import ApiError, InvalidRequest, ModelNotFound
from gateway.core.reports import CallNotFound, ReportsUnreachable, ReportTooSlow
from gateway.live.events import Wanted
from gateway.steering.leaderboard import Leaderboard

# Queries.

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
_ABOUT_CALL: Mapping[str, str] = {
    "prompt_tokens": "The prompt's length.",
    "max_tokens": "The limit of the answer, if one is set.",
    "stream": "Whether the answer is streamed.",
    "tools": "Whether there are tools.",
    "json_schema": "Whether the answer must follow a schema.",
    "vision": "Whether there are pictures in the prompt.",
}
_MODEL = Parameter("model", "Only this model; by default all.")
# Which call an explanation is of: its size and kind, and how it is raced.
_CALL = tuple(
    Parameter(each.name, _ABOUT_CALL.get(each.name, f"As `{each.name}` in a request's `race`."), of_type(each.type))
    for each in (*msgspec.structs.fields(HypotheticalCall), *msgspec.structs.fields(RaceOverride))
)


def _query(kind: type[msgspec.Struct]) -> tuple[Parameter, ...]:
    """Return the parameters that are read into a struct: without null, which no query has, and with defaults."""
    found = []
    for field in msgspec.structs.fields(kind):
        whole = of_type(field.type)
        [value] = [each for each in whole.get("anyOf", [whole]) if each.get("type") != "null"]
        default = {} if field.default in {None, msgspec.NODEFAULT} else {"default": field.default}
        found.append(Parameter(field.encode_name, _ABOUT[field.encode_name], Made(value, **default)))
    return tuple(found)


# Health, metrics and the leaderboard.

_READY = {JSON: "Readiness"}
_BOARDS = either({"models": [of(Leaderboard)]}, {"models": [of(Explained)]})
_STATUS = (
    Operation(
        "GET /health/live",
        "isAlive",
        "Whether the process responds",
        Tag.STATUS,
        ANYBODY,
        {200: Answer("It does.", {JSON: {"status": Literal["ok"]}})},
    ),
    Operation(
        "GET /health/ready",
        "isReady",
        "Whether new calls are accepted, and the state of the stores",
        Tag.STATUS,
        ANYBODY,
        {
            200: Answer("They are.", _READY),
            503: Answer("It stops, or does not know the keys of the database yet.", _READY),
        },
        description="The gateway stays ready when its database or Redis goes away.",
    ),
    Operation(
        "GET /metrics",
        "getMetrics",
        "Metrics in Prometheus' text format",
        Tag.STATUS,
        VIEWER,
        {200: Answer("The metrics.", {"text/plain": str})},
    ),
    Operation(
        "GET /leaderboard",
        "getLeaderboard",
        "How fast and how good each deployment is, or who would run next, and why",
        Tag.STATUS,
        VIEWER,
        {200: Answer("Each model's deployments, best first; with `explain` its plan.", {JSON: _BOARDS})},
        (
            _MODEL,
            Parameter(
                "explain", "`1`: the plans of next calls instead. The other parameters are for these.", schema(bool)
            ),
            *_CALL,
        ),
        (InvalidRequest, ModelNotFound),
    ),
)

# Clients and their keys, for programs (/admin/keys) and for the page (/api/keys).

_OF_BODY = (InvalidRequest, errors.UnsupportedMediaType, errors.BodyTimeout, errors.BodyTooLarge)
_OF_KEYS = (*_OF_BODY, errors.KeysUnreachable)
_OF_CHANGES = (errors.ClientNotFound, errors.KeyConflict, *_OF_KEYS)
_NAME = in_path("name", "The client's name.")
_THE_CLIENT = {200: Answer("The client.", {JSON: "Client"})}
_WITH_KEY = Answer("The client, with its new key.", {JSON: "ClientWithKey"})
_CLIENTS = {"object": Literal["list"], "data": ["Client"]}
_REVOKED = {"name": str, "revoked": [{"id hint": str}]}
_NEW = Made(
    allOf=[ref("ClientSettings"), schema({"name": (str, "Letters, digits, dots, dashes, underscores.")})],
    unevaluatedProperties=False,
)
_PATCH = (OBJECT, "A merge patch (RFC 7396) of `ClientSettings`: null means the default.")
_ROTATION = {"grace_s?": (float, "Seconds for which the older keys stay valid; 0 by default.")}


def _keys(root: str, tag: Tag, reads: Access, changes: Access, suffix: str = "") -> tuple[Operation, ...]:
    """Return the operations below ``root``."""
    return (
        Operation(
            f"GET {root}",
            f"listKeys{suffix}",
            "Every client with its keys",
            tag,
            reads,
            {200: Answer("The clients of the file, then those of the database.", {JSON: _CLIENTS})},
            (Parameter("all", "`1`: revoked keys too.", schema(bool)),),
            _OF_KEYS,
        ),
        Operation(
            f"POST {root}",
            f"createKey{suffix}",
            "Make a client with a key",
            tag,
            changes,
            {201: _WITH_KEY},
            (),
            (errors.KeyConflict, *_OF_KEYS),
            Body({JSON: _NEW}, {"name": "search", "rpm": 60}),
        ),
        Operation(
            f"GET {root}/{{name}}",
            f"getKey{suffix}",
            "One client",
            tag,
            reads,
            _THE_CLIENT,
            (_NAME,),
            (errors.ClientNotFound, *_OF_KEYS),
        ),
        Operation(
            f"PATCH {root}/{{name}}",
            f"changeKey{suffix}",
            "Change a client's settings",
            tag,
            changes,
            _THE_CLIENT,
            (_NAME,),
            _OF_CHANGES,
            Body({JSON: _PATCH}, {"rpm": 120, "expires": None}),
        ),
        Operation(
            f"DELETE {root}/{{name}}",
            f"revokeKey{suffix}",
            "End a client's keys, and the calls that run with them",
            tag,
            changes,
            {200: Answer("Which keys were ended.", {JSON: _REVOKED})},
            (_NAME, Parameter("key", "Only the key with this id or hint.")),
            _OF_CHANGES,
        ),
        Operation(
            f"POST {root}/{{name}}/rotate",
            f"rotateKey{suffix}",
            "Give a client a new key",
            tag,
            changes,
            {200: _WITH_KEY},
            (_NAME,),
            _OF_CHANGES,
            Body({JSON: _ROTATION}, {"grace_s": 3600}, required=False),
        ),
    )


# The API under /api, which the page shows.

UNCHANGED = Answer("The caller has it: its etag is in `if-none-match`.")
_OF_REPORTS = (InvalidRequest, ReportsUnreachable, ReportTooSlow)
_LISTED = {"data": ["ListedCall"], "next": NEXT, "sql": SQL}
_FOUND = {
    "call": ROW,
    "attempts": [ROW],
    "source": (Literal["ledger", "memory", "running"], "Where it was found."),
    "sql call_sql": SQL,
}
_REPLAYS = {
    "models": [(str, "With calls, the busiest first.")],
    "data": [REPLAYED],
    "note": (str | None, "Why there is no data."),
}
_DONE = {204: Answer("Done; the cookie is set, or gone.")}
_HTML = {"text/html": str}


def _figures(
    path: str,
    name: str,
    summary: str,
    answer: Any,
    *raises: type[ApiError],
    takes: tuple[Parameter, ...] = (),
) -> Operation:
    answers = {200: Answer("The figures.", {JSON: answer}, ("etag",)), 304: UNCHANGED}
    return Operation(f"GET /api/{path}", name, summary, Tag.PAGE_API, VISITOR, answers, takes, raises)


def _report(path: str, name: str, summary: str, answer: Any, query: type[msgspec.Struct]) -> Operation:
    return _figures(path, name, summary, answer, *_OF_REPORTS, takes=_query(query))


def _file(path: str, name: str, summary: str, content: Mapping[str, Any]) -> Operation:
    answers = {200: Answer("The file.", content, ("etag",)), 304: UNCHANGED}
    return Operation(f"GET /{path}", name, summary, Tag.PAGE, ANYBODY, answers)


OPERATIONS = (
    *_STATUS,
    *_keys("/admin/keys", Tag.KEYS, VIEWER, ADMIN),
    _figures("session", "getSession", "Who looks, and at which gateway", "Session"),
    _figures(
        "leaderboard",
        "getBoards",
        "How fast and how good each deployment is",
        {"models": ["PageBoard"]},
        ModelNotFound,
        takes=(_MODEL,),
    ),
    _figures(
        "explain",
        "getPlans",
        "Who would run for a model's next call, and why",
        {"models": [of(Explained)]},
        InvalidRequest,
        ModelNotFound,
        takes=(_MODEL, *_CALL),
    ),
    _report("calls", "listCalls", "Calls, the newest first", _LISTED, CallsQuery),
    _figures(
        "calls/{id}",
        "getCall",
        "One call with its attempts",
        _FOUND,
        *_OF_REPORTS,
        CallNotFound,
        takes=(in_path("id", "As in `x-holeshot-call-id`."),),
    ),
    _report("history", "getHistory", "How fast and reliable deployments were, over time", "History", HistoryQuery),
    _report("heat", "getHeat", "One figure by weekday and hour", "Heat", HeatQuery),
    _report("slowdowns", "getSlowdowns", "When deployments were slower than usual", "Slowdowns", SlowdownsQuery),
    _report(
        "race-value", "getRaceValue", "What racing saved, and what it cost", {"data": [WORTH], "sql": SQL}, WorthQuery
    ),
    _report("replay", "getReplay", "What other settings would have done with a model's calls", _REPLAYS, ReplayQuery),
    _figures(
        "slo",
        "getTargets",
        "Whether the targets are kept, and what is left of their error budgets",
        {"targets": [STANDING]},
        *_OF_REPORTS,
    ),
    _report("refusals", "getRefusals", "What was refused, and who guesses keys", "Refused", RefusalsQuery),
    _figures("alerts", "getAlerts", "What is wrong now, and what was", "Alerts", InvalidRequest),
    _report("usage", "getUsage", "What each client has used, and its limits", "Usage", UsageQuery),
    _figures(
        "configuration", "getConfiguration", "What is configured, without secrets", "Configuration", InvalidRequest
    ),
    Operation(
        "GET /api/live",
        "watchRaces",
        "Races as they happen",
        Tag.PAGE_API,
        VISITOR,
        {200: Answer("The events.", {EVENTS: str})},
        _query(Wanted),
        (InvalidRequest, errors.TooManyViewers),
        description="Server-sent events: docs/operations.md lists them. A comment every 15 seconds.",
    ),
    # The chat of the page: as any other, but with the page's session.
    msgspec.structs.replace(
        calls.raced(CHAT_ENDPOINT),
        asked="POST /api/playground",
        id="play",
        summary=f"{CHAT_ENDPOINT.description.summary}, from the page",
        tag=Tag.PAGE_API,
        access=CALLING_VISITOR,
    ),
    Operation(
        "POST /api/session",
        "signIn",
        "Exchange the key of an admin or a viewer for a session",
        Tag.PAGE_API,
        ANYBODY,
        _DONE,
        (),
        (
            *(errors.WrongKey, errors.KeyExpired, errors.KeysNotLoaded, errors.KeyUnusable, errors.Forbidden),
            *_OF_BODY,
        ),
        Body({JSON: {"key": NEW_KEY}}, {"key": "hs-…"}),
        "From the gateway's own page only.",
    ),
    Operation(
        "DELETE /api/session", "signOut", "End the session", Tag.PAGE_API, ANYBODY, _DONE, (), (errors.Forbidden,)
    ),
    *_keys("/api/keys", Tag.PAGE_API, ADMIN_VISITOR, ADMIN_VISITOR, "OnPage"),
    _file(
        "",
        "getPage",
        "The page, for a browser; for a program where to go",
        {**_HTML, JSON: {"name chat models api page": str}},
    ),
    _file("docs", "getDocs", "This description as a page", _HTML),
    _file("openapi.json", "getDescription", "This description, OpenAPI 3.1", {JSON: OBJECT}),
    _file("favicon.ico", "getIcon", "The icon", {"image/svg+xml": str}),
    msgspec.structs.replace(
        _file("page/{path}", "getFile", "A file of the page", {"*/*": Made()}),
        parameters=(in_path("path", "The file's path, with slashes."),),
        errors=(errors.NotFound,),
    ),
)
