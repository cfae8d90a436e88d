"""Postgres: rows are added up by one process at a time, each once, in whatever order they come and transactions end."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import msgspec
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.core.attempts import Outcome
from gateway.core.calls import LimitUse
from gateway.core.errors import InvalidRequest
from gateway.core.records import PROBES
from gateway.http import read_model
from gateway.ledger import (
    DatabaseUnreachableError,
    Finished,
    Ledger,
    Retention,
    create_engine,
    downgrade,
    fold_all,
    migrate,
    prune,
    queries,
)
from gateway.ledger.entries import Audited, Entry
from gateway.ledger.folding import FoldResult, fold
from gateway.ledger.inserts import insert
from gateway.ledger.retention import KEEP_ALL
from gateway.ledger.store import SqlStore
from gateway.limits.windows import day, month
from providers.simulator import ScriptedProvider, answer
from tests.app.gateway.process import started
from tests.app.gateway.running_gateway import chat_body, configuration
from tests.patience import PATIENCE_S, eventually
from tests.services.gateway.test_upgrade import fetched, unpacked_before
from tests.services.ledger.asking import asked
from tests.services.ledger.test_rollups import entries, same
from tests.services.next_version import NextVersion
from tests.unit.ledger.records import attempt, call, failed, lost, new_id, raced_call, won

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
SUMS = {
    "rollup_calls": "minutes, window_start, client, model",
    "rollup_attempts": "minutes, window_start, series_id",
    "rollup_errors": "minutes, window_start, series_id, error_kind, status_code",
    "rollup_histograms": "minutes, window_start, series_id, metric, bucket",
    "rollup_tags": "minutes, window_start, tag, value",
    "used_totals": "client, team, end_user, model",
}

MADE_BY_HAND = (
    "client, model, endpoint, streamed, mode, objective, prompt_class, replica, win_on, status_code, total_ms, "
    "overhead_ms, launched, tags"
)


def of_clients(rows: Iterable[LimitUse]) -> list[LimitUse]:
    return [each for each in rows if each.model is None]


@pytest.fixture
async def engine(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(postgres_url, pool_size=10)
    yield engine
    await engine.dispose()


@asynccontextmanager
async def connection(url: str) -> AsyncIterator[Any]:
    connected = await asyncpg.connect(url)
    try:
        yield connected
    finally:
        connected.terminate()


async def counted(url: str) -> int:
    """Return how many calls are in the sums."""
    return int((await queries.run(url, "select coalesce(sum(n), 0) from rollup_calls where minutes = 1440")).rows[0][0])


async def sums(url: str) -> dict[str, list[dict[str, Any]]]:
    """Return all sums; series by their names, as their numbers depend on the order in which they came."""
    named = "(select (s.model, s.deployment, s.client, s.api, s.size_class)::text from rollup_series as s where s.id = "
    found = {}
    for table, key in SUMS.items():
        series = f", {named} r.series_id) as series_id" if "series_id" in key else ""
        found[table] = await asked(url, f"select *{series} from {table} as r")
        names = key.split(", ")
        found[table].sort(key=lambda row: [str(row[name]) for name in names])
    return found


def audited_later() -> tuple[Entry, Entry]:
    """Return a call that its second attempt won, and the first one, which ended after it."""
    call_id, at = new_id(), datetime.now(UTC) - timedelta(minutes=3)
    facts: dict[str, Any] = {"model": "llama", "client": "anna", "started_at": at}
    winner = won(call_id, 2, **facts, cost_usd=1.0)
    late = attempt(
        call_id, outcome=Outcome.SUPERSEDED, ttft_ms=900.0, token_ms=900.0, audited=True, is_overtaken=True,
        overtaken_at_ms=200.0, predicted_ms=700.0, cost_usd=0.5, **facts,
    )  # fmt: skip
    record = call(
        winner, launched=2, ttft_ms=200.0, alone_age_ms=200.0, alone_predicted_ms=700.0, cost_usd=1.0, **facts
    )
    return Finished(record), Audited(call_id, (late,))


async def test_an_insert_notes_its_rows_and_a_fold_adds_them_up(postgres_url: str, engine: AsyncEngine) -> None:
    await insert(engine, [Finished(raced_call()) for _ in range(3)])
    (waiting,) = await asked(postgres_url, "select * from rollup_pending")
    assert (waiting["calls"], waiting["attempts"]) == (3, 6)
    assert waiting["trails_s"] >= 0
    assert await counted(postgres_url) == 0
    folded = await fold(engine, 0, 0.0)
    assert folded.taken == 9
    assert await counted(postgres_url) == 3
    (waiting,) = await asked(postgres_url, "select * from rollup_pending")
    assert waiting == {"calls": 0, "attempts": 0, "trails_s": 0}
    assert await fold(engine, folded.until, 0.0) == FoldResult(0, folded.until)


async def test_rows_that_came_just_now_wait_for_more(postgres_url: str, engine: AsyncEngine) -> None:
    await insert(engine, [Finished(raced_call())])
    assert (await fold(engine, 0, PATIENCE_S)).taken == 0
    assert (await fold(engine, 0, 0.0)).taken == 3
    assert await counted(postgres_url) == 1


async def test_rows_made_by_hand_repeated_and_shipped_count_once(postgres_url: str, engine: AsyncEngine) -> None:
    made: list[Entry] = [Finished(raced_call()) for _ in range(5)]
    await insert(engine, made[:3])
    async with connection(postgres_url) as hand:
        await hand.execute("create table kept as select * from calls")
        for _ in range(2):
            await hand.execute("insert into calls select * from kept on conflict do nothing")
        columns = f"started_at, {MADE_BY_HAND}"
        again = f"insert into calls (id, {columns}) select gen_random_uuid(), {columns} from kept limit 1"
        await hand.execute(again)
    await insert(engine, made)
    await fold_all(engine)
    await insert(engine, made)
    await fold_all(engine)
    assert await counted(postgres_url) == 6


async def test_an_attempt_before_its_call_is_in_the_same_sums_as_one_after_it(
    postgres_url: str, engine: AsyncEngine
) -> None:
    finished, late = audited_later()
    await insert(engine, [late])
    await fold_all(engine)
    assert (await asked(postgres_url, "select sum(n) as n from rollup_attempts where minutes = 5"))[0]["n"] == 1
    assert (await queries.run(postgres_url, "select count(*) from rollup_waiting")).rows == [(1,)]
    await insert(engine, [finished])
    await fold_all(engine)
    early = await sums(postgres_url)
    assert (await queries.run(postgres_url, "select count(*) from rollup_waiting")).rows == [(0,)]
    (day,) = await asked(postgres_url, "select * from rollup_calls where minutes = 1440")
    assert (day["n"], day["n_drawn"], day["race_cost_usd"]) == (1, 1, 1.5)
    async with connection(postgres_url) as hand:
        await hand.execute(f"truncate calls, attempts, {', '.join(SUMS)}")
    for each in (finished, late):
        await insert(engine, [each])
        await fold_all(engine)
    assert await sums(postgres_url) == early


async def test_an_attempt_and_its_call_in_one_fold_are_counted_whichever_was_first(
    postgres_url: str, engine: AsyncEngine
) -> None:
    finished, late = audited_later()
    await insert(engine, [late])
    await insert(engine, [finished])
    async with connection(postgres_url) as hand:
        while await hand.fetchval("select taken from roll_up_fresh(1)"):  # the call's row is there, and not added up
            pass
    (day,) = await asked(postgres_url, "select * from rollup_calls where minutes = 1440")
    assert (day["n"], day["n_drawn"], day["race_cost_usd"]) == (1, 1, 1.5)
    audits = "select sum(n) as n from rollup_histograms where metric = 'audit_alone' and minutes = 1440"
    assert (await asked(postgres_url, audits))[0]["n"] == 1


async def test_a_probe_has_no_call_and_waits_for_none(postgres_url: str, engine: AsyncEngine) -> None:
    await insert(engine, [Audited(new_id(), (won(new_id(), 0, api="probe"),))])
    await fold_all(engine)
    assert (await queries.run(postgres_url, "select count(*) from rollup_waiting")).rows == [(0,)]
    assert (await asked(postgres_url, "select sum(n) as n from rollup_attempts where minutes = 1440"))[0]["n"] == 1


async def test_while_one_process_folds_others_do_not_and_its_death_undoes_all(
    postgres_url: str, engine: AsyncEngine
) -> None:
    await insert(engine, entries(40))
    async with connection(postgres_url) as first:
        pid = first.get_server_pid()
        await first.execute("begin")
        taken = await first.fetchval("select taken from roll_up_fresh()")
        assert taken > 40
        assert (await fold(engine, 0, 0.0)).taken is None
        assert await counted(postgres_url) == 0
        async with connection(postgres_url) as killer:
            assert await killer.fetchval("select pg_terminate_backend($1, 60000)", pid)
    assert (await fold(engine, 0, 0.0)).taken == taken
    assert await counted(postgres_url) == 40
    await same(postgres_url, "client_usage", "client_usage", "model", "client")


async def test_rows_of_a_transaction_that_ends_late_are_found_behind_those_of_later_ones(
    postgres_url: str, engine: AsyncEngine
) -> None:
    async with connection(postgres_url) as late:
        await insert(engine, [Finished(raced_call())])
        await late.execute("create temporary table kept as select * from calls")
        await late.execute("begin")
        await late.execute("update kept set id = gen_random_uuid()")
        await late.execute("insert into calls select * from kept")
        since = 0
        for _ in range(3):
            await insert(engine, [Finished(raced_call())])
            folded = await fold(engine, since, 0.0)
            assert folded.taken
            since = folded.until
        assert await counted(postgres_url) == 4
        await late.execute("commit")
    assert (await fold(engine, since, 0.0)).taken == 1
    assert await counted(postgres_url) == 5


async def test_a_place_from_another_cluster_is_not_believed(postgres_url: str, engine: AsyncEngine) -> None:
    await insert(engine, [Finished(raced_call())])
    async with connection(postgres_url) as other:  # as a restored copy has: this cluster is not so far yet
        await other.execute("update rollup_fresh set xid = 2 ^ 60")
    assert (await fold(engine, 2**59, 0.0)).taken == 3


async def test_from_a_place_of_another_cluster_what_is_new_in_this_one_is_found(engine: AsyncEngine) -> None:
    await insert(engine, [Finished(raced_call())])
    folded = await fold(engine, 2**59, 0.0)
    assert folded.taken == 3
    assert folded.until < 2**59


async def test_several_processes_store_and_fold_at_once_and_all_is_counted(
    postgres_url: str, engine: AsyncEngine
) -> None:
    parts = [entries(60, seed) for seed in range(4)]
    stored = asyncio.Event()

    async def ship(part: list[Entry]) -> None:
        for first in range(0, len(part), 10):
            await insert(engine, part[first : first + 10])

    async def fold_often() -> None:
        since = 0
        while not stored.is_set():
            folded = await fold(engine, since, 0.0)
            since = folded.until
            await asyncio.sleep(0)

    folding = [asyncio.create_task(fold_often()) for _ in range(3)]
    await asyncio.gather(*(ship(part) for part in parts))
    stored.set()
    await asyncio.gather(*folding)
    await fold_all(engine)
    assert await counted(postgres_url) == 240
    await same(postgres_url, "client_usage", "client_usage", "model", "client")
    await same(postgres_url, "provider_errors", "provider_errors", "deployment", "error_kind", "status_code", "n")


async def test_what_is_pruned_before_it_was_added_up_is_in_the_sums(postgres_url: str, engine: AsyncEngine) -> None:
    await prune(engine, KEEP_ALL, TODAY - timedelta(days=100))  # so there are partitions since then
    for days in (90, 60, 0):
        at = TODAY - timedelta(days=days)
        await insert(engine, [Finished(call(won(new_id(), started_at=at), started_at=at))])
    deleted = await prune(engine, Retention(calls_days=30, attempts_days=30), TODAY)
    assert deleted is not None
    assert (deleted["calls"], deleted["attempts"]) == (2, 2)
    assert await counted(postgres_url) == 3


@pytest.mark.parametrize("is_pruned", [True, False])
async def test_on_sqlite_rows_made_by_hand_are_in_the_sums_before_they_are_deleted(
    sqlite_url: str, *, is_pruned: bool
) -> None:
    engine, at = create_engine(sqlite_url), TODAY - timedelta(days=60)
    await insert(engine, [Finished(call(won(new_id(), started_at=at), started_at=at))])
    columns = f"started_at, {MADE_BY_HAND}"
    async with engine.begin() as hand:
        await hand.exec_driver_sql(f"insert into calls (id, {columns}) select 'by hand', {columns} from calls")
    if is_pruned:
        await insert(engine, [Finished(call(won(new_id(), started_at=TODAY), started_at=TODAY))])  # the clock is right
        assert await prune(engine, Retention(calls_days=30), TODAY) == {"calls": 2}
    else:
        await fold_all(engine)
    await engine.dispose()
    assert await counted(sqlite_url) == 2 + is_pruned


NO_OBJECTS = ("5", "null", "true", '"of-an-app"', '["app", "b"]', "[]")


async def test_calls_made_by_hand_with_tags_that_are_no_object_count_without_them(ledger_url: str) -> None:
    engine, at = create_engine(ledger_url), datetime.now(UTC) - timedelta(minutes=3)
    made: list[Entry] = [Finished(call(won(new_id(), started_at=at), started_at=at)) for _ in range(2)]
    await insert(engine, made[:1])
    names, is_sqlite = f"started_at, {MADE_BY_HAND}".removesuffix(", tags"), engine.dialect.name == "sqlite"
    by_hand = (*NO_OBJECTS, "no JSON") if is_sqlite else NO_OBJECTS
    async with engine.begin() as hand:
        for tags in by_hand:
            await hand.exec_driver_sql(
                f"insert into calls (id, {names}, tags) select '{new_id()}', {names}, '{tags}' from calls limit 1"
            )
    await insert(engine, made[1:])
    await fold_all(engine)
    await engine.dispose()
    assert await counted(ledger_url) == 2 + len(by_hand)
    for view in ("rollup_tags", "tag_values", "tag_values_30d"):
        assert [(row["tag"], row["value"], row["n"]) for row in await asked(ledger_url, f"select * from {view}")] == [
            ("variant", "b", 2)
        ], view


async def test_attempts_made_by_hand_with_gaps_that_are_no_object_count_without_them(ledger_url: str) -> None:
    engine = create_engine(ledger_url)
    made: list[Entry] = [Finished(call(won(new_id(), itl={"8": 3}))) for _ in range(2)]
    await insert(engine, made[:1])
    names = "call_id, number, started_at, role, audited, provider, deployment, launch_offset_ms, outcome"
    names += ", cost_is_lower_bound"
    async with engine.begin() as hand:
        for itl in NO_OBJECTS:
            await hand.exec_driver_sql(
                f"insert into attempts (id, {names}, itl) select '{new_id()}', {names}, '{itl}' from attempts limit 1"
            )
    await insert(engine, made[1:])
    await fold_all(engine)
    await engine.dispose()
    (row,) = await asked(ledger_url, "select sum(n) as n from rollup_attempts where minutes = 1440")
    assert row["n"] == 2 + len(NO_OBJECTS)
    (row,) = await asked(
        ledger_url, "select sum(n) as n from rollup_histograms where minutes = 1440 and metric = 'itl'"
    )
    assert row["n"] == 6


def longest_name() -> str:
    """Return the longest name, in bytes, with which a client may name a deployment; it can hardly be compressed."""
    draw = random.Random(1)
    for number in range(512, 0, -1):
        name = "groq/" + "".join(chr(draw.randrange(0x20000, 0x2A6D0)) for _ in range(number))
        try:
            return read_model({"model": msgspec.Raw(msgspec.json.encode(name))})
        except InvalidRequest:
            continue
    raise AssertionError


async def test_the_longest_name_that_a_client_may_send_keeps_no_row_out_of_the_sums(
    postgres_url: str, engine: AsyncEngine
) -> None:
    call_id, name = new_id(), longest_name()
    await insert(engine, [Finished(call(won(call_id, model=name, deployment=name), model=name))])
    await insert(engine, [Finished(raced_call())])
    await fold_all(engine)
    assert await counted(postgres_url) == 2


async def test_a_ledger_adds_up_by_itself_and_before_it_ends(
    postgres_url: str, engine: AsyncEngine, tmp_path: Path
) -> None:
    ledger = Ledger(postgres_url, tmp_path / "spool", "w1")
    await ledger.start()
    ledger.call_finished(raced_call())
    await ledger.emptied()
    await eventually(lambda: counted(postgres_url))
    ledger.call_finished(raced_call())
    await ledger.close()
    assert await counted(postgres_url) == 2


async def test_what_a_killed_gateway_left_is_in_what_clients_have_spent(postgres_url: str, engine: AsyncEngine) -> None:
    at = datetime.now(UTC)
    await insert(engine, [Finished(call(won(new_id(), started_at=at), started_at=at, client="anna", cost_usd=2.0))])
    store = SqlStore(postgres_url)
    (spent,) = of_clients(await store.used([month(at.timestamp()).starts_s], at))
    await store.aclose()
    assert (spent.client, spent.usd) == ("anna", 2.0)


async def test_what_a_dead_worker_left_is_in_what_clients_have_spent(ledger_url: str, tmp_path: Path) -> None:
    """The database was away for a while, and the gateway was replaced before it was back."""
    at = datetime.now(UTC)
    dead = Ledger(ledger_url, tmp_path / "spool", "dead")
    for _ in range(3):
        dead.call_finished(call(won(new_id(), started_at=at), started_at=at, client="anna", cost_usd=2.0))
    dead._spool.close(remove=False)
    await dead._store.aclose()
    heir = Ledger(ledger_url, tmp_path / "spool", "heir")
    await heir.start()
    (spent,) = of_clients(await heir.used([month(at.timestamp()).starts_s]))
    await heir.close()
    assert (spent.client, spent.usd) == ("anna", 6.0)


async def test_what_a_fallback_has_spent_is_its_own_and_probes_are_nobodys(ledger_url: str) -> None:
    engine, store, at = create_engine(ledger_url), SqlStore(ledger_url), datetime.now(UTC)
    facts: dict[str, Any] = {"started_at": at, "client": "anna"}
    call_id = new_id()
    broken = failed(call_id, cost_usd=0.5, model="llama", **facts)
    answered = won(call_id, 2, cost_usd=2.0, model="spare", **facts)
    probe = won(new_id(), 0, api=PROBES, cost_usd=4.0, model="spare", started_at=at)
    made = call(broken, answered, cost_usd=2.5, answered_model="spare", **facts)
    await insert(engine, [Finished(made), Audited(probe.call_id, (probe,))])
    spent = await store.used([day(at.timestamp()).starts_s, -inf], at + timedelta(seconds=1))
    await store.aclose()
    await engine.dispose()
    for since_s in (day(at.timestamp()).starts_s, -inf):
        found = {(each.client, each.model, each.usd) for each in spent if each.since_s == since_s}
        assert found == {(None, "llama", 0.5), (None, "spare", 2.0), ("anna", None, 2.5)}


async def test_what_lost_a_race_is_counted_by_the_model_that_it_ran_for(ledger_url: str) -> None:
    engine, store, at = create_engine(ledger_url), SqlStore(ledger_url), datetime.now(UTC)
    facts: dict[str, Any] = {"started_at": at, "client": "anna"}
    call_id = new_id()
    cut = lost(call_id, cost_usd=0.5, model="spare", **facts)
    answered = won(call_id, 2, cost_usd=2.0, model="spare", **facts)
    made = call(cut, answered, cost_usd=2.5, duplicate_cost_usd=0.5, answered_model="spare", **facts)
    await insert(engine, [Finished(made)])
    spent = await store.spent(at, at)
    await store.aclose()
    await engine.dispose()
    assert sorted((each.client or "", each.model, each.extra_usd, each.lost_usd) for each in spent) == [
        ("", "spare", 0.0, 0.5),
        ("anna", "llama", 0.5, 0.0),
    ]


async def test_what_a_process_has_spent_itself_is_not_of_before_its_start(ledger_url: str) -> None:
    """A database that was away at the start has these rows too, when it is asked at last."""
    engine, store = create_engine(ledger_url), SqlStore(ledger_url)
    began = TODAY + timedelta(hours=12, minutes=2)
    before = {TODAY.replace(day=1) - timedelta(minutes=1): 1.0, TODAY - timedelta(minutes=1): 2.0}
    before |= {TODAY: 4.0, began - timedelta(minutes=3): 8.0, began - timedelta(minutes=1): 16.0}
    own = {began + timedelta(minutes=3): 32.0, began + timedelta(hours=2): 64.0, began + timedelta(hours=19): 128.0}
    for at, usd in (before | own).items():
        await insert(engine, [Finished(call(won(new_id(), started_at=at, cost_usd=usd), started_at=at, cost_usd=usd))])
    for now in (began + timedelta(hours=3), began + timedelta(hours=20)):
        today = now.replace(hour=0, minute=0)
        instants = [-inf, *(since.timestamp() for since in (today.replace(day=1), today))]
        found = {each.since_s: each.usd for each in of_clients(await store.used(instants, began))}
        assert [found.get(since_s, 0.0) for since_s in instants] == [
            sum(usd for at, usd in before.items() if at.timestamp() >= since_s) for since_s in instants
        ]
    await store.aclose()
    await engine.dispose()


async def test_an_upgrade_and_the_way_back_under_load_lose_and_double_nothing(
    postgres_url: str, engine: AsyncEngine, next_version: NextVersion
) -> None:
    """Rows come from before, during and after: each is added up once, by the fold of one version or the other."""
    await insert(engine, entries(100, days=0.5))
    before = await sums(postgres_url)
    ended, moved = asyncio.Event(), asyncio.Event()
    stored = [0]

    async def ship(seed: int) -> None:
        while not ended.is_set():
            part = entries(4, seed * 1000 + stored[0], days=0.5)
            await insert(engine, part)
            stored[0] += 4
            moved.set()

    shipping = [asyncio.create_task(ship(seed)) for seed in range(1, 4)]
    for turn in (next_version.migrate, next_version.downgrade, next_version.migrate):
        at_least = stored[0] + 12
        while stored[0] < at_least:
            await moved.wait()
            moved.clear()
        await turn(postgres_url)
    ended.set()
    await asyncio.gather(*shipping)
    await fold_all(engine)
    assert await counted(postgres_url) == 100 + stored[0]
    await same(postgres_url, "client_usage", "client_usage", "model", "client")
    await same(postgres_url, "provider_errors", "provider_errors", "deployment", "error_kind", "status_code", "n")
    known = {(row["client"], row["model"], row["minutes"], row["window_start"]) for row in before["rollup_calls"]}
    assert known <= {
        (row["client"], row["model"], row["minutes"], row["window_start"])
        for row in (await sums(postgres_url))["rollup_calls"]
    }


async def test_rows_that_are_new_need_no_temporary_table(postgres_url: str, engine: AsyncEngine) -> None:
    """Only a repeated batch does: to make these tables costs as much as to store a dozen calls."""
    async with connection(postgres_url) as hand:
        await hand.execute(
            "create function refuse() returns event_trigger language plpgsql as "
            "$$ begin raise exception 'no tables now'; end $$"
        )
        await hand.execute(
            "create event trigger refuse on ddl_command_start when tag in ('CREATE TABLE') execute function refuse()"
        )
        made: list[Entry] = [Finished(raced_call()) for _ in range(2)]
        await insert(engine, made[:1])
        with pytest.raises(DatabaseUnreachableError, match="no tables now"):
            await insert(engine, made)
        await hand.execute("drop event trigger refuse")
    await insert(engine, made)
    await fold_all(engine)
    assert await counted(postgres_url) == 2


async def test_what_the_version_before_alone_has_stored_is_in_views_and_limits_of_the_new_schema(
    tmp_path: Path, empty_postgres_url: str
) -> None:
    url, old, number = empty_postgres_url, unpacked_before(tmp_path / "old"), 6
    price = {"price_per_mtok": {"input": 1000.0, "output": 1000.0}}
    async with asyncio.timeout(PATIENCE_S), ScriptedProvider(answer("Hello")) as provider:
        config = configuration(tmp_path, {"alpha": provider.base_url}, database_url=url)
        config["models"]["llama"] = {"deployments": [{"deployment": "alpha/m", **price}], "race": {"mode": "single"}}
        await migrate(url)
        await downgrade(url, "0045")  # whose table of versions the version before reads
        await migrate(url)
        async with (
            started(config, tmp_path / "one", cwd=old, PYTHONPATH=str(old)) as replica,
            aiohttp.ClientSession() as http,
        ):
            for _ in range(number):
                async with http.post(f"{replica.url}/v1/chat/completions", json=chat_body(stream=True)) as response:
                    assert response.status == 200
                    await response.read()
            replica.send(signal.SIGTERM)
            assert await replica.ended() == 0
    (cost_usd,) = await fetched(url, "select sum(cost_usd) from calls")
    assert cost_usd > 0
    assert await fetched(url, "select calls + attempts from rollup_pending") == [0]
    for view in ("client_usage", "client_usage_24h", "slo_30d"):
        assert await fetched(url, f"select sum(n) from {view}") == [number], view
    assert await fetched(url, "select sum(cost_usd) from client_usage") == [pytest.approx(cost_usd)]
    assert await fetched(url, "select sum(calls) from race_value") == [number]
    store, now = SqlStore(url), datetime.now(UTC)
    instants = [window(now.timestamp()).starts_s for window in (day, month)]
    spent = of_clients(await store.used(instants, now))
    await store.aclose()
    assert [each.usd for each in spent] == [pytest.approx(cost_usd)] * 2
