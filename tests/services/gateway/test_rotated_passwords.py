"""Passwords of the stores that change while the gateway runs: its new connections take up what the file says now."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from gateway.core.addresses import Address, without_login
from gateway.ledger import create_engine, migrate
from gateway.server.reload import taken_over
from gateway.settings import Settings, signing_secret
from gateway.topology import Nodes, connect
from providers.simulator import Delta, Gate, RoleOnly, ScriptedProvider, answer
from tests.app.gateway.process import GatewayProcess, started
from tests.app.gateway.running_gateway import MODEL, chat_body, configuration
from tests.patience import eventually
from tests.support import servers


@pytest.fixture(scope="module")
def locked_postgres() -> Iterator[str]:
    """A server that asks everybody but its superuser for a password."""
    with servers.postgres() as url:
        asyncio.run(_lock(url))
        asyncio.run(migrate(url))
        yield url


async def _lock(url: str) -> None:
    server = await asyncpg.connect(url)
    rules = "host all postgres all trust\nlocal all all trust\nhost all all all scram-sha-256\n"
    await asyncio.to_thread(Path(await server.fetchval("show hba_file")).write_text, rules)
    await server.execute("create role app superuser")
    await server.execute("select pg_reload_conf()")
    await server.close()


class Door:
    """A role of that server, and its password; ``url`` has it."""

    def __init__(self, server: asyncpg.Connection, url: str) -> None:
        self._server = server
        self._open = url

    def url(self, password: str) -> str:
        return self._open.replace("postgres@", f"app:{password}@")

    async def lock(self, password: str) -> None:
        """Let nobody in any more but with ``password``, and close what is open, as at a failover."""
        await self._server.execute(f"alter role app login password '{password}'")
        await self._server.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'")

    async def rows(self) -> int:
        return int(await self._server.fetchval("select count(*) from calls"))


@pytest.fixture
async def door(locked_postgres: str) -> AsyncIterator[Door]:
    server = await asyncpg.connect(locked_postgres)
    await server.execute("truncate calls")
    door = Door(server, locked_postgres)
    await door.lock("one")
    yield door
    await server.close()


async def asked(engine: Any) -> str:
    async with engine.connect() as connection:
        return str((await connection.execute(text("select current_user"))).scalar())


async def test_a_new_connection_has_the_login_of_now(door: Door) -> None:
    address = Address(door.url("one"))
    engine = create_engine(address)
    assert await asked(engine) == "app"
    await door.lock("two")
    address.url = door.url("two")
    assert await asked(engine) == "app"
    await engine.dispose()


async def test_a_refused_login_is_read_again_once_and_tried_again(door: Door) -> None:
    read: list[str] = []

    async def read_again() -> None:
        read.append(address.url)
        address.url = door.url(said)

    said = "two"
    address = Address(door.url("one"), read_again)
    engine = create_engine(address)
    await door.lock("two")
    assert await asked(engine) == "app"
    assert read == [door.url("one")]
    said = "wrong"
    await door.lock("three")
    with pytest.raises(DBAPIError, match="password authentication failed") as refused:
        await asked(engine)
    assert len(read) == 2
    assert "wrong" not in str(refused.value)
    await engine.dispose()


@asynccontextmanager
async def locked_redis() -> AsyncIterator[tuple[str, Any]]:
    with servers.redis_server() as url:
        redis: Any = Redis.from_url(url)
        await redis.execute_command("ACL", "SETUSER", "app", "on", ">one", "~*", "&*", "+@all")
        yield url, redis
        await redis.aclose()


async def who(nodes: Nodes) -> list[Any]:
    """Ask who is signed in; where the connection was closed meanwhile, the next round is the retry."""
    with suppress(RedisConnectionError):
        return await nodes.run("", [("ACL", "WHOAMI")])
    return await nodes.run("", [("ACL", "WHOAMI")])


async def test_a_new_connection_to_redis_has_the_login_of_now_and_a_refused_one_is_read_again() -> None:
    read: list[str] = []
    async with locked_redis() as (url, redis):

        async def read_again() -> None:
            read.append(address.url)
            address.url = url.replace("//", "//app:three@")

        async def lock(password: str) -> None:
            await redis.execute_command("ACL", "SETUSER", "app", "resetpass", f">{password}")
            await redis.execute_command("CLIENT", "KILL", "USER", "app")

        address = Address(url.replace("//", "//app:one@"), read_again)
        nodes = connect(address)
        assert await who(nodes) == ["app"]
        await lock("two")
        address.url = url.replace("//", "//app:two@")
        assert await who(nodes) == ["app"]
        assert read == []
        await lock("three")
        assert await who(nodes) == ["app"]
        assert len(read) == 1
        await lock("four")
        with pytest.raises(AuthenticationError):
            await who(nodes)
        await nodes.aclose()


async def call(gateway: GatewayProcess) -> int:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response,
    ):
        await response.read()
        return response.status


@pytest.mark.parametrize("workers", [1, 2])
async def test_rows_and_limits_go_on_with_the_passwords_that_the_files_have_now(
    door: Door, tmp_path: Path, workers: int
) -> None:
    go = asyncio.Event()
    async with (
        locked_redis() as (url, redis),
        ScriptedProvider([RoleOnly(), Delta("one "), Gate(go), *answer("two")[1:]]) as slow,
        ScriptedProvider() as provider,
    ):

        def write(password: str) -> None:
            (tmp_path / "database").write_text(f"{door.url(password)}\n")
            (tmp_path / "redis").write_text(url.replace("//", f"//app:{password}@"))

        write("one")
        config = configuration(tmp_path, {"alpha": provider.base_url, "slow": slow.base_url}, workers=workers)
        config |= {"database_url": "file:./database", "redis_url": "file:./redis"}
        config["models"]["slow"] = {"deployments": ["slow/m"]}
        config["models"][MODEL]["deployments"] = ["alpha/m"]
        async with started(config, tmp_path) as gateway, aiohttp.ClientSession() as http:
            running = {"model": "slow", "stream": True, "messages": [{"role": "user", "content": "?"}]}
            async with http.post(f"{gateway.url}/v1/chat/completions", json=running) as stream:
                await stream.content.readuntil(b"one ")
                assert await call(gateway) == 200
                await eventually(lambda: _have(door, 1))
                write("two")
                await gateway.event("configuration.logins_renewed", workers)
                await door.lock("two")
                await redis.execute_command("ACL", "SETUSER", "app", "resetpass", ">two")
                await redis.execute_command("CLIENT", "KILL", "USER", "app")
                assert await call(gateway) == 200
                await eventually(lambda: _have(door, 2))
                go.set()
                assert (await stream.read()).endswith(b"data: [DONE]\n\n")
            await eventually(lambda: _have(door, 3))
            if workers > 1:  # one that starts later has the new ones, too
                os.kill(gateway.events("gateway.started")[0]["pid"], signal.SIGKILL)
                await gateway.event("gateway.started", workers + 1)
            assert await call(gateway) == 200
            await eventually(lambda: _have(door, 4))
            users = {each["user"] for each in await redis.client_list()}
            assert "app" in users
            assert not gateway.events("configuration.needs_restart")
            said = gateway.stderr.decode()
            assert ":one@" not in said
            assert ":two@" not in said


async def _have(door: Door, rows: int) -> bool:
    return await door.rows() == rows


async def test_a_password_that_nobody_has_told_yet_is_looked_for_when_the_former_one_is_refused(
    door: Door, tmp_path: Path
) -> None:
    # A command runs every five minutes; a token lasts for fifteen, or is revoked.
    token = tmp_path / "token"
    token.write_text(door.url("one"))
    async with ScriptedProvider() as provider:
        config = configuration(tmp_path, {"alpha": provider.base_url}, secrets={"exec": True})
        config["database_url"] = f"${{exec:cat {token}}}"
        async with started(config, tmp_path) as gateway:
            assert await call(gateway) == 200
            await eventually(lambda: _have(door, 1))
            token.write_text(door.url("two"))
            await door.lock("two")
            assert await call(gateway) == 200
            await eventually(lambda: _have(door, 2))


def settings(**values: object) -> Settings:
    return Settings.model_validate(values)


def test_another_place_needs_a_restart_and_another_login_does_not() -> None:
    stores = {
        "database_url": "postgresql://ann:1@db/x",
        "redis_url": "redis+sentinel://:1@a,b/main?sentinel_password=1",
    }
    running = settings(**stores)
    renewed = settings(
        database_url="postgresql://ben:2@db/x", redis_url="redis+sentinel://:2@a,b/main?sentinel_password=2"
    )
    accepted = taken_over(running, renewed)
    assert (accepted.database_url, accepted.redis_url) == (renewed.database_url, renewed.redis_url)
    moved = taken_over(running, settings(database_url="postgresql://ben:2@other/x", redis_url="redis://a"))
    assert (moved.database_url, moved.redis_url) == (running.database_url, running.redis_url)


def test_what_was_signed_with_the_databases_password_stays_valid_after_it_was_renewed() -> None:
    running = settings(database_url="postgresql://ann:1@db/x")
    for password in ("2", "3"):
        running = taken_over(running, settings(database_url=f"postgresql://ann:{password}@db/x"))
        assert signing_secret(running) == "1"
    own = settings(database_url="postgresql://ann:4@db/x", page={"signing_key": "k" * 32})
    running = taken_over(running, own)
    assert signing_secret(running) == "k" * 32
    assert signing_secret(taken_over(running, settings(database_url="postgresql://ann:4@db/x"))) == "4"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://ann:a%40b@db:5432/x?sslmode=require", "postgresql://db:5432/x?sslmode=require"),
        ("postgresql://ann@h1,h2/x", "postgresql://h1,h2/x"),
        ("redis://db?password=x&username=y", "redis://db"),
        ("sqlite:////var/a@b.db", "sqlite:////var/a@b.db"),
    ],
)
def test_a_place_is_an_address_without_its_login(url: str, place: str) -> None:
    assert without_login(url) == place
