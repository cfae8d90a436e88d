"""A browser that signs in at a provider: it follows redirects, and keeps cookies as they are set."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp

from tests.app.gateway.running_gateway import RunningGateway


class Browser:
    """Keeps the gateway's cookies by name. ``answer`` is what a provider has sent back, for a test to bend."""

    def __init__(self, running: RunningGateway) -> None:
        self.running = running
        self.cookies: dict[str, str] = {}
        self.answer: dict[str, str] = {}
        self._attributes: dict[str, list[str]] = {}

    @property
    def carried(self) -> dict[str, str]:
        said = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {"cookie": said} if said else {}

    @property
    def begun(self) -> str:
        """The name of the cookie of the sign-in that has begun last."""
        return [name for name in self._attributes if name.startswith("holeshot-sign-in-")][-1]

    def attributes(self, name: str) -> list[str]:
        """Return with what a cookie was set last, besides its value."""
        return self._attributes[name]

    def bend(self, name: str) -> None:
        """Change a character in the middle of a cookie."""
        value = self.cookies[name]
        middle = 10
        self.cookies[name] = f"{value[:middle]}{'A' if value[middle] != 'A' else 'B'}{value[middle + 1 :]}"

    async def begin(self, query: str = "") -> str:
        """Follow the page's link, with this query, and return where it leads."""
        headers = {"sec-fetch-site": "same-origin", **self.carried}
        async with self.running.get(f"/api/sign-in{query}", headers=headers, allow_redirects=False) as response:
            assert response.status == 303, await response.text()
            self._keep(response)
            return str(response.headers["location"])

    async def at_provider(self, location: str) -> dict[str, str]:
        """Sign in at a provider that asks nothing, and return what it sends back."""
        async with aiohttp.ClientSession() as http, http.get(location, allow_redirects=False) as response:
            assert response.status == 302
            back = urlsplit(response.headers["location"])
        assert f"{back.scheme}://{back.netloc}{back.path}" == f"{self.running.url}/api/signed-in"
        return {name: values[0] for name, values in parse_qs(back.query).items()}

    async def come_back(self, answer: Mapping[str, str]) -> tuple[int, str]:
        """Bring the gateway a provider's answer; return the status, and where to go on or what is shown."""
        headers = {"sec-fetch-site": "cross-site", **self.carried}
        async with self.running.get(
            "/api/signed-in", params=answer, headers=headers, allow_redirects=False
        ) as response:
            self._keep(response)
            return response.status, response.headers.get("location") or await response.text()

    async def sign_in(self) -> tuple[int, str]:
        return await self.come_back(await self.at_provider(await self.begin()))

    async def session(self) -> tuple[int, Any]:
        return await self.ask("GET", "/api/session")

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Ask as the page does."""
        headers = {"sec-fetch-site": "same-origin", "content-type": "application/json", **self.carried}
        if method != "GET":
            headers["origin"] = self.running.url
        url = f"{self.running.url}{path}"
        async with self.running.http.request(method, url, json=body, headers=headers) as response:
            self._keep(response)
            is_json = response.content_type == "application/json"
            return response.status, await (response.json() if is_json else response.text())

    def _keep(self, response: aiohttp.ClientResponse) -> None:
        for made in response.headers.getall("set-cookie", []):
            pair, *attributes = made.split("; ")
            name, _, value = pair.partition("=")
            self._attributes[name] = attributes
            if value:
                self.cookies[name] = value
            else:
                self.cookies.pop(name, None)
        self.running.http.cookie_jar.clear()
