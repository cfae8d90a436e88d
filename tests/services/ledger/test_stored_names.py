"""Names of what lies at providers in SQL: found by whoever comes next, taken once, swept; on both databases."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace
from sqlalchemy import text
from structlog.testing import capture_logs

from gateway.core.errors import NamesUnreachable
from gateway.core.ids import new_id
from gateway.core.records import StoredName
from gateway.ledger import Ledger, LedgerNames, Retention, create_engine, downgrade, migrate, prune, retention
from gateway.ledger.ends import AT_ONCE
from tests.services.ledger.asking import asked
from tests.unit.ledger.records import NOON, raced_call

DAY_S = 86_400.0
KNOWN = '{"deployment":"openai/gpt"}'
END = raced_call()
ROW = {KNOWN: END}


@asynccontextmanager
async def process(
    url: str,
    folder: Path,
    name: str = "one",
    *,
    secret: bytes = b"s",
    seal: bytes = b"k",
    now: Callable[[], datetime] = lambda: NOON,
) -> AsyncIterator[tuple[Ledger, LedgerNames]]:
    ledger = Ledger(url, folder / "spool", name, utc_now=now)
    names = LedgerNames(ledger, url, secret, kind="name", ttl_s=lambda: DAY_S, seal=seal)
    try:
        yield ledger, names
    finally:
        await names.aclose()
        await ledger.close()


async def test_what_one_process_was_told_the_next_one_finds_for_the_same_client(
    ledger_url: str, tmp_path: Path
) -> None:
    ids = [f"msg_{number}" for number in range(250)]
    async with process(ledger_url, tmp_path) as (ledger, names):
        names.tell("ann", ids, KNOWN)
        names.tell(None, ["resp_1"], KNOWN)
        await ledger.flush()
        assert (ledger.rejected, ledger.pending) == (0, 0)
    async with process(ledger_url, tmp_path, "two") as (_, names):
        assert set(await asyncio.gather(*(names.ask("ann", each) for each in ids))) == {KNOWN}
        assert [await names.ask(client, "msg_1") for client in ("bob", None, "")] == [None] * 3
        assert [await names.ask(client, "resp_1") for client in (None, "ann", "")] == [KNOWN, None, None]
    async with process(ledger_url, tmp_path, "three", secret=b"other") as (_, names):
        assert await names.ask("ann", "msg_1") is None
    rows = await asked(ledger_url, "select * from stored_names")
    assert len(rows) == 251
    assert not any(name in f"{rows}" for name in ("msg_", "resp_"))


async def test_names_that_are_asked_for_at_once_are_looked_up_together(ledger_url: str, tmp_path: Path) -> None:
    async with process(ledger_url, tmp_path) as (_, names):
        looks: list[int] = []
        look = names._look

        async def counted(some: Any) -> Any:
            looks.append(len(some))
            return await look(some)

        vars(names)["_look"] = counted
        assert set(await asyncio.gather(*(names.ask("ann", f"msg_{number % 60}") for number in range(120)))) == {None}
    assert looks == [60]


async def test_a_name_is_known_until_it_expires_by_the_latest_answer_that_gave_it(
    ledger_url: str, tmp_path: Path
) -> None:
    now = NOON
    async with process(ledger_url, tmp_path, now=lambda: now) as (ledger, names):
        for known in (KNOWN, '{"deployment":"azure/gpt"}'):
            names.tell("ann", ["resp_1", "resp_1"], known)
            await ledger.flush()
            now += timedelta(hours=1)
        now = NOON + timedelta(hours=24, minutes=59)
        assert await names.ask("ann", "resp_1") == '{"deployment":"azure/gpt"}'
        now = NOON + timedelta(hours=25)
        assert await names.ask("ann", "resp_1") is None


async def test_what_is_taken_is_taken_once_by_one_process_also_where_its_spool_is_shipped_again(
    ledger_url: str, tmp_path: Path
) -> None:
    async with process(ledger_url, tmp_path) as (ledger, one), process(ledger_url, tmp_path, "two") as (_, two):
        one.tell("ann", ["resp_1"], KNOWN)  # it need not be in SQL yet
        read: list[str] = []
        assert await one.take("ann", "resp_1", read.append) is None  # nothing comes of it, so that it stays
        assert await one.take("ann", "resp_1", ROW.__getitem__) is END
        assert [await each.take("ann", "resp_1", ROW.__getitem__) for each in (one, two)] == [None, None]
        one.tell("ann", ["resp_1"], KNOWN)
        await ledger.flush()
        assert [await each.take("ann", "resp_1", ROW.__getitem__) for each in (two, one)] == [None, None]
        one.tell("ann", ["resp_2"], KNOWN)
        await ledger.flush()
        found = await asyncio.gather(*(each.take("ann", "resp_2", ROW.__getitem__) for each in (one, two, one, two)))
        assert sorted(found, key=str)[1:] == [None, None, None]
        assert read == [KNOWN]


async def test_the_row_of_an_end_is_written_once_by_who_saw_it_or_else_by_whoever_comes_next(
    ledger_url: str, tmp_path: Path
) -> None:
    """Its process is killed right after it has taken the end: before or after it has spooled the row."""
    now = NOON

    async def kept() -> int:
        return len(await asked(ledger_url, "select id from stored_names where ended is not null"))

    async def rows() -> list[Any]:
        each = await asked(ledger_url, "select cost_usd, tags from calls")
        return [*each, len(await asked(ledger_url, "select id from attempts"))]

    async with process(ledger_url, tmp_path, now=lambda: now) as (ledger, names):
        names.tell_running("ann", "resp_1", KNOWN)
        names.tell_running("ann", "resp_2", KNOWN)
        await ledger.flush()
    async with (
        process(ledger_url, tmp_path, "next", now=lambda: now) as (running, _),
        process(ledger_url, tmp_path, "killed", now=lambda: now) as (killed, taking),
    ):
        await running.adopt()
        assert await taking.take("ann", "resp_1", ROW.__getitem__) is END
        await running.adopt()  # by the look of it that process is about to spool it
        assert (await kept(), await rows()) == (1, [0])
        now = END.started_at + timedelta(seconds=31)
        await running.adopt()
        assert await kept() == 0
        written = await rows()
        assert (len(written), written[-1]) == (2, len(END.attempts))
        killed.call_finished(END)  # it was slow, and lived
        await killed.flush()
        assert await rows() == written
        other = replace(END, id=new_id(), attempts=())
        assert await taking.take("ann", "resp_2", lambda _: other) is other
        killed.call_finished(other)
        await killed.flush()
        await running.adopt()  # it is among the calls
        assert (await kept(), len(await asked(ledger_url, "select id from calls"))) == (0, 2)


async def test_a_start_waits_for_the_rows_of_ends_that_were_taken_before(ledger_url: str, tmp_path: Path) -> None:
    async with process(ledger_url, tmp_path) as (ledger, names):
        names.tell_running("ann", "resp_1", KNOWN)
        await ledger.flush()
        assert await names.take("ann", "resp_1", ROW.__getitem__) is END
    async with process(ledger_url, tmp_path, "next") as (ledger, names):
        await ledger.start()
        await ledger.adopted()  # limits go on from what the database tells then
        (row,) = await asked(ledger_url, "select cost_usd from calls")
        assert row["cost_usd"] == pytest.approx(END.cost_usd)


async def test_what_runs_on_is_found_with_its_name_by_who_has_the_key_and_asked_for_by_one_of_all(
    ledger_url: str, tmp_path: Path
) -> None:
    now = NOON
    async with process(ledger_url, tmp_path, now=lambda: now) as (ledger, names):
        names.tell("ann", ["msg_1"], KNOWN)
        names.tell_running("ann", "resp_1", "{}")
        names.tell_running(None, "resp_2", "{}")
        await ledger.flush()
        assert ledger.rejected == 0
    assert "resp_" not in f"{await asked(ledger_url, 'select * from stored_names')}"
    async with (
        process(ledger_url, tmp_path, "two", now=lambda: now) as (_, two),
        process(ledger_url, tmp_path, "three", now=lambda: now) as (_, three),
        process(ledger_url, tmp_path, "other", seal=b"other") as (_, other),
        process(ledger_url, tmp_path, "none", seal=b"") as (_, none),
    ):
        found = {each.name: each for each in await two.unended()}
        assert {(each.client, each.name, each.known) for each in found.values()} == {
            ("ann", "resp_1", "{}"),
            (None, "resp_2", "{}"),
        }
        for each in (other, none):
            assert [row.name for row in await each.unended()] == [None, None]
        one = found["resp_1"].id
        assert sorted(await asyncio.gather(*(each.claim(one, 60.0) for each in (two, three)))) == [False, True]
        now = NOON + timedelta(seconds=61)
        assert await three.claim(one, 60.0)
        assert await two.is_unended(one)
        assert await three.take("ann", "resp_1", lambda _: END) is END
        assert not await two.is_unended(one)
        now = NOON + timedelta(hours=1)
        assert not await two.claim(one, 60.0)
        await two.leave(found["resp_2"].id)
        assert await three.unended() == []
        assert await three.take(None, "resp_2", lambda _: END) is END


async def test_a_killed_process_has_told_them(ledger_url: str, tmp_path: Path) -> None:
    dead = Ledger(ledger_url, tmp_path / "spool", "dead")
    LedgerNames(dead, ledger_url, b"s", kind="name", ttl_s=lambda: DAY_S).tell("ann", ["resp_1"], KNOWN)
    dead.call_finished(raced_call())
    dead._spool.close(remove=False)
    await dead._store.aclose()
    async with process(ledger_url, tmp_path, "heir", now=lambda: datetime.now(UTC)) as (ledger, names):
        await ledger.start()
        assert await names.ask("ann", "resp_1") == KNOWN  # it waits until that spool is in SQL
        assert ledger.rejected == 0


async def test_while_the_database_is_away_nobody_says_that_a_name_is_unknown(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'none.db'}"
    async with process(url, tmp_path) as (_, names):
        for asking in (names.ask("ann", "resp_1"), names.take("ann", "resp_1", ROW.get)):
            with pytest.raises(NamesUnreachable):
                await asking


async def test_names_go_a_day_after_they_have_expired_and_the_oldest_of_too_many(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def left() -> list[str]:
        return sorted(row["known"] for row in await asked(ledger_url, "select known from stored_names"))

    async with process(ledger_url, tmp_path) as (ledger, _):
        ledger.call_finished(raced_call())  # the clock is right
        for hours in (-30, -20, 1, 2):
            row = StoredName(id=new_id(), expires_at=NOON + timedelta(hours=hours), client=None, known=f"{hours}")
            ledger.named((row,))
        await ledger.flush()
        engine = create_engine(ledger_url)
        assert await prune(engine, Retention(), NOON) == {}
        assert await left() == ["-20", "1", "2"]
        monkeypatch.setattr(retention, "MOST_NAMES", 2)
        await prune(engine, Retention(), NOON)
        assert await left() == ["1", "2"]
        await engine.dispose()


async def test_who_may_store_outages_may_store_names_after_the_migration(postgres_url: str) -> None:
    owner = await asyncpg.connect(postgres_url)
    try:
        await downgrade(postgres_url, "0054")
        await owner.execute("create role stores_rows; grant select, insert on outages to stores_rows")
        await migrate(postgres_url)
        may = "select has_table_privilege('stores_rows', 'stored_names', $1)"
        assert [await owner.fetchval(may, right) for right in ("select", "insert", "update", "delete")] == [
            True,
            True,
            True,
            False,
        ]
    finally:
        await owner.execute("drop owned by stores_rows; drop role stores_rows")
        await owner.close()


async def test_kept_rows_that_cannot_be_read_keep_no_other_from_being_written(ledger_url: str, tmp_path: Path) -> None:
    last = "(select id from stored_names order by id desc limit 1)"
    async with process(ledger_url, tmp_path, now=lambda: END.started_at + timedelta(minutes=1)) as (ledger, names):
        ids = [f"resp_{number}" for number in range(AT_ONCE + 1)]
        for each in ids:
            names.tell_running("ann", each, KNOWN)
        await ledger.flush()
        for each in ids:
            await names.take("ann", each, ROW.__getitem__)
        engine = create_engine(ledger_url)
        async with engine.begin() as connection:
            await connection.execute(text(f"update stored_names set ended = 'of a later version' where id <> {last}"))
        await engine.dispose()
        with capture_logs() as logged:
            await ledger.adopt()
            await ledger.adopt()
        assert len(await asked(ledger_url, "select id from calls")) == 1
        assert len(await asked(ledger_url, "select id from stored_names where ended is not null")) == AT_ONCE
        told = [line["rows"] for line in logged if line["event"] == "ledger.unreadable_ends"]
        assert told == [AT_ONCE]
