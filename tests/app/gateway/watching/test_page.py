"""A browser gets the page, a program JSON; what the page shows comes from /api."""

import gzip

import aiohttp
import pytest
from yarl import URL

from gateway.admin.routes import GUARDS, POLICY, assets
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


async def test_every_file_is_served_once_and_then_known(serve: Serve) -> None:
    async with serve() as running:
        for name, asset in assets().items():
            async with running.http.get(f"{running.url}/page/{name}") as response:
                assert await response.read() == asset.body, name
            known = {"if-none-match": response.headers["etag"]}
            async with running.http.get(f"{running.url}/page/{name}", headers=known) as again:
                assert (again.status, await again.read()) == (304, b""), name


ELSEWHERE = (
    "nothing.js",
    "../assets.py",
    "..%2fassets.py",
    "%2e%2e/assets.py",
    "lib/..%2f..%2fassets.py",
    "/etc/passwd",
)


@pytest.mark.parametrize("path", [*ELSEWHERE, "app.js/", "lib", "app.js%00.css", "..\\assets.py"])
async def test_there_is_nothing_else(serve: Serve, path: str) -> None:
    """The paths are sent as they are written here: clients resolve some."""
    async with serve() as running, running.http.get(URL(f"{running.url}/page/{path}", encoded=True)) as response:
        assert response.status == 404
        assert "assets" not in await response.text()


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/page/index.html", "/favicon.ico"])
async def test_head_has_the_headers_of_get(serve: Serve, path: str) -> None:
    async with serve() as running:
        async with running.http.get(f"{running.url}{path}", headers=BROWSER) as response:
            expected = {**response.headers, "date": ""}
        async with running.http.head(f"{running.url}{path}", headers=BROWSER) as response:
            assert response.status == 200
            assert {**response.headers, "date": ""}.keys() == expected.keys()
            for name in (*GUARDS, "etag", "content-type", "content-length"):
                assert response.headers[name] == expected[name.title()], name
            assert await response.read() == b""


async def test_no_key_is_needed_and_no_cookie_is_set(serve: Serve) -> None:
    clients = {"admin": {"key_sha256": "0" * 64, "role": "admin"}}
    async with serve(config={"clients": clients}) as running:
        for path in ("/", "/page/app.js", "/favicon.ico"):
            async with running.http.get(f"{running.url}{path}", headers=BROWSER) as response:
                assert (response.status, response.cookies) == (200, {})


async def test_browsers_get_gzip_and_programs_what_they_ask_for(serve: Serve) -> None:
    async with serve() as running, aiohttp.ClientSession(auto_decompress=False) as http:
        for asked, sent in (("gzip, deflate, br", "gzip"), ("identity", None)):
            async with http.get(f"{running.url}/page/style.css", headers={"accept-encoding": asked}) as response:
                assert response.headers.get("content-encoding") == sent
                assert "accept-encoding" in response.headers["vary"]
                body = await response.read()
                assert (gzip.decompress(body) if sent else body) == assets()["style.css"].body


async def test_what_the_browser_has_is_guarded_too(serve: Serve) -> None:
    async with serve() as running:
        known = {**BROWSER, "if-none-match": assets()["index.html"].etag}
        async with running.http.get(f"{running.url}/", headers=known) as response:
            assert response.status == 304
            assert {name: response.headers[name] for name in GUARDS} == GUARDS


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
