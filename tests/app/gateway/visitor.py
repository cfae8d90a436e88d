"""A browser at the gateway's page: signs in, keeps the cookie, and says which page asks."""

from collections.abc import Mapping
from typing import Any

from tests.app.gateway.running_gateway import RunningGateway, chat_body

COOKIE = "holeshot-session"


class Visitor:
    """Sends what a browser sends. ``cookie`` is the session's value, ``set_cookie`` the last header that set one."""

    def __init__(self, running: RunningGateway, *, prefix: str = "") -> None:
        self.running = running
        self.origin = running.url
        self.prefix = prefix
        self.cookie = ""
        self.set_cookie = ""

    @property
    def own(self) -> dict[str, str]:
        """What a browser adds to a request of the gateway's page."""
        return {"origin": self.origin, "sec-fetch-site": "same-origin", **self.carried}

    @property
    def carried(self) -> dict[str, str]:
        """What a browser adds to a request of any page."""
        return {"cookie": f"{COOKIE}={self.cookie}"} if self.cookie else {}

    async def sign_in(self, key: str, headers: Mapping[str, str] | None = None) -> int:
        """Sign in and return the status."""
        return (await self.ask("POST", "/api/session", {"key": key}, headers))[0]

    async def sign_out(self) -> int:
        return (await self.ask("DELETE", "/api/session"))[0]

    async def look(self, path: str = "/api/leaderboard") -> int:
        """Ask for something the page shows, and return the status."""
        return (await self.ask("GET", path))[0]

    async def code(self, path: str = "/api/leaderboard") -> str:
        """Return the code of the error with which the visitor is refused."""
        status, body = await self.ask("GET", path)
        assert status >= 400
        return str(body["error"]["code"])

    async def play(self, **fields: Any) -> tuple[int, Any]:
        return await self.ask("POST", "/api/playground", chat_body(**fields))

    async def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Ask as the page does. ``headers`` are sent as well, or instead of its own."""
        sent = {"content-type": "application/json", **self.own}
        if method == "GET":  # a page's own GET has no origin
            del sent["origin"]
        return await self.send(method, path, body, {**sent, **(headers or {})})

    async def send(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> tuple[int, Any]:
        """Send these headers and no others; a JSON body is decoded."""
        url = f"{self.running.url}{self.prefix}{path}"
        async with self.running.http.request(method, url, json=body, headers=headers) as response:
            if (made := response.headers.get("set-cookie")) is not None:
                self.set_cookie = made
                self.cookie = made.partition(";")[0].partition("=")[2]
            self.running.http.cookie_jar.clear()
            is_json = response.content_type == "application/json"
            return response.status, await (response.json() if is_json else response.text())
