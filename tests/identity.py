"""An issuer over real HTTP: its keys, its tokens, and signing in with it. A test decides what it lies about."""

import base64
import hashlib
import time
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import parse_qs, urlencode

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa

Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
AUDIENCE = "https://gateway.example.com"
PAGE_ID, PAGE_SECRET = "the-page", "the-secret-of-the-page"

# Made once: an RSA key takes a tenth of a second.
RSA_KEYS = tuple(rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def public_jwk(key: Private, key_id: str) -> dict[str, Any]:
    """Return the public part of a key as an issuer publishes it."""
    if isinstance(key, rsa.RSAPrivateKey):
        return {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": key_id, "use": "sig"}
    return {**jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": key_id}


class Identity:
    """An issuer. ``keys`` are published by their ids; ``claims`` are those of the person who signs in at it."""

    def __init__(self, port: int = 0) -> None:
        self.keys: dict[str, Private] = {"first": RSA_KEYS[0], "curve": EC_KEY}
        self.more_keys: list[dict[str, Any]] = []  # published as they are
        self.claims: dict[str, Any] = {"sub": "ann-1", "email": "ann@example.com", "groups": ["staff"]}
        self.instead: dict[str, Any] = {}  # claims of ID tokens, instead of the right ones; None: left out
        self.userinfo: dict[str, Any] | None = None
        self.iss: str | None = None  # that of answers (RFC 9207), if not its own
        self.asked: list[str] = []  # paths, in order
        self.forms: list[dict[str, str]] = []  # of token requests
        self.made: list[str] = []  # ID tokens
        self.is_away = False
        self.must_ask = False  # as nobody has signed in at it in this browser, or the person was removed
        self.url = ""
        self._codes: dict[str, Mapping[str, str]] = {}
        self._port = port
        self.device: list[str] = []  # what the device flow answers before a token: errors, in order
        self.device_fields: dict[str, Any] = {"verification_uri": "https://idp.example.com/device", "interval": 0}
        self.waits = False  # the device flow does, until somebody has opened the address with its code
        self.lasts_s = 600  # what is made for laptops
        self.access: dict[str, Any] = {}  # further claims of their access tokens
        self._is_open = False
        self.renewable: str | None = None  # the refresh token that is good now
        self.renewals = 0

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._note])
        app.router.add_get("/.well-known/openid-configuration", self._metadata)
        app.router.add_get("/keys", self._jwks)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        app.router.add_get("/userinfo", self._userinfo)
        app.router.add_post("/device", self._device)
        app.router.add_get("/device", self._open)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def token(self, key_id: str = "first", /, *, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        """Return an access token; a claim or header of None is left out."""
        return signed(self.keys[key_id], key_id, {**self.usual(), **claims}, {"typ": "at+jwt", **(header or {})})

    def usual(self) -> dict[str, Any]:
        """Return the claims of a good token."""
        now = time.time()
        return {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "robot-1",
            "jti": "token-1",
            "client_id": "app",
            "iat": int(now),
            "exp": int(now) + 600,
        }

    def fetches(self, path: str = "/keys") -> int:
        return self.asked.count(path)

    @web.middleware
    async def _note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(request.path)
        if self.is_away:
            raise web.HTTPServiceUnavailable
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _metadata(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "device_authorization_endpoint": f"{self.url}/device",
                "end_session_endpoint": f"{self.url}/end",
                "authorization_response_iss_parameter_supported": True,
                **({} if self.userinfo is None else {"userinfo_endpoint": f"{self.url}/userinfo"}),
            }
        )

    async def _jwks(self, _: web.Request) -> web.Response:
        published = [public_jwk(key, key_id) for key_id, key in self.keys.items()]
        return web.json_response({"keys": [*self.more_keys, *published]})

    async def _authorize(self, request: web.Request) -> web.Response:
        """Let the person in at once, and send the browser back with a code."""
        asked = dict(request.query)
        if self.must_ask and asked.get("prompt") == "none":
            back = urlencode({"error": "login_required", "state": asked["state"], "iss": self.iss or self.url})
            raise web.HTTPFound(f"{asked['redirect_uri']}?{back}")
        code = f"code-{len(self._codes)}"
        self._codes[code] = asked
        back = urlencode({"code": code, "state": asked["state"], "iss": self.iss or self.url})
        raise web.HTTPFound(f"{asked['redirect_uri']}?{back}")

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs(await request.text()).items()}
        self.forms.append(form)
        if "code_verifier" not in form:
            return self._for_laptop(form)
        asked = self._codes.pop(form["code"], None)  # a code is good once
        basic = base64.b64encode(f"{PAGE_ID}:{PAGE_SECRET}".encode()).decode()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if (
            asked is None
            or request.headers.get("authorization") != f"Basic {basic}"
            or form["redirect_uri"] != asked["redirect_uri"]
            or (asked["code_challenge_method"], asked["code_challenge"]) != ("S256", challenge.decode())
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        usual = {"iss": self.url, "aud": PAGE_ID, "iat": now, "exp": now + 600, "nonce": asked["nonce"]}
        id_token = signed(RSA_KEYS[0], "first", {**usual, **self.claims, **self.instead}, {"typ": "JWT"})
        self.made.append(id_token)
        return web.json_response({"access_token": "opaque-access", "token_type": "Bearer", "id_token": id_token})

    async def _device(self, request: web.Request) -> web.Response:
        self.forms.append({name: values[0] for name, values in parse_qs(await request.text()).items()})
        told = {"device_code": "the-device", "user_code": "ABCD-EFGH", "expires_in": 600, **self.device_fields}
        if self.waits:
            self._is_open = False
            told["verification_uri"] = f"{self.url}/device"
            told["verification_uri_complete"] = f"{self.url}/device?user_code={told['user_code']}"
        return web.json_response(told)

    async def _open(self, request: web.Request) -> web.Response:
        """Let the person in whose laptop shows this code."""
        if request.query.get("user_code") != "ABCD-EFGH":
            raise web.HTTPNotFound
        self._is_open = True
        return web.Response(text="You are signed in.")

    def _for_laptop(self, form: Mapping[str, str]) -> web.Response:
        """Answer the device flow, or renew: each refresh token is good once."""
        is_device = form["grant_type"].endswith(":device_code")
        if is_device and self.device:
            return web.json_response({"error": self.device.pop(0)}, status=400)
        if is_device and self.waits and not self._is_open:
            return web.json_response({"error": "authorization_pending"}, status=400)
        if not is_device and form["refresh_token"] != self.renewable:
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.renewals += not is_device
        self.renewable = f"refresh-{self.renewals}"
        now = int(time.time())
        ends = {"iat": now, "exp": now + self.lasts_s, "jti": f"laptop-{self.renewals}"}
        person = {"iss": self.url, "aud": form["client_id"], **self.claims, **ends, **self.instead}
        return web.json_response(
            {
                "access_token": self.token(**{**ends, **self.access}),
                "id_token": signed(RSA_KEYS[0], "first", person, {"typ": "JWT"}),
                "token_type": "Bearer",
                "expires_in": self.lasts_s,
                "refresh_token": self.renewable,
            }
        )

    async def _userinfo(self, request: web.Request) -> web.Response:
        assert request.headers["authorization"] == "Bearer opaque-access"
        return web.json_response(self.userinfo)


def signed(key: Private | str, key_id: str, claims: Mapping[str, Any], header: Mapping[str, Any]) -> str:
    """Return a token; what is None is left out."""
    algorithm = header.get("alg") or ("ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "RS256")
    head = {name: value for name, value in {"kid": key_id, **header}.items() if value is not None}
    if "typ" not in head:
        head["typ"] = ""  # the library leaves an empty one out
    body = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(body, key, algorithm=algorithm, headers=head)
