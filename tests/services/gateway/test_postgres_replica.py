"""Reports from a streaming replica of Postgres: how far it is behind is told, and calls do not depend on it."""

from pathlib import Path
from typing import Any

import asyncpg
from sqlalchemy.engine import make_url

from gateway.core.reports import Window
from tests.app.gateway.running_gateway import MODEL, RunningGateway, serving
from tests.patience import eventually
from tests.services.gateway.test_api import read
from tests.support.relay import Relay

REPORTS = ("history", "heat", "race-value", "race-value?by=client", "calls", "refusals", "usage", "slowdowns", "slo")


async def usage(running: RunningGateway, calls: int, *, is_behind: bool) -> None:
    """Wait until the replica has so many calls, and is behind or not."""

    async def is_told() -> bool:
        status, told = await read(running, "usage")
        assert status == 200, told
        has_all = sum(row["calls"] for row in told["data"]) == calls
        return bool(has_all and (told["replica_lag_s"] > 0) == is_behind)

    await eventually(is_told)


async def call(running: RunningGateway) -> None:
    async with running.chat() as response:
        assert response.status == 200
        await response.read()
    await running.gateway.ledger.flush()
    await running.gateway.ledger.fold()


async def pause(replica: asyncpg.Connection) -> None:
    """Stop replaying; before Postgres 14 that is done when it is asked."""
    await replica.execute("select pg_wal_replay_pause()")
    if replica.get_server_version().major >= 14:
        while await replica.fetchval("select pg_sleep(0.01), pg_get_wal_replay_pause_state()", column=1) != "paused":
            pass


async def test_reports_read_the_replica_and_say_how_far_it_is_behind(
    tmp_path: Path, postgres_url: str, replica_url: str
) -> None:
    target = {"quick": {"model": MODEL, "objective": 0.99, "ttft_ms": 60_000}}
    stores: dict[str, Any] = {"database_url": postgres_url, "reports_database_url": replica_url, "slo": target}
    replica = await asyncpg.connect(replica_url)
    try:
        async with serving(tmp_path, {"alpha": None}, **stores) as running:
            await call(running)
            await usage(running, 1, is_behind=False)
            for name in REPORTS:
                status, told = await read(running, name)
                assert status == 200, (name, told)
            await pause(replica)
            await call(running)
            await usage(running, 1, is_behind=True)
            _, session = await read(running, "session")
            assert session["stores"]["replica"]["connected"]
            assert session["stores"]["replica"]["lag_s"] > 0
            [used] = (await running.gateway._reports.usage(Window.DAY)).rows  # what alerts and metrics read
            assert used["calls"] == 2
            await replica.execute("select pg_wal_replay_resume()")
            await usage(running, 2, is_behind=False)
    finally:
        await replica.close()


async def test_without_its_replica_the_gateway_has_no_reports_and_all_else(tmp_path: Path, postgres_url: str) -> None:
    server = make_url(postgres_url)
    relay = Relay(str(server.host), int(server.port or 0))
    await relay.listen()
    away = server.set(host="127.0.0.1", port=relay.port, password="of-the-replica").render_as_string(
        hide_password=False
    )
    stores: dict[str, Any] = {"database_url": postgres_url, "reports_database_url": away}
    async with serving(tmp_path, {"alpha": None}, **stores) as running:
        await call(running)
        _, told = await read(running, "usage")
        assert told["replica_lag_s"] == 0  # a primary is not behind
        await relay.cut()
        await call(running)
        assert running.gateway.ledger.connected
        for name in ("history", "calls", "refusals", "usage", "slowdowns"):
            status, told = await read(running, name)
            assert (status, told["error"]["code"]) == (503, "database_unreachable"), name
            assert "reports_database_url" in told["error"]["message"]
        _, session = await read(running, "session")
        assert session["stores"]["replica"] == {"connected": False, "lag_s": None}
        _, configured = await read(running, "configuration")
        shown = configured["settings"]["reports_database_url"]
        assert ":***@127.0.0.1" in shown
        assert "of-the-replica" not in shown
        assert "of-the-replica" not in repr(running.gateway.context.settings)
