"""A change of the schema that waits for another transaction: what is told, what is given up, what goes on."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import asyncpg
import pytest

from gateway.ledger import (
    Patience,
    SchemaBlockedError,
    create_engine,
    current_revision,
    downgrade,
    head_revision,
    migrate,
)
from gateway.ledger.migration_files import first_revision
from gateway.ledger.turns import MIGRATE, Turn
from tests.patience import PATIENCE_S

ACTIVE = """
select 1 from pg_stat_activity where application_name = 'holeshot' and datname = current_database()
and state <> 'idle'
"""
GAVE_UP = r"gave up after .* with nothing changed: calls is held by"


class Told:
    """What was told so far."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._news = asyncio.Event()

    def tell(self, words: str) -> None:
        self.words.append(words)
        self._news.set()

    async def more(self, number: int) -> str:
        while len(self.words) < number:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), PATIENCE_S)
        return self.words[-1]


def impatient(told: Told, wait_s: float = PATIENCE_S) -> Patience:
    return Patience(wait_s, told.tell, told_after_s=0.0, told_every_s=0.02, look_s=0.02)


@asynccontextmanager
async def holding(url: str, *statements: str) -> AsyncIterator[asyncpg.Connection]:
    """Run statements in a transaction that stays open."""
    holder = await asyncpg.connect(url, server_settings={"application_name": "a report"})
    transaction = holder.transaction()
    await transaction.start()
    for statement in statements:
        await holder.execute(statement)
    try:
        yield holder
    finally:
        await transaction.rollback()
        await holder.close()


async def revision(url: str) -> str | None:
    engine = create_engine(url)
    try:
        return await current_revision(engine)
    finally:
        await engine.dispose()


@pytest.fixture
async def old_url(postgres_url: str) -> str:
    """A ledger with an older schema."""
    await downgrade(postgres_url, first_revision())
    return postgres_url


async def test_a_migration_says_whose_transaction_it_waits_for_and_gives_up_with_nothing_changed(old_url: str) -> None:
    told, before = Told(), await revision(old_url)
    async with holding(old_url, "select 'a secret' from calls") as holder:
        pid = holder.get_server_pid()
        with pytest.raises(SchemaBlockedError, match=GAVE_UP) as given:
            await migrate(old_url, impatient(told, wait_s=0.2))
        assert told.words[0].startswith("waiting for ")
        for said in (told.words[0], str(given.value)):
            assert f"calls is held by process {pid} (a report, role postgres, idle in transaction since " in said
            assert "a SELECT" in said
            assert "a secret" not in said
        assert f"select pg_terminate_backend({pid})" in str(given.value)
        assert "--wait SECONDS" in str(given.value)
        assert await revision(old_url) == before
        assert await holder.fetch(ACTIVE) == []
    await migrate(old_url)
    assert await revision(old_url) == head_revision()


async def test_a_wait_that_ends_in_time_is_told_and_the_migration_goes_on(old_url: str) -> None:
    told = Told()
    async with holding(old_url, "select from calls"):
        going = asyncio.create_task(migrate(old_url, impatient(told)))
        await told.more(2)
        assert not going.done()
    await going
    assert await revision(old_url) == head_revision()


async def test_the_way_back_waits_likewise(postgres_url: str) -> None:
    told = Told()
    async with holding(postgres_url, "select from calls"):
        with pytest.raises(SchemaBlockedError):
            await downgrade(postgres_url, first_revision(), impatient(told, wait_s=0.1))
    assert await revision(postgres_url) == head_revision()


async def test_another_migration_is_waited_for_however_long_it_takes(old_url: str) -> None:
    told = Told()
    async with holding(old_url, MIGRATE.sql):
        going = asyncio.create_task(migrate(old_url, impatient(told, wait_s=0.01)))
        assert "another migration is held by process" in await told.more(5)
        assert not going.done()
    await going
    assert await revision(old_url) == head_revision()


async def test_the_wait_for_another_migration_does_not_count_for_the_next_wait(old_url: str) -> None:
    told = Told()
    async with holding(old_url, "select from calls"):
        async with holding(old_url, MIGRATE.sql):
            seldom = Patience(0.6, told.tell, told_after_s=0.0, told_every_s=0.0, look_s=0.3)
            going = asyncio.create_task(migrate(old_url, seldom))
            await told.more(4)  # longer than the limit; from one wait to the next it does not look
        with pytest.raises(SchemaBlockedError, match=GAVE_UP):
            await going
    assert sum("calls is held by" in words for words in told.words) > 1


async def test_a_row_s_and_a_sum_s_lock_are_told_too(old_url: str) -> None:
    told = Told()
    async with holding(old_url, Turn("holeshot.fold").sql):
        going = asyncio.create_task(migrate(old_url, impatient(told)))
        assert "the gateways' sums is held by process" in await told.more(1)
    await going


async def test_a_wait_of_less_than_two_seconds_is_not_told(old_url: str) -> None:
    told = Told()
    await migrate(old_url, Patience(tell=told.tell, look_s=0.0))
    assert told.words == []


@pytest.fixture
async def sqlite_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    await migrate(url)
    await downgrade(url, first_revision())
    return url


async def test_sqlite_is_told_and_given_up_likewise(sqlite_url: str) -> None:
    told, path = Told(), sqlite_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(SchemaBlockedError, match="gave up after 0 s, with nothing changed: another process writes"):
            await migrate(sqlite_url, impatient(told, wait_s=0.1))
        assert path in told.words[0]
        going = asyncio.create_task(migrate(sqlite_url, impatient(told)))
        await told.more(len(told.words) + 2)
        assert not going.done()
        other.execute("rollback")
        await going
    assert await revision(sqlite_url) == head_revision()
