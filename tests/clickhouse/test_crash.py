"""``kill -9`` of a gateway between an insert and its cursor: each row is read once."""

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from providers.simulator import ScriptedProvider, answer
from tests.app.gateway.process import started
from tests.app.gateway.running_gateway import chat_body, configuration
from tests.patience import PATIENCE_S
from tests.support.clickhouse import clickhouse

CALLS = 20


@pytest.mark.parametrize("table", ["attempts", "calls"])
async def test_rows_are_read_once_after_a_kill_between_insert_and_cursor(tmp_path: Path, table: str) -> None:
    async with (
        clickhouse(tmp_path / "database") as server,
        ScriptedProvider(answer("a")) as alpha,
        ScriptedProvider(answer("b")) as beta,
        aiohttp.ClientSession() as http,
    ):
        config = configuration(
            tmp_path, {"alpha": alpha.base_url, "beta": beta.base_url}, ledger={"clickhouse": {"url": server.url}}
        )
        seen = []
        async with started(config, tmp_path) as gateway:
            for _ in range(CALLS):
                async with http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response:
                    seen.append(response.headers["x-holeshot-call-id"])
                    await response.read()
            gateway.send(signal.SIGKILL)
            await gateway.ended()
        for _ in range(2):  # it finds the dead one's rows, sends them, and dies before it knows that they are stored
            server.hold(table)
            async with started(config, tmp_path) as gateway:
                async with asyncio.timeout(PATIENCE_S):
                    await server.held.wait()
                gateway.send(signal.SIGKILL)
                await gateway.ended()
            server.release()
        async with started(config, tmp_path) as gateway:
            async with asyncio.timeout(PATIENCE_S):
                await server.answered.wait()
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
            assert "secret" not in gateway.stderr.decode()
        assert server.inserts.count(table) == 3
        assert sorted(server.ask("select id from calls final").decode().split()) == sorted(seen)
        rows = server.ask("select count(), uniqExact(id), uniqExact(call_id) from attempts final").decode().split()
        assert rows[0] == rows[1]
        assert int(rows[2]) == CALLS
