"""The connections of reports: they only read, end in time, and come back with the database."""

import asyncio
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy.pool import QueuePool

from gateway.core.reports import ReportsUnreachable, ReportTooSlow
from gateway.ledger import Ledger, Reader, Words, is_sqlite, parse_url, queries
from gateway.ledger.reports.reader import CONNECTIONS, SILENT_S
from tests.patience import PATIENCE_S, eventually, until
from tests.support.relay import Relay
from tests.unit.ledger.records import raced_call

WILD = ["it's", "\\", "\\'", "'; drop table calls; --", "''", "a\nb", "$$", "E'\\x'", "ü\u2028", "\\\\''\\"]
ENDLESS = "with recursive n as (select 1 as i union all select i + 1 from n) select max(i) from n"
ENDLESS_AFTER_A_ROW = ENDLESS.replace("max(i) from n", "i from n where i <= 1")


def checked_out(reader: Reader) -> int:
    """Return how many of the reader's connections are in use."""
    pool = None if reader._engine is None else reader._engine.sync_engine.pool
    return pool.checkedout() if isinstance(pool, QueuePool) else 0


@pytest.mark.parametrize("sql", [ENDLESS, ENDLESS_AFTER_A_ROW])
async def test_a_report_that_takes_too_long_is_stopped_and_the_next_is_answered(ledger_url: str, sql: str) -> None:
    reader = Reader(ledger_url, timeout_s=0.3)
    for _ in range(6):  # more than there are connections
        with pytest.raises(ReportTooSlow, match="shorter window"):
            await reader.run(sql)
    reader._timeout_s = PATIENCE_S
    assert (await reader.run("select count(*) from calls")).rows[0][0] == 0
    await reader.aclose()
    if not is_sqlite(parse_url(ledger_url)):
        running = "select count(*) from pg_stat_activity where query like 'with recursive n %' and state = 'active'"

        async def all_are_stopped() -> bool:  # the server may be about to stop the last one
            return (await queries.run(ledger_url, running)).rows == [(0,)]

        await eventually(all_are_stopped)


async def test_rows_are_shipped_while_every_report_hangs(ledger_url: str, tmp_path: Path) -> None:
    reader = Reader(ledger_url, timeout_s=10 * PATIENCE_S)
    slow = [asyncio.create_task(reader.run(ENDLESS)) for _ in range(20)]
    await until(lambda: checked_out(reader) >= CONNECTIONS)
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    ledger.call_finished(raced_call())
    async with asyncio.timeout(PATIENCE_S):
        await ledger.flush()
    assert not any(task.done() for task in slow)
    assert ledger.pending == 0
    await ledger.close()
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    await reader.aclose()


@pytest.mark.parametrize("sql", ["delete from calls", "create table x (y int)", "drop table calls"])
async def test_reports_cannot_write(ledger_url: str, sql: str) -> None:
    reader = Reader(ledger_url)
    with pytest.raises(ReportsUnreachable) as refused:
        await reader.run(sql)
    assert "readonly" in str(refused.value.__cause__).replace("-", "")
    await reader.aclose()


async def test_a_database_that_is_away_is_told_of_and_asked_again(relayed_url: str, relay: Relay) -> None:
    reader = Reader(relayed_url, timeout_s=PATIENCE_S)
    assert (await reader.run("select 1")).rows[0][0] == 1
    await relay.cut()
    with pytest.raises(ReportsUnreachable) as told:
        await reader.run("select 1")
    assert str(relay.port) not in told.value.message
    assert told.value.headers == {"retry-after": "2"}
    await relay.listen()
    assert (await reader.run("select 1")).rows[0][0] == 1
    await reader.aclose()


async def test_a_database_that_hangs_holds_nobody_up(relayed_url: str, relay: Relay) -> None:
    reader = Reader(relayed_url, timeout_s=PATIENCE_S)
    await reader.run("select 1")
    reader._timeout_s = 0.3
    relay.hang()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(ReportTooSlow):
            await reader.run("select 1")
        with pytest.raises(ReportTooSlow):
            await reader.run("select 1")
        reader._timeout_s = PATIENCE_S
        relay.resume()
        assert (await reader.run("select 1")).rows[0][0] == 1
        await reader.aclose()


async def test_an_older_schema_says_what_to_do(empty_postgres_url: str, tmp_path: Path) -> None:
    for url in (empty_postgres_url, f"sqlite:///{tmp_path}/empty.db"):
        reader = Reader(url)
        with pytest.raises(ReportsUnreachable, match="holeshot migrate"):
            await reader.run("select * from calls")
        await reader.aclose()


@pytest.mark.parametrize("conforming", ["on", "off"])
async def test_no_text_breaks_out_of_its_quotes(postgres_url: str, conforming: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(f"set standard_conforming_strings = {conforming}")
    words = Words(is_postgres=True)
    for text in WILD:
        assert await connection.fetchval(f"select {words.text(text)}") == text
    await connection.close()


async def test_no_text_breaks_out_of_its_quotes_in_sqlite(sqlite_url: str) -> None:
    reader = Reader(sqlite_url)
    for text in WILD:
        assert (await reader.run(f"select {Words(is_postgres=False).text(text)}")).rows[0][0] == text
    await reader.aclose()


async def test_a_database_that_was_silent_for_five_seconds_is_told_of_before_a_report_would_be_too_slow(
    relayed_url: str, relay: Relay
) -> None:
    silent_s = 0.0
    reader = Reader(relayed_url, timeout_s=10 * PATIENCE_S, heard_s_ago=lambda: silent_s)
    await reader.run("select 1")
    relay.hang()
    silent_s = SILENT_S
    assert reader._answered_at_s is not None
    reader._answered_at_s -= SILENT_S
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(ReportsUnreachable):
            await reader.run("select 1")
        relay.resume()
        assert (await reader.run("select 1")).rows[0][0] == 1
        await reader.aclose()
