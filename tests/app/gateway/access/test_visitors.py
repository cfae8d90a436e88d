"""The page where no keys are required: for this machine alone, and for no other page that it shows."""

import pytest

from tests.app.gateway.running_gateway import Serve, chat_body
from tests.app.gateway.visitor import Visitor

PATHS = ("/api/session", "/api/leaderboard", "/api/explain")


async def test_the_page_looks_and_calls_without_signing_in(serve: Serve) -> None:
    async with serve() as running:
        visitor = Visitor(running)
        for path in PATHS:
            assert await visitor.look(path) == 200
        _, session = await visitor.ask("GET", "/api/session")
        assert (session["user"], session["authentication"]) == ({"name": None, "role": "admin"}, "none")
        status, answer = await visitor.play()
        assert (status, answer["object"]) == (200, "chat.completion")
        assert (await running.call())["client"] is None


@pytest.mark.parametrize("host", ["localhost", "[::1]", "127.0.0.2"])
async def test_each_name_of_this_machine_is_a_page_of_its_own(serve: Serve, host: str) -> None:
    async with serve() as running:
        port = running.url.rpartition(":")[2]
        visitor = Visitor(running)
        visitor.origin = f"http://{host}:{port}"
        status, _ = await visitor.ask("POST", "/api/playground", chat_body(), {"host": f"{host}:{port}"})
        assert status == 200


async def test_programs_on_this_machine_need_no_browser(serve: Serve) -> None:
    async with serve() as running:
        for path in PATHS:
            async with running.get(path) as response:
                assert response.status == 200
        async with running.post(chat_body(), path="/api/playground") as response:
            assert response.status == 200


FOREIGN = [
    {"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "origin": "http://localhost:1"},  # what else runs on this machine
    {"sec-fetch-site": "same-site"},
    {"origin": "https://evil.example"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "null"},
    {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:1"},
    {"sec-fetch-site": "same-origin", "origin": "https://127.0.0.1"},
]
# The page's own name leads to this machine: for its browser everything here is of its origin.
REBOUND = [
    {"host": "evil.example", "sec-fetch-site": "same-origin", "origin": "http://evil.example"},
    {"host": "evil.example:4000", "sec-fetch-site": "same-origin"},
    {"host": "evil.example"},
    {"host": "127.0.0.1.evil.example", "sec-fetch-site": "same-origin", "origin": "http://127.0.0.1.evil.example"},
    {"host": "192.168.0.1:4000", "sec-fetch-site": "same-origin", "origin": "http://192.168.0.1:4000"},
    {"host": "0.0.0.0:4000", "sec-fetch-site": "same-origin", "origin": "http://0.0.0.0:4000"},
]


@pytest.mark.parametrize("says", FOREIGN + REBOUND, ids=str)
async def test_no_other_page_looks_or_spends_the_keys(serve: Serve, says: dict[str, str]) -> None:
    async with serve() as running:
        visitor = Visitor(running)
        for path in PATHS:
            status, body = await visitor.send("GET", path, None, says)
            assert (status, body["error"]["code"]) == (403, "forbidden"), path
        json = {"content-type": "application/json", **says}
        assert (await visitor.send("POST", "/api/playground", chat_body(), json))[0] == 403
        assert running.requests == 0


async def test_a_change_needs_both_of_what_a_browser_says(serve: Serve) -> None:
    async with serve() as running:
        visitor = Visitor(running)
        json = {"content-type": "application/json"}
        for says in ({"origin": running.url}, {"origin": running.url, "sec-fetch-site": "none"}):
            assert (await visitor.send("POST", "/api/playground", chat_body(), {**json, **says}))[0] == 403
        assert running.requests == 0


async def test_an_address_that_somebody_types_is_answered(serve: Serve) -> None:
    async with serve() as running:
        assert (await Visitor(running).send("GET", "/api/leaderboard", None, {"sec-fetch-site": "none"}))[0] == 200


async def test_the_page_does_not_open_the_apis_of_programs_to_pages(serve: Serve) -> None:
    async with serve() as running:
        visitor = Visitor(running)
        for method, path, body in (
            ("POST", "/v1/chat/completions", chat_body()),
            ("GET", "/v1/models", None),
            ("GET", "/metrics", None),
            ("GET", "/leaderboard", None),
        ):
            assert (await visitor.send(method, path, body, visitor.own))[0] == 403
        assert running.requests == 0


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
async def test_a_form_is_refused(serve: Serve, kind: str) -> None:
    async with serve() as running:
        status, _ = await Visitor(running).ask("POST", "/api/playground", chat_body(), {"content-type": kind})
        assert (status, running.requests) == (415, 0)


async def test_nobody_signs_in_where_nobody_has_to(serve: Serve) -> None:
    async with serve() as running:
        visitor = Visitor(running)
        assert await visitor.sign_in("hs-anything") == 400
        assert visitor.set_cookie == ""
