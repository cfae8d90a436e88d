"""How many connections to Postgres a process has: four at most, whatever is asked of it at once."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from gateway.ledger import folding, inserts
from tests.app.gateway.running_gateway import MODEL, RunningGateway, serving
from tests.patience import PATIENCE_S

MOST = 4
REPORTS = ("calls", "refusals", "usage", "history", "heat", "slowdowns", "slo", "alerts", "race-value", "keys")
LOCKED = "calls, attempts, client_keys, alerts, detector, rollup_calls, rollup_fresh, refusals, slowdowns"
SAMPLES = 20  # after which all that is asked for at once has been sent, on any machine that is not very slow
KEY = "hs-of-the-operator"


async def read(running: RunningGateway, name: str) -> None:
    async with running.get(f"/api/{name}", headers={"authorization": f"Bearer {KEY}"}) as response:
        assert response.status == 200, (name, await response.text())


async def chat(running: RunningGateway) -> None:
    async with running.chat({"authorization": f"Bearer {KEY}"}) as response:
        assert response.status == 200
        await response.read()


async def counted(looking: asyncpg.Connection, what: str) -> int:
    mine = "from pg_stat_activity where datname = current_database() and application_name = 'counted'"
    return int(await looking.fetchval(f"select count(*) {mine} and {what}"))


@pytest.mark.parametrize("keys", ["file", "database"])
async def test_a_process_has_four_connections_at_most(
    tmp_path: Path, postgres_url: str, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inserts, "INSERT_TIMEOUT_S", PATIENCE_S)  # what is given up ends later at the server
    monkeypatch.setattr(folding, "FOLD_TIMEOUT_S", PATIENCE_S)
    settings: dict[str, Any] = {
        "database_url": f"{postgres_url}?application_name=counted",
        "keys": keys,
        "clients": {"operator": {"key_sha256": hashlib.sha256(KEY.encode()).hexdigest(), "role": "admin"}},
        "slo": {"quick": {"model": MODEL, "objective": 0.99, "ttft_ms": 60_000}},
        "ledger": {"keep_attempts_days": 30},
    }
    locking, looking = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    try:
        async with serving(tmp_path, {"alpha": None}, **settings) as running:
            ledger = running.gateway.ledger
            async with locking.transaction():
                await locking.execute(f"lock table {LOCKED} in access exclusive mode")
                await chat(running)
                at_once = [
                    *(asyncio.create_task(read(running, name)) for name in REPORTS),
                    *(asyncio.create_task(work()) for work in (ledger.flush, ledger.fold, ledger.prune)),
                ]
                while await counted(looking, "wait_event_type = 'Lock'") < 3:
                    pass
                seen = [await counted(looking, "pg_sleep(0.01) is not null") for _ in range(SAMPLES)]
            await asyncio.gather(*at_once)
            seen.append(await counted(looking, "true"))
    finally:
        await locking.close()
        await looking.close()
    assert max(seen) <= MOST
