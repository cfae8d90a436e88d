"""Environments that share one Redis, told apart by the prefix of their keys."""

import pytest

from gateway.settings import Settings
from gateway.topology import Nodes, connect
from tests.support.servers import RedisCluster


async def counted(nodes: Nodes, model: str) -> list[object]:
    """Count by a plain command, and by a script with two keys of one hash tag."""
    key, script = f"holeshot:{{{model}}}:sums", "return redis.call('INCR', KEYS[1]) + redis.call('INCR', KEYS[2])"
    shard = nodes.shard_of(key)
    replies = await nodes.run(shard, [("INCR", key), ("EVAL", script, 2, key, f"{key}:more", "holeshot:no key")])
    assert await nodes.call(key, ("GET", key)) == "2"
    return replies


@pytest.mark.parametrize("prefix", ["staging", "holeshot:staging"])
async def test_what_one_environment_counts_another_does_not_see(redis_url: str, prefix: str) -> None:
    production, staging = connect(redis_url), connect(redis_url, prefix=prefix)
    assert await counted(production, "m") == [1, 3]
    assert await counted(staging, "m") == [1, 3]
    (keys,) = await production.run("", [("KEYS", "*")])
    assert sorted(keys) == sorted(
        [f"{each}:{{m}}:sums{more}" for each in ("holeshot", prefix) for more in ("", ":more")]
    )
    for nodes in (production, staging):
        await nodes.aclose()


async def test_in_a_cluster_the_keys_of_a_hash_tag_stay_together(cluster: RedisCluster) -> None:
    production, staging = connect(cluster.url), connect(cluster.url, prefix="staging")
    for nodes in (production, staging):
        await nodes.find()
        assert len(nodes.shards) == 3
    for model in ("a", "b", "c", "d", "e", "f"):
        assert await counted(production, model) == [1, 3]
        assert await counted(staging, model) == [1, 3]
    places = [staging.shard_of(f"holeshot:limits:processes:{{{each}}}") for each in staging.shards]
    assert places == list(staging.shards)
    for nodes in (production, staging):
        await nodes.aclose()


@pytest.mark.parametrize("prefix", ["", "{staging}", "a b", "x" * 65])
def test_a_prefix_that_would_move_hash_tags_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="redis_prefix"):
        Settings.model_validate({"redis_prefix": prefix})
