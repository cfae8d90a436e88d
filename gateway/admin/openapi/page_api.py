"""The operations for operators and for the page: health, figures, keys, sessions, and the page's own files.

Queries are described from the structs that they are read into.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.admin import answers
from gateway.admin.facts import ShownFacts
from gateway.admin.keys import Clients, Revoked, Rotation
from gateway.admin.leaderboard import HypotheticalCall, Leaderboards, Plans
from gateway.admin.openapi import calls
from gateway.admin.openapi.operation import (
    ADMIN,
    ADMIN_VISITOR,
    ANYBODY,
    CALLING_VISITOR,
    EVENTS,
    JSON,
    OBJECT,
    PERSON,
    READER,
    VIEWER,
    VISITOR,
    Answer,
    Made,
    Object,
    Operation,
    Tag,
    body,
    in_path,
    of_type,
    parameter,
    ref,
)
from gateway.admin.queries import WindowQuery
from gateway.admin.reports import (
    CallsQuery,
    HeatQuery,
    HistoryQuery,
    RegionsQuery,
    ReplayQuery,
    SlowdownsQuery,
    WorthQuery,
)
from gateway.admin.visitors import SignInBody
from gateway.api import CHAT_ENDPOINT, RaceOverride
from gateway.core import errors
from gateway.core.errors import ApiError, InvalidRequest, ModelNotFound
from gateway.core.reports import CallNotFound, FoundCall, ReportsUnreachable, ReportTooSlow
from gateway.live import Wanted

# Queries.

_ABOUT: Mapping[str, str] = {
    "window": "How far back.",
    "from": "The beginning of a range of time, instead of `window`.",
    "to": "The end of that range; by default it ends now.",
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
    "effort": "How much the model is asked to think; without it the request does not say.",
}
_MODEL = parameter("model", "Only this model; by default all.")
# The call that is explained: its size and kind, and how it is raced.
_CALL = tuple(
    parameter(each.name, _ABOUT_CALL.get(each.name, f"As `{each.name}` in a request's `race`."), of_type(each.type))
    for each in (*msgspec.structs.fields(HypotheticalCall), *msgspec.structs.fields(RaceOverride))
)


def _query(kind: type[msgspec.Struct]) -> tuple[Made, ...]:
    """Return the query parameters of a struct, with defaults, and without null, which no query has."""
    found = []
    for field in msgspec.structs.fields(kind):
        whole = of_type(field.type)
        [value] = [each for each in whole.get("anyOf", [whole]) if each.get("type") != "null"]
        default = {} if field.default in {None, msgspec.NODEFAULT} else {"default": field.default}
        found.append(parameter(field.encode_name, _ABOUT[field.encode_name], Made(value, **default)))
    return tuple(found)


# Health, metrics and the leaderboard.

_READY = {JSON: answers.Readiness}
_STATUS = (
    Operation(
        "GET /health/live",
        "isAlive",
        "Whether the process responds",
        Tag.STATUS,
        ANYBODY,
        {200: Answer("It does.", {JSON: answers.Alive})},
    ),
    Operation(
        "GET /.well-known/holeshot",
        "loginAt",
        "Where people sign in with `holeshot login`",
        Tag.STATUS,
        ANYBODY,
        {200: Answer("The identity provider and the client.", {JSON: answers.LoginAt})},
        errors=(errors.NotFound,),
    ),
    Operation(
        "GET /health/ready",
        "isReady",
        "Whether new calls are accepted, and the state of the stores",
        Tag.STATUS,
        ANYBODY,
        {
            200: Answer("They are.", _READY),
            503: Answer("It stops, does not know the keys yet, or must not lose rows and would.", _READY),
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
        {200: Answer("Each model's deployments, best first; with `explain` its plan.", {JSON: (Leaderboards, Plans)})},
        (
            _MODEL,
            parameter("explain", "`1`: the plans of next calls instead. The other parameters are for these.", bool),
            *_CALL,
        ),
        (InvalidRequest, ModelNotFound),
    ),
)

# Clients and their keys, for programs (/admin/keys) and for the page (/api/keys).

_OF_BODY = (InvalidRequest, errors.UnsupportedMediaType, errors.BodyTimeout, errors.BodyTooLarge)
_OF_KEYS = (*_OF_BODY, errors.KeysUnreachable)
_NAME = in_path("name", "The client's name.")
_CLIENT = {200: Answer("The client.", {JSON: ref("Client")})}
_WITH_KEY = {200: Answer("The client, with its new key.", {JSON: ref("ClientWithKey")})}
_MADE = {201: _WITH_KEY[200]}
_CLIENTS = {200: Answer("The clients of the file, then those of the database.", {JSON: Clients})}
_REVOKED = {200: Answer("Which keys were ended.", {JSON: Revoked})}
_ALL = (parameter("all", "`1`: revoked keys too.", bool),)
_ONE_KEY = (*_NAME, parameter("key", "Only the key with this id or hint."))
_NAMED = Made(
    OBJECT, properties={"name": of_type(str, "Letters, digits, dots, dashes, underscores.")}, required=["name"]
)
_NEW = body(
    {JSON: Made(allOf=[ref("ClientSettings"), _NAMED], unevaluatedProperties=False)}, {"name": "search", "rpm": 60}
)
_PATCH = body(
    {JSON: Made(OBJECT, description="A merge patch (RFC 7396) of `ClientSettings`: null means the default.")},
    {"rpm": 120, "expires": None},
)
_ROTATION = body(
    {JSON: of_type(Rotation)},
    {"grace_s": 3600},
    required=False,
)
_OF_NEW, _OF_ONE = (errors.KeyConflict, *_OF_KEYS), (errors.ClientNotFound, *_OF_KEYS)
_OF_CHANGE = (errors.ClientNotFound, *_OF_NEW)
_CHANGE, _REVOKE = "Change a client's settings", "End a client's keys, and the calls that run with them"
_ROTATE = "POST /admin/keys/{name}/rotate"
_KEYS = (
    Operation("GET /admin/keys", "listKeys", "Every client with its keys", Tag.KEYS, VIEWER, _CLIENTS, _ALL, _OF_KEYS),
    Operation("POST /admin/keys", "createKey", "Make a client with a key", Tag.KEYS, ADMIN, _MADE, (), _OF_NEW, _NEW),
    Operation("GET /admin/keys/{name}", "getKey", "One client", Tag.KEYS, VIEWER, _CLIENT, _NAME, _OF_ONE),
    Operation("PATCH /admin/keys/{name}", "changeKey", _CHANGE, Tag.KEYS, ADMIN, _CLIENT, _NAME, _OF_CHANGE, _PATCH),
    Operation("DELETE /admin/keys/{name}", "revokeKey", _REVOKE, Tag.KEYS, ADMIN, _REVOKED, _ONE_KEY, _OF_CHANGE),
    Operation(
        _ROTATE, "rotateKey", "Give a client a new key", Tag.KEYS, ADMIN, _WITH_KEY, _NAME, _OF_CHANGE, _ROTATION
    ),
)
_FACTS = (
    Operation(
        "GET /admin/facts",
        "listFacts",
        "What refusals have taught of deployments: when, why and by whom",
        Tag.STATUS,
        VIEWER,
        {200: Answer("What this replica knows.", {JSON: ShownFacts})},
    ),
    Operation(
        "DELETE /admin/facts/{id}",
        "forgetFact",
        "Forget what a refusal has taught, in all replicas",
        Tag.STATUS,
        ADMIN,
        {200: Answer("What was forgotten.", {JSON: ShownFacts})},
        in_path("id", "As `GET /admin/facts` lists it."),
        (errors.NotFound,),
    ),
)
_KEYS_OF_PAGE = tuple(
    msgspec.structs.replace(
        each,
        asked=each.asked.replace("/admin/", "/api/"),
        id=f"{each.id}OnPage",
        tag=Tag.PAGE_API,
        access=ADMIN_VISITOR,
    )
    for each in _KEYS
)


# The API under /api, which the page uses.

UNCHANGED = Answer("The caller has it: its etag is in `if-none-match`.")
_OF_REPORTS = (InvalidRequest, ReportsUnreachable, ReportTooSlow)
_DONE = {204: Answer("Done; the cookie is set, or gone.")}
_HTML = {"text/html": str}
_GO_ON = {303: Answer("Go on there; a cookie is set.")}


def _figures(
    path: str,
    name: str,
    summary: str,
    shown: Any,
    *raises: type[ApiError],
    takes: tuple[Made, ...] = (),
) -> Operation:
    said = {200: Answer("The figures.", {JSON: shown}, ("etag",)), 304: UNCHANGED}
    return Operation(f"GET /api/{path}", name, summary, Tag.PAGE_API, _SEEN_BY.get(path, VISITOR), said, takes, raises)


_SEEN_BY = {"session": READER, "calls": READER, "calls/{id}": READER, "own": PERSON}  # others: by those who see all


def _report(path: str, name: str, summary: str, shown: Any, query: type[msgspec.Struct]) -> Operation:
    return _figures(path, name, summary, shown, *_OF_REPORTS, takes=_query(query))


def _file(path: str, name: str, summary: str, content: Mapping[str, Any]) -> Operation:
    said = {200: Answer("The file.", content, ("etag",)), 304: UNCHANGED}
    return Operation(f"GET /{path}", name, summary, Tag.PAGE, ANYBODY, said)


OPERATIONS = (
    *_STATUS,
    *_FACTS,
    *_KEYS,
    _figures("session", "getSession", "Who looks, and at which gateway", answers.Session),
    _figures(
        "leaderboard",
        "getBoards",
        "How fast and how good each deployment is",
        answers.PageBoards,
        ModelNotFound,
        takes=(_MODEL,),
    ),
    _figures(
        "explain",
        "getPlans",
        "Who would run for a model's next call, and why",
        Plans,
        InvalidRequest,
        ModelNotFound,
        takes=(_MODEL, *_CALL),
    ),
    _report("calls", "listCalls", "Calls, the newest first", answers.Calls, CallsQuery),
    _figures(
        "calls/{id}",
        "getCall",
        "One call with its attempts",
        FoundCall,
        *_OF_REPORTS,
        CallNotFound,
        takes=in_path("id", "As in `x-holeshot-call-id`."),
    ),
    _report(
        "history", "getHistory", "How fast and reliable deployments were, over time", answers.History, HistoryQuery
    ),
    _report("heat", "getHeat", "One figure by weekday and hour", answers.Heat, HeatQuery),
    _report("slowdowns", "getSlowdowns", "When deployments were slower than usual", answers.Slowdowns, SlowdownsQuery),
    _report("race-value", "getRaceValue", "What racing saved, and what it cost", answers.RaceValue, WorthQuery),
    _report(
        "replay", "getReplay", "What other settings would have done with a model's calls", answers.Replays, ReplayQuery
    ),
    _figures(
        "slo",
        "getTargets",
        "Whether the targets are kept, and what is left of their error budgets",
        answers.Targets,
        *_OF_REPORTS,
    ),
    _report("refusals", "getRefusals", "What was refused, and who guesses keys", answers.Refused, WindowQuery),
    _report("regions", "getRegions", "Calls by the region that served them", answers.Regions, RegionsQuery),
    _figures("alerts", "getAlerts", "What is wrong now, and what was", answers.Alerts, InvalidRequest),
    _report("usage", "getUsage", "What each client has used, and its limits", answers.Usage, WindowQuery),
    _report("teams", "getTeams", "What teams, end users and models have used", answers.Teams, WindowQuery),
    _report(
        "own", "getOwnUsage", "What the person who asks has used, and how fast it was", answers.OwnUsage, WindowQuery
    ),
    _figures(
        "configuration",
        "getConfiguration",
        "What is configured, without secrets",
        answers.Configuration,
        InvalidRequest,
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
        description="Server-sent events, which the page 'In production' lists. A comment every 15 seconds.",
    ),
    # The chat of the page: a normal call, but with the page's session.
    msgspec.structs.replace(
        next(calls.operations(CHAT_ENDPOINT)),
        asked="POST /api/playground",
        id="play",
        summary=f"{CHAT_ENDPOINT.description.summary}, from the page",
        tag=Tag.PAGE_API,
        access=CALLING_VISITOR,
    ),
    Operation(
        "POST /api/session",
        "signIn",
        "Exchange the key of an admin, an operator or a viewer for a session",
        Tag.PAGE_API,
        ANYBODY,
        _DONE,
        (),
        (
            *(errors.WrongKey, errors.KeyExpired, errors.KeysNotLoaded, errors.KeyUnusable, errors.Forbidden),
            *_OF_BODY,
        ),
        body({JSON: of_type(SignInBody)}, {"key": "hs-…"}),
        "From the gateway's own page only.",
    ),
    Operation(
        "DELETE /api/session",
        "signOut",
        "End the session",
        Tag.PAGE_API,
        ANYBODY,
        {
            **_DONE,
            200: Answer(
                "Done; `leave` is where to sign out at the provider, too, if it can be done.",
                {JSON: answers.SignedOut},
            ),
        },
        (),
        (errors.Forbidden,),
    ),
    Operation(
        "GET /api/sign-in",
        "beginSignIn",
        "Go to the provider where people sign in",
        Tag.PAGE_API,
        ANYBODY,
        _GO_ON,
        (),
        (errors.NotFound, errors.Forbidden, errors.SignInUnavailable),
        description="For a browser, if `page.sign_in` is set. It is shown errors of signing in as a page.",
    ),
    Operation(
        "GET /api/signed-in",
        "endSignIn",
        "Come back from there, with a code",
        Tag.PAGE_API,
        ANYBODY,
        _GO_ON,
        (),
        (errors.NotFound, errors.SignInRefused, errors.SignInUnavailable),
    ),
    *_KEYS_OF_PAGE,
    _file(
        "",
        "getPage",
        "The page, for a browser; for a program where to go",
        {**_HTML, JSON: answers.Welcome},
    ),
    _file("docs", "getDocs", "This description as a page", _HTML),
    _file("openapi.json", "getDescription", "This description, OpenAPI 3.1", {JSON: Object}),
    _file("favicon.ico", "getIcon", "The icon", {"image/svg+xml": str}),
    msgspec.structs.replace(
        _file("page/{path}", "getFile", "A file of the page", {"*/*": Any}),
        parameters=in_path("path", "The file's path, with slashes."),
        errors=(errors.NotFound,),
    ),
)
