"""A proxy in front, where people sign in, names them in a header. Nobody else can."""

from typing import Any

import pytest

from tests.app.gateway.access.test_admission import KEYS
from tests.app.gateway.access.test_sessions import people, signed_in
from tests.app.gateway.running_gateway import Serve, chat_body, read
from tests.app.gateway.visitor import Visitor

ANN = {"x-forwarded-email": "ann@example.com"}


def behind(*, role: str = "viewer", addresses: tuple[str, ...] = ("127.0.0.1/32",), **more: Any) -> dict[str, Any]:
    trusted = {"name": "X-Forwarded-Email", "from": list(addresses), "role": role}
    return people(page={"trusted_header": trusted}, **more)


async def test_whom_the_proxy_names_looks_without_a_key(serve: Serve) -> None:
    async with serve(config=behind()) as running:
        visitor = Visitor(running)
        status, session = await visitor.ask("GET", "/api/session", headers=ANN)
        assert (status, session["user"]) == (200, {"name": "sso:ann@example.com", "role": "viewer"})
        assert session["trusted_header"] is True
        assert (await visitor.ask("GET", "/api/leaderboard", headers=ANN))[0] == 200
        assert await visitor.look() == 401


@pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("admin", 200)])
async def test_what_they_may_do_is_the_settings_role(serve: Serve, role: str, status: int) -> None:
    async with serve(config=behind(role=role)) as running:
        answered, _ = await Visitor(running).ask("POST", "/api/playground", chat_body(), ANN)
        assert answered == status
        rows = await running.rows("select client from calls")
        assert rows == ([{"client": "sso:ann@example.com"}] if status == 200 else [])


@pytest.mark.parametrize("addresses", [("192.0.2.1/32",), ("10.0.0.0/8", "::1/128")])
async def test_from_any_other_address_it_is_ignored_and_said(serve: Serve, addresses: tuple[str, ...]) -> None:
    trusted = ["127.0.0.1/32"]  # of other things
    async with serve(config=behind(addresses=addresses, trusted_proxies=trusted)) as running:
        lies = {**ANN, "x-forwarded-for": "192.0.2.1, 10.0.0.1", "forwarded": "for=192.0.2.1"}
        status, body = await Visitor(running).ask("GET", "/api/session", headers=lies)
        assert status == 401
        assert "127.0.0.1 is not in page.trusted_header.from" in body["error"]["message"]
        assert body["error"]["code"] == "header_ignored"


@pytest.mark.parametrize("names", [["ann", "admin"], [""], [" "], ["x" * 101], ["a\u00adb"]], ids=str)
async def test_what_is_not_one_name_is_nobodys(serve: Serve, names: list[str]) -> None:
    """Two may be the browser's own and the proxy's."""
    async with serve(config=behind()) as running:
        headers = [("x-forwarded-email", name) for name in names]
        async with running.http.get(f"{running.url}/api/session", headers=headers) as response:
            assert response.status == 401


@pytest.mark.parametrize("path", ["/v1/models", "/admin/keys", "/metrics", "/leaderboard"])
async def test_it_counts_for_the_page_alone(serve: Serve, path: str) -> None:
    async with serve(config=behind(role="admin")) as running, running.get(path, headers=ANN) as response:
        assert response.status == 401


@pytest.mark.parametrize(
    "says",
    [
        {"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {},
    ],
    ids=str,
)
async def test_no_other_page_uses_what_the_proxy_adds(serve: Serve, says: dict[str, str]) -> None:
    async with serve(config=behind(role="admin")) as running:
        headers = {"content-type": "application/json", **ANN, **says}
        assert (await Visitor(running).send("POST", "/api/playground", chat_body(), headers))[0] == 403
        assert running.requests == 0


async def test_who_signs_in_with_a_key_as_well_is_the_owner_of_the_key(serve: Serve) -> None:
    async with serve(config=behind()) as running:
        visitor = await signed_in(running)
        _, session = await visitor.ask("GET", "/api/session", headers=ANN)
        assert (session["user"]["name"], session["trusted_header"]) == ("admin", False)
        visitor.cookie = "an old one"
        _, session = await visitor.ask("GET", "/api/session", headers=ANN)
        assert session["user"]["name"] == "sso:ann@example.com"


async def test_a_reload_ends_it(serve: Serve) -> None:
    async with serve(config=behind()) as running:
        visitor = Visitor(running)
        assert (await visitor.ask("GET", "/api/leaderboard", headers=ANN))[0] == 200
        running.gateway.reload(read({**running.config, "page": {}}, running.folder))
        assert (await visitor.ask("GET", "/api/leaderboard", headers=ANN))[0] == 401
        assert await visitor.sign_in(KEYS["guest"]) == 204
