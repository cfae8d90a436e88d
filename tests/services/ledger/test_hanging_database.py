"""A Postgres that takes bytes and answers none: how soon that is told, that it ends, and that no row is lost by it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from structlog.testing import capture_logs

from gateway.ledger import DatabaseUnreachableError, Ledger, connections, database, inserts, queries, shipper
from tests.patience import PATIENCE_S
from tests.support.relay import Relay
from tests.unit.ledger.records import raced_call


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def ledger(
    relayed_url: str, relay: Relay, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Ledger]:
    monkeypatch.setattr(database, "COMMAND_TIMEOUT_S", 3600.0)  # it is not the driver that gives up
    ledger = Ledger(relayed_url, tmp_path / "spool", "w1", clock=clock)
    ledger.call_finished(raced_call())
    await ledger.flush()
    with monkeypatch.context() as soon:
        soon.setattr(inserts, "INSERT_TIMEOUT_S", 3.0)  # a batch must come to where it is stuck within it
        soon.setattr(shipper, "PING_TIMEOUT_S", 0.5)
        yield ledger
    relay.resume()
    await ledger.close()


async def count(url: str) -> int:
    return int((await queries.run(url, "select count(*) from calls")).rows[0][0])


async def test_a_batch_that_is_stuck_is_told_of_while_it_is(ledger: Ledger, relay: Relay, clock: Clock) -> None:
    relay.hang()
    ledger.call_finished(raced_call())
    clock.now_s += 1.0
    flush = asyncio.create_task(ledger.flush())
    await asyncio.sleep(0)
    assert (ledger.connected, ledger.pending, ledger.oldest_pending_s) == (True, 1, 1.0)
    clock.now_s += shipper.STALLED_S + 0.1
    assert not ledger.connected
    assert ledger.answered_s_ago == ledger.oldest_pending_s == pytest.approx(3.1)
    with pytest.raises(DatabaseUnreachableError, match="did not answer within 3 s"):
        await flush
    assert not ledger.connected


async def test_a_hang_ends_and_a_fresh_connection_takes_the_rows(
    ledger: Ledger, relay: Relay, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay.hang()
    ledger.call_finished(raced_call())
    with monkeypatch.context() as sooner:
        sooner.setattr(inserts, "INSERT_TIMEOUT_S", 0.1)  # it is stuck wherever it is
        for _ in range(2):
            with pytest.raises(DatabaseUnreachableError):
                await ledger.flush()
    relay.resume()
    await ledger.flush()
    assert (ledger.connected, ledger.pending, ledger.oldest_pending_s) == (True, 0, None)
    assert await count(postgres_url) == 2


@pytest.mark.parametrize("way", ["hangs", "is_locked"])
async def test_a_hang_in_the_middle_of_a_batch_leaves_nobody_waiting_here_or_there(
    ledger: Ledger, relay: Relay, postgres_url: str, way: str
) -> None:
    other = await asyncpg.connect(postgres_url)
    try:
        lock = other.transaction()
        await lock.start()
        await other.execute("lock table calls in access exclusive mode")
        ledger.call_finished(raced_call())
        flush = asyncio.create_task(ledger.flush())
        while not await other.fetchval("select count(*) from pg_locks where not granted"):
            assert not flush.done()
        if way == "hangs":
            relay.hang()
        async with asyncio.timeout(PATIENCE_S):  # it waited for the server to roll back
            with pytest.raises(DatabaseUnreachableError):
                await flush
            while await other.fetchval("select pg_sleep(0.01), count(*) from pg_locks where not granted", column=1):
                pass
        await lock.rollback()
    finally:
        await other.close()
    relay.resume()
    await ledger.flush()
    assert await count(postgres_url) == 2


async def test_an_idle_ledger_asks_only_while_somebody_asks_it(
    ledger: Ledger, relay: Relay, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay.hang()
    clock.now_s += 1.0
    await ledger.flush()
    assert ledger.connected  # as far as it knows
    ledger.watch()
    with pytest.raises(DatabaseUnreachableError):
        await ledger.flush()
    assert ledger.last_error
    with monkeypatch.context() as patient:  # undone here: at the end it would bring back the limit of ``ledger``
        patient.setattr(shipper, "PING_TIMEOUT_S", PATIENCE_S)
        relay.resume()
        await ledger.flush()
    assert (ledger.connected, ledger.last_error, ledger.answered_s_ago) == (True, None, 0.0)


async def test_a_ledger_told_to_close_while_its_database_hangs_does_close(
    relay: Relay, postgres_url: str, relayed_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CLOSE_TIMEOUT_S", 0.1)
    ledger = Ledger(relayed_url, tmp_path / "spool", "w1")
    await ledger.start()
    ledger.call_finished(raced_call())
    await ledger.emptied()
    relay.hang()
    ledger.call_finished(raced_call())
    async with asyncio.timeout(PATIENCE_S):
        await ledger.close(timeout_s=0.2)
    heir = Ledger(postgres_url, tmp_path / "spool", "heir")
    await heir.adopt()
    assert await count(postgres_url) == 2
    await heir.close()


async def test_with_nothing_to_ship_a_database_that_is_away_is_not_waited_for(
    relay: Relay, relayed_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CONNECT_TIMEOUT_S", 10 * PATIENCE_S)
    ledger = Ledger(relayed_url, tmp_path / "spool", "w1")
    relay.hang()
    with monkeypatch.context() as soon:
        soon.setattr(shipper, "PING_TIMEOUT_S", 0.5)
        with pytest.raises(DatabaseUnreachableError):
            await ledger.flush()
    monkeypatch.setattr(shipper, "PING_TIMEOUT_S", 10 * PATIENCE_S)
    await ledger.start()
    with capture_logs() as logs:
        async with asyncio.timeout(PATIENCE_S):
            await ledger.close(10 * PATIENCE_S)
    assert "ledger.closed_with_pending_rows" not in [log["event"] for log in logs]
    assert list((tmp_path / "spool").iterdir()) == []
