"""OAuth 2.0 on a machine without a browser of its own: the device flow (RFC 8628), and tokens that are renewed.

Providers differ, by their documents (read on 2026-11-29). Google names the address ``verification_url`` and has opaque
access tokens. Entra and Auth0 send a new refresh token at each use. Auth0 wants an ``audience``. Okta's ``slow_down``
comes without a new interval.
"""

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from math import inf
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

TIMEOUT_S: Final = 10.0  # of one request
LARGEST: Final = 1024 * 1024
LONGEST_S: Final = 1e9  # the longest that anything lasts, whatever a provider says
_SLOWER_S = 5.0  # RFC 8628, 3.5: what ``slow_down`` adds
_INTERVAL_S = 5.0  # RFC 8628, 3.2: the interval if the provider states none
_LEAST_S = 1.0  # the least pause between two questions, even if the provider demands no pause
_BUSY = 429  # this status, and any above 499: the provider cannot answer now, and the sign-in may still succeed
_FAILED = 500
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class LoginError(Exception):
    """Signing in, or renewing a token, has failed; the message says what to do, without any secret."""


class LoginProvider(msgspec.Struct, frozen=True):
    """Where a gateway has its people sign in, and as which client."""

    issuer: str
    client_id: str
    device_endpoint: str
    token_endpoint: str
    scopes: tuple[str, ...] = ()
    client_secret: str | None = None
    sends: str = "access"  # which token the gateway takes: "access" or "id"
    parameters: Mapping[str, str] = {}


class Device(msgspec.Struct, frozen=True):
    """What a person opens and types, and the code with which the program asks meanwhile."""

    device_code: str
    user_code: str
    address: str
    whole_address: str | None  # the address with the code in it
    expires_in_s: float
    interval_s: float


class LoginTokens(msgspec.Struct, frozen=True):
    """The token for the gateway, when the token ends (Unix seconds), and the refresh token."""

    token: str
    ends_at: float
    refresh_token: str | None


def provider_of(url: str) -> LoginProvider:
    """Return where the gateway at ``url`` has its people sign in.

    Raises:
        LoginError: the gateway does not say, or the identity provider has no device flow.

    """
    told = _get(f"{url}/.well-known/holeshot", f"the gateway at {url}")
    issuer, client_id = told.get("issuer"), told.get("client_id")
    if not (isinstance(issuer, str) and isinstance(client_id, str)):
        raise LoginError(f"nobody can sign in at {url}: its operator sets `login` at an issuer")
    found = _get(f"{issuer.rstrip('/')}/.well-known/openid-configuration", f"the identity provider {issuer}")
    if found.get("issuer") != issuer:
        raise LoginError(f"the discovery document of {issuer} is of another issuer")
    device, tokens = found.get("device_authorization_endpoint"), found.get("token_endpoint")
    if not (isinstance(device, str) and isinstance(tokens, str)):
        raise LoginError(f"{issuer} names no `device_authorization_endpoint`: its operator switches the device flow on")
    try:
        return msgspec.convert({**told, "device_endpoint": device, "token_endpoint": tokens}, LoginProvider)
    except msgspec.ValidationError as error:
        raise LoginError(f"what {url} says of signing in cannot be used: {error}") from None


def begin(provider: LoginProvider) -> Device:
    """Ask for a code that a person types.

    Raises:
        LoginError: the identity provider gives no code.

    """
    form = {"client_id": provider.client_id, "scope": " ".join(provider.scopes), **provider.parameters}
    status, told = _post(provider.device_endpoint, urlencode(form), provider.issuer)
    device_code, user_code = told.get("device_code"), _shown(told.get("user_code"))
    address = _shown(told.get("verification_uri") or told.get("verification_url"))
    if status != 200 or not (isinstance(device_code, str) and user_code and address):  # noqa: PLR2004 - HTTP's OK
        raise LoginError(f"{provider.issuer} begins no sign-in: {_words(told) or f'it answered {status}'}")
    return Device(
        device_code=device_code,
        user_code=user_code,
        address=address,
        whole_address=_shown(told.get("verification_uri_complete")),
        expires_in_s=_seconds(told.get("expires_in"), 600.0),
        interval_s=_seconds(told.get("interval"), _INTERVAL_S),
    )


def wait(
    provider: LoginProvider,
    device: Device,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    unix_clock: Callable[[], float] = time.time,
) -> LoginTokens:
    """Return the tokens once the person has signed in.

    Raises:
        LoginError: the person denied the sign-in, or took too long.

    """
    from oauthlib.oauth2 import DeviceClient  # noqa: PLC0415 - of the extra ``login``

    client = DeviceClient(provider.client_id)
    body = client.prepare_request_body(device.device_code, include_client_id=True, **_secret(provider))
    until_s, pause_s = clock() + device.expires_in_s, device.interval_s
    while clock() < until_s:
        sleep(pause_s)
        try:
            status, text = _send(provider.token_endpoint, body.encode(), provider.issuer)
        except LoginError:  # RFC 8628, 3.5: after a time-out the program asks again, later and later
            pause_s += _SLOWER_S
            continue
        pause_s = max(_LEAST_S, pause_s)
        if status == _BUSY or status >= _FAILED:
            pause_s += _SLOWER_S
            continue
        told = _granted(text)
        error = told.get("error")
        if error == "slow_down":
            pause_s += _SLOWER_S
        elif error in _REFUSALS:
            raise LoginError(_REFUSALS[error])
        elif error != "authorization_pending":
            return _tokens(provider, status, told, None, unix_clock())
    raise LoginError(_REFUSALS["expired_token"])


def renew(provider: LoginProvider, refresh_token: str, *, unix_clock: Callable[[], float] = time.time) -> LoginTokens:
    """Return new tokens.

    Raises:
        LoginError: the identity provider gives no tokens: the sign-in has ended, or the provider is away.

    """
    from oauthlib.oauth2 import DeviceClient  # noqa: PLC0415 - likewise

    client = DeviceClient(provider.client_id)
    body = client.prepare_refresh_body(
        refresh_token=refresh_token, scope=None, client_id=provider.client_id, **_secret(provider)
    )
    status, text = _send(provider.token_endpoint, body.encode(), provider.issuer)
    told = _granted(text)
    if told.get("error") == "invalid_grant":
        raise LoginError("the sign-in has ended, or was taken back")
    return _tokens(provider, status, told, refresh_token, unix_clock())


_REFUSALS = {
    "access_denied": "the sign-in was denied in the browser",
    "expired_token": "nobody signed in in time: run the command again",
}


def _granted(text: str) -> Mapping[str, Any]:
    """Return what an answer grants, or its ``error``, if it is a text: JSON, or a form, as some providers send.

    Proxies before a provider answer with anything, also with an object as ``error``.
    """
    told = _object(text) or dict(parse_qsl(text.strip()))
    return {**told, "error": _shown(told.get("error"))}


def _secret(provider: LoginProvider) -> Mapping[str, str]:
    return {} if provider.client_secret is None else {"client_secret": provider.client_secret}


def _tokens(
    provider: LoginProvider, status: int, told: Mapping[str, Any], former: str | None, now_s: float
) -> LoginTokens:
    if told.get("error") is not None:
        raise LoginError(f"{provider.issuer} refuses: {told['error'][:100]}")
    if not (told.get("access_token") or told.get("id_token")):
        raise LoginError(f"{provider.issuer} answered {status} with no token that can be read")
    name = "id_token" if provider.sends == "id" else "access_token"
    token = told.get(name)
    if not isinstance(token, str) or not token:
        raise LoginError(f"{provider.issuer} sent no {name}: its operator adds the scope `openid`")
    fresh = told.get("refresh_token")
    return LoginTokens(
        token=token,
        ends_at=now_s + min(_seconds(told.get("expires_in"), 300.0), _lasts_s(token) if name == "id_token" else inf),
        refresh_token=fresh if isinstance(fresh, str) and fresh else former,
    )


def _lasts_s(token: str) -> float:
    """Return how long an ID token is good: ``expires_in`` is the access token's time (Entra's is 60 to 90 minutes)."""
    try:
        said = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))
        return max(0.0, float(claims["exp"] - claims["iat"]))  # this machine's clock may be wrong
    except (ValueError, LookupError, TypeError):
        return inf


def _words(told: Mapping[str, Any]) -> str:
    return (_shown(told.get("error_description") or told.get("error")) or "")[:200]


def _shown(value: object) -> str | None:
    """Return a text that a terminal may show; None: ``value`` is no such text."""
    return value if isinstance(value, str) and value and value.isprintable() else None


def _seconds(value: object, default: float) -> float:
    try:
        return min(LONGEST_S, max(0.0, float(value))) if isinstance(value, int | float | str) else default
    except OverflowError:
        return LONGEST_S
    except ValueError:
        return default


def ask(url: str, bearer: str) -> tuple[int, str]:
    """Ask the gateway with a token; return status and text of its answer.

    Raises:
        LoginError: there is no answer.

    """
    return _send(url, None, "the gateway", {"authorization": f"Bearer {bearer}"})


class _Unredirected(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:  # a token is sent to this address only
        return None


def _get(url: str, whose: str) -> Mapping[str, Any]:
    status, text = _send(url, None, whose)
    found = _object(text)
    if status != 200 or not found:  # noqa: PLR2004 - HTTP's OK
        raise LoginError(f"{whose} answered {status} at {urlsplit(url).path}")
    return found


def _post(url: str, body: str, whose: str) -> tuple[int, Mapping[str, Any]]:
    status, text = _send(url, body.encode(), whose)
    return status, _object(text)


def _send(url: str, body: bytes | None, whose: str, more: Mapping[str, str] = {}) -> tuple[int, str]:
    """Send a request; return status and text of its answer.

    Raises:
        LoginError: there is no answer, or ``url`` is neither https nor on this machine.

    """
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise LoginError(f"{url} is not an https:// address")
    headers = {"accept": "application/json", "user-agent": "holeshot", **more}
    asked = urllib.request.Request(url, data=body, headers=headers)  # noqa: S310 - its scheme is checked above
    handlers: list[Any] = [_Unredirected]
    if parts.scheme == "http":  # a proxy of the network must not see the request, and could not reach this machine
        handlers.append(urllib.request.ProxyHandler({}))
    else:
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context()))
    try:
        with urllib.request.build_opener(*handlers).open(asked, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read(LARGEST).decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(LARGEST).decode(errors="replace")
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise LoginError(f"{whose} cannot be reached ({type(reason).__name__})") from None


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
