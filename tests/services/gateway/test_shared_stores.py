"""Gateways on one real Redis share a leaderboard; on one real Postgres, a ledger."""

from pathlib import Path
from typing import Any

import asyncpg

from gateway.steering.redis_board import RedisBoard
from providers.simulator.script import Gate, Hang, answer
from tests.app.gateway.stage import MODEL, Stage, serving


def board_of(stage: Stage) -> RedisBoard:
    assert stage.gateway.redis_board is not None
    return stage.gateway.redis_board


async def chat(stage: Stage, **fields: Any) -> str:
    async with stage.chat(**fields) as response:
        assert response.status == 200
        await response.read()
        return str(response.headers["x-holeshot-call-id"])


async def rows(url: str, query: str) -> list[dict[str, Any]]:
    connection = await asyncpg.connect(url)
    try:
        return [dict(record) for record in await connection.fetch(query)]
    finally:
        await connection.close()


async def test_the_whole_path_on_a_real_postgres_and_a_real_redis(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    stores = {"database_url": postgres_url, "redis_url": redis_url}
    async with serving(tmp_path, {"fast": None, "slow": [Hang()]}, **stores) as stage:
        stage["fast"].script = [Gate(stage["slow"].requested), *answer("a", "b")]
        async with stage.chat({"x-holeshot-tags": '{"prompt": "v\\u0000 2"}'}, stream=True) as response:
            assert (await response.read()).endswith(b"data: [DONE]\n\n")
        await stage["slow"].reach(disconnects_before_first_token=1)
        async with stage.get("/health/ready") as ready:
            assert (await ready.json())["redis"] == {"connected": True}
        await stage.gateway.ledger.flush()
        [call] = await rows(postgres_url, "select *, tags ->> 'prompt' as prompt from calls")
        attempts = await rows(postgres_url, "select * from attempts order by outcome")
        throughput = await rows(postgres_url, "select * from throughput")
    assert str(call["id"]) == response.headers["x-holeshot-call-id"]
    assert (call["status_code"], call["launched"], call["prompt"]) == (200, 2, "v 2")
    assert [(row["provider"], row["outcome"]) for row in attempts] == [("slow", "lost"), ("fast", "won")]
    assert attempts[1]["id"] == call["winner_attempt_id"]
    assert {row["deployment"] for row in throughput} >= {"fast/m"}


async def test_two_gateways_on_one_redis_share_one_leaderboard(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    """What one has measured steers the other after one round of each, and a round is a second."""
    stores = {"database_url": postgres_url, "redis_url": redis_url}
    scripts = {"alpha": None, "beta": [Hang()]}
    async with serving(tmp_path / "one", scripts, **stores) as one, serving(tmp_path / "two", scripts, **stores) as two:
        for _ in range(5):
            await chat(one)
        assert await board_of(one).sync()
        assert await board_of(two).sync()
        seen = {row.deployment: row for row in two.gateway.steering.leaderboard(MODEL).deployments}
        assert (seen["alpha/m"].events, seen["beta/m"].censored) == (5, 5)
        assert (seen["alpha/m"].score or 0.0) < (seen["beta/m"].score or 0.0)
        assert two.requests == 0
        for _ in range(10):
            await chat(two, race={"mode": "single", "objective": "first_token"})
        assert (two["alpha"].counts.requests, two["beta"].counts.requests) == (10, 0)


async def test_a_gateway_serves_on_when_its_redis_is_not_there(tmp_path: Path, postgres_url: str) -> None:
    nowhere = {"database_url": postgres_url, "redis_url": "redis://127.0.0.1:1/0"}
    async with serving(tmp_path, {"alpha": None}, **nowhere) as stage:
        await chat(stage)
        async with stage.get("/health/ready") as ready:
            assert (ready.status, (await ready.json())["redis"]) == (200, {"connected": False})
        assert stage.gateway.steering.leaderboard(MODEL).deployments[0].events == 1


async def test_a_gateway_serves_on_when_its_postgres_is_not_there(tmp_path: Path, postgres_url: str) -> None:
    nowhere = {"database_url": "postgresql://holeshot@127.0.0.1:1/none"}
    async with serving(tmp_path, {"alpha": None}, **nowhere) as stage:
        call_id = await chat(stage)
        async with stage.get("/health/ready") as ready:
            assert (ready.status, (await ready.json())["database"]["pending"]) == (200, 1)
    assert any(call_id.encode() in path.read_bytes() for path in (tmp_path / "spool").rglob("*.jsonl"))
    async with serving(tmp_path, {"alpha": None}, database_url=postgres_url):
        pass  # adopts what the other left
    assert [str(row["id"]) for row in await rows(postgres_url, "select id from calls")] == [call_id]
