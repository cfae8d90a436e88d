"""A Redis Cluster of several masters is refused: limits would not be kept over it."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from gateway.app.stores import ClusterUnsupportedError, refuse_cluster
from gateway.settings import Settings
from tests.patience import PATIENCE_S
from tests.services.servers import free_port, redis_server

_SLOTS = 16384


@contextmanager
def cluster() -> Iterator[str]:
    """Run two masters, with half of the slots each; yield the URL of one."""
    ways = [("--cluster-enabled", "yes", "--cluster-port", str(free_port())) for _ in range(2)]
    with redis_server(None, *ways[0]) as url, redis_server(None, *ways[1]) as other:
        here, there = redis.Redis.from_url(url, decode_responses=True), redis.Redis.from_url(other)
        with here, there:
            _say(here, "CLUSTER ADDSLOTS", *range(_SLOTS // 2))
            _say(there, "CLUSTER ADDSLOTS", *range(_SLOTS // 2, _SLOTS))
            port = there.connection_pool.connection_kwargs["port"]
            _say(here, "CLUSTER MEET", "127.0.0.1", port, ways[1][-1])
            asyncio.run(_until_they_know_each_other(here))
        yield url


def _say(node: redis.Redis, *words: str | int) -> Any:
    return node.execute_command(*words)  # type: ignore[no-untyped-call]


async def _until_they_know_each_other(node: redis.Redis) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while _say(node, "CLUSTER INFO")["cluster_size"] != "2":  # noqa: ASYNC110 - told by nothing
            await asyncio.sleep(0.05)


def settings(redis_url: str) -> Settings:
    return Settings.model_validate({"redis_url": redis_url, "database_url": "sqlite:///nothing.db"})


def test_a_cluster_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with cluster() as url:
        with pytest.raises(ClusterUnsupportedError, match=r"2 masters.*use one Redis or Valkey"):
            asyncio.run(refuse_cluster(settings(url)))
        config = tmp_path / "gateway.yaml"
        config.write_text(
            f"redis_url: {url}\ndatabase_url: sqlite:///{tmp_path / 'ledger.db'}\nspool_dir: {tmp_path / 'spool'}\n"
            f"port: {free_port()}\nproviders: {{own: {{base_url: 'http://127.0.0.1:9/v1'}}}}\n"
        )
        command = [sys.executable, "-m", "gateway.cli", "serve", "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "Redis Cluster" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_redis_and_one_that_is_away_are_not_refused(redis_url: str) -> None:
    asyncio.run(refuse_cluster(settings(redis_url)))
    asyncio.run(refuse_cluster(settings(f"redis://127.0.0.1:{free_port()}/0")))


def test_a_cluster_of_one_master_is_not_refused() -> None:
    with redis_server(None, "--cluster-enabled", "yes", "--cluster-port", str(free_port())) as url:
        with redis.Redis.from_url(url) as node:
            _say(node, "CLUSTER ADDSLOTS", *range(_SLOTS))
        asyncio.run(refuse_cluster(settings(url)))
