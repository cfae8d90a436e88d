"""Gateways on a real Redis Cluster share what they share over one Redis; one that cannot be used stops the start."""

import asyncio
import json
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.app import check_redis
from gateway.settings import Settings
from providers.simulator import Hang
from tests.app.gateway.running_gateway import MODEL, serving
from tests.app.gateway.watcher import watching
from tests.patience import PATIENCE_S, until
from tests.services.topology.process import agree
from tests.support import warm
from tests.support.ledgers import lay, migrated
from tests.support.servers import RedisCluster, free_port


async def test_gateways_share_standings_and_live_calls_and_name_the_topology(
    tmp_path: Path, cluster: RedisCluster
) -> None:
    scripts = {"alpha": None, "beta": [Hang()]}
    async with (
        serving(tmp_path / "one", scripts, redis_url=cluster.url, replica="one") as one,
        serving(tmp_path / "two", scripts, redis_url=cluster.url, replica="two") as two,
        watching(two.http, two.url, None) as watcher,
    ):
        sharing, boards = one.gateway.live_sharing, [each.gateway.redis_board for each in (one, two)]
        assert sharing is not None
        async with asyncio.timeout(PATIENCE_S):
            await until(lambda: sharing.publishes)
            async with one.chat() as response:
                assert response.status == 200, await response.text()
            assert [done["status"] for done in await watcher.seen("done")] == [200]
        await agree([board for board in boards if board is not None])
        async with one.get("/health/ready") as ready:
            assert (await ready.json())["redis"] == {"connected": True, "topology": "redis cluster, 3 masters"}
        seen = {row.deployment: row for row in two.gateway.steering.leaderboard(MODEL).deployments}
        assert seen["alpha/m"].events == 1
        assert two.requests == 0


def told(verb: str, *options: str, folder: Path, redis_url: str) -> subprocess.CompletedProcess[str]:
    """Run a verb of the command line with a Redis."""
    config = folder / "gateway.yaml"
    config.write_text(
        f"redis_url: {redis_url}\ndatabase_url: sqlite:///{folder / 'ledger.db'}\nspool_dir: {folder / 'spool'}\n"
        f"port: {free_port()}\nproviders: {{own: {{base_url: 'http://127.0.0.1:9/v1'}}}}\n"
    )
    lay(migrated(), folder / "ledger.db")  # migrating one takes as long as all the rest
    command = [*warm.holeshot(), verb, "--config", str(config), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=folder)


@pytest.mark.usefixtures("redis_binary")
def test_a_cluster_that_cannot_be_used_stops_the_start_and_says_what_to_do(tmp_path: Path) -> None:
    with ExitStack() as stack:
        done = told("serve", folder=tmp_path, redis_url=RedisCluster(stack, masters=1, replicas=False).url)
    assert done.returncode == 1, done.stderr
    assert "serves 0 of 16384 slots" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_live_names_the_topology_and_says_what_is_set_wrong_there(tmp_path: Path, cluster: RedisCluster) -> None:
    cluster.set("maxmemory-policy", "volatile-ttl")
    try:
        found = json.loads(told("check", "--live", "--json", folder=tmp_path, redis_url=cluster.url).stdout)
    finally:
        cluster.set("maxmemory-policy", "noeviction")
    assert found["redis"] == {"topology": "redis cluster, 3 masters"}
    assert len([each for each in found["warnings"] if "has maxmemory-policy volatile-ttl" in each]) == 3


def test_check_live_fails_on_a_redis_that_cannot_be_used_or_does_not_answer(tmp_path: Path, redis_url: str) -> None:
    unusable = told("check", "--live", folder=tmp_path, redis_url=redis_url.replace("redis://", "redis+cluster://"))
    away = told("check", "--live", folder=tmp_path, redis_url=f"redis://:s3cret@127.0.0.1:{free_port()}/0")
    assert "what answers is no Redis Cluster" in " ".join(unusable.stdout.split())
    assert "redis_url: Redis does not answer" in " ".join(away.stdout.split())
    assert (unusable.returncode, away.returncode) == (1, 1)
    assert "s3cret" not in away.stdout + away.stderr


@pytest.mark.parametrize("scheme", ["redis://", "redis+cluster://", "redis+sentinel://"])
async def test_a_redis_that_is_away_does_not_stop_the_start(scheme: str) -> None:
    url = f"{scheme}127.0.0.1:{free_port()}/{'main' if 'sentinel' in scheme else ''}"
    await check_redis(Settings.model_validate({"redis_url": url, "database_url": "sqlite:///nothing.db"}))
