"""The session: who looks, and at which gateway; signing in with a key, and out."""

import asyncio

import msgspec
from aiohttp import web

from gateway import __version__
from gateway.errors import BodyTimeout, BodyTooLarge, Forbidden, InvalidRequest, NoKey, UnsupportedMediaType
from gateway.ingress.admission import JSON, digest_of
from gateway.ingress.api.answers import answer
from gateway.ingress.context import CONTEXT, Context
from gateway.ingress.sessions import LIFETIME_S, NAME, secret_of
from gateway.ingress.visitors import SSO, admit_visitor, demand_own_page, is_https
from gateway.key_errors import NotSignedIn
from gateway.settings.role import Role
from providers.simulator.persona import are_demo

_LONGEST = 4096  # bytes of a body with a key: whoever sends it has not been admitted yet


class _SignIn(msgspec.Struct):
    key: str


async def get_session(request: web.Request) -> web.Response:
    """Return who looks, and what the page needs to know of the gateway before it shows anything.

    Raises:
        NotSignedIn: nobody has signed in, and no key is sent.

    """
    try:
        client = admit_visitor(request)
    except NoKey as error:
        raise NotSignedIn(error.message) from None
    context = request.app[CONTEXT]
    state = context.process.readiness()
    table = context.admission.keys.table
    database_url = context.settings.database_url.get_secret_value()
    return answer(
        request,
        {
            "user": {"name": client.name, "role": client.role},
            "authentication": "key" if table.is_required else "none",
            "trusted_header": client.name is not None and client.name.startswith(SSO),
            "version": __version__,
            "replica": context.process.replica,
            "region": context.settings.region,
            "stores": {
                "database": "sqlite" if database_url.startswith("sqlite") else "postgresql",
                "database_ok": state["database"]["connected"],
                "redis": state["redis"] is not None and state["redis"]["connected"],
            },
            "demo": are_demo(context.settings.providers),
            "models": list(context.fleet.models),
            "clients": sorted(table.names),
            "calls_ever": await context.reports.has_calls(),
        },
    )


async def create_session(request: web.Request) -> web.Response:
    """Sign in: exchange the key of an admin or a viewer for a cookie.

    The cookie has no path, so that browsers send it to /api alone, also where a proxy puts a prefix before it.

    Raises:
        WrongKey, KeyExpired: the key is unknown, or has expired.
        Forbidden: its client is neither an admin nor a viewer; or another page sends the request.
        InvalidRequest: no key is sent, or none is needed here.

    """
    demand_own_page(request)
    context = request.app[CONTEXT]
    if not context.admission.keys.table.is_required:
        raise InvalidRequest("no 'clients:' are configured, so nobody has to sign in")
    digest = digest_of(await _sent_key(request, context))
    if context.admission.holder(digest).role is Role.CLIENT:
        raise Forbidden("the page needs the key of an admin or a viewer: set 'role: viewer' for a client")
    return _with_cookie(
        request,
        context.admission.sessions.made(digest, secret_of(context.settings, context.process.signing_key)),
        LIFETIME_S,
    )


async def end_session(request: web.Request) -> web.Response:
    """Sign out: the browser forgets the cookie."""
    demand_own_page(request)
    return _with_cookie(request, "", 0)


def _with_cookie(request: web.Request, value: str, lifetime_s: int) -> web.Response:
    secure = "; Secure" if is_https(request) else ""
    cookie = f"{NAME}={value}; Max-Age={lifetime_s}; HttpOnly; SameSite=Strict{secure}"
    return web.Response(status=204, headers={"set-cookie": cookie, "cache-control": "no-store"})


async def _sent_key(request: web.Request, context: Context) -> str:
    """Return the key in a body like ``{"key": "hs-…"}``.

    Raises:
        UnsupportedMediaType, BodyTooLarge, BodyTimeout, InvalidRequest: there is none.

    """
    if request.content_type != JSON or "content-encoding" in request.headers:
        raise UnsupportedMediaType(f"send content-type: {JSON}, without content-encoding")
    body = b""
    try:
        async with asyncio.timeout(context.settings.client_timeouts.body_timeout_s):
            while piece := await request.content.readany():
                body += piece
                if len(body) > _LONGEST:
                    raise BodyTooLarge(f"the body is larger than {_LONGEST} bytes")
    except TimeoutError:
        raise BodyTimeout("the body did not come in time (client_timeouts)") from None
    try:
        key = msgspec.json.decode(body, type=_SignIn).key.strip()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        key = ""
    if not key:
        raise InvalidRequest('send the key as {"key": "hs-…"}', param="key")
    return key
