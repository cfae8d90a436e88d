"""Access control of the page and its API.

A program sends a key. A browser has other credentials, which accompany the requests of any page: a cookie, headers of a
proxy, a connection from this machine. None of these counts in a request of another site's page: browsers name the
requesting page in ``sec-fetch-site`` and ``origin``, which no page can change.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
from aiohttp import web

from gateway import __version__
from gateway.access import (
    FORWARDED_FOR,
    READING,
    TOKEN,
    VISITOR,
    Client,
    Trust,
    demand_local_host,
    digest_of,
    person_of,
    read_address,
    sent_key,
    sessions,
)
from gateway.admin import answers
from gateway.admin.operations import OPERATIONS
from gateway.admin.queries import answer
from gateway.admin.sign_in import MOST_S, MUST_ASK, People, cookie_of, home, page_of, sent_to
from gateway.api import CHAT_ENDPOINT, CONTEXT, Context, RefusedRequest, answering
from gateway.core.errors import (
    ApiError,
    BodyTimeout,
    BodyTooLarge,
    Forbidden,
    HeaderIgnored,
    InvalidRequest,
    KeysNotLoaded,
    NoKey,
    NotFound,
    NotSignedIn,
    SessionEnded,
    SignInRefused,
    SignInUnavailable,
    Unauthorized,
    UnsupportedMediaType,
)
from gateway.core.modes import SAID
from gateway.core.reports import Reports, ReportsUnreachable, ReportTooSlow, SoleUser
from gateway.fleet import Model
from gateway.http import JSON
from gateway.keys import RETRY_S
from gateway.settings import ClientRole, SignInSettings
from providers import UNREADABLE
from providers.simulator import are_demo

OWN: web.RequestKey[SoleUser] = web.RequestKey(
    "holeshot.own", SoleUser
)  # the role of people who have signed in to see their own calls alone
FORWARDED_PROTO = "x-forwarded-proto"
SSO = "sso:"  # prefix of names given by a proxy, so that none equals a client's
_SSO_WIDTH = 2  # the default for clients
_LONGEST_NAME = 100
_SIGN_IN_HEADER = "x-holeshot-sign-in"  # tells the page that people sign in at a provider
_OF_ANSWERS = ("code", "state", "iss", "error")  # parameters of a provider's answer


def admit_visitor(request: web.Request, *, admin: bool = False, takes: Sequence[str] = (JSON,)) -> Client:
    """Return the client that sends the request, if it is an admin or a viewer; with ``admin`` only an admin.

    ``takes`` are the media types of a request that changes something.

    Raises:
        Forbidden: it may not, or another page sends the request.
        NoKey, HeaderIgnored, SessionEnded: there is no session, or it is over.
        ApiError: as for ``Admission.admit``.

    """
    client = _admitted(request, takes)
    if client.role is ClientRole.CLIENT:
        raise Forbidden("this needs the key of an admin, an operator or a viewer: set 'role: viewer' for a client")
    if admin and client.role is not ClientRole.ADMIN:
        raise Forbidden("this needs the key of an admin: set 'role: admin' for a client")
    return client


def admit_reader(request: web.Request) -> SoleUser | None:
    """Return whose calls alone the sender may see: those of one person; None: an admin, an operator, or a viewer.

    Raises:
        ApiError: as for ``admit_visitor``, but that some clients see their own calls.

    """
    client = _admitted(request)
    return None if client.role is not ClientRole.CLIENT else _own(request, client)


def admit_person(request: web.Request) -> SoleUser:
    """Return whose calls the sender sees, who is one person.

    Raises:
        ApiError: it is none, or as for ``admit_visitor``.

    """
    return _own(request, _admitted(request))


def _own(request: web.Request, client: Client) -> SoleUser:
    """Return the end user whose calls a person sees, by a sign-in for own calls, or by a token of ``page.people``.

    Raises:
        Forbidden: it is none.

    """
    own: SoleUser | None = request.get(OWN)
    context, token = request.app[CONTEXT], request.get(TOKEN)
    if own is None and token is not None and token.issuer in context.settings.page.people:
        own = context.payers.own(client)
    if own is None:
        raise Forbidden(
            "this needs the key of an admin, an operator or a viewer, or the account of one of page.people, who see"
            " their own calls"
        )
    return own


def admit_caller(request: web.Request, takes: Sequence[str] = (JSON,)) -> Client:
    """Return the client that sends the request, with any role; a viewer only reads.

    Raises:
        Forbidden: it has signed in to see its own calls.
        ApiError: as for ``admit_visitor``.

    """
    client = _admitted(request, takes)
    if OWN in request:
        raise Forbidden("who sees their own calls here makes them with a program: sign in there with `holeshot login`")
    return client


def _admitted(request: web.Request, takes: Sequence[str] = (JSON,)) -> Client:
    demand_own_page(request)
    admission = request.app[CONTEXT].admission
    if admission.keys.table.is_required and sent_key(request):
        return admission.admit(request, takes)
    if request.method not in READING and request.content_type not in takes:
        raise UnsupportedMediaType(f"send content-type: {' or '.join(takes)}, not {request.content_type!r}")
    if not admission.keys.table.is_required:
        _demand_this_machine(request)
        return admission.let_in(request, admission.local, None)
    client, digest = _signed_in(request)
    if request.method not in READING and not {"sec-fetch-site", "origin"} & request.headers.keys():
        raise Forbidden("who has signed in changes things in a browser; programs send a key: 'authorization: Bearer …'")
    request[VISITOR] = client
    return admission.let_in(request, client, digest)


def demand_own_page(request: web.Request) -> None:
    """Check that no other site's page sends the request. Programs do not send these headers.

    Raises:
        Forbidden: another page sends it.

    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is None:  # a program, an old browser, or plain HTTP to another machine
        is_own = origin is None or origin.lower() == own_origin(request)
    elif site == "none":  # the address was typed
        is_own = origin is None and request.method in READING
    else:
        is_own = site == "same-origin"
    if not is_own or any(len(request.headers.getall(name, ())) > 1 for name in ("sec-fetch-site", "origin")):
        raise Forbidden(
            "/api is for the gateway's own page and for programs: other pages are refused (behind a proxy: let it pass"
            " the host on, and name it in trusted_proxies)"
        )


def own_origin(request: web.Request) -> str:
    """Return the page's own origin, as the browser knows it."""
    return f"{'https' if is_https(request) else 'http'}://{request.host}".lower()


def is_https(request: web.Request) -> bool:
    """Whether the browser uses TLS: with the gateway, or with a trusted proxy that reports it."""
    if request.secure:
        return True
    scheme = request.headers.get(FORWARDED_PROTO, "").partition(",")[0].strip().lower()
    return scheme == "https" and _is_from(request, Trust(request.app[CONTEXT].settings.trusted_proxies))


def _demand_this_machine(request: web.Request) -> None:
    """Check that the request comes from a program on this machine, or from the page in a browser on it.

    The host's name is checked because of DNS rebinding: a page whose name resolves to this address has the same origin.
    """
    demand_local_host(request)
    origin = request.headers.get("origin")
    if origin is not None and (
        origin.lower() != own_origin(request) or request.headers.get("sec-fetch-site") != "same-origin"
    ):
        raise Forbidden("requests from web pages are refused while no 'clients:' are configured, but for our own page")


def _signed_in(request: web.Request) -> tuple[Client, bytes | None]:
    """Return the signed-in visitor: by a key, with the key's digest, or named by a proxy.

    Raises:
        NoKey, HeaderIgnored, SessionEnded: there is no session.
        KeyExpired, KeysNotLoaded, KeyUnusable: the key of the session has expired, or cannot be judged now.

    """
    context = request.app[CONTEXT]
    admission = context.admission
    cookies = sessions.presented(request.headers.getall("cookie", ()))
    secret = sessions.secret_of(context.settings, request.app[OPERATIONS].signing_key)
    digest = admission.sessions.digest(cookies, secret) if cookies else None
    if digest is not None:
        return admission.holder(digest), digest
    people = _people(request)
    person = _person(request, people) if people else None
    if person is not None:
        client, own = person
        if own is not None:
            request[OWN] = own
        return client, None
    named = _named_by_proxy(request, context)
    if isinstance(named, Client):
        return named, None
    if cookies and not admission.keys.table.is_loaded:
        raise KeysNotLoaded(
            "the keys could not be read from the database yet; retry soon", headers={"retry-after": str(RETRY_S)}
        )
    if cookies or people:
        raise SessionEnded("the session is over, or its key was replaced or revoked: sign in again")
    if named:
        raise HeaderIgnored(f"sign in with a key: {named}")
    raise NoKey("sign in, or send your gateway key as 'authorization: Bearer hs-…'")


def _people(request: web.Request) -> list[str]:
    """Return the cookies of people who have signed in at the provider."""
    return sessions.presented(request.headers.getall("cookie", ()), sessions.PERSON)


def _person(request: web.Request, cookies: Sequence[str]) -> tuple[Client, SoleUser | None] | None:
    """Return the person signed in at the provider, and whose calls they see, None: all.

    None: the session is over, or no provider is set any more.
    """
    context, operations = request.app[CONTEXT], request.app[OPERATIONS]
    settings = context.settings.page.sign_in
    if settings is None:
        return None
    secret = sessions.secret_of(context.settings, operations.signing_key)
    found = operations.sign_in().visitor(settings, secret, cookies, people=_people_of(context))
    if found is not None and found[1] is not None and _client_of(context, found[1].client) is None:
        return None
    return found


def _people_of(context: Context) -> People | None:
    """Return the people who sign in to see their own calls; None: there are none."""
    issuer = context.settings.people_of_page
    if issuer is None:
        return None

    def own(name: str, team: str | None, end_user: str) -> SoleUser | None:
        client = _client_of(context, name)
        return None if client is None else context.payers.own(person_of(client, team, end_user))

    return People(issuer, own)


def _client_of(context: Context, name: str) -> Client | None:
    """Return the client of an issuer's people; None: it was removed or revoked, or has expired."""
    known = context.admission.keys.table.named(name)
    return None if known is None or known.has_ended(context.admission.keys.unix_clock()) else known.client


def _named_by_proxy(request: web.Request, context: Context) -> Client | str:
    """Return the person whom a trusted proxy names; else the reason to ignore its header, "" if there is none."""
    trusted = context.settings.page.trusted_header
    names = [] if trusted is None else request.headers.getall(trusted.name, [])
    if trusted is None or not names:
        return ""
    if not _is_from(request, Trust(trusted.from_)):
        return f"{trusted.name} is ignored, as {request.remote} is not in page.trusted_header.from"
    name = names[0].strip()
    if len(names) > 1 or not name or len(name) > _LONGEST_NAME or not name.isprintable():
        return f"{trusted.name} is ignored, as it is not one name of at most {_LONGEST_NAME} characters"
    return Client(name=f"{SSO}{name}", role=trusted.role, adhoc=False, max_width=_SSO_WIDTH)


def _is_from(request: web.Request, trust: Trust) -> bool:
    """Whether the peer itself is trusted; forwarded addresses are ignored."""
    address = read_address(request.remote or "")
    return address is not None and trust.trusts(address)


# The session: the visitor and the gateway; signing in with a key, and out.

_LONGEST = 4096  # bytes of a body with a key, whose sender is not authenticated yet


class SignInBody(msgspec.Struct):
    """The body of a sign-in: a key."""

    key: Annotated[str, msgspec.Meta(description="`hs-…`")]


async def _replica(reports: Reports) -> answers.ReplicaState | None:
    """Return whether the database of reports answers, and how far behind it is; None if it is the ledger's own."""
    if not reports.have_replica:
        return None
    try:
        return answers.ReplicaState(connected=True, lag_s=await reports.replica_lag_s())
    except (ReportsUnreachable, ReportTooSlow):  # logged
        return answers.ReplicaState(connected=False, lag_s=None)


async def get_session(request: web.Request) -> web.Response:
    """Return the visitor, and the facts about the gateway that the page needs first.

    Raises:
        NotSignedIn: there is no session, and no key is sent.

    """
    try:
        client = _admitted(request)
    except Unauthorized as error:
        refused = NotSignedIn(error.message) if isinstance(error, NoKey) else error
        if request.app[CONTEXT].settings.page.sign_in is not None:
            refused.headers[_SIGN_IN_HEADER] = f"api/{sessions.START}"
        raise refused from None
    context = request.app[CONTEXT]
    own = None if client.role is not ClientRole.CLIENT else _own(request, client)
    state = request.app[OPERATIONS].readiness()
    table = context.admission.keys.table
    seen = _models(context, own)
    models = sorted(seen, key=lambda each: -len(each.deployments))
    database_url = context.settings.database_url.get_secret_value()
    return answer(
        request,
        answers.Session(
            user=answers.User(client.name, answers.VisitorRole("person" if own is not None else client.role)),
            authentication="key" if table.is_required else "none",
            trusted_header=client.name is not None and client.name.startswith(SSO),
            sign_in=context.settings.page.sign_in is not None,
            version=__version__,
            replica=context.replica,
            region=context.settings.region,
            stores=answers.SessionStores(
                database="sqlite" if database_url.startswith("sqlite") else "postgresql",
                database_ok=state.database.connected,
                clock_off_s=abs(state.clock.ahead_s or 0.0) if state.clock.is_off else None,
                replica=None if own is not None else await _replica(request.app[OPERATIONS].reports),
                redis=state.redis is not None and state.redis.connected,
            ),
            modes={str(mode): said.title for mode, said in SAID.items()},
            demo=are_demo(context.settings.providers),
            models=[each.name for each in seen],
            deployments=list(dict.fromkeys(name for each in models for name in each.deployments)),
            clients=sorted(table.names) if own is None else [],
            payers=own is None and (context.payers.is_used or any(each.use_limits for each in seen)),
            calls_ever=None if own is not None else await request.app[OPERATIONS].reports.has_calls(),
        ),
    )


def _models(context: Context, own: SoleUser | None) -> list[Model]:
    """Return the models that a visitor sees: all, or those that a person may use."""
    models = list(context.fleet.models.values())
    if own is None:
        return models
    client = _client_of(context, own.client)
    return [each for each in models if client is not None and client.may_use(each.name)]


async def create_session(request: web.Request) -> web.Response:
    """Sign in: exchange the key of an admin or a viewer for a cookie.

    The cookie has no path: so browsers send the cookie to /api alone, even where a proxy puts a prefix before /api.

    Raises:
        WrongKey, KeyExpired: the key is unknown, or has expired.
        Forbidden: its client is neither an admin nor a viewer; or another page sends the request.
        InvalidRequest: no key is sent, or none is needed here.

    """
    demand_own_page(request)
    context = request.app[CONTEXT]
    if not context.admission.keys.table.is_required:
        raise InvalidRequest("no 'clients:' are configured, so no sign-in is needed")
    digest = digest_of(await _sent_key(request, context))
    if context.admission.holder(digest).role is ClientRole.CLIENT:
        raise Forbidden("the page needs the key of an admin, an operator or a viewer: set 'role: viewer' for a client")
    return _with_cookie(
        request,
        context.admission.sessions.made(
            digest, sessions.secret_of(context.settings, request.app[OPERATIONS].signing_key)
        ),
        sessions.LIFETIME_S,
    )


async def end_session(request: web.Request) -> web.Response:
    """Sign out: the browser forgets the cookie. The answer to a person has the provider's address for signing out."""
    demand_own_page(request)
    response, people = _with_cookie(request, "", 0), _people(request)
    if not people:
        return response
    response.headers.add("set-cookie", _cookie(request, sessions.PERSON, "", 0))
    context = request.app[CONTEXT]
    settings, url = context.settings.page.sign_in, context.settings.page.public_url
    if settings is None or url is None or _person(request, people) is None:
        return response
    leave = await request.app[OPERATIONS].sign_in().leaving(settings, url)
    answered = web.json_response(body=msgspec.json.encode(answers.SignedOut(leave)))
    answered.headers.extend(response.headers)
    return answered


# Signing in at the provider: the browser is sent there, and comes back.


async def begin_sign_in(request: web.Request) -> web.Response:
    """Send the browser to the provider; with ``?prompt=none`` it answers at once, or the browser is sent back.

    Raises:
        NotFound: no provider is configured.
        Forbidden: another page sends the request.

    """
    settings, url, secret = _provider(request)
    demand_own_page(request)
    try:
        people = _people_of(request.app[CONTEXT])
        silently = request.query.get("prompt") == "none"
        begun = await request.app[OPERATIONS].sign_in().begin(settings, url, secret, people=people, silently=silently)
    except SignInUnavailable as error:
        return _not_signed_in(request, error, url)
    return sent_to(begun.location, _cookie(request, begun.name, begun.cookie, MOST_S, same_site="Lax"))


async def end_sign_in(request: web.Request) -> web.Response:
    """Sign in a person who returns from the provider. The request is another site's: the sign-in's cookie protects it.

    Raises:
        NotFound: no provider is configured.

    """
    settings, url, secret = _provider(request)
    answer = {name: values[0] for name in _OF_ANSWERS if len(values := request.query.getall(name, [])) == 1}
    begun = cookie_of(answer.get("state", ""))
    over = _cookie(request, begun, "", 0, same_site="Lax")
    if answer.get("error") in MUST_ASK:
        return sent_to(home(url), over)
    cookies = sessions.presented(request.headers.getall("cookie", ()), begun)
    people = _people_of(request.app[CONTEXT])
    try:
        made = await request.app[OPERATIONS].sign_in().end(settings, url, secret, cookies, answer, people=people)
    except (SignInRefused, SignInUnavailable) as error:
        response = _not_signed_in(request, error, url)
        response.headers["set-cookie"] = over
        return response
    return sent_to(home(url), _cookie(request, sessions.PERSON, made, sessions.LIFETIME_S), over)


def _provider(request: web.Request) -> tuple[SignInSettings, str, bytes]:
    context = request.app[CONTEXT]
    settings, url = context.settings.page.sign_in, context.settings.page.public_url
    if settings is None or url is None:
        raise NotFound("nobody signs in at a provider here: page.sign_in is not set")
    return settings, url, sessions.secret_of(context.settings, request.app[OPERATIONS].signing_key)


def _not_signed_in(request: web.Request, error: ApiError, url: str) -> web.Response:
    context = request.app[CONTEXT]
    trust = Trust(context.settings.trusted_proxies)
    peer = trust.named(request.remote, request.headers.getall(FORWARDED_FOR, ()))
    resource = request.match_info.route.resource
    endpoint = None if resource is None else resource.canonical
    context.refusals.add_error(error, lambda: RefusedRequest(peer, request.method, endpoint))
    return page_of(error, url)


def _with_cookie(request: web.Request, value: str, lifetime_s: int) -> web.Response:
    cookie = _cookie(request, sessions.NAME, value, lifetime_s)
    return web.Response(status=204, headers={"set-cookie": cookie, "cache-control": "no-store"})


def _cookie(request: web.Request, name: str, value: str, lifetime_s: int, *, same_site: str = "Strict") -> str:
    """Return a ``set-cookie`` header's value. It has no path, so browsers send it to /api alone."""
    secure = "; Secure" if is_https(request) else ""
    return f"{name}={value}; Max-Age={lifetime_s}; HttpOnly; SameSite={same_site}{secure}"


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
        key = msgspec.json.decode(body, type=SignInBody).key.strip()
    except UNREADABLE:
        key = ""
    if not key:
        raise InvalidRequest('send the key as {"key": "hs-…"}', param="key")
    return key


playground = answering(CHAT_ENDPOINT, admit_caller)  # a call from the page
