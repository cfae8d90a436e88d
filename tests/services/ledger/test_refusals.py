"""Refused requests in SQL: each row once, through outages and crashes, and what the views make of them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from gateway.core.records import RefusalRecord
from gateway.ledger import (
    DatabaseUnreachableError,
    Ledger,
    Retention,
    create_engine,
    downgrade,
    expired,
    migrate,
    prune,
)
from tests.services.ledger.asking import asked
from tests.unit.ledger.records import NOON, minutes, raced_call, refusal


async def store(url: str, folder: Path, *refusals: RefusalRecord) -> None:
    ledger = Ledger(url, folder / "spool", "w1")
    ledger.refused(refusals)
    await ledger.flush()
    await ledger.close()


def this_minute(**ago: float) -> datetime:
    return (datetime.now(UTC) - timedelta(**ago)).replace(second=0, microsecond=0)


async def test_a_minutes_refusals_become_rows_beside_the_calls(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    await ledger.start()
    guessed, misused = (
        refusal(n=7),
        refusal(client="search", status_code=404, reason="model_not_found", address=None, model="claude-opus-4-8"),
    )
    ledger.refused((guessed, misused))
    ledger.call_finished(raced_call())
    assert ledger.pending == 2
    await ledger.emptied()
    rows = await asked(ledger_url, "select * from refusals order by n desc")
    assert [str(row.pop("started_at"))[:19] for row in rows] == ["2026-03-04 12:00:00"] * 2
    assert [str(row.pop("id")) for row in rows] == [guessed.id, misused.id]
    assert rows == [
        {"status_code": 401, "reason": "invalid_api_key", "client": None, "address": "192.0.2.1", "n": 7,
         "replica": "r1", "model": None},
        {"status_code": 404, "reason": "model_not_found", "client": "search", "address": None, "n": 1,
         "replica": "r1", "model": "claude-opus-4-8"},
    ]  # fmt: skip
    assert await asked(ledger_url, "select count(*) as n from calls") == [{"n": 1}]
    await ledger.close()
    assert list((tmp_path / "spool").iterdir()) == []


async def test_refusals_shipped_twice_are_stored_once(ledger_url: str, tmp_path: Path) -> None:
    same = refusal(n=3)
    await store(ledger_url, tmp_path, same)
    await store(ledger_url, tmp_path, same, refusal())
    assert await asked(ledger_url, "select sum(n) as n from refusals") == [{"n": 4}]


async def test_the_refusals_of_a_dead_worker_are_adopted(ledger_url: str, tmp_path: Path) -> None:
    dead = Ledger(ledger_url, tmp_path / "spool", "dead")
    dead.refused((refusal(n=5), refusal(address="other", n=6)))
    dead._spool.close(remove=False)  # as if it were killed
    await dead._store.aclose()
    heir = Ledger(ledger_url, tmp_path / "spool", "heir")
    await heir.adopt()
    assert await asked(ledger_url, "select sum(n) as n from refusals") == [{"n": 11}]
    assert await asked(ledger_url, "select count(*) as n from calls") == [{"n": 0}]
    await heir.close()


async def test_refusals_of_a_database_outage_arrive_later(ledger_url: str, tmp_path: Path) -> None:
    await downgrade(ledger_url, "base")
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    for _ in range(3):
        ledger.refused((refusal(n=2),))
    with pytest.raises(DatabaseUnreachableError):
        await ledger.flush()
    assert ledger.pending == 3
    await migrate(ledger_url)
    await ledger.flush()
    assert await asked(ledger_url, "select sum(n) as n from refusals") == [{"n": 6}]
    await ledger.close()


async def test_a_refusal_that_the_database_rejects_keeps_no_call_out(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    ledger.call_finished(raced_call())
    ledger.refused((refusal(reason=None),))
    ledger.refused((refusal(n=2),))
    await ledger.flush()
    assert ledger.rejected == 1
    assert await asked(ledger_url, "select count(*) as calls, (select sum(n) from refusals) as n from calls") == [
        {"calls": 1, "n": 2}
    ]
    await ledger.close()


async def test_refusals_have_a_time_of_their_own_to_be_kept_for(ledger_url: str, tmp_path: Path) -> None:
    await store(ledger_url, tmp_path, *(refusal(started_at=NOON - timedelta(days=age)) for age in (1, 29, 31, 90)))
    engine = create_engine(ledger_url)
    keep = Retention(refusals_days=30)
    assert await expired(engine, keep, NOON) == {"refusals": 2}
    assert await prune(engine, keep, NOON) == {"refusals": 2}
    assert await prune(engine, keep, NOON) == {"refusals": 0}
    await engine.dispose()
    assert await asked(ledger_url, "select count(*) as n from refusals") == [{"n": 2}]


async def test_refusals_that_come_too_late_are_left_out_and_counted(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(
        ledger_url, tmp_path / "spool", "w1", retention=Retention(refusals_days=30), utc_now=lambda: NOON + minutes(1)
    )
    ledger.refused((refusal(), refusal(started_at=NOON - timedelta(days=31))))
    await ledger.flush()
    assert ledger.expired == 1
    await ledger.close()
    assert await asked(ledger_url, "select count(*) as n from refusals") == [{"n": 1}]


async def test_a_clients_misuse_is_one_row_for_each_reason_and_model(ledger_url: str, tmp_path: Path) -> None:
    now, before = this_minute(), this_minute(minutes=20)
    unknown_model = {"status_code": 404, "reason": "model_not_found"}
    await store(
        ledger_url,
        tmp_path,
        refusal(client="search", started_at=now, n=3, **unknown_model),
        refusal(client="search", started_at=before, n=4, address="192.0.2.2", **unknown_model),
        refusal(client="search", started_at=now, status_code=413, reason="body_too_large", address=None),
        refusal(client="search", started_at=now, n=2, model="claude-opus-4-8", **unknown_model),
        refusal(client="search", started_at=before, n=1, model="claude-opus-4-8", **unknown_model),
        refusal(client="voice", started_at=this_minute(hours=2), **unknown_model),
        refusal(started_at=this_minute(days=2), n=9),
    )
    day = await asked(ledger_url, "select * from refusals_24h order by client, reason, n desc")
    named = ("client", "status_code", "reason", "model", "n", "n_addresses")
    assert [tuple(row[name] for name in named) for row in day] == [
        ("search", 413, "body_too_large", None, 1, 0),
        ("search", 404, "model_not_found", None, 7, 2),  # of the version before, too
        ("search", 404, "model_not_found", "claude-opus-4-8", 3, 1),
        ("voice", 404, "model_not_found", None, 1, 1),
    ]
    assert [str(day[1][name])[:16] for name in ("first_seen_at", "last_seen_at")] == [
        str(before)[:16],
        str(now)[:16],
    ]


async def test_who_guesses_keys_is_named_by_address(ledger_url: str, tmp_path: Path) -> None:
    now, before = this_minute(), this_minute(minutes=3)
    await store(
        ledger_url,
        tmp_path,
        refusal(address="192.0.2.6", started_at=before, n=40),
        refusal(address="192.0.2.6", started_at=before, n=30, replica="r2"),
        refusal(address="192.0.2.6", started_at=now, n=50),
        refusal(address="192.0.2.7", started_at=now, n=1),
        refusal(address="192.0.2.6", started_at=now, n=99, reason="no_api_key"),
        refusal(address="192.0.2.6", started_at=now, n=99, reason="not_found", status_code=404),
    )
    rows = await asked(ledger_url, "select * from wrong_keys_24h order by n desc")
    assert [(row["address"], row["n"], row["n_minutes"], row["peak_per_minute"]) for row in rows] == [
        ("192.0.2.6", 120, 2, 70),
        ("192.0.2.7", 1, 1, 1),
    ]
    assert str(rows[0]["first_seen_at"])[:16] == str(before)[:16]


async def test_what_a_flood_has_left_goes_a_little_at_a_time(ledger_url: str, tmp_path: Path) -> None:
    at = NOON - timedelta(days=40)
    await store(ledger_url, tmp_path, refusal(started_at=NOON), *(refusal(started_at=at) for _ in range(4100)))
    engine = create_engine(ledger_url)
    steps: list[tuple[str, int]] = []
    await prune(engine, Retention(refusals_days=30), NOON, lambda table, number: steps.append((table, number)))
    async with engine.connect() as connection:
        assert await connection.scalar(text("select count(*) from refusals")) == 1
    await engine.dispose()
    assert steps == [("refusals", 2000), ("refusals", 2000), ("refusals", 100)]
