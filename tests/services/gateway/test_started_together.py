"""Replicas that start at the same moment, on a database that is as empty as it was made: a server of their own."""

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest

from providers.simulator import ScriptedProvider
from tests.app.gateway.process import GatewayProcess, started
from tests.app.gateway.running_gateway import configuration
from tests.services.gateway.test_workers import chat
from tests.services.gateway.test_workers import ids as stored
from tests.support import servers, warm

REPLICAS = 4


@pytest.fixture
def new_server_url() -> Iterator[str]:
    """A Postgres that this test alone uses."""
    with servers.postgres() as url:
        yield url


async def complaints(url: str) -> list[str]:
    """Return the lines of the server's log that tell of an error."""
    connection = await asyncpg.connect(url)
    try:
        folder = Path(await connection.fetchval("show data_directory"))
    finally:
        await connection.close()
    log = await asyncio.to_thread((folder.parent / "server.log").read_text, encoding="utf-8")
    return [line for line in log.splitlines() if re.search(r"\b(WARNING|ERROR|FATAL|PANIC): ", line)]


async def test_four_replicas_that_start_at_once_on_an_empty_database_make_it_without_an_error_in_its_log(
    tmp_path: Path, new_server_url: str
) -> None:
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(ScriptedProvider())

        async def replica(number: int) -> GatewayProcess:
            """Migrate and serve, as a replica's container does."""
            migration = await asyncio.create_subprocess_exec(
                *warm.holeshot(), "migrate", env={**os.environ, "HOLESHOT_DATABASE_URL": new_server_url}
            )
            assert await migration.wait() == 0
            folder = tmp_path / str(number)
            stores = {"database_url": new_server_url, "replica": f"r{number}"}
            config = configuration(folder, {"alpha": provider.base_url}, ledger={"keep_calls_days": 30}, **stores)
            return await stack.enter_async_context(started(config, folder))

        gateways = await asyncio.gather(*(replica(number) for number in range(REPLICAS)))
        made = await asyncio.gather(*(chat(gateway) for gateway in gateways))
        while len(await stored(new_server_url)) < REPLICAS:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0)
        # Before they stop: that one which is told to stop cancels what it has begun is a line in the log too.
        assert await complaints(new_server_url) == []
    assert sorted(await stored(new_server_url)) == sorted(made)
