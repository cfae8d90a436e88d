"""What only some systems have, switched off one by one: the gateway serves without it, or says what to do."""

import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from providers.simulator import ScriptedProvider
from tests.app.gateway import lacking
from tests.app.gateway.process import GatewayProcess, launched, started
from tests.app.gateway.running_gateway import chat_body, configuration
from tests.patience import PATIENCE_S

NEEDED = {"fork", "flock"}  # without these the gateway does not start, and says why
OF_WORKERS = {"first_fork", "later_forks"}
SINGLE = sorted(set(lacking.LACKS) - NEEDED - OF_WORKERS)


async def answers(gateway: GatewayProcess) -> bytes:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{gateway.url}/v1/chat/completions", json=chat_body(stream=True)) as response,
    ):
        assert response.status == 200
        return await response.read()


async def serves(folder: Path, what: str, **settings: Any) -> GatewayProcess:
    """Start a gateway without ``what``, have it answer, reload and end; return it, as it is over."""
    async with ScriptedProvider() as provider:
        config = configuration(folder, {"alpha": provider.base_url}, **settings)
        async with started(config, folder, command=lacking.command(what)) as gateway:
            assert b"data: [DONE]" in await answers(gateway)
            gateway.send(signal.SIGHUP)
            assert b"data: [DONE]" in await answers(gateway)
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
    with closing(sqlite3.connect(folder / "holeshot.db")) as connection:
        assert connection.execute("select count(*) from calls where status_code = 200").fetchone() == (2,)
    return gateway


@pytest.mark.parametrize("what", SINGLE)
async def test_one_process_serves_without(folder: Path, what: str) -> None:
    await serves(folder, what)


async def refused(folder: Path, what: str, **settings: Any) -> tuple[int, str]:
    """Start a gateway that cannot; return its exit code and what it said."""
    config = configuration(folder, {"alpha": "http://127.0.0.1:9/v1"}, **settings)
    process = await launched(config, folder, command=lacking.command(what))
    async with asyncio.timeout(PATIENCE_S):
        _, stderr = await process.communicate()
    assert process.returncode is not None
    assert b"Traceback" not in stderr
    return process.returncode, stderr.decode()


async def test_several_workers_need_fork(folder: Path) -> None:
    code, said = await refused(
        folder, "fork", workers=2, database_url="postgresql://127.0.0.1:9/x", redis_url="redis://127.0.0.1:9"
    )
    assert code == 1
    assert "this system cannot fork worker processes; set workers: 1" in said


async def test_one_worker_needs_no_fork(folder: Path) -> None:
    await serves(folder, "fork")


async def test_a_spool_needs_locks_of_files(folder: Path) -> None:
    code, said = await refused(folder, "flock")
    assert code == 1
    assert "cannot be written: its file system has no locks (flock); a local disk has them" in said
    assert "spool_dir" in said
