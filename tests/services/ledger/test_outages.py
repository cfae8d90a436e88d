"""Outages in SQL: a row when they begin, its end when they end, whatever is shipped first or twice."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from gateway.core.ids import new_id
from gateway.core.records import OutageRecord
from gateway.ledger import Ledger, Retention, create_engine, expired, prune
from tests.services.ledger.asking import asked
from tests.unit.ledger.records import NOON, minutes, raced_call


def outage(outage_id: str, *, ended_at: datetime | None = None, began_at: datetime = NOON) -> OutageRecord:
    return OutageRecord(
        id=outage_id,
        deployment="groq/llama",
        model="llama",
        began_at=began_at,
        ended_at=ended_at,
        reason="server_error",
        replica="r1",
    )


async def outages(url: str) -> list[dict[str, Any]]:
    return await asked(url, "select * from outages order by began_at")


async def store(url: str, folder: Path, *batches: tuple[OutageRecord, ...]) -> None:
    ledger = Ledger(url, folder / "spool", "w1")
    for batch in batches:
        for each in batch:
            ledger.outage(each)
        await ledger.flush()
    assert (ledger.rejected, ledger.pending) == (0, 0)
    await ledger.close()


async def test_an_outage_is_a_row_while_it_lasts_and_gets_its_end(ledger_url: str, tmp_path: Path) -> None:
    name = new_id()
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    ledger.outage(outage(name))
    ledger.call_finished(raced_call())
    await ledger.flush()
    [row] = await outages(ledger_url)
    assert str(row.pop("id")) == name
    assert str(row.pop("began_at"))[:19] == "2026-03-04 12:00:00"
    assert row == {
        "deployment": "groq/llama", "model": "llama", "ended_at": None, "reason": "server_error", "replica": "r1",
    }  # fmt: skip
    ledger.outage(outage(name, ended_at=NOON + minutes(2)))
    await ledger.flush()
    [row] = await outages(ledger_url)
    assert str(row["ended_at"])[:19] == "2026-03-04 12:02:00"
    await ledger.close()


ENDS = NOON + minutes(2)


@pytest.mark.parametrize("order", ["together", "end first", "begin again", "twice"])
async def test_an_end_is_stored_once_and_stays(ledger_url: str, tmp_path: Path, order: str) -> None:
    name = new_id()
    begin, end = outage(name), outage(name, ended_at=ENDS)
    batches: dict[str, list[tuple[OutageRecord, ...]]] = {
        "together": [(begin, end)],
        "end first": [(end,), (begin,)],
        "begin again": [(begin,), (end,), (begin,)],
        "twice": [(end, begin, end), (outage(name, ended_at=ENDS + minutes(5)),)],
    }
    await store(ledger_url, tmp_path, *batches[order])
    [row] = await outages(ledger_url)
    assert str(row["ended_at"])[:19] == "2026-03-04 12:02:00"


class Dying:
    """A ledger whose clocks stand still, in a process that ends as if it were killed."""

    def __init__(self, url: str, folder: Path) -> None:
        self.seconds = 0.0
        self.ledger = Ledger(
            url, folder / "spool", "dead",
            clock=lambda: self.seconds, utc_now=lambda: NOON + timedelta(seconds=self.seconds),
        )  # fmt: skip

    async def pass_seconds(self, seconds: int) -> None:
        """Keep the spool each second, as its task does, and ship."""
        for _ in range(seconds):
            self.seconds += 1
            await self.ledger._keeper.keep()
            await self.ledger.flush()

    async def die(self) -> None:
        self.ledger._spool.close(remove=False)
        await self.ledger._store.aclose()


async def ends(url: str) -> list[str | None]:
    rows = await asked(url, "select ended_at from outages order by began_at")
    return [None if row["ended_at"] is None else str(row["ended_at"])[11:19] for row in rows]


async def adopted(url: str, folder: Path) -> None:
    heir = Ledger(url, folder / "spool", "heir")
    await heir.adopt()
    await heir.close()
    assert list((folder / "spool").iterdir()) == []


async def test_an_outage_in_the_spool_of_a_dead_worker_ends_with_what_is_known_of_it(
    ledger_url: str, tmp_path: Path
) -> None:
    dead = Dying(ledger_url, tmp_path)
    dead.ledger.outage(outage(new_id()))
    await dead.die()
    await adopted(ledger_url, tmp_path)
    assert await ends(ledger_url) == ["12:00:00"]


async def test_an_outage_of_a_killed_process_ends_when_it_was_last_known_to_run(
    ledger_url: str, tmp_path: Path
) -> None:
    dead = Dying(ledger_url, tmp_path)
    ended = new_id()
    dead.ledger.outage(outage(ended))
    dead.ledger.outage(outage(new_id(), began_at=NOON + timedelta(seconds=1)))
    await dead.pass_seconds(200)  # the segment with their begins is stored and deleted
    assert not (tmp_path / "spool" / "dead" / "00000001.jsonl").exists()
    dead.ledger.outage(outage(ended, ended_at=NOON + timedelta(seconds=200)))
    await dead.pass_seconds(103)
    await dead.die()
    assert await ends(ledger_url) == ["12:03:20", None]
    await adopted(ledger_url, tmp_path)
    first, second = await ends(ledger_url)
    assert first == "12:03:20"
    assert second is not None
    assert "12:04:58" <= second <= "12:05:03"


async def test_what_says_that_an_outage_lasts_is_no_row_and_grows_no_file(ledger_url: str, tmp_path: Path) -> None:
    dead = Dying(ledger_url, tmp_path)
    dead.ledger.outage(outage(new_id()))
    await dead.pass_seconds(300)
    assert (dead.ledger.pending, dead.ledger.unspooled, dead.ledger.lost) == (0, 0, 0)
    files = list((tmp_path / "spool" / "dead").glob("*.jsonl"))
    assert len(files) <= 2
    assert sum(path.stat().st_size for path in files) < 16_384
    await dead.die()


async def test_outages_are_kept_for_ever_unless_days_are_set(ledger_url: str, tmp_path: Path) -> None:
    old = tuple(outage(new_id(), began_at=NOON - timedelta(days=age)) for age in (1, 29, 31, 90))
    await store(ledger_url, tmp_path, old)
    engine = create_engine(ledger_url)
    assert "outages" not in await expired(engine, Retention(), NOON)
    keep = Retention(outages_days=30)
    assert await expired(engine, keep, NOON) == {"outages": 2, "slowdowns": 0}
    assert await prune(engine, keep, NOON) == {"outages": 2, "slowdowns": 0}
    assert len(await outages(ledger_url)) == 2
    await engine.dispose()


async def test_outages_older_than_what_is_kept_are_left_out(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1", retention=Retention(outages_days=30), utc_now=lambda: NOON)
    ledger.outage(outage(new_id(), began_at=NOON - timedelta(days=31)))
    ledger.outage(outage(new_id()))
    await ledger.flush()
    assert ledger.expired == 1
    assert len(await outages(ledger_url)) == 1
    await ledger.close()


async def test_a_role_that_may_insert_outages_and_change_their_ends_stores_them(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(
            "create role insert_only; grant select, insert, update (ended_at) on outages to insert_only"
        )
        name = "01a1ff48-30a1-7adf-9f68-b2dd774bccc3"
        insert = (
            "insert into outages (id, deployment, began_at, ended_at, replica) values ($1, 'd', now(), $2, 'r') "
            "on conflict (id) do update set ended_at = excluded.ended_at where outages.ended_at is null"
        )
        await connection.execute("set role insert_only")
        await connection.execute(insert, name, None)
        await connection.execute(insert, name, NOON)
        assert await connection.fetchval("select ended_at from outages") == NOON
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("update outages set deployment = 'x'")
    finally:
        await connection.execute("reset role; drop owned by insert_only; drop role insert_only")
        await connection.close()
