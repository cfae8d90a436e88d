"""The ledger, from what it is told to the rows in both databases, through every accident we could think of."""

import asyncio
import resource
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
import structlog
from sqlalchemy.engine import make_url

from gateway.core.attempts import Outcome
from gateway.ledger import DatabaseUnreachableError, Ledger, create_engine, downgrade, migrate, queries
from gateway.ledger.writer import BACKOFF_MAX_S, backoff_s
from tests.support.relay import Relay
from tests.unit.ledger.records import call, lost, new_id, raced_call, start_of, won

PROJECT = Path(__file__).resolve().parents[3]


async def stored(url: str) -> Counter[tuple[str, str | None]]:
    result = await queries.run(url, "select id, error_kind from calls")
    return Counter((str(id_), error_kind) for id_, error_kind in result.rows)


async def count(url: str, table: str) -> int:
    return int((await queries.run(url, f"select count(*) from {table}")).rows[0][0])


async def test_a_finished_call_and_its_attempts_become_rows(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    await ledger.start()
    record = raced_call(client="caf\xe9\x00", tags={"a": "\u2028"})
    ledger.call_started(start_of(record))
    ledger.call_finished(record)
    await ledger.emptied()
    result = await queries.run(
        ledger_url,
        "select calls.client, calls.status_code, calls.ttft_ms, streamed, outcome, censored_at_ms, deployment, number "
        "from calls join attempts on attempts.call_id = calls.id order by number",
    )
    assert result.columns[:3] == ("client", "status_code", "ttft_ms")
    assert result.rows == [
        ("caf\xe9", 200, 200.0, True, "won", None, "groq/llama", 1),
        ("caf\xe9", 200, 200.0, True, "lost", 200.0, "cerebras/llama", 2),
    ]
    assert (ledger.pending, ledger.connected, ledger.last_error) == (0, True, None)
    await ledger.close()
    assert list((tmp_path / "spool").iterdir()) == []


async def test_thoughts_that_were_dropped_are_in_the_row_of_their_attempt(ledger_url: str, tmp_path: Path) -> None:
    """Also of a loser. The way back takes the column and no row."""
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    await ledger.start()
    record = raced_call()
    winner, loser = record.attempts
    told = msgspec.structs.replace(loser, thoughts_dropped={"prefix": 2, "account": 1})
    ledger.call_finished(msgspec.structs.replace(record, attempts=(winner, told)))
    await ledger.emptied()
    await ledger.close()
    query = "select number, key, cast(cast(value as text) as bigint) from attempts, json_each(thoughts_dropped)"
    query += " order by 2"
    assert (await queries.run(ledger_url, query)).rows == [(2, "account", 1), (2, "prefix", 2)]
    await downgrade(ledger_url, "0049")
    await migrate(ledger_url)
    unknown = "select count(*), count(thoughts_dropped) from attempts"
    assert (await queries.run(ledger_url, unknown)).rows == [(2, 0)]


async def test_a_batch_that_met_a_deadlock_is_stored_at_once(postgres_url: str, tmp_path: Path) -> None:
    """Two workers that ship add to the same sums. At the end there is no later try: rows would stay in the spool."""
    other = await asyncpg.connect(postgres_url)
    await other.execute(
        "create sequence tries; create function cross_once() returns trigger language plpgsql as $$ begin"
        " if nextval('tries') <= 2 then raise exception 'deadlock detected' using errcode = '40P01'; end if;"
        " return new; end $$;"
        " create trigger cross_once before insert on attempts for each row execute function cross_once()"
    )
    ledger = Ledger(postgres_url, tmp_path / "spool", "w1")
    ledger.call_finished(raced_call())
    await ledger.close()
    assert await other.fetchval("select count(*) from attempts") == 2
    await other.close()
    assert list((tmp_path / "spool").iterdir()) == []


async def test_a_call_under_way_is_no_row(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    ledger.call_started(start_of(raced_call()))
    await ledger.flush()
    await ledger.adopt()
    assert await count(ledger_url, "calls") == 0
    await ledger.close()


async def test_audited_attempts_are_added_after_their_call(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    call_id = new_id()
    ledger.call_finished(call(won(call_id), launched=2))
    await ledger.flush()
    ledger.attempts_ended(call_id, (lost(call_id, audited=True),))
    await ledger.flush()
    assert (await count(ledger_url, "calls"), await count(ledger_url, "attempts")) == (1, 2)
    await ledger.close()


async def test_rows_shipped_twice_are_stored_once(ledger_url: str, tmp_path: Path) -> None:
    record = raced_call()
    for worker in ("w1", "w2"):
        ledger = Ledger(ledger_url, tmp_path / "spool", worker)
        ledger.call_finished(record)
        await ledger.close()
    assert (await count(ledger_url, "calls"), await count(ledger_url, "attempts")) == (1, 2)


async def test_more_calls_than_a_batch_holds_arrive_in_order_of_segments(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    for number in range(1300):
        ledger.call_finished(raced_call())
        if number % 400 == 399:
            ledger._spool.rotate(now_s=0.0)
    await ledger.flush()
    assert await count(ledger_url, "calls") == 1300
    assert [path.name for path in sorted((tmp_path / "spool" / "w1").glob("*.jsonl"))] == ["00000004.jsonl"]
    await ledger.close()


async def test_a_number_too_large_for_its_column_loses_no_row(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    records = [raced_call(), raced_call(max_tokens=10**30, prompt_tokens=2**70), raced_call()]
    for record in records:
        ledger.call_finished(record)
    await ledger.flush()
    assert await stored(ledger_url) == Counter((record.id, None) for record in records)
    assert ledger.rejected == 0
    await ledger.close()
    largest = await queries.run(ledger_url, "select max(max_tokens), max(prompt_tokens) from calls")
    assert largest.rows == [(2**31 - 1, 2**31 - 1)]


async def test_numbers_too_large_for_their_sum_lose_no_row(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    records = [raced_call(), raced_call()]
    for record in records:
        attempts = tuple(msgspec.structs.replace(each, wasted_high_tokens=2**62) for each in record.attempts)
        ledger.call_finished(msgspec.structs.replace(record, attempts=attempts))
    await ledger.flush()
    assert await stored(ledger_url) == Counter((record.id, None) for record in records)
    assert ledger.rejected == 0
    await ledger.close()
    largest = await queries.run(ledger_url, "select max(wasted_high_tokens) from attempts")
    assert largest.rows == [(2**31 - 1,)]


async def test_what_a_provider_reported_is_kept_whole_beside_a_number_too_large_for_its_column(
    ledger_url: str, tmp_path: Path
) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    call = raced_call()
    attempts = tuple(msgspec.structs.replace(each, reported_tokens=2**53 - 1, chars=2**40) for each in call.attempts)
    ledger.call_finished(msgspec.structs.replace(call, attempts=attempts))
    await ledger.flush()
    assert ledger.rejected == 0
    await ledger.close()
    kept = await queries.run(ledger_url, "select distinct reported_tokens, chars from attempts")
    assert kept.rows == [(2**53 - 1, 2**31 - 1 if ledger_url.startswith("postgres") else 2**40)]


async def test_a_row_the_database_rejects_is_set_aside_and_the_others_arrive(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    good = [raced_call() for _ in range(20)]
    poison = raced_call(model=None)
    for record in (*good[:7], poison, *good[7:]):
        ledger.call_finished(record)
    await ledger.flush()
    assert await stored(ledger_url) == Counter((record.id, None) for record in good)
    assert ledger.rejected == 1
    await ledger.close()
    (line,) = (tmp_path / "spool" / "w1.bad").read_bytes().splitlines()
    assert poison.id.encode() in line


async def test_missing_tables_are_an_outage_not_the_rows_fault(ledger_url: str, tmp_path: Path) -> None:
    await downgrade(ledger_url, "base")
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    ledger.call_finished(raced_call())
    with pytest.raises(DatabaseUnreachableError):
        await ledger.flush()
    assert (ledger.connected, ledger.rejected, ledger.pending) == (False, 0, 1)
    await migrate(ledger_url)
    await ledger.flush()
    assert await count(ledger_url, "calls") == 1
    await ledger.close()


@pytest.mark.parametrize("way", ["deleted", "replaced"])
async def test_rows_do_not_go_into_a_file_that_was_deleted(sqlite_url: str, tmp_path: Path, way: str) -> None:
    ledger = Ledger(sqlite_url, tmp_path / "spool", "w1")
    before, after = raced_call(), raced_call()
    ledger.call_finished(before)
    await ledger.flush()
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"ledger.db{suffix}").unlink(missing_ok=True)
    if way == "replaced":
        await migrate(sqlite_url)
    ledger.call_finished(after)
    with pytest.raises(DatabaseUnreachableError, match="deleted or replaced"):
        await ledger.flush()
    assert (ledger.connected, ledger.pending) == (False, 1)
    if way == "deleted":
        with pytest.raises(DatabaseUnreachableError, match="no such table"):
            await ledger.flush()
        await migrate(sqlite_url)
    await ledger.flush()
    assert await stored(sqlite_url) == Counter([(after.id, None)])
    assert ledger.pending == 0
    await ledger.close()


async def test_a_running_replica_survives_a_newer_schema(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    ledger.call_finished(raced_call())
    await ledger.flush()
    engine = create_engine(ledger_url)
    async with engine.begin() as connection:
        for table in ("calls", "attempts"):
            await connection.exec_driver_sql(f"alter table {table} add column novel text not null default 'later'")
    await engine.dispose()
    ledger.call_finished(raced_call())
    await ledger.flush()
    assert ledger.rejected == 0
    assert await count(ledger_url, "calls where novel = 'later'") == 2
    assert await count(ledger_url, "attempts where novel = 'later'") == 4
    await ledger.close()


@pytest.mark.parametrize("rotated", ["never", "before", "between", "after"])
async def test_losers_still_watched_when_their_gateway_died_are_interrupted(
    ledger_url: str, tmp_path: Path, rotated: str
) -> None:
    dead = Ledger(ledger_url, tmp_path / "spool", "dead")
    call_id = new_id()
    winner, told, untold = won(call_id), lost(call_id, 2, audited=True), lost(call_id, 3, audited=True)
    dead.call_started(start_of(call(winner, told, untold)))
    events: dict[str, Any] = {
        "before": lambda: dead.call_finished(call(winner, launched=3)),
        "between": lambda: dead.attempts_ended(call_id, (told,)),
        "after": lambda: None,
    }
    for when, happens in events.items():
        if when == rotated:
            dead._spool.rotate(now_s=0.0)
            await dead.flush()
            await dead.flush()  # the segment before is in SQL, so it is deleted
        happens()
    assert len(list((tmp_path / "spool" / "dead").glob("*.jsonl"))) == 1
    dead._spool.close(remove=False)
    await dead._store.aclose()
    heir = Ledger(ledger_url, tmp_path / "spool", "heir")
    await heir.adopt()
    assert await stored(ledger_url) == Counter([(call_id, None)])
    result = await queries.run(ledger_url, "select id, outcome, audited from attempts order by number")
    assert [(str(id_), outcome, bool(audited)) for id_, outcome, audited in result.rows] == [
        (winner.id, Outcome.WON, False),
        (told.id, Outcome.LOST, True),
        (untold.id, Outcome.INTERRUPTED, True),
    ]
    await heir.close()


@pytest.mark.parametrize("reach", ["reachable", "unreachable"])
async def test_rows_survive_kill_9_each_once_and_open_calls_are_interrupted(
    ledger_url: str, tmp_path: Path, unused_tcp_port: int, reach: str
) -> None:
    spool_dir = tmp_path / reach
    away = f"postgresql://nobody@127.0.0.1:{unused_tcp_port}/none"
    doomed = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.services.ledger.doomed", ledger_url if reach == "reachable" else away, str(spool_dir)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=PROJECT,
    )
    assert doomed.stdout is not None
    said = b""
    while not said.startswith(b'{"ended"'):  # it logs there too
        said = await doomed.stdout.readline()
        assert said, "it ended by itself"
    told = msgspec.json.decode(said)
    heir = Ledger(ledger_url, spool_dir, "heir")
    await heir.adopt()
    assert (spool_dir / "doomed").is_dir()  # its owner lives
    doomed.kill()
    await doomed.communicate()
    with (spool_dir / "doomed" / "00000002.jsonl").open("ab") as segment:
        segment.write(b'{"type":"finished","call":{"id":"')  # killed while writing
    await heir.adopt()
    expected = Counter((id_, None) for id_ in told["ended"]) + Counter((id_, "interrupted") for id_ in told["open"])
    assert await stored(ledger_url) == expected
    assert await count(ledger_url, "attempts where outcome = 'interrupted'") == 2 * len(told["open"])
    await heir.close()
    assert list(spool_dir.iterdir()) == []


async def test_a_shipped_segment_that_cannot_be_deleted_stops_nothing(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    ledger.call_finished(raced_call())
    ledger._spool.rotate(now_s=0.0)
    ledger.call_finished(raced_call())
    shutil.rmtree(tmp_path / "spool" / "w1")
    (tmp_path / "spool" / "w1").write_text("not a folder")
    await ledger.flush()
    assert (await count(ledger_url, "calls"), ledger.pending) == (2, 0)
    await ledger.close()


@pytest.mark.parametrize("unreadable", ["lock", "00000001.jsonl"])
async def test_a_dead_workers_spool_that_cannot_be_read_keeps_no_other_from_its_heir(
    ledger_url: str, tmp_path: Path, unreadable: str
) -> None:
    records = {name: raced_call() for name in ("first", "second")}
    for name, record in records.items():
        dead = Ledger(ledger_url, tmp_path / "spool", name)
        dead.call_finished(record)
        dead._spool.close(remove=False)
        await dead._store.aclose()
    path = tmp_path / "spool" / "first" / unreadable
    path.rename(path.with_suffix(".whole"))
    path.symlink_to(path.name)  # of itself: root may open everything else
    heir = Ledger(ledger_url, tmp_path / "spool", "heir")
    with structlog.testing.capture_logs() as logs:
        await heir.adopt()
    assert await stored(ledger_url) == Counter([(records["second"].id, None)])
    assert [log["spool"] for log in logs if log["event"] == "ledger.spool_skipped"] == [str(path.parent)]
    path.with_suffix(".whole").rename(path)
    await heir.adopt()
    assert await stored(ledger_url) == Counter((each.id, None) for each in records.values())
    await heir.close()


async def test_two_heirs_adopt_a_spool_once(ledger_url: str, tmp_path: Path) -> None:
    dead = Ledger(ledger_url, tmp_path / "spool", "dead")
    record = raced_call()
    dead.call_started(start_of(record))
    dead._spool.close(remove=False)
    await dead._store.aclose()
    heirs = [Ledger(ledger_url, tmp_path / "spool", name) for name in ("a", "b")]
    await asyncio.gather(*(heir.adopt() for heir in heirs))
    assert await stored(ledger_url) == Counter([(record.id, "interrupted")])
    for heir in heirs:
        await heir.close()


async def test_rows_of_a_database_outage_arrive_later_each_once(postgres_url: str, tmp_path: Path) -> None:
    server = make_url(postgres_url)
    assert server.port is not None
    relay = Relay(str(server.host), server.port)
    await relay.listen()
    ledger = Ledger(
        server.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False), tmp_path / "spool", "w1"
    )
    records = [raced_call() for _ in range(30)]
    for record in records[:10]:
        ledger.call_finished(record)
    await ledger.flush()
    await relay.cut()
    for record in records[10:]:
        ledger.call_finished(record)
    with pytest.raises(DatabaseUnreachableError):
        await ledger.flush()
    assert not ledger.connected
    assert ledger.last_error
    assert ledger.pending == 20
    await relay.listen()
    await ledger.flush()
    assert await stored(postgres_url) == Counter((record.id, None) for record in records)
    assert ledger.pending == 0
    await ledger.close()
    await relay.cut()


async def test_rows_that_memory_had_no_room_for_are_read_from_the_spool(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.ledger.spool.LATEST_MAX_ENTRIES", 20)
    monkeypatch.setattr("gateway.ledger.shipper.BATCH_MAX_ENTRIES", 15)
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    records = [raced_call() for _ in range(200)]
    for number, record in enumerate(records):
        ledger.call_started(start_of(record))
        ledger.call_finished(record)
        if number in {10, 40, 60, 150}:  # once all from memory, then the oldest from disk
            await ledger.flush()
            assert ledger.pending == 0
        if number in {30, 130}:
            ledger._spool.rotate(now_s=0.0)
    await ledger.flush()
    assert await stored(ledger_url) == Counter((record.id, None) for record in records)
    assert [path.name for path in (tmp_path / "spool" / "w1").glob("*.jsonl")] == ["00000003.jsonl"]
    await ledger.close()
    assert list((tmp_path / "spool").iterdir()) == []


async def test_a_gateway_closed_during_an_outage_leaves_its_rows_to_the_next(
    ledger_url: str, tmp_path: Path, unused_tcp_port: int
) -> None:
    ledger = Ledger(f"postgresql://nobody@127.0.0.1:{unused_tcp_port}/none", tmp_path / "spool", "w1")
    await ledger.start()
    record = raced_call()
    ledger.call_finished(record)
    await ledger.close()
    heir = Ledger(ledger_url, tmp_path / "spool", "w2")
    await heir.adopt()
    assert await stored(ledger_url) == Counter([(record.id, None)])
    await heir.close()


async def test_what_a_full_disk_did_not_take_is_shipped_from_memory(postgres_url: str, tmp_path: Path) -> None:
    ledger = Ledger(postgres_url, tmp_path / "spool", "w1")
    record = raced_call()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        ledger.call_finished(record)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (ledger.unspooled, ledger.lost, ledger.pending) == (1, 0, 1)
    await ledger.flush()
    assert await stored(postgres_url) == Counter([(record.id, None)])
    await ledger.close()


def test_the_pause_after_failures_doubles_up_to_its_cap() -> None:
    assert [backoff_s(failures) for failures in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert backoff_s(10_000) == BACKOFF_MAX_S
