"""JWTs as clients' keys (RFC 7519, checked by RFC 8725 and RFC 9068): verified once, then cached by their hash.

Only ``issuers`` in the settings load this module.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec

from gateway.core.errors import (
    ClientDisconnected,
    CutByExpiry,
    CutByRevocation,
    KeyExpired,
    KeysNotLoaded,
    KeyUnusable,
    SignerUnknown,
    WrongKey,
)
from gateway.keys.issuers import (
    Issuer,
    TokenError,
    Web,
    are_left_out,
    has_value,
    instant_of,
    signed,
    text_of,
    texts_of,
    unverified,
)
from gateway.keys.keys import RETRY_S
from gateway.keys.table import Ended, IssuedKey, KeyTable
from gateway.settings import ClientRole, IssuerSettings

C = TypeVar("C")
LONGEST_END_USER = 512  # characters; a request's ``user`` has the same limit
MOST = 10_000  # cached tokens, about 1 kB each; the least recently used is dropped first
# Claims that ID tokens have and access tokens do not. A token of ``typ: JWT`` with one of them is refused.
_OF_ID_TOKENS = ("nonce", "at_hash", "c_hash", "s_hash")
# Claims that access tokens have and ID tokens do not, and claims that name the program which got the token. In an ID
# token that program is the `aud` (RFC 9068, 2.2; OpenID Connect Core, 2; `cid` is Okta's, `appid` Entra's).
_SCOPES = ("scope", "scp")
_PROGRAMS = ("azp", "client_id", "cid", "appid")
# Claims about a person (OpenID Connect Core, 2 and 5.1). With one of these and none of the above it is an ID token.
_OF_PEOPLE = frozenset(
    {
        *("auth_time", "amr", "acr", "email", "email_verified", "name", "given_name", "family_name", "picture"),
        *("preferred_username", "nickname", "profile", "phone_number", "locale", "zoneinfo", "updated_at", "groups"),
    }
)
_ACCESS_TOKENS = frozenset({"at+jwt", "application/at+jwt"})


class Token(msgspec.Struct, weakref=True):
    """A verified token, without secrets: neither its text nor its hash."""

    issuer: str  # the issuer's name in the settings
    subject: str | None
    id: str | None  # `jti`
    client: str
    is_chosen: bool  # whether the settings map the token to this client; else the token itself names the client
    ends_at: float  # seconds since 1970, with the leeway
    seen: object = None  # the table of keys in which ``known`` was found
    known: Any = None  # the token's client in that table
    team: str | None = None  # the person's team, by the issuer's ``teams``
    end_user: str | None = None  # the person's name, by the issuer's ``end_user``
    person: Any = None  # the client with this team and end user
    person_of: Any = None  # the client from which ``person`` was made


class TokenClients(Generic[C]):
    """Finds the clients of tokens. ``table`` has the clients; ``role_of`` returns the role of one.

    ``person_of`` returns a client as one of its people: with a team and an end user, if they are known.
    """

    def __init__(
        self,
        table: KeyTable[C],
        role_of: Callable[[C], ClientRole],
        web: Web,
        *,
        person_of: Callable[[C, str | None, str | None], C],
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
    ) -> None:
        self._table = table
        self._role_of = role_of
        self._person_of = person_of
        self._web = web
        self._clock = clock
        self._unix_clock = unix_clock
        self._settings: Mapping[str, IssuerSettings] = {}
        self._named: dict[str, str] = {}  # the names of issuers by their `iss`
        self.issuers: dict[str, Issuer] = {}
        self._verified: OrderedDict[bytes, Token] = OrderedDict()  # by the token's hash; the latest used last
        # Includes tokens dropped from the cache while their calls run, so that these are cut if the token is denied.
        self._alive: WeakValueDictionary[bytes, Token] = WeakValueDictionary()
        self._replaced: list[Issuer] = []  # former issuers whose last fetch is still running
        table.of_tokens = self.ended

    def __len__(self) -> int:
        """Return the number of cached tokens."""
        return len(self._verified)

    def configure(self, settings: Mapping[str, IssuerSettings]) -> None:
        """Use these issuers from now on. Tokens of a changed issuer are verified again; its keys stay if valid."""
        before, issuers = self.issuers, {}
        changed = {name for name in {*settings, *self._settings} if settings.get(name) != self._settings.get(name)}
        for name, each in settings.items():
            old = before.get(name)
            is_same = old is not None and (old.address, old.jwks_url, old.algorithms) == (
                each.issuer,
                each.jwks_url,
                frozenset(each.algorithms),
            )
            issuers[name] = (
                old
                if old is not None and is_same
                else Issuer(each.issuer, each.algorithms, self._web, jwks_url=each.jwks_url, clock=self._clock)
            )
        replaced = [old for name, old in before.items() if issuers.get(name) is not old]
        self._replaced = [each for each in (*self._replaced, *replaced) if each.is_fetching]
        self._settings, self.issuers = settings, issuers
        self._named = {each.issuer: name for name, each in settings.items()}
        for digest in [digest for digest, token in self._verified.items() if token.issuer in changed]:
            del self._verified[digest]

    def fetch(self) -> None:
        """Fetch missing keys in the background, so that the first token does not have to wait."""
        for issuer in self.issuers.values():
            if not issuer.keys:
                issuer.start_fetch()

    async def close(self) -> None:
        """Stop fetching keys, and close the connections."""
        for issuer in (*self.issuers.values(), *self._replaced):
            await issuer.close()
        await self._web.aclose()

    def of(self, digest: bytes) -> Token | None:
        """Return the token with this hash. While a caller holds it, ``ended`` can report it."""
        return self._verified.get(digest)

    def holder(self, text: str, digest: bytes) -> C:
        """Return the client that a token names.

        Raises:
            WrongKey, KeyExpired: the token is invalid, or no longer valid.
            SignerUnknown: it is signed with a key that is not known yet.
            KeysNotLoaded, KeyUnusable: its client cannot be judged now.

        """
        token = self._verified.get(digest)
        if token is None:
            token = self._verify(text)
            self._table_of(token)
            self._verified[digest] = self._alive[digest] = token
            if len(self._verified) > MOST:
                self._verified.popitem(last=False)
        else:
            self._verified.move_to_end(digest)
        now = self._unix_clock()
        if now >= token.ends_at:
            self._verified.pop(digest, None)
            raise _expired(token.client, token.ends_at, "this token")
        known = token.known if token.seen is self._table.known else self._table_of(token)
        if known.ends_at is not None and known.has_ended(now):
            raise _expired(token.client, known.ends_at, f"the client {token.client!r}")
        if known.client is None:
            raise KeyUnusable(
                "this version of the gateway cannot use the settings of the token's client; retry, or ask the operator",
                headers={"retry-after": str(RETRY_S)},
            )
        client: C = known.client
        if token.team is None and token.end_user is None:
            return client
        if token.person_of is not client:  # made once: plans and limits of a client are kept by the object's identity
            token.person, token.person_of = self._person_of(client, token.team, token.end_user), client
        person: C = token.person
        return person

    def ended(self) -> Ended:
        """Return the tokens whose calls are to be cut: denied ones, and those whose issuer or client is gone."""
        now = self._unix_clock()
        alive = list(self._alive.items())
        clients = {name: self._table.named(name) for name in {token.client for _, token in alive}}
        ended: dict[bytes, type[ClientDisconnected]] = {}
        for digest, token in alive:
            settings, known = self._settings.get(token.issuer), clients[token.client]
            if settings is None or known is None or _is_denied(settings, token.subject, token.id):
                ended[digest] = CutByRevocation
            elif known.has_ended(now):
                ended[digest] = CutByExpiry
        for digest in ended:
            self._verified.pop(digest, None)
        return ended

    def _table_of(self, token: Token) -> IssuedKey[C]:
        """Return a token's client from the current table of keys.

        Raises:
            WrongKey: there is no such client.
            KeysNotLoaded: the clients of the database are not read yet.

        """
        found = self._table.named(token.client)
        if found is None and not self._table.is_loaded:
            raise KeysNotLoaded(
                "the clients could not be read from the database yet; retry soon",
                headers={"retry-after": str(RETRY_S)},
            )
        if found is None:
            raise WrongKey("the token names no client of this gateway: ask the operator to add it under clients")
        if not token.is_chosen and found.client is not None and self._role_of(found.client) is not ClientRole.CLIENT:
            raise WrongKey("a token names an admin or a viewer only where the issuer's `clients` say so")
        token.seen, token.known = self._table.known, found
        return found

    def _verify(self, text: str) -> Token:
        """Verify a token and return it.

        Raises:
            WrongKey: the token is invalid.
            SignerUnknown: the token's key has to be fetched from the issuer first.

        """
        try:
            header, said = unverified(text)
        except TokenError as error:
            raise WrongKey(f"{error}, nor a key of the gateway") from None
        name = self._named.get(text_of(said, "iss") or "")
        if name is None:
            raise WrongKey("the token's `iss` is not an issuer that this gateway knows")
        settings, algorithm = self._settings[name], header.get("alg")
        if algorithm not in settings.algorithms:
            raise WrongKey(f"the token's `alg` is not one of {', '.join(settings.algorithms)}")
        issuer = self.issuers[name]
        key = issuer.key(header.get("kid"), algorithm)  # any other key in the token's header is ignored
        if key is None:
            raise SignerUnknown(
                "the token is not signed with a key that its issuer publishes", ask=partial(_ask, issuer)
            )
        try:
            claims = signed(text, key, algorithm)
        except TokenError as error:
            raise WrongKey(str(error)) from None
        if not _is_of_login(header.get("typ"), settings, claims):
            _check_kind(header.get("typ"), settings, claims)
            _check_audience(settings, claims)
        return self._judged(name, settings, claims)

    def _judged(self, name: str, settings: IssuerSettings, claims: Mapping[str, Any]) -> Token:
        """Return the token with these claims, whose signature is verified."""
        now, end, start = self._unix_clock(), instant_of(claims, "exp"), instant_of(claims, "nbf", 0.0)
        if end is None or start is None:
            raise WrongKey("the token has no `exp`, or its `exp` or `nbf` is not a number")
        if now < start - settings.leeway_s:
            raise WrongKey("the token is not valid yet (`nbf`)")
        check_claims(settings, claims)
        client = settings.client or self._client_named(settings, texts_of(claims.get(settings.claim)))
        if now >= end + settings.leeway_s:
            raise _expired(client, end + settings.leeway_s, "this token")
        ends_at, is_chosen = end + settings.leeway_s, bool(settings.clients) and settings.client is None
        team, end_user = team_of(settings, claims), end_user_of(settings, claims)
        subject, token_id = text_of(claims, "sub"), text_of(claims, "jti")
        return Token(name, subject, token_id, client, is_chosen, ends_at, team=team, end_user=end_user)

    def _client_named(self, settings: IssuerSettings, values: list[str]) -> str:
        """Return the client: the first of ``clients`` whose value the token has; without these, its first client."""
        if settings.clients:
            found = (client for value, client in settings.clients.items() if value in values)
        else:
            found = (value for value in values if self._table.named(value) is not None or not self._table.is_loaded)
        client = next(found, None)
        if client is None:
            raise WrongKey(
                f"the token's `{settings.claim}` names no client of this gateway: ask the operator to add it"
            )
        return client


def check_claims(settings: IssuerSettings, claims: Mapping[str, Any]) -> None:
    """Check what an issuer's settings require of a token, and that it is not denied.

    Raises:
        WrongKey: the token lacks something, or is denied.

    """
    for claim, wanted in settings.requires.items():
        if not has_value(claims.get(claim), wanted, words=claim in {"scope", "scp"}):
            raise WrongKey(f"the token's `{claim}` lacks what this gateway requires")
    if _is_denied(settings, text_of(claims, "sub"), text_of(claims, "jti")):
        raise WrongKey("the token is denied: ask the operator")


def team_of(settings: IssuerSettings, claims: Mapping[str, Any]) -> str | None:
    """Return the team of a token's person; None: the issuer has no ``teams``.

    Raises:
        WrongKey: the person is in no team's group, or in so many groups that the token leaves them out.

    """
    for claim, teams in settings.teams.items():
        groups = texts_of(claims.get(claim))
        for group, team in teams.items():
            if group in groups:
                return team
    if any(are_left_out(claims, claim) for claim in settings.teams):
        raise WrongKey(
            "the token leaves out its groups, as there are too many: ask the operator to have the issuer send only"
            " those that are assigned to this application"
        )
    if settings.teams and settings.team is None:
        named = " or ".join(f"`{claim}`" for claim in settings.teams)
        raise WrongKey(f"the token's {named} has no group that may use this gateway: ask the operator")
    return settings.team


def end_user_of(settings: IssuerSettings, claims: Mapping[str, Any]) -> str | None:
    """Return the name of a token's person; None: the issuer has no ``end_user``.

    Raises:
        WrongKey: the token has no such claim, or an ``email`` that is not verified.

    """
    if settings.end_user is None:
        return None
    found = text_of(claims, settings.end_user)
    if not found:
        raise WrongKey(f"the token has no `{settings.end_user}`, which names its person here")
    if settings.end_user == "email" and claims.get("email_verified") is not True:
        raise WrongKey("the token's `email` is not verified (`email_verified`)")
    return found[:LONGEST_END_USER]


def _check_kind(kind: object, settings: IssuerSettings, claims: Mapping[str, Any]) -> None:
    """Check that this is an access token: an ID token tells a program who its user is, and was not made for us.

    Raises:
        WrongKey: the token is an ID token, a refresh token, or of another kind.

    """
    if not isinstance(kind, str | None):
        raise WrongKey("the token's `typ` is no text")
    said = kind.lower() if kind else kind
    if said in _ACCESS_TOKENS:
        return
    if settings.typ == "at+jwt":
        raise WrongKey("the token's `typ` is not at+jwt: it is no access token, or its issuer needs `typ: JWT` here")
    if said not in {None, "jwt"}:
        raise WrongKey("the token's `typ` is neither at+jwt nor JWT")
    # Keycloak writes the kind into the claim `typ`, also for refresh and logout tokens; Cognito into `token_use`.
    is_marked = any(claim in claims for claim in _OF_ID_TOKENS) or claims.get("token_use", "access") != "access"
    if is_marked or claims.get("typ", "Bearer") != "Bearer" or _is_like_id_token(settings, claims):
        raise WrongKey("this is an ID token, or another one that is no access token: send an access token")


def _is_like_id_token(settings: IssuerSettings, claims: Mapping[str, Any]) -> bool:
    """Whether a token tells a program who its person is, although nothing marks it as an ID token.

    Device flows send no nonce, so their ID tokens may have no mark. An address in `aud` (``https://…``) names an API,
    not a program.
    """
    audience = texts_of(claims.get("aud"))
    is_access_token = (
        any(claim in claims for claim in (*_SCOPES, "typ", "token_use"))
        or any(claims.get(claim) not in (None, *audience) for claim in _PROGRAMS)
        or any("://" in each for each in audience if each in settings.audience)
    )
    return not is_access_token and not _OF_PEOPLE.isdisjoint(claims)


def _is_of_login(kind: object, settings: IssuerSettings, claims: Mapping[str, Any]) -> bool:
    """Whether this is an ID token of a person who signed in with `holeshot login`, at an issuer with ``sends: id``.

    Such a token is made for the login's client alone (OpenID Connect Core, 3.1.3.7), and is not a logout token.
    """
    login = settings.login
    if login is None or login.sends != "id" or (kind is not None and kind != "JWT"):
        return False
    audience = texts_of(claims.get("aud"))
    made_for = claims.get("azp", login.client_id if len(audience) == 1 else None)
    is_mine = login.client_id in audience and made_for == login.client_id
    return is_mine and "events" not in claims and claims.get("typ", "ID") == "ID"


def _check_audience(settings: IssuerSettings, claims: Mapping[str, Any]) -> None:
    if not set(settings.audience).intersection(texts_of(claims.get("aud"))):
        raise WrongKey("the token's `aud` is not this gateway")


def _is_denied(settings: IssuerSettings, subject: str | None, token_id: str | None) -> bool:
    return subject in settings.deny or token_id in settings.deny


async def _ask(issuer: Issuer) -> bool:
    """Fetch an issuer's keys again; return whether they have changed.

    Raises:
        KeysNotLoaded: it has never published any.

    """
    if await issuer.ask():
        return True
    if not issuer.keys:
        raise KeysNotLoaded(
            "the keys of the token's issuer could not be read yet; retry soon", headers={"retry-after": str(RETRY_S)}
        )
    return False


def _expired(client: str, ended_at: float, what: str) -> KeyExpired:
    ended = datetime.fromtimestamp(ended_at, UTC)
    return KeyExpired(f"{what} expired at {ended:%Y-%m-%d %H:%M} UTC; get a new one", client=client)
