"""Gateways on one real Redis share a leaderboard; on one real Postgres, a ledger."""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.engine import make_url

from gateway.ledger import create_engine
from gateway.limits import level_of_key
from gateway.steering import STRIKES_KEY, RedisBoard, slot_of
from providers.simulator import Done, Gate, Hang, Status, UsageChunk, answer
from tests.app.gateway.limits.test_limits import statuses
from tests.app.gateway.limits.test_payers import configured, told
from tests.app.gateway.races.test_objectives import KEY, client
from tests.app.gateway.running_gateway import MODEL, RunningGateway, read, serving
from tests.patience import eventually, until
from tests.services.gateway.test_probes_of_replicas import rows
from tests.support.relay import Relay


def board_of(running: RunningGateway) -> RedisBoard:
    assert running.gateway.redis_board is not None
    return running.gateway.redis_board


async def chat(running: RunningGateway, **fields: Any) -> str:
    async with running.chat(**fields) as response:
        assert response.status == 200
        await response.read()
        return str(response.headers["x-holeshot-call-id"])


async def test_the_whole_path_on_a_real_postgres_and_a_real_redis(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    stores: dict[str, Any] = {"database_url": postgres_url, "redis_url": redis_url}
    async with serving(tmp_path, {"fast": None, "slow": [Hang()]}, **stores) as running:
        running["fast"].script = [Gate(running["slow"].requested), *answer("a", "b")]
        async with running.chat({"x-holeshot-tags": '{"prompt": "v\\u0000 2"}'}, stream=True) as response:
            assert (await response.read()).endswith(b"data: [DONE]\n\n")
        await running["slow"].reach(disconnects_before_first_token=1)
        async with running.get("/health/ready") as ready:
            body = await ready.json()
            assert (body["status"], body["redis"]) == ("ok", {"connected": True, "topology": "redis"})
        await running.gateway.ledger.flush()
        await running.gateway.ledger.fold()
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
    stores: dict[str, Any] = {"database_url": postgres_url, "redis_url": redis_url}
    scripts = {"alpha": None, "beta": [Hang()]}
    async with serving(tmp_path / "one", scripts, **stores) as one, serving(tmp_path / "two", scripts, **stores) as two:
        for _ in range(5):
            await chat(one)
        await eventually(board_of(one).sync)
        await eventually(board_of(two).sync)
        seen = {row.deployment: row for row in two.gateway.steering.leaderboard(MODEL).deployments}
        assert (seen["alpha/m"].events, seen["beta/m"].censored) == (5, 5)
        assert (seen["alpha/m"].score or 0.0) < (seen["beta/m"].score or 0.0)
        assert two.requests == 0
        for _ in range(10):
            await chat(two, race={"mode": "single", "objective": "first_token"})
        assert (two["alpha"].counts.requests, two["beta"].counts.requests) == (10, 0)


@pytest.mark.parametrize("ahead_s", [-216_000.0, -40.0, 40.0, 216_000.0])
async def test_a_gateway_whose_clock_is_wrong_shares_samples_strikes_and_dollars_with_the_others(
    tmp_path: Path, postgres_url: str, redis_url: str, ahead_s: float
) -> None:
    stores: dict[str, Any] = {
        "database_url": postgres_url,
        "redis_url": redis_url,
        "models": {MODEL: {"race": {"usd_per_day": 5}}},
    }
    scripts = {"alpha": None, "beta": [Hang()]}
    async with (
        serving(tmp_path / "one", scripts, **stores) as one,
        serving(tmp_path / "two", scripts, unix_clock=lambda: time.time() + ahead_s, **stores) as wrong,
    ):
        for asked, others in ((one, wrong), (wrong, one)):
            before = {row.deployment: row.events for row in others.gateway.steering.leaderboard(MODEL).deployments}
            for _ in range(5):
                await chat(asked)
            await eventually(board_of(asked).sync)
            await eventually(board_of(others).sync)
            seen = {row.deployment: row.events for row in others.gateway.steering.leaderboard(MODEL).deployments}
            assert seen["alpha/m"] == before["alpha/m"] + 5
        async with Redis.from_url(redis_url, decode_responses=True) as redis:
            slots = {int(str(key).split(":")[2]) for key in await redis.keys("holeshot:*:sums")}
            reports = [json.loads(each) for each in await redis.hvals(STRIKES_KEY)]
            days = {str(key).split(":")[3] for key in await redis.keys("holeshot:*:usd:*")}
    now = time.time()
    assert slots <= {slot_of(now), slot_of(now) - 1}
    assert len(reports) == 2
    assert all(abs(each["at_s"] - now) < 20.0 for each in reports)
    assert days == {datetime.fromtimestamp(now, UTC).date().isoformat()}


async def test_a_gateway_tells_the_others_whom_it_finds_well(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    async with serving(tmp_path, {"alpha": None}, database_url=postgres_url, redis_url=redis_url) as running:
        await chat(running)
        await eventually(board_of(running).sync)
        async with Redis.from_url(redis_url, decode_responses=True) as redis:
            [report] = await redis.hvals(STRIKES_KEY)
    assert json.loads(report)["well"] == ["alpha/m"]


@pytest.mark.parametrize("garbage", ["1e308", "nan", "-inf", "text"])
async def test_garbage_in_redis_breaks_neither_the_leaderboard_nor_calls(
    tmp_path: Path, postgres_url: str, redis_url: str, garbage: str
) -> None:
    names = [f"alpha/m|{name}" for name in ("n", "err", "won", "sec", "tok", "0|e17", "0|c111")]
    async with serving(tmp_path, {"alpha": None}, database_url=postgres_url, redis_url=redis_url) as running:
        now_slot = slot_of(time.time())
        async with Redis.from_url(redis_url, decode_responses=True) as redis:
            for slot in range(now_slot - 1, now_slot + 2):  # the next may begin under way
                slot_key = f"holeshot:{{{MODEL}}}:{slot}"
                for key in (f"{slot_key}:sums", f"{slot_key}:parts"):
                    await redis.hset(key, "@since", "@another1")  # as if another gateway had begun it
                await redis.hset(f"{slot_key}:sums", mapping=dict.fromkeys([*names, "calls", "out"], garbage))
        await chat(running)
        await eventually(board_of(running).sync)
        await chat(running)
        async with running.get("/leaderboard") as response:
            assert response.status == 200
            assert (await response.json())["models"][0]["deployments"][0]["deployment"] == "alpha/m"
        async with running.get("/leaderboard", params={"explain": "1"}) as response:
            assert response.status == 200
        async with running.get("/metrics") as response:
            [line] = [
                each for each in (await response.text()).splitlines() if each.startswith("holeshot_redis_ignored")
            ]
            assert float(line.split()[1]) > 0


async def test_a_gateway_serves_on_when_its_redis_is_not_there(tmp_path: Path, postgres_url: str) -> None:
    nowhere: dict[str, Any] = {"database_url": postgres_url, "redis_url": "redis://127.0.0.1:1/0"}
    async with serving(tmp_path, {"alpha": None}, **nowhere) as running:
        await chat(running)
        async with running.get("/health/ready") as ready:
            body = await ready.json()
            assert (ready.status, body["redis"]) == (200, {"connected": False, "topology": "redis"})
            assert body["status"] == "degraded"
        assert running.gateway.steering.leaderboard(MODEL).deployments[0].events == 1


async def test_a_gateway_serves_on_when_its_postgres_is_not_there(tmp_path: Path, postgres_url: str) -> None:
    nowhere: dict[str, Any] = {"database_url": "postgresql://holeshot@127.0.0.1:1/none"}
    async with serving(tmp_path, {"alpha": None}, **nowhere) as running:
        call_id = await chat(running)
        async with running.get("/health/ready") as ready:
            body = await ready.json()
            assert (ready.status, body["database"]["pending"], body["status"]) == (200, 1, "degraded")
    assert any(call_id.encode() in path.read_bytes() for path in (tmp_path / "spool").rglob("*.jsonl"))
    async with serving(tmp_path, {"alpha": None}, database_url=postgres_url):
        pass  # adopts what the other left
    assert [str(row["id"]) for row in await rows(postgres_url, "select id from calls")] == [call_id]


async def test_readiness_tells_of_stores_that_hang_while_they_do(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    async def ready_with(holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            async with running.get("/health/ready") as ready:
                assert ready.status == 200  # calls are welcome all the same
                body: dict[str, Any] = await ready.json()
                return body if holds(body) else None

        return await eventually(look)

    postgres, redis = make_url(postgres_url), make_url(redis_url)
    relays = [Relay(str(server.host), int(server.port or 0)) for server in (postgres, redis)]
    for relay in relays:
        await relay.listen()
    database_url, board_url = (
        server.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False)
        for server, relay in zip((postgres, redis), relays, strict=True)
    )
    async with serving(tmp_path, {"alpha": None}, database_url=database_url, redis_url=board_url) as running:
        await chat(running)
        well: dict[str, Any] = {"connected": True, "answered_s_ago": 0.0, "pending": 0}
        well |= {"oldest_pending_s": None, "sums_stand_still_s": None}
        body = await ready_with(lambda body: body["database"] | {"answered_s_ago": 0.0} == well)
        assert body["redis"] == {"connected": True, "topology": "redis"}
        for relay in relays:
            relay.hang()
        await ready_with(lambda body: not body["database"]["connected"])  # nobody calls: it is asked because we ask
        await chat(running)
        body = await ready_with(lambda body: not body["redis"]["connected"])
        assert (body["database"]["connected"], body["database"]["pending"]) == (False, 1)
        for relay in relays:
            relay.resume()
        await ready_with(lambda body: body["database"]["connected"] and body["redis"]["connected"])
    for relay in relays:
        await relay.cut()
    assert len(await rows(postgres_url, "select id from calls")) == 2


async def test_a_batch_that_hangs_is_told_of_before_it_is_given_up(tmp_path: Path, postgres_url: str) -> None:
    server = make_url(postgres_url)
    relay = Relay(str(server.host), int(server.port or 0))
    await relay.listen()
    url = server.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False)
    async with serving(tmp_path, {"alpha": None}, database_url=url) as running:
        await running.gateway.ledger.flush()
        relay.hang()
        await chat(running)

        async def is_told() -> bool:
            async with running.get("/health/ready") as ready:
                return not (await ready.json())["database"]["connected"]

        await eventually(is_told)
        assert running.gateway.ledger.last_error is None  # it still waits for the answer
        relay.resume()
        await running.gateway.ledger.emptied()
    await relay.cut()


async def test_who_has_spent_all_dollars_may_still_ask_models_of_price_0(tmp_path: Path, redis_url: str) -> None:
    paid = {"deployment": "alpha/m", "price_per_mtok": {"input": 1e6, "output": 1e6}}
    free, broken = [
        {"deployment": name, "price_per_mtok": {"input": 0.0, "output": 0.0}} for name in ("beta/m", "out/m")
    ]
    models = {
        "paid": {"deployments": [paid]},
        "free": {"deployments": [free]},
        "either": {"deployments": [free, paid]},
        "free first": {"deployments": [free], "fallbacks": ["paid"]},
        "broken": {"deployments": [broken]},
        "broken first": {"deployments": [broken], "fallbacks": ["paid"]},
    }
    config = client(usd_per_day=100.0) | {"redis_url": redis_url, "models": models}
    scripts = {"alpha": [*answer("a")[:-2], UsageChunk(90, 40), Done()], "beta": None, "out": [Status(503)]}
    async with serving(tmp_path, scripts, key=KEY, **config) as running:
        assert await statuses(running, 1, model="paid", max_tokens=1) == [200]  # longer than asked, so dearer than held
        for stream in (True, False):
            assert await statuses(running, 1, model="paid", max_tokens=9, stream=stream) == [429]
            assert await statuses(running, 2, model="free", stream=stream) == [200, 200]
            assert await statuses(running, 1, model="free first", stream=stream) == [200]
            assert await statuses(running, 1, model="either", stream=stream) == [429]
            assert 200 not in await statuses(running, 2, model="broken first", stream=stream)
            assert 200 not in await statuses(running, 2, model="broken", models=["broken", "paid"], stream=stream)
        assert running["alpha"].counts.completions == 1


async def test_what_a_replica_uses_before_the_ledger_has_told_of_an_added_limit_counts_once(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    stores = {"database_url": postgres_url, "redis_url": redis_url, **configured()}
    engine, high = create_engine(postgres_url), 1_000_000.0
    async with (
        serving(tmp_path / "one", {"alpha": None}, key=KEY, replica="one", **stores) as one,
        serving(tmp_path / "two", {"alpha": None}, key=KEY, replica="two", **stores) as two,
    ):
        assert [await told(running) for running in (one, two)] == ["", ""]
        await two.gateway.ledger.flush()
        async with engine.connect() as connection:
            # Nothing is stored, so nothing told, until the calls below have ended.
            await connection.execute(text("lock table calls in share mode"))
            assert await told(one) == ""
            flushing = asyncio.create_task(one.gateway.ledger.flush())
            one.config["clients"]["team"]["tokens_per_week"] = high
            one.gateway.reload(read(one.config, one.folder))
            assert [await told(one) for _ in range(4)] == [""] * 4  # more than all before
            await connection.rollback()
        await flushing
        iso = datetime.now(UTC).isocalendar()
        whose = f"client:team:tokens_per_week:{iso.year}-W{iso.week:02}"
        await until(lambda: one.gateway.leases.recollected(whose))
        assert await told(one) == ""
        await one.gateway.ledger.flush()
        [row] = await rows(postgres_url, "select sum(prompt_tokens + completion_tokens) as tokens from calls")
        limits, level = one.gateway.context.limits, level_of_key("team", {"tokens_per_week": high})
        await until(lambda: (limits.standings(level)[0].used or 0.0) >= row["tokens"])
        assert limits.standings(level)[0].used == row["tokens"]
    await engine.dispose()
