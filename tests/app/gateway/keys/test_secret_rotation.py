"""A provider's key is replaced while calls run: in a file as Kubernetes does it, and by a command. No call fails."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import aiohttp

from providers.simulator import ScriptedProvider
from tests.app.gateway.process import GatewayProcess, started
from tests.app.gateway.running_gateway import chat_body, configuration

OLD, NEW, NEWEST = "the-old-key-4f1c", "the-new-key-9a2e", "the-newest-key-7d30"
CALLERS = 3


class Mounted:
    """A secret as Kubernetes mounts it: ``key`` leads through ``..data``, which is replaced in one step."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._number = 0
        folder.mkdir()
        self.hold(key)
        (folder / "key").symlink_to(Path("..data") / "key")

    def hold(self, key: str) -> None:
        self._number += 1
        folder = self._folder / f"..{self._number}"
        folder.mkdir()
        (folder / "key").write_text(f"{key}\n", encoding="utf-8")
        (self._folder / "..data_tmp").symlink_to(folder.name)
        (self._folder / "..data_tmp").replace(self._folder / "..data")


class Callers:
    """Clients that call one after the other, without a pause."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.statuses: list[int] = []
        self._http = http
        self._url = url
        self._made = [0] * CALLERS
        self._news = asyncio.Condition()
        self._stopping = False

    async def call(self) -> int:
        body = chat_body()
        async with self._http.post(f"{self._url}/v1/chat/completions", json=body) as response:
            await response.read()
            return response.status

    async def run(self, number: int) -> None:
        while not self._stopping:
            self.statuses.append(await self.call())
            async with self._news:
                self._made[number] += 1
                self._news.notify_all()

    async def round(self) -> None:
        """Wait until all calls that run now are over, and each client has made one more since."""
        wanted = [each + 2 for each in self._made]
        async with self._news:
            await self._news.wait_for(
                lambda: all(made >= least for made, least in zip(self._made, wanted, strict=True))
            )

    def stop(self) -> None:
        self._stopping = True


@asynccontextmanager
async def under_load(gateway: GatewayProcess) -> AsyncIterator[Callers]:
    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as tasks:
        callers = Callers(http, gateway.url)
        for number in range(CALLERS):
            tasks.create_task(callers.run(number))
        try:
            await callers.round()
            yield callers
        finally:
            callers.stop()


def rows(folder: Path) -> str:
    """Return every row of every table, as text."""
    with closing(sqlite3.connect(folder / "holeshot.db")) as connection:
        return "\n".join(connection.iterdump())


async def pages(gateway: GatewayProcess) -> str:
    """Return what the gateway shows."""
    async with aiohttp.ClientSession() as http:
        shown = []
        for path in ("/metrics", "/leaderboard", "/api/configuration", "/health/ready"):
            async with http.get(gateway.url + path) as response:
                shown.append(await response.text())
        return "".join(shown)


def assert_hidden(*texts: str) -> None:
    for key in (OLD, NEW, NEWEST):
        assert all(key not in text for text in texts)


async def test_a_mounted_key_is_replaced_under_load_without_a_failed_call(folder: Path) -> None:
    secret = Mounted(folder / "secrets", OLD)
    async with ScriptedProvider() as provider:
        provider.admits = {OLD}
        config = configuration(folder, {"alpha": provider.base_url})
        config["providers"]["alpha"]["api_key"] = "file:./secrets/key"
        async with started(config, folder) as gateway:
            async with under_load(gateway) as callers:
                # Of the new key the provider does not know yet: the old one goes on being used.
                secret.hold(NEW)
                await gateway.event("key.refused")
                await callers.round()
                # It forgets the old one before the new one has answered once.
                provider.admits = {NEW}
                await gateway.event("key.replaced")
                await callers.round()
                seen = len(provider.received)
                await callers.round()
                assert {each.key for each in provider.received[seen:]} == {NEW}
                # For some time both are valid, as usual.
                provider.admits = {NEW, NEWEST}
                secret.hold(NEWEST)
                await gateway.event("key.replaced", 2)
                await callers.round()
                provider.admits = {NEWEST}
                await callers.round()
            assert set(callers.statuses) == {200}
            # What a refusal says of the key goes no further.
            provider.admits = ()
            async with (
                aiohttp.ClientSession() as http,
                http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response,
            ):
                assert response.status != 200
                said = await response.text()
            shown = await pages(gateway)
        log = gateway.stderr.decode()
    assert len(gateway.events("configuration.reloaded")) == 2
    assert "alpha" in shown
    assert "***" in said
    assert_hidden(said, shown, log, rows(folder))


async def test_a_key_from_a_command_is_replaced_without_a_failed_call_and_survives_the_commands_failure(
    folder: Path,
) -> None:
    key, following, script = folder / "key", folder / "following", folder / "print-key"
    key.write_text(OLD, encoding="utf-8")
    script.write_text('#!/bin/sh\necho "the key is $(cat key)" >&2\nexec cat key\n', encoding="utf-8")
    script.chmod(0o700)
    async with ScriptedProvider() as provider:
        provider.admits = {OLD}
        secrets = {"exec": True, "exec_every_s": 1, "exec_timeout_s": 60}
        config = configuration(folder, {"alpha": provider.base_url}, secrets=secrets)
        config["providers"]["alpha"]["api_key"] = "${exec:./print-key}"
        async with started(config, folder) as gateway:
            async with under_load(gateway) as callers:
                following.write_text(NEW, encoding="utf-8")
                following.replace(key)  # in one step: no command sees half of it
                await gateway.event("key.refused")
                provider.admits = {NEW}
                await gateway.event("key.replaced")
                key.unlink()
                failed = await gateway.event("secrets.command_failed")
                await callers.round()
            assert set(callers.statuses) == {200}
            shown = await pages(gateway)
        log = gateway.stderr.decode()
    assert "'print-key' failed (exit code 1)" in failed["problem"]
    assert_hidden(shown, log, rows(folder))
