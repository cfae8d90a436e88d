"""``max_in_flight_fleet`` over real sockets: two gateways, one Redis, and one provider that counts."""

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from providers.simulator import Gate, ScriptedProvider, answer
from tests.app.gateway.running_gateway import MODEL, RunningGateway, read, serving
from tests.patience import until
from tests.services.limits.test_slots import STEADY

CALLS = 20


@asynccontextmanager
async def two_gateways(
    folder: Path, redis_url: str, provider: ScriptedProvider, **limits: int
) -> AsyncIterator[tuple[RunningGateway, RunningGateway]]:
    deployments = [{"deployment": "own/m", **limits}]
    config: dict[str, Any] = {
        "redis_url": redis_url,
        "queue_timeout_s": 600.0,
        "providers": {"own": {"kind": "openai_compatible", "base_url": provider.base_url, "api_key": "k"}},
        "models": {MODEL: {"deployments": deployments, "race": {"mode": "single"}}},
    }
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(
                serving(folder / name, {"other": None}, lease_times=STEADY, **copy.deepcopy(config))
            )
            for name in ("one", "other")
        ]
        yield one, other


def line_of(running: RunningGateway) -> Any:
    return running.gateway.context.services.seats.lines["own/m"]


async def chat(running: RunningGateway, **fields: Any) -> int:
    async with running.chat(**fields) as response:
        await response.read()
        return int(response.status)


async def test_two_gateways_never_have_more_than_the_limit_at_one_provider(tmp_path: Path, redis_url: str) -> None:
    async with (
        ScriptedProvider(answer("a", "b")) as provider,
        two_gateways(tmp_path, redis_url, provider, max_in_flight_fleet=3) as (one, other),
    ):
        calls = [chat(each, stream=bool(number % 2)) for each in (one, other) for number in range(CALLS)]
        assert await asyncio.gather(*calls) == [200] * len(calls)
        assert provider.counts.most_in_flight <= 3
        assert provider.counts.completions == len(calls)
        assert (line_of(one).taken, line_of(other).taken) == (0, 0)


async def test_one_gateway_gets_the_idle_slots_of_the_other_and_gives_them_back(tmp_path: Path, redis_url: str) -> None:
    go = asyncio.Event()
    async with (
        ScriptedProvider([Gate(go), *answer("a")]) as provider,
        two_gateways(tmp_path, redis_url, provider, max_in_flight_fleet=3) as (one, other),
    ):
        calls = [asyncio.create_task(chat(one)) for _ in range(5)]
        await provider.reach(in_flight=3)
        late = asyncio.create_task(chat(other))
        health = other.gateway.steering.health_of("own/m")
        await until(lambda: health.elsewhere == 3.0 and len(line_of(other).waiting) == 1)
        async with one.get("/metrics") as response:
            page = await response.text()
        assert 'holeshot_fleet_slots{deployment="own/m",state="leased"} 3' in page
        assert 'holeshot_fleet_slots{deployment="own/m",state="used"} 3' in page
        async with other.get("/leaderboard", params={"explain": "1", "model": MODEL}) as response:
            [told] = (await response.json())["models"]
        assert "full: own/m has 0 of 0 leased slots in flight" in told["explanation"]["notes"]
        reason = told["explanation"]["deployments"][0]["passed_over"]
        assert reason == "no slot of max_in_flight_fleet is leased here and free"
        go.set()
        assert await asyncio.gather(*calls, late) == [200] * 6
        assert provider.counts.most_in_flight == 3


async def test_a_reload_sets_and_removes_the_limit_of_all(tmp_path: Path, redis_url: str) -> None:
    go = asyncio.Event()
    async with (
        ScriptedProvider([Gate(go), *answer("a")]) as provider,
        two_gateways(tmp_path, redis_url, provider) as (one, other),
    ):
        calls = [asyncio.create_task(chat(one)) for _ in range(2)]
        await provider.reach(in_flight=2)

        def reload(each: RunningGateway, limit: int | None) -> None:
            config = copy.deepcopy(each.config)
            deployment = {"deployment": "own/m", **({} if limit is None else {"max_in_flight_fleet": limit})}
            config["models"][MODEL]["deployments"] = [deployment]
            each.gateway.reload(read(config, each.folder))

        reload(one, 2)
        await until(lambda: line_of(one).most == 2)  # those from before the reload count
        reload(other, 2)
        calls += [asyncio.create_task(chat(other)) for _ in range(2)]
        await until(lambda: len(line_of(other).waiting) == 2)
        assert provider.counts.in_flight == 2
        for each in (one, other):
            reload(each, 3)
        await provider.reach(in_flight=3)
        for each in (one, other):
            reload(each, None)
        await provider.reach(in_flight=4)
        go.set()
        assert await asyncio.gather(*calls) == [200] * 4
        assert other.gateway.context.services.seats.leased == {}


async def test_a_call_goes_elsewhere_rather_than_wait_for_a_slot(tmp_path: Path, redis_url: str) -> None:
    go = asyncio.Event()
    async with (
        ScriptedProvider([Gate(go), *answer("a")]) as provider,
        two_gateways(tmp_path, redis_url, provider, max_in_flight_fleet=1) as (one, other),
    ):
        held = asyncio.create_task(chat(one))
        await provider.reach(in_flight=1)
        config = copy.deepcopy(other.config)
        config["models"][MODEL]["deployments"].append("other/m")
        other.gateway.reload(read(config, other.folder))
        for _ in range(3):
            assert await chat(other) == 200
        assert (provider.counts.requests, other["other"].counts.requests) == (1, 3)
        go.set()
        assert await held == 200
        assert msgspec.json.encode(line_of(other).waiting) == b"{}"
