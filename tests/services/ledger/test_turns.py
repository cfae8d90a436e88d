"""Turns: one replica at a time, on both databases, also beside a replica of another version."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from gateway.core.ids import new_id
from gateway.ledger import SqlAlertBook, create_engine, turns
from gateway.ledger.turns import KEYS, PRUNE, SLOWDOWNS, LongTurn, Turn
from tests.services.ledger.test_alert_book import HOOKS, LEASE, NOW, alert

ROOT = Path(__file__).parents[3]
TURNS = [each for each in vars(turns).values() if isinstance(each, Turn)]
_WAITING = "select count(*) from pg_locks where not granted"


async def test_a_turn_that_is_tried_is_refused_until_the_transaction_that_has_it_ends(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    async with engine.connect() as one, engine.connect() as other:
        assert await PRUNE.is_ours(one)
        assert await PRUNE.is_ours(one)  # also when asked again within its transaction
        assert not await PRUNE.is_ours(other)
        assert await KEYS.is_ours(other)  # another turn
        await one.rollback()
        assert await PRUNE.is_ours(other)
    await engine.dispose()


async def test_who_waits_for_a_turn_gets_it_when_the_other_transaction_ends(postgres_url: str) -> None:
    engine = create_engine(postgres_url, pool_size=3)
    done: list[str] = []

    async def second() -> None:
        async with engine.connect() as connection:
            await KEYS.wait(connection)
            done.append("second")

    async with engine.connect() as one, engine.connect() as looking:
        await KEYS.wait(one)
        waiting = asyncio.create_task(second())
        while not (await looking.exec_driver_sql(_WAITING)).scalar():
            assert not waiting.done()
        done.append("first")
        await one.rollback()
        await waiting
    await engine.dispose()
    assert done == ["first", "second"]


async def test_on_sqlite_no_other_connection_writes_during_a_turn(sqlite_url: str) -> None:
    engine = create_engine(sqlite_url)
    async with engine.connect() as one, engine.connect() as other:
        await KEYS.wait(one)
        await other.exec_driver_sql("pragma busy_timeout = 0")
        with pytest.raises(Exception, match="database is locked"):
            await KEYS.wait(other)
        await one.rollback()
        await KEYS.wait(other)
    await engine.dispose()


@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: turn.name)
async def test_a_replica_of_the_version_before_has_the_same_turn(turn: Turn, postgres_url: str) -> None:
    """Its statements name the lock themselves."""
    engine, before = create_engine(postgres_url), await asyncpg.connect(postgres_url)
    async with engine.connect() as connection, before.transaction():
        await before.execute(f"select pg_advisory_xact_lock(hashtext('{turn.name}'))")
        assert not await turn.is_ours(connection)
    await before.close()
    await engine.dispose()


def test_the_names_of_turns_stay() -> None:
    kept = "migrate fold prune partitions targets probes keys messages"
    assert [turn.name for turn in TURNS] == [f"holeshot.{name}" for name in kept.split()]


async def test_a_message_leased_by_a_replica_of_the_version_before_is_not_leased_again(postgres_url: str) -> None:
    """That one locks rows instead of taking the turn."""
    book, before = SqlAlertBook(postgres_url, new_id=new_id), await asyncpg.connect(postgres_url)
    await book.open(alert(), HOOKS)
    async with before.transaction():
        [first, *_] = await before.fetch("select id from alert_messages order by webhook for update skip locked")
        leasing = asyncio.create_task(book.take_due(NOW, lease=LEASE, webhooks=HOOKS))
        while not await before.fetchval(_WAITING):
            assert not leasing.done()
        await before.execute("update alert_messages set due_at = $1 where id = $2", NOW + LEASE, first["id"])
    assert [message.webhook for message in await leasing] == ["ops"]
    await before.close()
    await book.aclose()


async def test_a_long_turn_outlasts_transactions_and_ends_by_the_clock_or_when_given_up(ledger_url: str) -> None:
    engine, now, lasts = create_engine(ledger_url), datetime(2030, 1, 1, tzinfo=UTC), timedelta(minutes=11)

    async def is_ours(holder: str, minutes: float, turn: LongTurn = SLOWDOWNS) -> bool:
        async with engine.begin() as connection:
            return await turn.is_ours(connection, holder, now + timedelta(minutes=minutes), lasts)

    assert await is_ours("one", 0)
    assert not await is_ours("other", 10)
    assert await is_ours("one", 10)  # renewed
    assert not await is_ours("other", 20)
    assert await is_ours("other", 22)
    async with engine.begin() as connection:
        await SLOWDOWNS.give_up(connection, "one")  # has it no more
    assert not await is_ours("one", 23)
    async with engine.begin() as connection:
        await SLOWDOWNS.give_up(connection, "other")
    assert await is_ours("one", 23)
    await engine.dispose()


def test_no_other_file_makes_one_replica_wait_for_another() -> None:
    """Whoever needs the only turn at something finds it in the list of all."""
    ways = re.compile(r"pg_(?:try_)?advisory|detector set holder", re.IGNORECASE)
    found = [
        str(path.relative_to(ROOT))
        for room in ("gateway", "migrations", "providers")
        for path in sorted((ROOT / room).rglob("*"))
        if path.suffix in {".py", ".sql"} and ways.search(path.read_text(encoding="utf-8"))
    ]
    assert found == ["gateway/ledger/turns.py", "migrations/functions/roll_up_fresh.sql"]
