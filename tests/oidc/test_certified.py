"""A certified provider and the gateway understand each other: signing in, signing out, and tokens as keys."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import aiohttp
import pytest

from tests.app.gateway.access.test_sessions import people
from tests.app.gateway.identity_browser import Browser
from tests.app.gateway.key_desk import bearer
from tests.app.gateway.running_gateway import RunningGateway, Serve, read
from tests.support.servers import free_port

AUDIENCE = "https://gateway.example.com"
SECRET = "secret/of:the page+"  # has what a URL and a header must not have as it is


class Provider:
    """``oidc-provider`` in a process of its own; its forms for developers take any password."""

    def __init__(self, url: str, redirect: str) -> None:
        self.url = url
        self.redirect = redirect

    async def sign_in(self, http: aiohttp.ClientSession, location: str, name: str) -> dict[str, str]:
        """Fill in its forms as ``name``, and return what it sends back."""
        form: dict[str, str] | None = None
        for _ in range(12):
            method = "GET" if form is None else "POST"
            async with http.request(method, location, data=form, allow_redirects=False) as response:
                if 300 <= response.status < 400:
                    location, form = urljoin(location, response.headers["location"]), None
                    if location.startswith(self.redirect):
                        return {key: values[0] for key, values in parse_qs(urlsplit(location).query).items()}
                    continue
                text = await response.text()
                assert response.status == 200, text
            [prompt] = re.findall(r'name="prompt" value="(\w+)"', text)
            location = urljoin(location, re.findall(r'action="([^"]+)"', text)[0])
            form = {"prompt": prompt, **({"login": name, "password": "any"} if prompt == "login" else {})}
        raise AssertionError(location)

    async def token(self, **fields: str) -> dict[str, Any]:
        auth = {"authorization": aiohttp.encode_basic_auth("app", "secret-of-app")}
        form = {"grant_type": "client_credentials", **fields}
        async with aiohttp.ClientSession() as http, http.post(f"{self.url}/token", data=form, headers=auth) as response:
            assert response.status == 200, await response.text()
            return dict(await response.json())


@asynccontextmanager
async def provided(running: RunningGateway, **settings: Any) -> AsyncIterator[Provider]:
    """Start the provider, and have the gateway trust it for both."""
    port = free_port()
    told = {"redirect": f"{running.url}/api/signed-in", "home": f"{running.url}/", "audience": AUDIENCE}
    process = await asyncio.create_subprocess_exec(
        *("node", str(Path(__file__).parent / "provider.mjs"), str(port), os.environ["OIDC_FOLDER"]),
        env={**os.environ, "SETTINGS": json.dumps({**told, "conform": True, **settings})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        while b"ready" not in (line := await process.stdout.readline()):
            assert line, "the provider has not started"
        url = f"http://127.0.0.1:{port}"
        entry = {"issuer": url, "client_id": "page", "client_secret": SECRET, "viewers": ["staff"], "admins": ["ops"]}
        entry["scopes"] = ["openid", "email", "groups"]
        config = {
            **running.config,
            "clients": {**running.config["clients"], "app": {}},
            "page": {"public_url": running.url, "sign_in": entry},
            "issuers": {"certified": {"issuer": url, "audience": AUDIENCE, "requires": {"scope": "call"}}},
        }
        running.gateway.reload(read(config, running.folder))
        yield Provider(url, told["redirect"])
    finally:
        process.kill()
        await process.wait()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as made:
        yield made


@pytest.mark.parametrize("conform", [True, False], ids=["groups from userinfo", "groups in the ID token"])
@pytest.mark.parametrize(("name", "role"), [("ann", "viewer"), ("ops", "admin")])
async def test_people_sign_in_and_out(
    serve: Serve, http: aiohttp.ClientSession, name: str, role: str, conform: bool
) -> None:
    async with serve(config=people()) as running, provided(running, conform=conform) as provider:
        browser = Browser(running)
        answer = await provider.sign_in(http, await browser.begin(), name)
        assert answer["iss"] == provider.url
        assert await browser.come_back(answer) == (303, f"{running.url}/")
        status, session = await browser.session()
        # Where userinfo is asked for the groups, the person is named as it names them, as where the ID token tells all.
        assert (status, session["user"]) == (200, {"name": f"oidc:{name}@example.com", "role": role})
        status, body = await browser.ask("DELETE", "/api/session")
        async with http.get(body["leave"]) as response:
            assert (status, response.status) == (200, 200)
            assert "logout" in await response.text()
        assert (await browser.session())[0] == 401


async def test_a_code_is_good_once_and_with_its_own_sign_in_only(serve: Serve, http: aiohttp.ClientSession) -> None:
    async with serve(config=people()) as running, provided(running) as provider:
        browser, other = Browser(running), Browser(running)
        answer = await provider.sign_in(http, await browser.begin(), "ann")
        own = await provider.sign_in(http, await other.begin(), "ann")
        assert (await other.come_back({**own, "code": answer["code"]}))[0] == 403  # its verifier is another one
        again = await provider.sign_in(http, await browser.begin(), "ann")
        kept = dict(browser.cookies)
        assert (await browser.come_back(again))[0] == 303
        browser.cookies = kept
        assert (await browser.come_back(again))[0] == 403


async def test_who_is_in_no_group_does_not_get_in(serve: Serve, http: aiohttp.ClientSession) -> None:
    async with serve(config=people()) as running, provided(running) as provider:
        browser = Browser(running)
        status, text = await browser.come_back(await provider.sign_in(http, await browser.begin(), "guest"))
        assert (status, "groups" in text) == (403, True)


async def test_an_access_token_is_a_key_and_nothing_else_of_the_provider_is(
    serve: Serve, http: aiohttp.ClientSession
) -> None:
    async with serve(config=people()) as running, provided(running) as provider:
        made = await provider.token(resource=AUDIENCE, scope="call")
        async with running.chat(bearer(made["access_token"])) as response:
            assert response.status == 200
        assert (await running.call())["client"] == "app"
        for fields in ({}, {"resource": AUDIENCE}):  # opaque; without the scope
            other = await provider.token(**fields)
            async with running.chat(bearer(other["access_token"])) as response:
                assert response.status == 401
        async with running.chat(bearer(await _id_token(running, provider, http))) as response:
            assert response.status == 401
            assert "typ" in await response.text()


async def _id_token(running: RunningGateway, provider: Provider, http: aiohttp.ClientSession) -> str:
    """Return an ID token: signed in past the gateway, by its registration."""
    query = {
        "client_id": "page",
        "response_type": "code",
        "scope": "openid",
        "redirect_uri": provider.redirect,
        "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",  # RFC 7636, appendix B
        "code_challenge_method": "S256",
    }
    async with http.get(f"{provider.url}/auth", params=query, allow_redirects=False) as response:
        location = urljoin(provider.url, response.headers["location"])
    answer = await provider.sign_in(http, location, "ann")
    form = {
        "grant_type": "authorization_code",
        "code": answer["code"],
        "redirect_uri": provider.redirect,
        "code_verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    }
    auth = {"authorization": aiohttp.encode_basic_auth("page", "secret%2Fof%3Athe+page%2B")}
    async with http.post(f"{provider.url}/token", data=form, headers=auth) as response:
        return str((await response.json())["id_token"])
