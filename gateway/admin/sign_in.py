"""Signing in to the page at an OpenID provider: authorization code with PKCE, state, nonce and RFC 9207's ``iss``.

Nothing is stored: a sign-in's secrets are derived from a random cookie in its browser. So it may begin at one replica
and end at another.
"""

import hashlib
import hmac
import re
import secrets
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode

import msgspec
import structlog
from aiohttp import web

from gateway import __version__
from gateway.access import Client, sessions
from gateway.core.errors import ApiError, SignInRefused, SignInUnavailable
from gateway.core.reports import SoleUser
from gateway.settings import ClientRole, IssuerSettings, SignInSettings, is_safe_url

if TYPE_CHECKING:
    from gateway.keys import Issuer, Web
    from providers.http import TlsContexts

PEOPLE = "oidc:"  # prefix of their names, so that none equals a client's
_COOKIE = "holeshot-sign-in-"  # and the first characters of the sign-in's state
_STATE = re.compile(r"([\w-]{8})[\w-]{35}", re.ASCII)
MOST_S = 600  # from the beginning to the end of a sign-in
AGAIN_S = 2.0  # between two tries to reach the provider
LEEWAY_S = 30.0
_SEED = re.compile(r"(([\w-]{43})\.([0-9]{1,11}))\.[\w-]{43}", re.ASCII)
_CODE = re.compile(r"[\x21-\x7e]{1,4096}")
_LONGEST_NAME = 100
_MOST_GROUPS = 20  # shown to a person who is not let in
_WIDTH = 2  # of people's races: the default for clients
_NAMES = ("preferred_username", "email", "name", "sub")  # the first existing one is shown
# OpenID Connect Core, 3.1.2.6: what is answered to a silent sign-in where the person would have to be asked.
MUST_ASK = frozenset({"login_required", "interaction_required", "consent_required", "account_selection_required"})
_OF_OTHERS = "this sign-in was not begun in this browser, or more than ten minutes ago: begin again"


class Begun(msgspec.Struct, frozen=True):
    """The address to which a browser is redirected for signing in, and the cookie for its return, with its name."""

    location: str
    cookie: str
    name: str


class People(msgspec.Struct, frozen=True):
    """The people of an issuer, who see their own calls: whose they are is as for their tokens.

    ``own``: of the issuer's client, by the team and the name of one of its end users.
    """

    issuer: IssuerSettings
    own: Callable[[str, str | None, str], SoleUser | None]


class SignIn:
    """Signs people in at the configured provider. ``secret``, never empty, is the key that signs cookies."""

    def __init__(
        self, *, clock: Callable[[], float], unix_clock: Callable[[], float], tls: "TlsContexts | None" = None
    ) -> None:
        self._clock = clock
        self._unix_clock = unix_clock
        self._tls = tls
        self._web: Web | None = None
        self._issuer: Issuer | None = None
        self._failed_at: float | None = None

    async def begin(
        self,
        settings: SignInSettings,
        public_url: str,
        secret: bytes,
        *,
        people: People | None = None,
        silently: bool = False,
    ) -> Begun:
        """Return where to sign in. ``silently``: the provider is to answer at once, without asking the person.

        Raises:
            SignInUnavailable: the provider does not say.

        """
        metadata = await self._metadata(settings)
        ends_at = int(self._unix_clock()) + MOST_S
        cookie = _signed(_key(settings, secret, people), f"{_text(secrets.token_bytes(32))}.{ends_at}")
        verifier = _derived(cookie, "verifier")
        state = _derived(cookie, "state")
        asked = {
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": _back(public_url),
            "scope": " ".join(settings.scopes),
            "state": state,
            "nonce": _derived(cookie, "nonce"),
            "code_challenge": _text(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
            **({"prompt": "none"} if silently else {}),
        }
        return Begun(_extended(_address(metadata, "authorization_endpoint"), asked), cookie, cookie_of(state))

    async def end(
        self,
        settings: SignInSettings,
        public_url: str,
        secret: bytes,
        cookies: Sequence[str],
        answer: Mapping[str, str],
        *,
        people: People | None = None,
    ) -> str:
        """Return the session's cookie of the person whom the provider has sent back with ``answer``.

        ``people``: who none of the groups lets in sees their own calls, if they are one of these.

        Raises:
            SignInRefused, SignInUnavailable: there is none.

        """
        key = _key(settings, secret, people)
        begun = self._begun(key, cookies, answer.get("state", ""))
        metadata = await self._metadata(settings)
        said = answer.get("iss")
        is_said = metadata.get("authorization_response_iss_parameter_supported") is True
        if said != settings.issuer and (said is not None or is_said):
            raise SignInRefused("the answer is of another provider (RFC 9207): begin again")
        if "error" in answer:
            raise SignInRefused("the provider has refused the sign-in: begin again, or ask the operator")
        if _CODE.fullmatch(answer.get("code", "")) is None:
            raise SignInRefused("the provider has sent no code: begin again")
        tokens = await self._exchanged(settings, metadata, answer["code"], _derived(begun, "verifier"), public_url)
        claims = await self._identified(settings, tokens, _derived(begun, "nonce"))
        claims = await self._completed(settings, (settings.groups,), metadata, claims, tokens)
        name = name_of(claims)
        try:
            role = role_of(settings, claims)
        except SignInRefused as error:
            refused = error
        else:
            # Event page.signed_in: A person signed in to the page at the provider, with this `role`.
            # Do: Nothing.
            structlog.get_logger().info("page.signed_in", name=name, role=str(role))
            return sessions.made_for(name, role, key, self._unix_clock())
        if people is not None:
            claims = await self._completed(settings, _needed(people), metadata, claims, tokens)
            name = name_of(claims)
            try:
                cookie = self._own(people, claims, name, key)
            except SignInRefused as error:
                refused = error
            else:
                # Event page.signed_in_for_own: A person of `page.people` signed in to the page at the provider, to see
                # their own calls.
                # Do: Nothing.
                structlog.get_logger().info("page.signed_in_for_own", name=name)
                return cookie
        refused.person = name, tuple(sorted(each for each in groups_of(settings, claims) if each.isprintable()))
        raise refused

    def _own(self, people: People, claims: Mapping[str, Any], name: str, key: bytes) -> str:
        """Return the cookie of one of an issuer's people.

        Raises:
            SignInRefused: this one is none of them.

        """
        from gateway.keys import check_claims, end_user_of, instant_of, team_of  # noqa: PLC0415 - 9 MB, few have a provider

        try:
            check_claims(people.issuer, claims)
            team, end_user = team_of(people.issuer, claims), end_user_of(people.issuer, claims)
            own = people.own(people.issuer.client or "", team, end_user or "")
        except ApiError as error:
            raise SignInRefused(f"you cannot see your calls here: {error.message}") from None
        if own is None:
            raise SignInRefused("your calls cannot be told from others': ask the operator")
        ends_at = (instant_of(claims, "exp") or 0.0) + LEEWAY_S
        return sessions.made_for_own(name, own, key, self._unix_clock(), ends_at)

    async def leaving(self, settings: SignInSettings, public_url: str) -> str | None:
        """Return the address that ends the session at the provider too; None if it has none."""
        try:
            address = _address(await self._metadata(settings), "end_session_endpoint")
        except (SignInRefused, SignInUnavailable):
            return None
        return _extended(address, {"client_id": settings.client_id, "post_logout_redirect_uri": home(public_url)})

    async def close(self) -> None:
        """Close the connections to the provider."""
        if self._issuer is not None:
            await self._issuer.close()
        if self._web is not None:
            await self._web.aclose()

    def visitor(
        self, settings: SignInSettings, secret: bytes, cookies: Sequence[str], *, people: People | None = None
    ) -> tuple[Client, SoleUser | None] | None:
        """Return the person who has signed in, by a request's cookies, and whose calls they see; None: all."""
        key, now = _key(settings, secret, people), self._unix_clock()
        found = sessions.person_of(cookies, key, now)
        if found is not None:
            return Client(name=f"{PEOPLE}{found[0]}", role=found[1], adhoc=False, max_width=_WIDTH), None
        own = None if people is None else sessions.own_of(cookies, key, now)
        if own is None:
            return None
        return Client(name=f"{PEOPLE}{own[0]}", role=ClientRole.CLIENT, adhoc=False, max_width=1), own[1]

    def _begun(self, key: bytes, cookies: Sequence[str], state: str) -> str:
        for cookie in cookies:
            read = _SEED.fullmatch(cookie)
            if (
                read is not None
                and hmac.compare_digest(_signed(key, read[1]), cookie)
                and self._unix_clock() < int(read[3])
                and hmac.compare_digest(_derived(cookie, "state").encode(), state.encode(errors="replace"))
            ):
                return cookie
        raise SignInRefused(_OF_OTHERS)

    def _provider(self, settings: SignInSettings) -> "tuple[Web, Issuer]":
        from gateway.keys import Issuer, Web  # noqa: PLC0415 - 9 MB, and few have a provider

        if self._web is None:
            self._web = Web(f"holeshot/{__version__}", self._tls)
        known = self._issuer
        if known is None or (known.address, known.algorithms) != (settings.issuer, frozenset(settings.algorithms)):
            known = self._issuer = Issuer(settings.issuer, settings.algorithms, self._web, clock=self._clock)
            self._failed_at = None
        return self._web, known

    async def _metadata(self, settings: SignInSettings) -> Mapping[str, Any]:
        """Return the provider's metadata; while it is unreachable, it is requested every two seconds at most."""
        from gateway.keys import IssuerError  # noqa: PLC0415 - likewise

        _, issuer = self._provider(settings)
        if self._failed_at is None or self._clock() - self._failed_at >= AGAIN_S:
            try:
                return await issuer.metadata()
            except IssuerError as error:
                self._failed_at = self._clock()
                raise _away(str(error)) from None
        raise _away("it was asked a moment ago")

    async def _exchanged(
        self, settings: SignInSettings, metadata: Mapping[str, Any], code: str, verifier: str, public_url: str
    ) -> Mapping[str, Any]:
        """Exchange the code for tokens; a provider takes a code once."""
        from gateway.keys import IssuerError  # noqa: PLC0415 - likewise

        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": _back(public_url),
            "code_verifier": verifier,
        }
        headers: dict[str, str] = {}
        methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if settings.client_secret is None:
            form["client_id"] = settings.client_id
        elif isinstance(methods, list) and "client_secret_basic" not in methods:
            form |= {"client_id": settings.client_id, "client_secret": settings.client_secret.get_secret_value()}
        else:
            pair = f"{quote_plus(settings.client_id)}:{quote_plus(settings.client_secret.get_secret_value())}"
            headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        try:
            web_, _ = self._provider(settings)
            answer = await web_.send("POST", _address(metadata, "token_endpoint"), headers, form)
        except IssuerError as error:
            raise _away(str(error)) from None
        if answer.status != web.HTTPOk.status_code:
            _log_refused(f"the provider answered {answer.status} to the code", answer.body.get("error"))
            raise SignInRefused("the provider does not take the code, maybe as it was used before: begin again")
        return answer.body

    async def _identified(self, settings: SignInSettings, tokens: Mapping[str, Any], nonce: str) -> Mapping[str, Any]:
        """Return the claims of the ID token, checked as OpenID Connect Core 3.1.3.7 says."""
        from gateway.keys import TokenError, instant_of, signed, text_of, texts_of, unverified  # noqa: PLC0415

        text = tokens.get("id_token")
        try:
            header, _ = unverified(text if isinstance(text, str) else "")
            algorithm, (_, issuer) = header.get("alg"), self._provider(settings)
            if algorithm not in settings.algorithms:
                raise SignInRefused("the ID token is signed by an algorithm that page.sign_in.algorithms does not list")
            key = issuer.key(header.get("kid"), algorithm)
            if key is None and await issuer.ask():
                key = issuer.key(header.get("kid"), algorithm)
            if key is None:
                raise SignInRefused("the ID token is not signed with a key that the provider publishes")
            claims = signed(text if isinstance(text, str) else "", key, algorithm)
        except TokenError as error:
            _log_refused("the ID token is not good", str(error))
            raise SignInRefused("the provider's ID token is not good: ask the operator") from None
        audience, end = texts_of(claims.get("aud")), instant_of(claims, "exp")
        is_ours = settings.client_id in audience and claims.get("azp", settings.client_id) == settings.client_id
        if claims.get("iss") != settings.issuer or not is_ours or text_of(claims, "sub") is None:
            raise SignInRefused("the ID token is of another provider, or for another program")
        if end is None or self._unix_clock() >= end + LEEWAY_S:
            raise SignInRefused("the ID token has expired: begin again")
        if not hmac.compare_digest((text_of(claims, "nonce") or "").encode(), nonce.encode()):
            raise SignInRefused("the ID token is of another sign-in (nonce): begin again")
        return claims

    async def _completed(
        self,
        settings: SignInSettings,
        needed: Sequence[str],
        metadata: Mapping[str, Any],
        claims: Mapping[str, Any],
        tokens: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Return the claims with those that are needed: from the ID token, else from the userinfo endpoint."""
        from gateway.keys import IssuerError  # noqa: PLC0415 - likewise

        access = tokens.get("access_token")
        has_all = all(each in claims for each in needed) or _are_elsewhere(settings, claims)
        if has_all or not isinstance(access, str) or "userinfo_endpoint" not in metadata:
            return claims
        try:
            web_, _ = self._provider(settings)
            address = _address(metadata, "userinfo_endpoint")
            found = await web_.get(address, {"authorization": f"Bearer {access}"})
        except (IssuerError, ValueError) as error:
            raise _away(str(error)) from None
        return {**found, **claims} if found.get("sub") == claims["sub"] else claims


def role_of(settings: SignInSettings, claims: Mapping[str, Any]) -> ClientRole:
    """Return the role granted by a person's groups.

    Raises:
        SignInRefused: none; or the token does not have the groups, as there are too many (Entra's overage).

    """
    groups = groups_of(settings, claims)
    if settings.groups == "email" and claims.get("email_verified") is False:
        raise SignInRefused("the provider has not verified this e-mail address")
    if _are_elsewhere(settings, claims):
        raise SignInRefused(
            "the token leaves out the groups, as there are too many: ask the operator to have the provider send only"
            " those that are assigned to this application"
        )
    if not groups:
        raise SignInRefused(f"the provider says nothing of groups (claim {settings.groups!r}): ask the operator")
    if groups.intersection(settings.admins):
        return ClientRole.ADMIN
    if groups.intersection(settings.operators):
        return ClientRole.OPERATOR
    if groups.intersection(settings.viewers):
        return ClientRole.VIEWER
    raise SignInRefused("none of your groups may look at this page: ask the operator")


def _needed(people: People) -> Sequence[str]:
    """Return the claims that name one of these people."""
    verified = ("email_verified",) if people.issuer.end_user == "email" else ()
    return (people.issuer.end_user or "sub", *verified, *people.issuer.teams)


def groups_of(settings: SignInSettings, claims: Mapping[str, Any]) -> set[str]:
    """Return the groups that the provider names."""
    value = claims.get(settings.groups)
    return {each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)}


def name_of(claims: Mapping[str, Any]) -> str:
    """Return the name to show for a person."""
    names = (claims.get(name) for name in _NAMES)
    found = (name for name in names if isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable())
    return next(found, "a person whose name cannot be shown")


def page_of(error: ApiError, public_url: str) -> web.Response:
    """Return an error as an HTML page, as people come here by a link. A person reads their own name and groups."""
    person = error.person if isinstance(error, SignInRefused) else None
    facts = f"<p>At the provider you are {_known(*person)}.</p>" if person else ""
    text = (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        "<title>Sign in · Holeshot</title><link rel=icon href=../page/icon.svg type=image/svg+xml>"
        "<link rel=stylesheet href=../page/style.css><link rel=stylesheet href=../page/views.css>"
        "<main><section class='card login'><div class='inside prose'>"
        f"<h1>You are not signed in</h1>{facts}<p role=alert>{escape(error.message)}.</p>"
        f'<p><a class=button href="{escape(home(public_url))}">Back to the page</a></p>'
        "</div></section></main></html>"
    )
    headers = {
        **error.headers,
        "cache-control": "no-store",
        "content-security-policy": (
            "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'"
        ),
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return web.Response(text=text, status=error.status_code, content_type="text/html", headers=headers)


def _known(name: str, groups: Sequence[str]) -> str:
    """Return HTML that names a person and their groups."""
    shown = [f"<strong>{escape(each[:_LONGEST_NAME])}</strong>" for each in groups[:_MOST_GROUPS]]
    more = f" and {len(groups) - _MOST_GROUPS} more" if len(groups) > _MOST_GROUPS else ""
    said = (
        f"in {'the group' if len(groups) == 1 else 'the groups'} {', '.join(shown)}{more}" if groups else "in no group"
    )
    return f"<strong>{escape(name)}</strong>, {said}"


def sent_to(location: str, *cookies: str) -> web.Response:
    """Return a redirect that also sets cookies."""
    response = web.Response(status=web.HTTPSeeOther.status_code)
    response.headers["location"] = location
    response.headers["cache-control"] = "no-store"
    response.headers["referrer-policy"] = "no-referrer"
    for cookie in cookies:
        response.headers.add("set-cookie", cookie)
    return response


def home(public_url: str) -> str:
    """Return the address of the page."""
    return f"{public_url.rstrip('/')}/"


def _are_elsewhere(settings: SignInSettings, claims: Mapping[str, Any]) -> bool:
    names = claims.get("_claim_names")
    return bool(claims.get("hasgroups")) or (isinstance(names, dict) and settings.groups in names)


def _key(settings: SignInSettings, secret: bytes, people: People | None) -> bytes:
    """Return the key that signs cookies; it changes with the configured provider, its groups and its people."""
    said: tuple[object, ...] = (
        *(settings.issuer, settings.client_id, settings.groups),
        *(settings.viewers, settings.operators, settings.admins),
    )
    if people is not None:
        issuer = people.issuer
        said += (issuer.client, issuer.end_user, issuer.teams, issuer.team, issuer.requires, issuer.deny)
    return hmac.digest(secret, b"holeshot sign-in" + msgspec.json.encode(said), "sha256")


def cookie_of(state: str) -> str:
    """Return the name of the cookie of the sign-in with this ``state``: each tab of a browser may have one."""
    read = _STATE.fullmatch(state)
    return f"{_COOKIE}{'' if read is None else read[1]}"


def _derived(begun: str, what: str) -> str:
    """Return one of the secrets of a sign-in, which cannot be derived without its cookie."""
    return _text(hmac.digest(begun.encode(), what.encode(), "sha256"))


def _signed(key: bytes, said: str) -> str:
    return f"{said}.{_text(hmac.digest(key, b'begins ' + said.encode(), 'sha256'))}"


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _back(public_url: str) -> str:
    return f"{home(public_url)}api/{sessions.BACK}"


def _address(metadata: Mapping[str, Any], name: str) -> str:
    """Return an address of the provider.

    Raises:
        SignInUnavailable: it has none that is safe.

    """
    found = metadata.get(name)
    if not isinstance(found, str) or not is_safe_url(found):
        raise _away(f"its discovery document has no {name} that can be used")
    return found


def _extended(address: str, query: Mapping[str, str]) -> str:
    return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"


def _away(problem: str) -> SignInUnavailable:
    # Event page.provider_unreachable: The provider where people sign in to the page cannot be used; `problem` says why.
    # Do: Make it reachable, or correct `page.sign_in`. Keys work meanwhile.
    structlog.get_logger().warning("page.provider_unreachable", problem=problem)
    return SignInUnavailable(
        "the provider where people sign in cannot be used now: try again soon, or sign in with a key",
        headers={"retry-after": "5"},
    )


def _log_refused(problem: str, said: object) -> None:
    shown = said[:100] if isinstance(said, str) and said.isprintable() else ""
    # Event page.sign_in_failed: The provider did not take the code of a sign-in to the page, or its token is not good.
    # `said` is its own word.
    # Do: Compare `page.sign_in` (client_id, client_secret, algorithms) and `page.public_url` with what is registered.
    structlog.get_logger().warning("page.sign_in_failed", problem=problem, said=shown)
