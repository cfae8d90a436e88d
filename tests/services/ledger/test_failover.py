"""A Postgres that fails over under calls: it refuses, then it only reads, then it writes again. No row is lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text

from gateway.ledger.connections import OwnConnection
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.patience import PATIENCE_S
from tests.support.relay import Relay

AT_A_TIME = 20


@pytest.fixture
async def operator(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection that writes whatever the database's default is."""
    connection = await asyncpg.connect(postgres_url, server_settings={"default_transaction_read_only": "off"})
    yield connection
    await connection.close()


async def only_read(operator: asyncpg.Connection, *, only: bool) -> None:
    """Let new connections only read, or write again."""
    name = await operator.fetchval("select quote_ident(current_database())")
    await operator.execute(f"alter database {name} set default_transaction_read_only = {'on' if only else 'off'}")


class Calls:
    """Makes calls one after the other until it is told to stop, and counts them."""

    def __init__(self, running: RunningGateway) -> None:
        self.ids: list[str] = []
        self._running = running
        self._made = asyncio.Event()

    async def go_on(self) -> None:
        while True:
            async with self._running.chat() as response:
                assert response.status == 200
                await response.read()
                self.ids.append(response.headers["x-holeshot-call-id"])
            self._made.set()

    async def more(self) -> None:
        """Wait for some calls that begin from now on."""
        until = len(self.ids) + AT_A_TIME
        while len(self.ids) < until:
            self._made.clear()
            await self._made.wait()


async def write(own: OwnConnection) -> None:
    async with own.open(PATIENCE_S, writes=True) as connection:
        await connection.execute(text("update detector set holder = null"))
        await connection.commit()


async def seen(running: RunningGateway, holds: Callable[[], bool]) -> None:
    """Wait until the gateway's own shipping has noticed."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            async with running.get("/health/ready") as response:
                await response.read()


async def test_a_failover_under_calls_loses_no_row_and_no_call(
    tmp_path: Path, relayed_url: str, relay: Relay, operator: asyncpg.Connection
) -> None:
    async with serving(tmp_path, {"alpha": None}, database_url=relayed_url) as running:
        ledger, calls = running.gateway.ledger, Calls(running)
        making = asyncio.create_task(calls.go_on())
        await calls.more()
        await seen(running, lambda: ledger.connected)

        await relay.cut()  # the primary is gone
        await calls.more()
        await seen(running, lambda: not ledger.connected)

        await only_read(operator, only=True)  # what answers now is a standby, or protects a full disk
        await relay.listen()
        await seen(running, lambda: "read-only" in str(ledger.last_error))
        await calls.more()
        assert ledger.rejected == 0

        await only_read(operator, only=False)
        await seen(running, lambda: ledger.connected)
        await calls.more()
        making.cancel()
        await asyncio.gather(making, return_exceptions=True)
        assert making.cancelled()  # and no call has failed
        await ledger.emptied()
        stored = [str(row["id"]) for row in await operator.fetch("select id from calls")]
        while await operator.fetchval("select pg_sleep(0.01), trails_s from rollup_pending", column=1) > 0:
            pass  # the gateway adds up by itself
        added_up = await operator.fetchval("select sum(n) from rollup_calls where minutes = 60")
    # The call that was under way when they ended may have been counted here or not.
    assert len(stored) == len(set(stored)) == added_up
    assert set(calls.ids) <= set(stored)
    assert len(stored) - len(calls.ids) <= 1


async def test_a_connection_that_only_reads_is_not_used_again(postgres_url: str, operator: asyncpg.Connection) -> None:
    """Alerts, keys and probes write seldom, each by a connection that stays open."""
    own = OwnConnection(postgres_url, RuntimeError)
    try:
        await only_read(operator, only=True)
        with pytest.raises(RuntimeError, match="read-only"):
            await write(own)
        await only_read(operator, only=False)
        await write(own)
    finally:
        await own.aclose(PATIENCE_S)
