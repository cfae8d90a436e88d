"""What is believed of an issuer: its answers, its keys, the heads of its tokens; and who may end a sign-in."""

import warnings
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

from gateway.admin import SignIn
from gateway.admin.sign_in import MOST_S
from gateway.core.errors import SignInRefused
from gateway.keys import Issuer, IssuerError, TokenError, Web, unverified
from gateway.keys import signed as verified
from gateway.keys.issuers import LARGEST, MOST_KEYS, has_value, public_keys
from gateway.settings import SignInSettings
from tests.identity import EC_KEY, RSA_KEYS, Identity, public_jwk, signed
from tests.unit.keys.given import Clock

PAGE = "https://page.example.com"
GOOD: dict[str, Any] = {"issuer": "somebody"}


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """Serve answers that no issuer should give."""

    async def answer(request: web.Request) -> web.Response:
        match request.path:
            case "/elsewhere":
                return web.Response(status=302, headers={"location": "/good"})
            case "/large":
                return web.Response(body=b'{"issuer": "' + b"x" * LARGEST + b'"}')
            case "/failed":
                return web.json_response(GOOD, status=500)
            case _:
                return web.json_response(GOOD)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
async def ours() -> AsyncIterator[Web]:
    made = Web("tests")
    yield made
    await made.aclose()


async def test_an_issuer_in_a_network_that_no_proxy_lists_is_reached_directly(
    ours: Web, address: str, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{unused_tcp_port}")
    monkeypatch.setenv("no_proxy", "10.0.0.0/8")
    with pytest.raises(IssuerError, match="cannot be reached"):
        await ours.get(f"{address}/good")
    monkeypatch.setenv("no_proxy", "10.0.0.0/8 127.0.0.0/8")
    assert await ours.get(f"{address}/good") == GOOD


@pytest.mark.parametrize(
    ("path", "words"), [("elsewhere", "answered 302"), ("large", "more than"), ("failed", "answered 500")]
)
async def test_an_answer_that_is_not_the_wanted_one_is_not_used(ours: Web, address: str, path: str, words: str) -> None:
    assert await ours.get(f"{address}/good") == GOOD
    with pytest.raises(IssuerError, match=words):
        await ours.get(f"{address}/{path}")


async def test_an_address_without_tls_is_not_asked(ours: Web) -> None:
    with pytest.raises(IssuerError, match="is not an https:// address"):
        await ours.get("http://login.example.com/keys")


@pytest.mark.parametrize("demanded", [["exp"], []])
def test_a_token_may_not_demand_what_is_not_known(demanded: list[str]) -> None:
    with pytest.raises(TokenError):
        unverified(signed(EC_KEY, "curve", {"sub": "x"}, {"crit": demanded}))


def test_a_key_that_is_too_short_verifies_nothing() -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    keys = public_keys({"keys": [public_jwk(short, "short")]}, ["RS256"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is too short
        token = jwt.encode({"sub": "x"}, short, "RS256", {"kid": "short"})
    with pytest.raises(TokenError):
        verified(token, keys["short", "RS256"], "RS256")


def test_a_key_is_for_the_algorithms_of_its_kind_only() -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "kid": "secret"}
    listed = {"keys": [secret, public_jwk(EC_KEY, "curve"), public_jwk(RSA_KEYS[0], "rsa")]}
    found = public_keys(listed, ["HS256", "ES256", "ES384", "RS256"])
    assert set(found) == {("curve", "ES256"), ("rsa", "RS256")}


def test_no_more_keys_are_read_than_anybody_has() -> None:
    listed = [public_jwk(EC_KEY, f"key-{number}") for number in range(MOST_KEYS + 5)]
    assert len(public_keys({"keys": listed}, ["ES256"])) == MOST_KEYS


def test_a_token_without_a_key_id_means_the_only_key() -> None:
    issuer = Issuer("https://login.example.com", ["ES256"], Web("tests"), clock=Clock())
    issuer.keys = public_keys({"keys": [public_jwk(EC_KEY, "one")]}, ["ES256"])
    assert issuer.keys
    issuer._tried_at = Clock()()
    assert issuer.key(None, "ES256") is issuer.keys["one", "ES256"]
    issuer.keys = public_keys({"keys": [public_jwk(EC_KEY, "one"), public_jwk(EC_KEY, "two")]}, ["ES256"])
    assert issuer.key(None, "ES256") is None


@pytest.mark.parametrize(("secret", "seconds"), [(b"another replica's", 0.0), (b"ours", MOST_S + 1.0)])
async def test_a_sign_in_ends_within_ten_minutes_by_a_cookie_that_the_gateway_has_signed(
    secret: bytes, seconds: float
) -> None:
    async with Identity() as identity:
        settings = SignInSettings(issuer=identity.url, client_id="page", viewers=("staff",))
        clock = Clock()
        sign_in = SignIn(clock=clock, unix_clock=clock)
        begun = await sign_in.begin(settings, PAGE, b"ours")
        answer = {"state": parse_qs(urlsplit(begun.location).query)["state"][0], "error": "access_denied"}
        with pytest.raises(SignInRefused, match="has refused"):  # so its state and its cookie are good
            await sign_in.end(settings, PAGE, b"ours", [begun.cookie], {**answer, "iss": identity.url})
        clock.move(seconds)
        with pytest.raises(SignInRefused, match="not begun in this browser"):
            await sign_in.end(settings, PAGE, secret, [begun.cookie], {**answer, "iss": identity.url})
        await sign_in.close()


@pytest.mark.parametrize(
    ("claim", "required", "holds"),
    [
        (True, True, True),
        ("true", True, True),
        (True, "true", True),
        (False, True, False),
        (None, False, False),
        (1, True, False),
        (7, 7, True),
        (7, "7", True),
        (["a", 7], 7, True),
        (7.5, 7, False),
        ("read call", "call", False),
        ({"call": 1}, "call", False),
    ],
)
def test_a_claim_may_have_to_be_true_false_or_a_number(claim: object, required: bool | int | str, holds: bool) -> None:
    assert has_value(claim, required) is holds
