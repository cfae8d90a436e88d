"""Issuers of tokens over HTTP: their discovery documents and public keys, which are kept while an issuer is away.

Used for client tokens and for signing in to the page. Only ``issuers`` and ``page.sign_in`` load this module.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

import aiohttp
import jwt
import msgspec
import structlog

from gateway.settings import is_safe_url
from providers import UNREADABLE
from providers.http import TlsContexts, is_direct

TIMEOUT_S = 5.0  # of one request to an issuer; a client may wait for it
LARGEST = 1024 * 1024  # bytes of an answer
REFETCH_S = 30.0  # between two fetches for an unknown key, so that invented key ids do not cause more
RETRY_S = 2.0  # the same while no key is known at all
OLD_S = 3600.0  # age at which keys are fetched again in the background, as an issuer may withdraw some
LOG_EVERY_S = 300.0  # between two log lines about an issuer that is away
MOST_KEYS = 100
_LATEST_S = 1e11  # in the year 5138; later ones are invalid
_WELL_KNOWN = "/.well-known/openid-configuration"
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")

_JWS = jwt.PyJWS()
PublicKeys = Mapping[tuple[str, str], jwt.PyJWK]  # by id ("": none) and algorithm


class IssuerError(Exception):
    """An issuer cannot be used now; the message says why, without any secret."""


class TokenError(Exception):
    """A token is invalid; the message says why, without its contents."""


class IssuerAnswer(msgspec.Struct, frozen=True):
    """A server's answer: its status, and the JSON object in its body (empty if there is none)."""

    status: int
    body: Mapping[str, Any]


class Web:
    """HTTP to issuers. Redirects are not followed, and cookies not kept."""

    def __init__(self, user_agent: str, tls: TlsContexts | None = None) -> None:
        """``tls``: contexts that others use, too; None: contexts of its own."""
        self._user_agent = user_agent
        self._tls = tls or TlsContexts()
        self._session: aiohttp.ClientSession | None = None

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """Return the JSON object at ``url``.

        Raises:
            IssuerError: the answer is no JSON object, or no answer came.

        """
        answer = await self.send("GET", url, headers or {})
        if answer.status != HTTPStatus.OK or not answer.body:
            raise IssuerError(f"{_shown(url)} answered {answer.status}, and no JSON object that can be used")
        return answer.body

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> IssuerAnswer:
        """Send a request; return its answer, whatever its status.

        Raises:
            IssuerError: no answer came, or ``url`` is neither https nor on this machine.

        """
        if not is_safe_url(url):
            raise IssuerError(f"{_shown(url)} is not an https:// address")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S), cookie_jar=aiohttp.DummyCookieJar()
            )
        sent = {"accept": "application/json", "user-agent": self._user_agent, **headers}
        try:
            async with self._session.request(
                method,
                url,
                headers=sent,
                data=form,
                allow_redirects=False,
                proxy=_proxy_of(url),
                ssl=self._tls.of(url),
            ) as response:
                body = b""
                async for piece in response.content.iter_any():
                    body += piece
                    if len(body) > LARGEST:
                        raise IssuerError(f"{_shown(url)} answered more than {LARGEST} bytes")
                return IssuerAnswer(response.status, _object(body))
        except TimeoutError:
            raise IssuerError(f"{_shown(url)} did not answer within {TIMEOUT_S:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise IssuerError(f"{_shown(url)} cannot be reached: {type(error).__name__}") from None

    async def aclose(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class Issuer:
    """One issuer: its ``keys``, and on request its discovery document.

    Keys are fetched when a token needs them; the last ones stay in use while the issuer is away.
    """

    def __init__(
        self,
        address: str,
        algorithms: Sequence[str],
        web: Web,
        *,
        jwks_url: str | None = None,
        clock: Callable[[], float],
    ) -> None:
        """``address`` is the issuer's ``iss``; ``jwks_url`` None: by discovery. ``clock`` is monotonic."""
        self.address = address
        self.algorithms = frozenset(algorithms)
        self.jwks_url = jwks_url
        self.keys: PublicKeys = {}
        self.fetches = 0
        self._web = web
        self._clock = clock
        self._metadata: Mapping[str, Any] | None = None
        self._tried_at: float | None = None
        self._logged_at: float | None = None
        self._fetching: asyncio.Task[bool] | None = None

    async def metadata(self) -> Mapping[str, Any]:
        """Return the issuer's discovery document (OpenID Connect Discovery 1.0).

        Raises:
            IssuerError: it cannot be read, or belongs to another issuer.

        """
        if self._metadata is None:
            found = await self._web.get(self.address.rstrip("/") + _WELL_KNOWN)
            if found.get("issuer") != self.address:
                raise IssuerError(f"the discovery document of {self.address} is of another issuer: {named(found)}")
            self._metadata = found
        return self._metadata

    def key(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        """Return the key of a token; without a key id, the only key. Old keys are fetched again in the background.

        None: the key is unknown, and ``ask`` may find it.
        """
        if self.keys and self._age_s >= OLD_S:
            self.start_fetch()
        if key_id is not None:
            return self.keys.get((key_id, algorithm))
        fitting = [key for (_, each), key in self.keys.items() if each == algorithm]
        return fitting[0] if len(fitting) == 1 else None

    async def ask(self) -> bool:
        """Fetch the keys unless that was done recently; return whether they have changed.

        Concurrent callers wait for the same fetch.
        """
        if self._fetching is None and self._age_s < (REFETCH_S if self.keys else RETRY_S):
            return False
        return await asyncio.shield(self.start_fetch())

    @property
    def is_fetching(self) -> bool:
        """Whether the issuer's keys are being fetched."""
        return self._fetching is not None

    async def close(self) -> None:
        """Stop fetching."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    @property
    def _age_s(self) -> float:
        return float("inf") if self._tried_at is None else self._clock() - self._tried_at

    def start_fetch(self) -> asyncio.Task[bool]:
        """Start to fetch the keys, unless that is running; the task returns whether they have changed."""
        if self._fetching is None:
            self._tried_at = self._clock()
            self._fetching = asyncio.get_running_loop().create_task(self._fetch(), name="issuer.keys")
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    def _fetched(self, _: "asyncio.Task[bool]") -> None:
        self._fetching = None

    async def _fetch(self) -> bool:
        """Fetch and replace the keys; return whether they have changed."""
        self.fetches += 1
        try:
            keys = await self._published()
        except IssuerError as error:
            self._log_unreachable(str(error))
            return False
        before, self.keys = self.keys, keys
        if self._logged_at is not None:
            self._logged_at = None
            # Event keys.issuer_reachable: An issuer's keys could be read again.
            # Do: Nothing.
            structlog.get_logger().info("keys.issuer_reachable", issuer=self.address)
        return {name: _numbers(key) for name, key in before.items()} != {n: _numbers(key) for n, key in keys.items()}

    async def _published(self) -> PublicKeys:
        """Return the keys that the issuer publishes now.

        Raises:
            IssuerError: there are none.

        """
        url: object = self.jwks_url
        if url is None:
            self._metadata = None  # the address of the keys may have changed
            url = (await self.metadata()).get("jwks_uri")
        if not isinstance(url, str):
            raise IssuerError(f"the discovery document of {self.address} has no jwks_uri")
        keys = public_keys(await self._web.get(url), self.algorithms)
        if not keys:
            raise IssuerError(f"{_shown(url)} has no key for {', '.join(sorted(self.algorithms))}")
        return keys

    def _log_unreachable(self, problem: str) -> None:
        now = self._clock()
        if self._logged_at is None or now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            effect = "its last keys stay good" if self.keys else "its tokens are refused with 503"
            # Event keys.issuer_unreachable: An issuer's keys could not be read. The last ones stay good; without any,
            # its tokens get 503.
            # Do: Make it reachable, or correct `issuer` or `jwks_url`.
            structlog.get_logger().warning(
                "keys.issuer_unreachable", issuer=self.address, problem=problem, effect=effect
            )


def unverified(text: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the header and the claims of a signed token, without verifying its signature.

    Raises:
        TokenError: ``text`` is not a signed token.

    """
    try:
        found = _JWS.decode_complete(text, options={"verify_signature": False})
    except (jwt.PyJWTError, UnicodeError):
        raise TokenError("this is no signed token") from None
    if found["header"].get("crit") is not None:
        raise TokenError("the token demands header fields (`crit`) that the gateway does not know")
    if not isinstance(found["header"].get("kid", ""), str):
        raise TokenError("the token's `kid` is not a text")
    return found["header"], _object(found["payload"])


def signed(text: str, key: jwt.PyJWK, algorithm: str) -> Mapping[str, Any]:
    """Return the claims of a token signed with ``key`` and ``algorithm``.

    Raises:
        TokenError: the signature is not of this key.

    """
    try:
        found = _JWS.decode_complete(text, key, algorithms=[algorithm], options={"enforce_minimum_key_length": True})
    except jwt.PyJWTError:
        raise TokenError("the token's signature is not good") from None
    return _object(found["payload"])


def text_of(claims: Mapping[str, Any], name: str) -> str | None:
    """Return a claim that is a non-empty text; else None."""
    value = claims.get(name)
    return value if isinstance(value, str) and value else None


def texts_of(value: object, *, words: bool = False) -> list[str]:
    """Return a claim's texts: the items of a list, or the text itself; with ``words`` (for scopes), its words."""
    if isinstance(value, str):
        return value.split() if words else [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def has_value(value: object, wanted: bool | int | str, *, words: bool = False) -> bool:
    """Whether a claim is the ``wanted`` value, or contains it. True, false and whole numbers count as their texts.

    Some issuers write ``"true"`` for ``true``, and a variable in the file is a text. ``words``: see ``texts_of``.
    """
    plain = [str(each).lower() for each in (value if isinstance(value, list) else [value]) if isinstance(each, int)]
    text = wanted if isinstance(wanted, str) else str(wanted).lower()
    return text in plain or text in texts_of(value, words=words)


def are_left_out(claims: Mapping[str, Any], name: str) -> bool:
    """Whether a token says that a claim is too long and found elsewhere: Entra's overage of groups (``_claim_names``).

    learn.microsoft.com/entra/identity-platform/access-token-claims-reference (2026-11-30): `_claim_names`, or
    `hasgroups` in the implicit flow.
    """
    if name in claims:
        return False
    elsewhere = claims.get("_claim_names")
    is_said = name == "groups" and bool(claims.get("hasgroups"))
    return is_said or (isinstance(elsewhere, dict) and name in elsewhere)


def instant_of(claims: Mapping[str, Any], name: str, default: float | None = None) -> float | None:
    """Return a claim as an instant in seconds since 1970; None if it is invalid."""
    value = claims.get(name, default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < _LATEST_S else None


def public_keys(document: Mapping[str, Any], algorithms: Collection[str]) -> PublicKeys:
    """Return the keys of a JWK set (RFC 7517) that verify one of ``algorithms``.

    Other keys are ignored, for example secrets for HMAC and keys for encryption.
    """
    listed = document.get("keys")
    found: dict[tuple[str, str], jwt.PyJWK] = {}
    for entry in listed[:MOST_KEYS] if isinstance(listed, list) else ():
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        key_id = entry.get("kid", "")
        for algorithm in _algorithms_of(entry):
            if algorithm in algorithms and isinstance(key_id, str):
                with suppress(jwt.PyJWTError, ValueError, TypeError, KeyError):
                    found[key_id, algorithm] = jwt.PyJWK.from_dict(entry, algorithm)
    return found


def named(metadata: Mapping[str, Any]) -> str:
    """Return the issuer named by a discovery document, for messages."""
    issuer = metadata.get("issuer")
    return issuer[:200] if isinstance(issuer, str) and issuer.isprintable() else "it names none"


def _algorithms_of(entry: Mapping[str, Any]) -> Iterator[str]:
    kind, curve, stated = entry.get("kty"), entry.get("crv"), entry.get("alg")
    able: tuple[str, ...] = ()
    if kind == "RSA":
        able = _RSA
    elif kind == "EC" and isinstance(curve, str) and curve in _CURVES:
        able = (_CURVES[curve],)
    elif kind == "OKP" and curve in {"Ed25519", "Ed448"}:
        able = ("EdDSA",)
    yield from (each for each in able if stated is None or stated == each)


def _numbers(key: jwt.PyJWK) -> Any:
    return key.key.public_numbers() if hasattr(key.key, "public_numbers") else key.key.public_bytes_raw()


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE:
        return {}
    return found if isinstance(found, dict) else {}


def _proxy_of(url: str) -> str | None:
    """Return the proxy for ``url``, from the environment; files with passwords (netrc) are not read."""
    parts = urlsplit(url)
    proxy = getproxies_environment().get(parts.scheme)
    if proxy is None or is_direct(parts.scheme, parts.hostname or "", parts.port):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _shown(url: str) -> str:
    """Return an address without the parts that may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:300]
