"""Gateways and commands on a Postgres behind PgBouncer, which gives a connection away after each transaction."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from gateway.ledger import inserts
from tests.app.gateway.running_gateway import MODEL, RunningGateway, serving
from tests.patience import PATIENCE_S

REPORTS = ("history", "heat", "race-value", "race-value?by=client", "calls", "refusals", "usage", "slowdowns", "alerts")
CALLS, AT_ONCE = 150, 10  # of each of two gateways


async def chat(running: RunningGateway) -> None:
    async with running.chat() as response:
        assert response.status == 200, await response.text()
        await response.read()


async def look(running: RunningGateway, name: str) -> None:
    async with running.get(f"/api/{name}") as response:
        assert response.status == 200, (name, await response.text())


async def add_up(running: RunningGateway) -> None:
    await running.gateway.ledger.flush()
    await running.gateway.ledger.fold()


async def test_gateways_that_share_four_connections_lose_no_row_and_no_report(
    tmp_path: Path, postgres_url: str, pooled_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inserts, "INSERT_TIMEOUT_S", PATIENCE_S)
    settings: dict[str, Any] = {
        "database_url": pooled_url,
        "anonymous": {"usd_per_day": 100},
        "slo": {"quick": {"model": MODEL, "objective": 0.99, "ttft_ms": 60_000}},
        "ledger": {"keep_attempts_days": 30},
    }
    async with (
        serving(tmp_path / "one", {"alpha": None}, **settings) as one,
        serving(tmp_path / "two", {"alpha": None}, **settings) as two,
    ):
        for _ in range(CALLS // AT_ONCE):
            await asyncio.gather(
                *(chat(each) for each in (one, two) for _ in range(AT_ONCE)),
                *(look(each, name) for each in (one, two) for name in REPORTS),
                *(add_up(each) for each in (one, two)),
            )
        await asyncio.gather(one.gateway.ledger.prune(), two.gateway.ledger.prune())
        await asyncio.gather(add_up(one), add_up(two))
        async with one.get("/api/usage") as response:
            usage = msgspec.json.decode(await response.read())
        assert [row["calls"] for row in usage["data"]] == [2 * CALLS]
        assert usage["sums_trail_s"] == 0
        assert one.gateway.ledger.connected
        assert two.gateway.ledger.connected
        assert one.gateway.ledger.rejected == two.gateway.ledger.rejected == 0
    direct = await asyncpg.connect(postgres_url)
    try:
        stored = await direct.fetchrow(
            "select (select count(*) from calls) as calls, (select count(*) from attempts) as attempts, "
            "(select sum(n) from rollup_calls where minutes = 60) as added_up"
        )
        assert (stored["calls"], stored["attempts"], stored["added_up"]) == (2 * CALLS, 2 * CALLS, 2 * CALLS)
    finally:
        await direct.close()


async def test_a_second_process_gets_the_connection_of_the_first_without_its_statements(pooled_url: str) -> None:
    """Statements with names stay on the server, and two processes choose the same names."""
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.cli", "sql", "--csv", "select count(*) as n from calls"),
            env={**os.environ, "HOLESHOT_SQL_URL": pooled_url},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, complaint = await process.communicate()
        assert (process.returncode, out) == (0, b"n\n0\n"), complaint.decode()
