"""An upgrade under load, from the schema of the version before: no call fails, and every row gets there.

Replicas are upgraded to a next version that is made up. The version before it is here as what it does to the database:
it ships the columns that it knows.
"""

import asyncio
import io
import re
import shutil
import signal
import subprocess
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from gateway.ledger import (
    ATTEMPT_COLUMNS,
    CALL_COLUMNS,
    Finished,
    SchemaTooNewError,
    attempt_rows,
    call_rows,
    check_schema,
    create_engine,
    current_revision,
    fold_all,
    head_revision,
    migrate,
    migrations_folder,
)
from providers.simulator import Gate, ScriptedProvider, answer
from tests.app.gateway.balancer import Balancer
from tests.app.gateway.process import CHECKOUT, GatewayProcess, launched, started
from tests.app.gateway.running_gateway import chat_body, configuration
from tests.patience import PATIENCE_S
from tests.services.next_version import REVISION, WRITTEN, NextVersion, migrated_by
from tests.unit.ledger.records import raced_call

CALLERS = 4
LAME_DUCK_S = 5.0
LONG_S = 4 * PATIENCE_S  # an upgrade has many steps, with lame ducks and drains in them
SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 has it
COLUMNS = {"calls": CALL_COLUMNS, "attempts": ATTEMPT_COLUMNS}


class VersionBefore:
    """Ships a call after the other, as a replica of the version before does; ``shipped`` has their ids."""

    def __init__(self, url: str, pace: asyncio.Event) -> None:
        self.shipped: list[str] = []
        self._url = url
        self._pace = pace

    async def ship_for_ever(self) -> None:
        connection = await asyncpg.connect(self._url, statement_cache_size=0)
        try:
            while True:
                call = raced_call(started_at=datetime.now(UTC))
                await self._ship(connection, call)
                self.shipped.append(str(call.id))
                await self._pace.wait()
        finally:
            connection.terminate()

    async def _ship(self, connection: Any, call: Any) -> None:
        rows = {"calls": call_rows([Finished(call)]), "attempts": attempt_rows([Finished(call)])}
        while True:
            try:
                async with connection.transaction():
                    for table in rows:
                        await connection.execute(
                            f"create temporary table incoming_{table} (like {table} including defaults) on commit drop"
                        )
                    for table, made in rows.items():
                        await connection.copy_records_to_table(
                            f"incoming_{table}", records=made, columns=COLUMNS[table]
                        )
                    for table in rows:
                        names = ", ".join(COLUMNS[table])
                        await connection.execute(
                            f"insert into {table} ({names}) select {names} from incoming_{table} on conflict do nothing"
                        )
            except asyncpg.PostgresError:
                await self._pace.wait()  # as a replica does: its rows wait, and are sent again
            else:
                return


@asynccontextmanager
async def loaded(folder: Path, url: str, following: NextVersion) -> AsyncIterator[tuple[Balancer, VersionBefore]]:
    """Two replicas that started on their schema and then find that of the version before, and their clients."""
    async with ScriptedProvider([]) as provider:
        config = configuration(folder, {"alpha": provider.base_url}, database_url=url, lame_duck_s=LAME_DUCK_S)
        config["models"]["llama"]["race"] = {"mode": "single"}
        balancer = Balancer(config, folder)
        before = VersionBefore(url, balancer.pace)
        provider.script = [Gate(balancer.pace), *answer("Hello")]
        tasks: list[asyncio.Task[None]] = []
        try:
            await following.migrate(url)
            for name in ("one", "two"):
                await balancer.start(name, following.folder)
            await following.downgrade(url)
            tasks.append(asyncio.create_task(balancer.probe()))
            await balancer.ready("one", "two")
            tasks += [asyncio.create_task(balancer.call_for_ever(number)) for number in range(CALLERS)]
            tasks.append(asyncio.create_task(before.ship_for_ever()))
            yield balancer, before
        finally:
            await cancelled(tasks)
            await balancer.close()


async def cancelled(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks that never end by themselves."""
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended


async def fetched(url: str, query: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(query)]
    finally:
        await connection.close()


async def added_up(url: str) -> int:
    """Return how many calls are in the sums, once all are."""
    engine = create_engine(url)
    try:
        await fold_all(engine)
    finally:
        await engine.dispose()
    (calls,) = await fetched(url, "select sum(n) from rollup_calls where minutes = 1440")
    return int(calls)


async def revision(url: str) -> str | None:
    engine = create_engine(url)
    try:
        return await current_revision(engine)
    finally:
        await engine.dispose()


async def test_no_call_fails_and_no_row_is_lost_while_the_schema_and_then_the_replicas_are_upgraded(
    tmp_path: Path, postgres_url: str, next_version: NextVersion
) -> None:
    async with asyncio.timeout(LONG_S):
        async with loaded(tmp_path, postgres_url, next_version) as (balancer, before):
            await balancer.more(2 * CALLERS)
            assert await revision(postgres_url) == head_revision()
            assert await fetched(postgres_url, "select id::text from calls where replica <> 'r1'") == []  # they wait
            answered, shipped = len(balancer.answered), len(before.shipped)
            assert shipped
            await next_version.migrate(postgres_url)
            assert len(balancer.answered) > answered
            await balancer.more(2 * CALLERS)
            assert len(before.shipped) > shipped
            for name in ("one", "two"):
                await balancer.restart(name, next_version.folder)
                await balancer.ready(name)
            await balancer.more(2 * CALLERS)
        assert balancer.failed == []
        assert await revision(postgres_url) == REVISION
        assert await fetched(postgres_url, "select distinct made_up from calls where replica <> 'r1'") == [WRITTEN]
        stored = await fetched(postgres_url, "select id::text from calls")
        attempts = await fetched(postgres_url, "select call_id::text from attempts where outcome = 'won'")
    assert {*balancer.answered, *before.shipped} <= set(stored)
    assert set(attempts) >= {*balancer.answered, *before.shipped}
    assert len(stored) == len(set(stored))
    assert await added_up(postgres_url) == len(stored)


async def newer(url: str, oldest: str) -> None:
    """Make the schema one of a later version, which only versions from ``oldest`` on may use."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("update holeshot_version set version_num = '9999'")
        await connection.execute("update ledger_readers set oldest = $1", oldest)
    finally:
        await connection.close()


async def test_a_replica_starts_again_and_ships_after_the_migration_of_a_later_version(
    tmp_path: Path, postgres_url: str
) -> None:
    async with ScriptedProvider() as provider, aiohttp.ClientSession() as http:
        config = configuration(tmp_path, {"alpha": provider.base_url}, database_url=postgres_url)
        await newer(postgres_url, oldest=head_revision())
        async with started(config, tmp_path) as replica:
            async with http.post(f"{replica.url}/v1/chat/completions", json=chat_body()) as response:
                assert response.status == 200
            replica.send(signal.SIGTERM)
            assert await replica.ended() == 0
    assert await fetched(postgres_url, "select id::text from calls") == [response.headers["x-holeshot-call-id"]]


async def test_a_replica_that_a_later_schema_does_not_take_says_in_which_order_to_go_on(
    tmp_path: Path, postgres_url: str
) -> None:
    await newer(postgres_url, oldest="9999")
    config = configuration(tmp_path, {"alpha": "http://127.0.0.1:9"}, database_url=postgres_url)
    refused = GatewayProcess(await launched(config, tmp_path))
    assert await refused.ended() == 1
    said = refused.stderr.decode()
    assert f"the ledger's schema is 9999, newer than this version's {head_revision()}" in said
    assert "start the version of Holeshot that migrated it" in said
    file = tmp_path / "gateway.yaml"  # with which it was started
    assert f"or go back with that version: holeshot migrate -c {file} --down-to {head_revision()}" in said


@pytest.mark.parametrize("only_adds", [True, False])
async def test_a_migration_says_whether_the_version_before_may_use_its_schema(
    tmp_path: Path, postgres_url: str, next_version: NextVersion, only_adds: bool
) -> None:
    oldest = "select oldest from ledger_readers"
    before = await fetched(postgres_url, oldest)
    made_here = nullcontext(next_version) if only_adds else closing(NextVersion(tmp_path / "next", only_adds=False))
    with made_here as following:
        await following.migrate(postgres_url)
        engine = create_engine(postgres_url)
        try:
            assert await current_revision(engine) == REVISION
            with nullcontext() if only_adds else pytest.raises(SchemaTooNewError):
                await check_schema(engine)
        finally:
            await engine.dispose()
        await following.downgrade(postgres_url)
    assert await fetched(postgres_url, oldest) == before


def git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=CHECKOUT, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else b""


@pytest.fixture(scope="module")
def version_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_before(tmp_path_factory.mktemp("old"))


def unpacked_before(folder: Path) -> Path:
    """Return ``folder`` with the files of the last commit before the newest migration."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    newest = migrations_folder() / "versions" / f"{head_revision()}_*.py"  # whatever it was called when it came
    commits = git("log", "--format=%H", "--diff-filter=A", "--", str(newest)).split()
    packed = git("archive", "--format=tar", f"{commits[-1].decode()}^") if commits else b""
    if not packed:
        pytest.skip("this is not a checkout with its history")
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(folder, **SAFELY)
    assert not list((folder / "migrations" / "versions").glob(f"{head_revision()}_*.py"))
    return folder


MADE = """
select 'view', viewname::text, definition from pg_views where schemaname = 'public'
union all select 'function', proname::text, prosrc from pg_proc where pronamespace = 'public'::regnamespace
union all select 'index', indexname::text, indexdef from pg_indexes where schemaname = 'public'
union all select 'column', table_name || '.' || column_name, concat_ws(' ', data_type, is_nullable, column_default)
from information_schema.columns where table_schema = 'public'
"""
NAMES_IN_A_LIST = re.compile(r"\('[^()]*'\)")


async def made(url: str) -> set[tuple[str, ...]]:
    """Return what a schema has, but for where the version before reads its revision; names in a list are sorted."""

    def in_order(found: re.Match[str]) -> str:
        return ", ".join(sorted(found[0].strip("()").split(", ")))

    connection = await asyncpg.connect(url)
    try:
        return {
            (kind, name, NAMES_IN_A_LIST.sub(in_order, sql))
            for kind, name, sql in await connection.fetch(MADE)
            if not name.startswith("alembic_version")
        }
    finally:
        await connection.close()


async def test_a_ledger_of_the_version_before_becomes_what_a_new_one_is(
    version_before: Path, postgres_url: str, empty_postgres_url: str
) -> None:
    await migrated_by(version_before, empty_postgres_url)
    await migrate(empty_postgres_url)
    assert await made(empty_postgres_url) ^ await made(postgres_url) == set()


async def test_the_version_before_serves_restarts_and_stops_on_the_new_schema_without_a_failed_call(
    tmp_path: Path, empty_postgres_url: str, version_before: Path
) -> None:
    url, old = empty_postgres_url, version_before
    tasks: list[asyncio.Task[None]] = []
    async with asyncio.timeout(LONG_S), ScriptedProvider([]) as provider:
        config = configuration(tmp_path, {"alpha": provider.base_url}, database_url=url, lame_duck_s=LAME_DUCK_S)
        config["models"]["llama"]["race"] = {"mode": "single"}
        balancer = Balancer(config, tmp_path)
        provider.script = [Gate(balancer.pace), *answer("Hello")]
        await migrated_by(old, url)
        assert (await revision(url) or "") < head_revision()
        try:
            for name in ("one", "two"):
                await balancer.start(name, old)
            tasks.append(asyncio.create_task(balancer.probe()))
            await balancer.ready("one", "two")
            tasks += [asyncio.create_task(balancer.call_for_ever(number)) for number in range(CALLERS)]
            await balancer.more(2 * CALLERS)
            await migrate(url)
            await balancer.more(2 * CALLERS)
            for name, checkout in (("one", old), ("one", CHECKOUT), ("two", CHECKOUT)):
                await balancer.restart(name, checkout)
                await balancer.ready(name)
                await balancer.more(2 * CALLERS)
        finally:
            await cancelled(tasks)
            await balancer.close()
    assert balancer.failed == []
    stored = await fetched(url, "select id::text from calls")
    assert set(balancer.answered) <= set(stored)
    assert await added_up(url) == len(stored)
