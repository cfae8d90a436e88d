"""How Postgres is reached, and how many connections a process has: four at most, whatever is asked of it at once."""

import asyncio
import hashlib
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from gateway.ledger import (
    DatabaseUnreachableError,
    LedgerPool,
    connections,
    create_engine,
    current_revision,
    folding,
    head_revision,
    inserts,
    migrate,
)
from tests.app.gateway.running_gateway import MODEL, RunningGateway, serving
from tests.patience import PATIENCE_S
from tests.support import servers

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


async def test_a_server_is_reached_by_its_socket(tmp_path: Path, postgres_url: str) -> None:
    server = make_url(postgres_url)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(server.host, server.port)
        async with asyncio.TaskGroup() as both:
            both.create_task(_copy(reader, to_server))
            both.create_task(_copy(from_server, writer))

    async with await asyncio.start_unix_server(pass_on, tmp_path / ".s.PGSQL.5432"):
        by_socket = server.set(host=None, port=None).update_query_dict({"host": str(tmp_path), "port": "5432"})
        engine = create_engine(by_socket.render_as_string(hide_password=False))
        assert await current_revision(engine) == head_revision()
        await engine.dispose()


async def test_a_database_in_another_encoding_is_told_by_what_it_needs(postgres_server_url: str) -> None:
    name, server = f"holeshot_latin_{uuid.uuid4().hex}", await asyncpg.connect(postgres_server_url)
    latin = make_url(postgres_server_url).set(database=name).render_as_string(hide_password=False)
    try:
        await server.execute(f"create database {name} encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0")
        with pytest.raises(DatabaseUnreachableError, match="encoding is not UTF8: create database"):
            await migrate(latin)
    finally:
        await server.execute(f"drop database {name} with (force)")
        await server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


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


async def taken(pool: LedgerPool, number: int) -> None:
    """Use so many connections at once."""
    async with AsyncExitStack() as stack:
        for _ in range(number):
            await stack.enter_async_context(pool.engine.connect())


async def test_what_a_process_does_not_need_for_ten_seconds_it_gives_back(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LOOK_INTERVAL_S", 0.001)
    now_s, looking = 0.0, await asyncpg.connect(postgres_url)
    pool = LedgerPool(f"{postgres_url}?application_name=counted", time=lambda: now_s)
    await taken(pool, 4)
    now_s = 9.0
    await taken(pool, 2)
    assert await counted(looking, "true") == 4
    for later_s, left in ((11.0, 2), (20.0, 1)):
        now_s = later_s
        async with asyncio.timeout(PATIENCE_S):
            while await counted(looking, "true") != left:
                pass
        await taken(pool, 1)
        assert await counted(looking, "true") == left
    await pool.aclose()
    await looking.close()


WRITERS = 32


@pytest.fixture
def small_server_url() -> Iterator[str]:
    """A Postgres with 40 connections, three of which are kept for its superuser; its owner is none."""
    with servers.postgres(settings=("max_connections=40",)) as url:
        yield url


async def test_thirty_two_writers_are_content_with_forty_connections(
    small_server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wants three at once, again and again. What the first have taken too many, they give back to the last."""
    monkeypatch.setattr(connections, "LOOK_INTERVAL_S", 0.01)
    monkeypatch.setattr(connections, "FIRST_WITHIN_S", PATIENCE_S)
    looking = await asyncpg.connect(small_server_url)
    await looking.execute("create role writer login")
    pools = [LedgerPool(small_server_url.replace("postgres@", "writer@")) for _ in range(WRITERS)]

    async def use(pool: LedgerPool) -> None:
        await asyncio.gather(*(taken(pool, 1) for _ in range(3)))

    greedy, late = pools[: MOST * 2], pools[MOST * 2 :]
    await asyncio.gather(*map(use, greedy))
    before = await looking.fetchval("select count(*) from pg_stat_activity where usename = 'writer'")
    assert before > len(greedy)
    await asyncio.gather(*map(use, pools))
    for pool in late:
        await taken(pool, 1)
    async with asyncio.timeout(PATIENCE_S):
        while await looking.fetchval("select count(*) from pg_stat_activity where usename = 'writer'") > WRITERS:
            await asyncio.gather(*map(use, pools))
    for pool in pools:
        await pool.aclose()
    await looking.close()


async def test_where_the_server_has_none_left_a_process_waits_for_one_of_its_own(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await asyncpg.connect(postgres_url)
    await owner.execute("create role only_one login connection limit 1")
    pool = LedgerPool(postgres_url.replace("postgres@", "only_one@"))

    async def ask(number: int) -> int:
        async with pool.engine.connect() as connection:
            return int(await connection.scalar(text(f"select {number} from pg_sleep(0.01)")) or 0)

    assert await asyncio.gather(*map(ask, range(1, 9))) == [*range(1, 9)]
    await pool.aclose()
    monkeypatch.setattr(connections, "FIRST_WITHIN_S", 0.0)
    other = LedgerPool(postgres_url.replace("postgres@", "only_one@"))
    await owner.execute("alter role only_one connection limit 0")
    with pytest.raises(DBAPIError, match="too many connections"):
        await taken(other, 1)  # there is none to wait for
    await other.aclose()
    await owner.execute("drop role only_one")
    await owner.close()
