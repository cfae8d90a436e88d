"""Two gateways started at the same instant, on one machine, with one ledger."""

import asyncio
import errno
import socket
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest

from gateway.server.listener import bind
from providers.simulator import ScriptedProvider
from tests.app.gateway.process import CHECKOUT, started
from tests.app.gateway.running_gateway import chat_body, configuration, write
from tests.patience import PATIENCE_S
from tests.support.servers import free_port


def test_an_address_is_taken_from_the_moment_it_is_bound() -> None:
    first = bind("127.0.0.1", 0)
    try:
        with pytest.raises(OSError, match="already in use") as refusal:
            bind("127.0.0.1", first.getsockname()[1])
        assert refusal.value.errno == errno.EADDRINUSE
        with socket.create_connection(first.getsockname(), timeout=PATIENCE_S):
            pass  # waits for whoever will serve it
    finally:
        first.close()


async def test_two_started_at_once_share_a_ledger_and_a_spool_folder(folder: Path) -> None:
    async def answered_by(name: str) -> str:
        async with (
            started(config, folder / name) as gateway,
            http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response,
        ):
            assert response.status == 200
            return response.headers["x-holeshot-call-id"]

    async with ScriptedProvider() as alpha, aiohttp.ClientSession() as http:
        config = configuration(folder, {"alpha": alpha.base_url})
        answered = await asyncio.gather(*map(answered_by, ("one", "two")))
    with closing(sqlite3.connect(folder / "holeshot.db")) as connection:
        rows = connection.execute("select id, status_code from calls").fetchall()
    assert sorted(rows) == sorted((call_id, 200) for call_id in answered)
    assert list((folder / "spool").iterdir()) == []


async def test_of_two_started_at_once_on_one_port_one_serves_and_the_other_says_why_not(folder: Path) -> None:
    config = configuration(folder, {"alpha": "http://127.0.0.1:1/v1"}, port=free_port())
    command = (sys.executable, "-m", "gateway.cli", "serve", "--config", str(write(config, folder)))
    pipe = asyncio.subprocess.PIPE
    both = [await asyncio.create_subprocess_exec(*command, cwd=CHECKOUT, stderr=pipe) for _ in range(2)]
    waiting = {asyncio.create_task(process.wait()): process for process in both}
    try:
        async with asyncio.timeout(3 * PATIENCE_S):  # two starts at once, on whatever machine
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            refused = waiting[done.pop()]
            assert refused.stderr is not None
            assert b"already in use" in await refused.stderr.read()
            [serving] = [process for process in both if process is not refused]
            assert serving.stderr is not None
            while b"gateway.started" not in await serving.stderr.readline():
                assert not serving.stderr.at_eof()
            serving.terminate()
            _, rest = await serving.communicate()
            assert serving.returncode == 0, rest
    finally:
        for process in both:
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*waiting)
