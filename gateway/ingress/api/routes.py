"""The list of /api's routes, and of the page's own."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.ingress import page
from gateway.ingress.answering import answering
from gateway.ingress.api import (
    alerts,
    boards,
    calls,
    configuration,
    history,
    keys,
    live,
    refusals,
    replays,
    session,
    slo,
    slowdowns,
    usage,
    worth,
)
from gateway.ingress.bodies.reading import withhold_continue
from gateway.ingress.surfaces.chat import CHAT_SURFACE
from gateway.ingress.visitors import admit_caller


def _route(method: str, path: str, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.RouteDef:
    return web.route(method, path, handler, expect_handler=withhold_continue)


ROUTES = (
    _route("GET", "/", page.home),
    _route("GET", "/favicon.ico", page.icon),
    _route("GET", "/page/{path:.+}", page.asset),
    _route("GET", "/api/session", session.get_session),
    _route("POST", "/api/session", session.create_session),
    _route("DELETE", "/api/session", session.end_session),
    _route("POST", "/api/playground", answering(CHAT_SURFACE, admit_caller)),
    _route("GET", "/api/leaderboard", boards.leaderboard),
    _route("GET", "/api/explain", boards.explain),
    _route("GET", "/api/history", history.history),
    _route("GET", "/api/heat", history.heat),
    _route("GET", "/api/slowdowns", slowdowns.slowdowns),
    _route("GET", "/api/race-value", worth.race_value),
    _route("GET", "/api/replay", replays.replay),
    _route("GET", "/api/slo", slo.slo),
    _route("GET", "/api/refusals", refusals.refusals),
    _route("GET", "/api/alerts", alerts.alerts),
    _route("GET", "/api/usage", usage.usage),
    _route("GET", "/api/configuration", configuration.configuration),
    _route("GET", "/api/keys", keys.list_keys),
    _route("POST", "/api/keys", keys.create_key),
    _route("GET", "/api/keys/{name}", keys.get_key),
    _route("PATCH", "/api/keys/{name}", keys.change_key),
    _route("DELETE", "/api/keys/{name}", keys.revoke_key),
    _route("POST", "/api/keys/{name}/rotate", keys.rotate_key),
    _route("GET", "/api/calls", calls.list_calls),
    _route("GET", "/api/calls/{id}", calls.get_call),
    _route("GET", "/api/live", live.live),
)
