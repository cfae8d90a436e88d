"""A gateway with keys in its database, and an administrator who changes them over HTTP."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from tests.app.gateway.running_gateway import RunningGateway

ROOT = "hs-key-of-root"  # an admin in the file, who makes the others


class Reply(msgspec.Struct, frozen=True):
    """What was answered."""

    status: int
    body: Any

    @property
    def error(self) -> Any:
        return self.body["error"]

    @property
    def key(self) -> str:
        return str(self.body["key"])


def sha256(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def in_database(**clients: dict[str, Any]) -> dict[str, Any]:
    """Return settings with keys in the database, and with ``clients`` beside root in the file."""
    return {"keys": "database", "clients": {"root": {"key_sha256": sha256(ROOT), "role": "admin"}, **clients}}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


class Desk:
    """Asks /admin/keys of a gateway, as root unless another ``key`` is given."""

    def __init__(self, running: RunningGateway) -> None:
        self.running = running

    async def ask(
        self,
        method: str,
        path: str = "",
        body: Any = None,
        *,
        key: str | None = ROOT,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        sent = {**({} if key is None else bearer(key)), **(headers or {})}
        url = f"{self.running.url}/admin/keys{path}"
        async with self.running.http.request(method, url, json=body, headers=sent) as response:
            return Reply(response.status, await response.json())

    async def create(self, name: str, **fields: Any) -> str:
        """Make a client and return its key."""
        made = await self.ask("POST", "", {"name": name, **fields})
        assert made.status == 201, made.body
        return made.key

    async def rotate(self, name: str, **fields: Any) -> str:
        made = await self.ask("POST", f"/{name}/rotate", fields or None)
        assert made.status == 200, made.body
        return made.key

    async def status_with(self, key: str) -> tuple[int, str | None]:
        """Return how a call with ``key`` ends."""
        async with self.running.chat(bearer(key)) as response:
            body = await response.json()
            return response.status, body.get("error", {}).get("code")
