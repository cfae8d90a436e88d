"""A browser gets the page, a program JSON; what the page shows comes from /api."""

import pytest

from gateway.ingress.page import POLICY
from gateway.page.assets import assets
from tests.app.gateway.running_gateway import MODEL, Serve

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def test_a_browser_gets_the_page_and_a_program_json(serve: Serve) -> None:
    async with serve() as running:
        async with running.http.get(f"{running.url}/", headers=BROWSER) as response:
            assert response.content_type == "text/html"
            assert response.headers["content-security-policy"] == POLICY
            assert "<title>Holeshot</title>" in await response.text()
        async with running.http.get(f"{running.url}/", headers={"accept": "*/*"}) as response:
            assert (await response.json())["name"] == "Holeshot"


@pytest.mark.parametrize("name", sorted(assets()))
async def test_every_file_is_served_once_and_then_known(serve: Serve, name: str) -> None:
    async with serve() as running, running.http.get(f"{running.url}/page/{name}") as response:
        assert await response.read() == assets()[name].body
        known = {"if-none-match": response.headers["etag"]}
        async with running.http.get(f"{running.url}/page/{name}", headers=known) as again:
            assert (again.status, await again.read()) == (304, b"")


@pytest.mark.parametrize("path", ["page/nothing.js", "page/../assets.py", "page/..%2fassets.py", "page//etc/passwd"])
async def test_there_is_nothing_else(serve: Serve, path: str) -> None:
    async with serve() as running, running.http.get(f"{running.url}/{path}") as response:
        assert response.status == 404


async def test_the_api_has_what_the_leaderboard_has(serve: Serve) -> None:
    async with serve() as running:
        async with running.chat() as response:
            await response.read()
        async with running.http.get(f"{running.url}/api/leaderboard") as response:
            (board,) = (await response.json())["models"]
            assert board["model"] == MODEL
            assert board["deployments"]
        async with running.http.get(f"{running.url}/api/session") as response:
            assert (await response.json())["user"] == {"name": None, "role": "admin"}
