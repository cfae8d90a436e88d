"""What somebody tries who wants to use another person's session, or to make one."""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Callable

import pytest
from structlog.typing import EventDict

from tests.app.gateway.access.test_admission import KEYS
from tests.app.gateway.access.test_sessions import people, signed_in
from tests.app.gateway.key_desk import sha256
from tests.app.gateway.running_gateway import Serve, chat_body
from tests.app.gateway.visitor import COOKIE, Visitor


def with_another_end(cookie: str) -> str:
    name, ends_at, signature = cookie.split(".")
    return f"{name}.{int(ends_at) + 3600}.{signature}"


def of_the_hash_alone(cookie: str) -> str:
    """What somebody makes who has read the hash of the admin's key, but not the installation's secret."""
    digest = bytes.fromhex(sha256(KEYS["admin"]))
    signer = hmac.digest(digest, b"holeshot session", "sha256")
    said = f"{cookie.split('.', maxsplit=1)[0]}.{cookie.split('.')[1]}"
    mac = hmac.digest(signer, b"says " + said.encode(), "sha256")
    return f"{said}.{urlsafe_b64encode(mac).rstrip(b'=').decode()}"


FORGERIES: tuple[Callable[[str], str], ...] = (
    with_another_end,
    of_the_hash_alone,
    lambda cookie: cookie[:-1],
    lambda cookie: cookie[:40],
    lambda cookie: cookie + "A",
    lambda cookie: cookie.rpartition(".")[0] + "." + "A" * 43,
    lambda cookie: cookie.rpartition(".")[0] + ".",
    lambda cookie: cookie.replace(".", "%2e"),
    lambda cookie: f'"{cookie}"',
    lambda cookie: cookie.swapcase(),
    lambda _: "..",
    lambda _: "\u00fc" * 16 + ".1." + "A" * 43,
    lambda _: "A" * 16 + ".\u0661\u0662." + "A" * 43,  # digits, but not ours
    lambda _: KEYS["admin"],
    lambda _: sha256(KEYS["admin"]),
    lambda _: "A" * 7000,
)


@pytest.mark.parametrize("forge", FORGERIES, ids=range(len(FORGERIES)))
async def test_no_forged_cookie_is_a_session(serve: Serve, forge: Callable[[str], str]) -> None:
    async with serve(config=people(page={"signing_key": "a-secret-of-this-installation"})) as running:
        visitor = await signed_in(running)
        assert await visitor.look() == 200
        visitor.cookie = forge(visitor.cookie)
        assert await visitor.look() == 401


async def test_with_sqlite_and_no_signing_key_the_hash_of_a_key_is_not_enough_and_a_restart_keeps_sessions(
    serve: Serve,
) -> None:
    async with serve(config=people()) as running:
        visitor = await signed_in(running)
        cookie = visitor.cookie
        visitor.cookie = of_the_hash_alone(cookie)
        assert await visitor.look() == 401
        key_file = running.folder / "holeshot.db.signing-key"
        assert key_file.stat().st_mode & 0o777 == 0o600
    async with serve(config=people()) as again:
        visitor = Visitor(again)
        visitor.cookie = cookie
        assert await visitor.look() == 200


async def test_a_signature_for_one_key_is_none_for_another(serve: Serve) -> None:
    async with serve(config=people()) as running:
        admin, guest = await signed_in(running), await signed_in(running, "guest")
        guest.cookie = f"{admin.cookie.partition('.')[0]}.{guest.cookie.partition('.')[2]}"
        assert await guest.look() == 401


async def test_a_cookie_that_another_page_of_the_host_has_set_keeps_nobody_out(serve: Serve) -> None:
    async with serve(config=people()) as running:
        visitor = await signed_in(running)
        good = f"{COOKIE}={visitor.cookie}"
        for header in (f"{COOKIE}=tossed; a=b; {good}", f"a=b;{good}", f"{COOKIE}={'x' * 5000}; {good}"):
            assert (await visitor.ask("GET", "/api/leaderboard", headers={"cookie": header}))[0] == 200
        forged = f"{visitor.cookie.rpartition('.')[0]}.{'A' * 43}"
        for junk in ("9", "A" * 16 + ".1." + "A" * 43, forged):
            many = "; ".join([f"{COOKIE}={junk}"] * 50)
            assert (await visitor.ask("GET", "/api/leaderboard", headers={"cookie": f"{many}; {good}"}))[0] == 200


@pytest.mark.parametrize("cookies", [["a" * 8000] * 3, ["a=b; " * 1600] * 3, [";" * 8000], [f"{COOKIE}=;" * 400]])
async def test_giant_cookies_cost_nothing_and_open_nothing(serve: Serve, cookies: list[str]) -> None:
    async with serve(config=people()) as running:
        headers = [("cookie", each) for each in cookies]
        async with running.http.get(f"{running.url}/api/leaderboard", headers=headers) as response:
            assert response.status in {400, 401, 431}


SITES = [
    {"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
    {"sec-fetch-site": "cross-site"},  # a link, an image, a form that is read
    {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:1"},  # another port of this host: of the same site!
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "nonsense"},
    {"origin": "https://evil.example"},  # an old browser
    {"origin": "http://127.0.0.1:1"},
    {"origin": "null"},  # a sandboxed frame
]


@pytest.mark.parametrize("says", SITES, ids=str)
async def test_no_other_page_uses_a_session(serve: Serve, says: dict[str, str]) -> None:
    async with serve(config=people()) as running:
        visitor = await signed_in(running)
        says = {"content-type": "application/json", **says, **visitor.carried}
        for method, path, body in (
            ("GET", "/api/leaderboard", None),
            ("HEAD", "/api/leaderboard", None),
            ("POST", "/api/playground", chat_body()),
            ("DELETE", "/api/session", None),
            ("POST", "/api/session", {"key": KEYS["admin"]}),  # signs somebody in as the attacker
        ):
            visitor.set_cookie = ""
            assert ((await visitor.send(method, path, body, says))[0], visitor.set_cookie) == (403, ""), (method, path)
        assert running.requests == 0


async def test_a_change_must_say_which_page_it_comes_from(serve: Serve) -> None:
    async with serve(config=people()) as running:
        visitor = await signed_in(running)
        json = {"content-type": "application/json", **visitor.carried}
        assert (await visitor.send("POST", "/api/playground", chat_body(), json))[0] == 403
        for says in ({"sec-fetch-site": "none"}, {"origin": ""}):
            assert (await visitor.send("POST", "/api/playground", chat_body(), {**json, **says}))[0] == 403
        assert running.requests == 0
        for says in ({"origin": running.url}, {"sec-fetch-site": "same-origin"}):  # an old browser; a proxy's own host
            assert (await visitor.send("POST", "/api/playground", chat_body(), {**json, **says}))[0] == 200


@pytest.mark.parametrize(
    ("name", "said"), [("origin", ("http://evil.example",)), ("sec-fetch-site", ("same-origin", "cross-site"))]
)
async def test_two_pages_are_no_page(serve: Serve, name: str, said: tuple[str, ...]) -> None:
    async with serve(config=people()) as running:
        visitor = await signed_in(running)
        json = {"content-type": "application/json", "origin": running.url, **visitor.carried}
        headers = [*json.items(), *((name, each) for each in said)]
        url = f"{running.url}/api/playground"
        async with running.http.post(url, json=chat_body(), headers=headers) as response:
            assert (response.status, running.requests) == (403, 0)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_a_form_changes_nothing(serve: Serve, kind: str) -> None:
    async with serve(config=people()) as running:
        visitor = await signed_in(running)
        status, _ = await visitor.ask("POST", "/api/playground", chat_body(), {"content-type": kind})
        assert (status, running.requests) == (415, 0)


@pytest.mark.parametrize("header", ["x-http-method-override", "x-method-override", "x-http-method"])
async def test_a_get_stays_a_get(serve: Serve, header: str) -> None:
    async with serve(config=people()) as running:
        visitor = await signed_in(running)
        for path in ("/api/playground", "/api/playground?_method=POST"):
            assert (await visitor.ask("GET", path, headers={header: "POST"}))[0] == 405
        assert (await visitor.ask("GET", "/api/session", headers={header: "DELETE"}))[0] == 200
        assert visitor.cookie


async def test_no_page_is_told_that_it_may_read_the_api(serve: Serve) -> None:
    page = "https://chat.example.com"
    async with serve(config=people(cors=[page])) as running:
        visitor = await signed_in(running)
        asking = {"origin": page, "access-control-request-method": "GET", **visitor.carried}
        for path in ("/api/session", "/api/leaderboard", "/api/playground", "/", "/page/app.js"):
            for method in ("OPTIONS", "GET"):
                async with running.http.request(method, running.url + path, headers=asking) as response:
                    assert not [name for name in response.headers if name.lower().startswith("access-control")]


async def test_nothing_of_a_cookie_or_a_key_is_logged_or_stored(serve: Serve, logged: list[EventDict]) -> None:
    async with serve(config=people()) as running:
        visitor = await signed_in(running)
        assert (await visitor.play())[0] == 200
        assert await visitor.ask("POST", "/api/playground", {"model": "nobody"})
        secret = visitor.cookie
        visitor.cookie = secret[:-1]
        await visitor.look()
        rows = await running.rows("select * from calls") + await running.rows("select * from refusals")
        upstream = repr(running["alpha"].received)
    for text in (repr(logged), repr(rows), upstream):
        assert secret not in text
        assert KEYS["admin"] not in text


async def test_a_line_break_in_a_key_is_no_header(serve: Serve) -> None:
    async with serve(config=people()) as running:
        visitor = Visitor(running)
        assert await visitor.sign_in(KEYS["admin"] + "\r\nset-cookie: a=b") == 401
        assert visitor.set_cookie == ""
