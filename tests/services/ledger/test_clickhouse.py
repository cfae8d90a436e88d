"""The second store: what is sent to it when, whatever happens to it, and that SQL never waits for it."""

import asyncio
import os
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog.testing
from aiohttp import web
from pydantic import SecretStr

from gateway.core.attempts import Outcome
from gateway.ledger import (
    ATTEMPT_COLUMNS,
    CALL_COLUMNS,
    ClickHouse,
    ClickHouseSink,
    DatabaseUnreachableError,
    Ledger,
    prepare_clickhouse,
    queries,
)
from gateway.ledger.clickhouse.schema import TABLES, VERSION, columns_of, views_sql
from gateway.ledger.clickhouse.sink import FOLDER
from gateway.ledger.entries import NO_ROWS
from gateway.ledger.spool import SEGMENT_MAX_AGE_S, Spool, SpoolReader
from gateway.settings import ClickHouseSettings
from tests.unit.ledger.records import call, lost, new_id, raced_call, start_of, won

_INTO = re.compile(r"insert into (\w+) \(([^)]+)\)")
_COLUMNS_OF = re.compile(r"from system.columns .* table = '(\w+)'")


class Recording:
    """A server that records inserts, and fails as it is told to; ``url`` has a password."""

    def __init__(self) -> None:
        self.url = ""
        self.rows: dict[str, list[dict[str, Any]]] = {"calls": [], "attempts": []}
        self.statements: list[str] = []
        self.settings: list[dict[str, str]] = []
        self.users: set[str | None] = set()
        self.failures: list[web.Response | None] = []  # for the next inserts; None: the connection breaks
        self.lacks: str | None = None  # a column that its tables do not have
        self.refuses: str | None = None  # a part of a row that no insert may have
        self.stored = asyncio.Event()
        self.gate = asyncio.Event()  # inserts wait for it
        self.gate.set()
        self.asked = asyncio.Event()

    @property
    def ids(self) -> Counter[str]:
        return Counter(row["id"] for row in self.rows["calls"])

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.users.add(request.headers.get("x-clickhouse-key"))
        into = _INTO.match(request.query.get("query", ""))
        if into is None:
            self.statements.append(body.decode())
            table = _COLUMNS_OF.search(body.decode())
            there = [] if table is None else [name for name, _ in columns_of(table[1]) if name != self.lacks]
            return web.Response(text="0\n" if b"max(version)" in body else "\n".join(there))
        self.asked.set()
        self.settings.append(dict(request.query))
        await self.gate.wait()
        if self.failures:
            failure = self.failures.pop(0)
            if failure is not None:
                return failure
            assert request.transport is not None
            request.transport.abort()
        if self.refuses is not None and self.refuses.encode() in body:
            return web.Response(
                status=400, headers={"x-clickhouse-exception-code": "27"}, text="Code: 27. Cannot parse"
            )
        names = into[2].split(", ")
        self.rows[into[1]] += [dict(zip(names, msgspec.json.decode(line), strict=True)) for line in body.splitlines()]
        self.stored.set()
        return web.Response()


@asynccontextmanager
async def recording() -> AsyncIterator[Recording]:
    server = Recording()
    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.router.add_post("/", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://holeshot:pass%40word@{host}:{port}/ledger"
    try:
        yield server
    finally:
        server.gate.set()
        await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[Recording]:
    async with recording() as server:
        yield server


class Worker:
    """A spool with a sink, without the tasks of a ledger."""

    def __init__(self, folder: Path, url: str) -> None:
        self.sink = ClickHouseSink(ClickHouseSettings(url=SecretStr(url)), folder)
        self.spool = Spool(folder / f"worker-{new_id()}", now_s=0.0, completed=self.sink.queue.add)

    def call(self) -> str:
        record = raced_call()
        self.spool.call_started(start_of(record))
        self.spool.call_finished(record)
        return record.id

    def segment(self, calls: int = 3) -> list[str]:
        """Write a segment of its own; return its calls' ids."""
        made = [self.call() for _ in range(calls)]
        assert self.spool.rotate(0.0)
        return made

    def ship_sql(self) -> None:
        """Let SQL have everything: its files are deleted."""
        for path in self.spool.files.release(self.spool.files.number):
            path.unlink()


@pytest.fixture
async def worker(tmp_path: Path, server: Recording) -> AsyncIterator[Worker]:
    worker = Worker(tmp_path, server.url)
    yield worker
    await worker.sink.close()
    worker.spool.close(remove=False)


def waiting(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / FOLDER).glob("*.jsonl"))


async def test_calls_and_attempts_arrive_with_every_column(worker: Worker, server: Recording) -> None:
    worker.segment(1)
    await worker.sink.ship()
    assert tuple(server.rows["calls"][0]) == CALL_COLUMNS
    assert [tuple(row) for row in server.rows["attempts"]] == [ATTEMPT_COLUMNS] * 2
    assert server.rows["calls"][0]["tags"] == '{"variant":"b"}'
    assert {row["outcome"] for row in server.rows["attempts"]} == {"won", "lost"}
    assert {(each["async_insert"], each["wait_for_async_insert"]) for each in server.settings} == {("1", "1")}
    assert server.users == {"pass@word"}


async def test_rows_of_several_megabytes_are_sent_piece_by_piece(server: Recording) -> None:
    client, row = ClickHouse(server.url), msgspec.json.encode(["x" * 1000]) + b"\n"
    try:
        await client.insert("calls", ("id",), row * 4000)  # at once they would hold up the loop, and warn of it
    finally:
        await client.aclose()
    assert len(server.rows["calls"]) == 4000


async def test_what_sql_has_already_deleted_still_arrives(worker: Worker, server: Recording, tmp_path: Path) -> None:
    ids = worker.segment()
    worker.ship_sql()
    await worker.sink.ship()
    assert server.ids == Counter(ids)
    assert waiting(tmp_path) == []


@pytest.mark.parametrize("looks_first", [True, False])
async def test_after_its_folder_was_deleted_new_rows_arrive_again(
    worker: Worker, server: Recording, tmp_path: Path, *, looks_first: bool
) -> None:
    shutil.rmtree(tmp_path / FOLDER)
    if looks_first:
        await worker.sink.ship()
    ids = worker.segment()
    await worker.sink.ship()
    assert server.ids == Counter(ids)


async def test_what_sql_does_not_have_yet_stays_there(worker: Worker, server: Recording) -> None:
    worker.segment()
    await worker.sink.ship()
    kept = SpoolReader(worker.spool.folder).read(100).entries
    assert sum(not isinstance(entry, NO_ROWS) for entry in kept) == 3


async def test_nothing_is_written_twice(worker: Worker, tmp_path: Path) -> None:
    worker.segment()
    (name,) = waiting(tmp_path)
    assert (tmp_path / FOLDER / name).stat().st_nlink == 2


async def test_a_segment_is_complete_after_a_minute_even_while_sql_is_away(worker: Worker, tmp_path: Path) -> None:
    for at in (1.0, 2.0, 3.0):
        worker.call()
        worker.spool.rotate_if_due(at * SEGMENT_MAX_AGE_S)
    assert len(waiting(tmp_path)) == 3


async def test_a_late_attempt_arrives(worker: Worker, server: Recording) -> None:
    call_id = new_id()
    worker.spool.call_finished(call(won(call_id)))
    worker.spool.attempts_ended(call_id, (lost(call_id, audited=True),))
    worker.spool.rotate(0.0)
    await worker.sink.ship()
    assert [row["audited"] for row in server.rows["attempts"]] == [False, True]


async def test_a_call_under_way_is_no_row(worker: Worker, server: Recording) -> None:
    worker.spool.call_started(start_of(raced_call()))
    (finished,) = worker.segment(1)
    await worker.sink.ship()
    assert server.ids == Counter([finished])


@pytest.mark.parametrize("failure", [None, web.Response(status=500, text="Code: 241. Memory limit exceeded")], ids=str)
async def test_a_failed_insert_is_tried_again(
    worker: Worker, server: Recording, tmp_path: Path, failure: web.Response | None
) -> None:
    ids = worker.segment()
    server.failures = [failure]
    with pytest.raises(DatabaseUnreachableError) as refusal:
        await worker.sink.ship()
    assert "word" not in str(refusal.value)
    assert len(waiting(tmp_path)) == 1
    await worker.sink.ship()
    assert server.ids == Counter(ids)
    assert waiting(tmp_path) == []


async def test_calls_are_sent_again_when_only_their_attempts_were_stored(worker: Worker, server: Recording) -> None:
    ids = worker.segment()
    original = worker.sink._server.insert

    async def break_off(table: str, columns: Any, rows: bytes) -> None:
        if table == "calls":
            worker.sink._server.insert = original  # type: ignore[method-assign] # once
            raise DatabaseUnreachableError("in between")
        await original(table, columns, rows)

    worker.sink._server.insert = break_off  # type: ignore[method-assign] # no server can tell in which instant
    with pytest.raises(DatabaseUnreachableError):
        await worker.sink.ship()
    await worker.sink.ship()
    assert server.ids == Counter(ids)
    assert set(Counter(row["id"] for row in server.rows["attempts"]).values()) == {2}  # with one key: FINAL reads one


async def test_only_the_row_that_is_refused_for_good_is_set_aside(
    worker: Worker, server: Recording, tmp_path: Path
) -> None:
    ids = worker.segment(9)
    server.refuses = ids[4]
    with structlog.testing.capture_logs() as events:
        await worker.sink.ship()
    assert server.ids == Counter(ids[:4] + ids[5:])
    assert worker.sink.rejected == 1
    assert [each["event"] for each in events] == ["ledger.clickhouse_prepared", "ledger.clickhouse_set_aside"]
    assert ids[4] in (tmp_path / FOLDER / "rows.bad").read_text()
    assert waiting(tmp_path) == []


async def test_the_oldest_rows_are_dropped_beyond_the_bound_and_the_log_says_how_many(
    tmp_path: Path, server: Recording
) -> None:
    worker = Worker(tmp_path, server.url)
    made = []
    for at in range(5):
        made.append(worker.segment(3))
        os.utime(tmp_path / FOLDER / waiting(tmp_path)[-1], (at, at))
    sizes = [(tmp_path / FOLDER / name).stat().st_size for name in waiting(tmp_path)]
    worker.sink.queue.max_bytes = sum(sizes[2:])
    with structlog.testing.capture_logs() as events:
        worker.sink.queue.files()
    assert [(each["event"], each["lost"]) for each in events] == [("ledger.clickhouse_dropped", 3)]
    assert worker.sink.queue.lost == 6
    assert worker.sink.queue.waiting_bytes == sum(sizes[2:])
    await worker.sink.ship()
    assert server.ids == Counter(id_ for ids in made[2:] for id_ in ids)
    await worker.sink.close()
    worker.spool.close(remove=False)


async def test_a_file_that_is_being_sent_is_neither_dropped_nor_sent_by_another(
    worker: Worker, server: Recording, tmp_path: Path
) -> None:
    ids = worker.segment()
    server.gate.clear()
    sending = asyncio.create_task(worker.sink.ship())
    await server.asked.wait()
    other = Worker(tmp_path, server.url)
    other.sink.queue.max_bytes = 0
    await other.sink.ship()
    assert len(waiting(tmp_path)) == 1
    server.gate.set()
    await sending
    assert server.ids == Counter(ids)
    await other.sink.close()
    other.spool.close(remove=False)


async def test_a_spool_without_hard_links_is_copied(
    worker: Worker, server: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)  # there is no such file system here
    ids = worker.segment()
    worker.ship_sql()
    await worker.sink.ship()
    assert server.ids == Counter(ids)


async def test_an_hour_away_costs_neither_a_row_nor_sql_a_second(
    postgres_url: str, server: Recording, tmp_path: Path
) -> None:
    """The clock is the test's: each round is a minute, in which a segment becomes complete."""
    now_s = [0.0]
    sink = ClickHouseSink(ClickHouseSettings(url=SecretStr("http://127.0.0.1:1")), tmp_path, clock=lambda: now_s[0])
    ledger = Ledger(postgres_url, tmp_path, "w1", clock=lambda: now_s[0], clickhouse=sink)
    ids = []
    for minute in range(60):
        record = raced_call()
        ids.append(record.id)
        ledger.call_finished(record)
        now_s[0] = 61.0 * (minute + 1)
        await ledger._keeper.keep()
        await ledger.flush()
        assert ledger.pending == 0
        with pytest.raises(DatabaseUnreachableError):
            await sink.ship()
    assert len((await queries.run(postgres_url, "select id from calls")).rows) == 60
    assert len(waiting(tmp_path)) == 60
    await sink._server.aclose()
    sink._server = ClickHouse(server.url)
    await ledger.close()
    assert server.ids == Counter(ids)
    assert waiting(tmp_path) == []


async def test_sql_does_not_wait_for_a_slow_clickhouse(postgres_url: str, server: Recording, tmp_path: Path) -> None:
    sink = ClickHouseSink(ClickHouseSettings(url=SecretStr(server.url)), tmp_path)
    ledger = Ledger(postgres_url, tmp_path, "w1", clickhouse=sink)
    server.gate.clear()
    await ledger.start()
    first = raced_call()
    ledger.call_finished(first)
    ledger._spool.rotate(0.0)
    await server.asked.wait()
    second = raced_call()
    ledger.call_finished(second)
    await ledger.emptied()
    assert server.ids == Counter()
    server.gate.set()
    await ledger.close()
    assert server.ids == Counter([first.id, second.id])
    assert await asyncio.to_thread(os.listdir, tmp_path) == [FOLDER]


async def test_clickhouse_does_not_wait_for_sql(server: Recording, tmp_path: Path) -> None:
    sink = ClickHouseSink(ClickHouseSettings(url=SecretStr(server.url)), tmp_path)
    ledger = Ledger("postgresql://nobody:nothing@127.0.0.1:1/none", tmp_path, "w1", clickhouse=sink)
    await ledger.start()
    record = raced_call()
    ledger.call_finished(record)
    ledger._spool.rotate(0.0)
    await server.stored.wait()
    assert ledger.pending == 1
    await ledger.close(timeout_s=0.1)


async def test_a_dead_workers_rows_arrive_once_and_its_open_calls_as_interrupted(
    postgres_url: str, server: Recording, tmp_path: Path
) -> None:
    dead = Worker(tmp_path, server.url)
    sent = dead.segment()
    await dead.sink.ship()
    left, under_way = dead.call(), raced_call()
    dead.spool.call_started(start_of(under_way))
    dead.spool.close(remove=False)
    await dead.sink.close()

    sink = ClickHouseSink(ClickHouseSettings(url=SecretStr(server.url)), tmp_path)
    ledger = Ledger(postgres_url, tmp_path, "w2", clickhouse=sink)
    await ledger.adopt()
    await ledger.close()
    assert server.ids == Counter([*sent, left, under_way.id])
    outcomes = {row["call_id"]: row["outcome"] for row in server.rows["attempts"]}
    assert outcomes[under_way.id] == Outcome.INTERRUPTED
    assert [row["error_kind"] for row in server.rows["calls"] if row["id"] == under_way.id] == ["interrupted"]


async def test_a_dead_workers_segments_are_sent_once_while_sql_is_away(server: Recording, tmp_path: Path) -> None:
    dead = Worker(tmp_path, server.url)
    left = dead.call()
    dead.spool.close(remove=False)
    sink = ClickHouseSink(ClickHouseSettings(url=SecretStr(server.url)), tmp_path)
    ledger = Ledger("postgresql://nobody:nothing@127.0.0.1:1/none", tmp_path, "w2", clickhouse=sink)
    for _ in range(3):
        with pytest.raises(DatabaseUnreachableError):
            await ledger.adopt()
        await sink.ship()
    assert server.ids == Counter([left])
    await ledger.close(timeout_s=0.1)


async def test_an_outage_is_logged_once_without_the_password(tmp_path: Path) -> None:
    sink = ClickHouseSink(ClickHouseSettings(url=SecretStr("http://holeshot:hidden@127.0.0.1:1/x")), tmp_path)
    with structlog.testing.capture_logs() as events:
        for _ in range(3):
            sink._note_away(DatabaseUnreachableError("away"))
        assert sink.away
        sink._note_stored()
    assert [each["event"] for each in events] == ["ledger.clickhouse_unreachable", "ledger.clickhouse_recovered"]
    assert "hidden" not in repr(sink.__dict__ | sink._server.__dict__ | {"events": events, "_headers": None})
    await sink.close()


def test_every_column_of_the_ledger_has_a_type() -> None:
    for name, table in TABLES.items():
        types = dict(columns_of(name))
        assert tuple(types) == table.names
        assert types["id"] == "UUID"
        assert types["started_at"] == "DateTime64(6, 'UTC')"
        assert types["model"] == "LowCardinality(String)"


async def test_a_table_of_an_older_version_gets_the_columns_that_it_lacks(server: Recording) -> None:
    server.lacks = "finish_reason"
    clickhouse = ClickHouse(server.url)
    await prepare_clickhouse(clickhouse, None)
    await clickhouse.aclose()
    added = "alter table {} add column if not exists finish_reason LowCardinality(Nullable(String))"
    assert [each for each in server.statements if each.startswith("alter")] == [added.format(name) for name in TABLES]


def test_a_changed_view_has_a_new_version() -> None:
    """A gateway makes its views only where theirs are older: raise VERSION, and write down what belongs to it."""
    schema = "\n".join(views_sql())
    assert (VERSION, sha256(schema.encode()).hexdigest()[:16]) == (16, "b27f9081e5e218f2")
