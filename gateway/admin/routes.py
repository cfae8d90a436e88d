"""The routes of operators: health, /admin and /api, the page's files, and the description of all APIs."""

import asyncio
import gzip
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.access import sessions
from gateway.admin import operations
from gateway.api import withhold_continue
from gateway.core.errors import NotFound

# GET / and the page's files. These have no data and need no key: all that the page shows comes from /api.

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
GUARDS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
FOLDER = Path(__file__).parents[1] / "page" / "assets"
TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".ico": "image/x-icon",
    ".txt": "text/plain; charset=utf-8",
}


class Asset(msgspec.Struct, frozen=True):
    """One file: its bytes, plain and as gzip, with its content type and ETag."""

    body: bytes
    compressed: bytes
    content_type: str
    etag: str


@cache
def assets() -> Mapping[str, Asset]:
    """Return the page's files, read and compressed once, by their path below ``FOLDER``, with slashes."""
    return {
        path.relative_to(FOLDER).as_posix(): _asset(path.read_bytes(), TYPES[path.suffix])
        for path in sorted(FOLDER.rglob("*"))
        if path.is_file() and path.suffix in TYPES
    }


def _asset(body: bytes, content_type: str) -> Asset:
    return Asset(body, gzip.compress(body, mtime=0), content_type, f'"{hashlib.sha256(body).hexdigest()[:20]}"')


async def home(request: web.Request) -> web.StreamResponse:
    """Answer a browser with the page, and a program with the addresses of the APIs."""
    if "text/html" in request.headers.get("accept", ""):
        return served(request, assets()["index.html"])
    from gateway.admin.answers import Welcome  # noqa: PLC0415 - memory: few ask for it

    body = msgspec.json.encode(Welcome())
    return web.Response(body=body, content_type="application/json", headers={"vary": "accept"})


async def asset(request: web.Request) -> web.StreamResponse:
    """Return one of the page's files.

    Raises:
        NotFound: there is none of this name.

    """
    found = assets().get(request.match_info["path"])
    if found is None:
        raise NotFound("the page has no such file")
    return served(request, found)


async def icon(request: web.Request) -> web.StreamResponse:
    """Return the icon at the address that browsers request by themselves."""
    return served(request, assets()["icon.svg"])


def served(request: web.Request, found: Asset) -> web.Response:
    """Return a file, or 304 if the browser has it."""
    headers = {**GUARDS, "etag": found.etag, "cache-control": "no-cache", "vary": "accept, accept-encoding"}
    if found.etag in request.headers.get("if-none-match", ""):
        return web.Response(status=304, headers=headers)
    body = found.body
    if "gzip" in request.headers.get("accept-encoding", "") and len(found.compressed) < len(body):
        headers["content-encoding"], body = "gzip", found.compressed
    return web.Response(body=body, headers={**headers, "content-type": found.content_type})


# GET /openapi.json, and GET /docs, a page made from it.


async def describe(request: web.Request) -> web.StreamResponse:
    """Return the description of this API; the same for everybody, so it needs no key."""
    return served(request, await asyncio.to_thread(_described))  # in a thread, so that calls go on


async def docs(request: web.Request) -> web.StreamResponse:
    """Return the page that shows the OpenAPI document."""
    return served(request, assets()["docs.html"])


@cache
def _described() -> Asset:
    from gateway.admin.openapi.document import document  # noqa: PLC0415 - memory: few are asked for it

    return _asset(msgspec.json.encode(document()), "application/json")


class Later:
    """The handlers of a module, loaded with the first request for one of them: most workers serve calls only.

    ``Later("gateway.admin.usage").teams`` is that module's handler ``teams``; with ``within`` it is a method of what
    the module calls so.
    """

    def __init__(self, module: str, within: str = "") -> None:
        self.module = module
        self.within = within
        self._loaded: Any = None

    def __getattr__(self, name: str) -> Handler:
        """Return the handler of this name."""

        async def handle(request: web.Request) -> web.StreamResponse:
            handler: Handler = getattr(await self._load(), name)
            return await handler(request)

        return handle

    async def _load(self) -> Any:
        if self._loaded is None:
            module = await asyncio.to_thread(import_module, self.module)  # in a thread, so that calls go on
            self._loaded = getattr(module, self.within) if self.within else module
        return self._loaded


configuration, facts, leaderboard, live, reports, usage, visitors = (
    Later(f"gateway.admin.{name}")
    for name in ("configuration", "facts", "leaderboard", "live", "reports", "usage", "visitors")
)


def _route(method: str, path: str, handler: Handler) -> web.RouteDef:
    return web.route(method, path, handler, expect_handler=withhold_continue)


def _keys(path: str, handlers: Later) -> Iterator[web.RouteDef]:
    yield _route("GET", path, handlers.list_keys)
    yield _route("POST", path, handlers.create_key)
    yield _route("GET", f"{path}/{{name}}", handlers.get_key)
    yield _route("PATCH", f"{path}/{{name}}", handlers.change_key)
    yield _route("DELETE", f"{path}/{{name}}", handlers.revoke_key)
    yield _route("POST", f"{path}/{{name}}/rotate", handlers.rotate_key)


ROUTES = (
    _route("GET", "/health/live", operations.live),
    _route("GET", "/health/ready", operations.ready),
    _route("GET", "/.well-known/holeshot", operations.login_at),
    _route("GET", "/metrics", operations.metrics),
    _route("GET", "/leaderboard", leaderboard.leaderboard),
    *_keys("/admin/keys", Later("gateway.admin.keys", "FOR_PROGRAMS")),
    _route("GET", "/admin/facts", facts.list_facts),
    _route("DELETE", "/admin/facts/{id}", facts.forget_fact),
    _route("GET", "/openapi.json", describe),
    _route("GET", "/docs", docs),
    _route("GET", "/", home),
    _route("GET", "/favicon.ico", icon),
    _route("GET", "/page/{path:.+}", asset),
    _route("GET", "/api/session", visitors.get_session),
    _route("POST", "/api/session", visitors.create_session),
    _route("DELETE", "/api/session", visitors.end_session),
    _route("GET", f"/api/{sessions.START}", visitors.begin_sign_in),
    _route("GET", f"/api/{sessions.BACK}", visitors.end_sign_in),
    _route("POST", "/api/playground", visitors.playground),
    _route("GET", "/api/leaderboard", leaderboard.page_leaderboard),
    _route("GET", "/api/explain", leaderboard.page_explain),
    _route("GET", "/api/history", reports.history),
    _route("GET", "/api/heat", reports.heat),
    _route("GET", "/api/slowdowns", reports.slowdowns),
    _route("GET", "/api/race-value", reports.race_value),
    _route("GET", "/api/replay", reports.replay),
    _route("GET", "/api/slo", reports.slo),
    _route("GET", "/api/refusals", reports.refusals),
    _route("GET", "/api/regions", reports.regions),
    _route("GET", "/api/alerts", reports.alerts),
    _route("GET", "/api/usage", usage.usage),
    _route("GET", "/api/teams", usage.teams),
    _route("GET", "/api/own", usage.own),
    _route("GET", "/api/configuration", configuration.configuration),
    *_keys("/api/keys", Later("gateway.admin.keys", "FOR_PAGE")),
    _route("GET", "/api/calls", reports.list_calls),
    _route("GET", "/api/calls/{id}", reports.get_call),
    _route("GET", "/api/live", live.live),
)
