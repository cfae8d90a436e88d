"""Whoever gets fewer attempts than asked for is told why: the same word in the header, the row, the metric, …"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import pytest
from structlog.typing import EventDict

from gateway.core.attempts import Narrowed
from providers.simulator import Gate, Hang, Status, Step, answer
from tests.app.gateway.collector import collecting
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.patience import PATIENCE_S

LIVE = f"/api/live?model={MODEL}"


async def nothing(_: RunningGateway) -> None:
    """Prepare nothing."""


async def spend_the_budget(running: RunningGateway) -> None:
    running.gateway.steering._budgets.of(MODEL).tokens = 0.0


async def refuse_once(running: RunningGateway) -> None:
    """Have the rival answer a call alone: with 429."""
    async with running.chat(provider={"only": ["slow"]}) as response:
        assert response.status == 429


async def limit(running: RunningGateway) -> None:
    """Have the rival known to admit ten requests a minute, which it has had."""
    steering, now_s = running.gateway.steering, time.monotonic()
    health = steering.health_of("slow/m")
    for ago_s in (200.0, 5.0):
        health.launches.add(now_s - ago_s - 5.0, 11)
        health.rate_limited(None, now_s - ago_s)
    steering._learning.limited.add("slow/m")


async def break_the_third(running: RunningGateway) -> None:
    """Have the third broken so long that the next call probes it."""
    running.gateway.steering.health_of("third/m").open_breaker(time.monotonic() - 12.0)


def of_model(deployments: Sequence[Any] = ("fast/m", "slow/m"), **race: Any) -> dict[str, Any]:
    race = {"mode": "race", "width": 2, "audit_share": 0, **race}
    return {"models": {MODEL: {"deployments": list(deployments), "race": race}}}


def priced(**race: Any) -> dict[str, Any]:
    price = {"price_per_mtok": {"input": 1.0, "output": 1.0}}
    return of_model([{"deployment": f"{name}/m", **price} for name in ("fast", "slow")], **race)


class Case(msgspec.Struct, frozen=True):
    """What narrows a call whose first deployment is preferred."""

    config: dict[str, Any]
    fields: Mapping[str, Any] = {}
    prepare: Callable[[RunningGateway], Awaitable[None]] = nothing
    slow: Sequence[Step] | None = None
    launched: int = 1


TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {}}}
CASES: Mapping[Narrowed, Case] = {
    Narrowed.STATEFUL: Case(of_model(), fields={"store": True}),
    Narrowed.LONG_PROMPT: Case(of_model(max_prompt_tokens=1)),
    Narrowed.UNFIT: Case(
        of_model(["fast/m", {"deployment": "slow/m", "capabilities": {"tools": False}}]), {"tools": [TOOL]}
    ),
    Narrowed.COOLING: Case(of_model(), prepare=refuse_once, slow=[Status(429, headers={"retry-after": "60"})]),
    Narrowed.RATE_LIMITS: Case(of_model(), prepare=limit),
    Narrowed.USD: Case(priced(usd_per_day=1e-9)),
    Narrowed.USD_PER_CALL: Case(priced(extra_usd_per_call=1e-9)),
    Narrowed.BUDGET: Case(of_model(budget=0.1), prepare=spend_the_budget),
    Narrowed.PROBE: Case(of_model(["fast/m", "slow/m", "third/m"]), prepare=break_the_third, launched=2),
    Narrowed.NO_RIVAL_WORTH_IT: Case(priced(mode="auto", value_usd_per_s=1e-9)),
}
AT_THE_LAUNCH = {Narrowed.USD, Narrowed.USD_PER_CALL, Narrowed.BUDGET}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("reason", CASES)
async def test_each_surface_says_the_same_word(
    serve: Serve, logged: list[EventDict], reason: Narrowed, stream: bool
) -> None:
    case = CASES[reason]
    slow = [Hang()] if case.slow is None else case.slow
    async with collecting() as collector:
        tracing = {"tracing": {"enabled": True, "endpoint": collector.url}}
        async with serve(fast=answer("Hello"), slow=slow, third=[Hang()], config=case.config | tracing) as running:
            running.prefer("fast", "third", "slow", first_s=5.0)
            await case.prepare(running)
            before = len(await running.rows("select id from calls"))
            live = await running.http.get(running.url + LIVE)
            async with running.chat({"x-holeshot-plan": "1"}, stream=stream, **case.fields) as response:
                await response.read()
            assert response.status == 200
            assert response.headers["x-holeshot-narrowed"] == reason
            assert response.headers["x-holeshot-launched"] == str(case.launched)
            plan = json.loads(response.headers["x-holeshot-plan"])
            assert plan.get("narrowed") == (None if reason in AT_THE_LAUNCH else reason)

            row = (await running.rows("select * from calls order by started_at"))[before]
            assert (row["narrowed"], row["width_asked"], row["launched"]) == (reason, 2, case.launched)
            async with running.get("/metrics") as metrics:
                counted = f'holeshot_refused_launches_total{{limit="{reason}",model="{MODEL}"}} 1.0'
                assert counted in await metrics.text()
            async with running.get("/api/calls") as calls:
                [listed] = [each for each in (await calls.json())["data"] if each["id"] == row["id"]]
            assert (listed["narrowed"], listed["width_asked"]) == (reason, 2)
            done = await _done(live, row["id"])
            assert done["narrowed"] == reason
            live.close()
        lines = [each for each in logged if each["event"] == "call.finished"]
        assert [each["narrowed"] for each in lines if each["id"] == row["id"]] == [reason]
        [span] = [each for each in collector.calls if each.attributes["holeshot.call_id"] == row["id"]]
        assert (span.attributes["holeshot.narrowed"], span.attributes["holeshot.width_asked"]) == (reason, 2)


async def _metrics(running: RunningGateway) -> str:
    async with running.get("/metrics") as metrics:
        return str(await metrics.text())


async def _done(live: Any, call_id: str) -> dict[str, Any]:
    """Return the live event with which the call ends."""
    kind = b""
    async for line in live.content:
        field, _, value = line.strip().partition(b": ")
        if field == b"event":
            kind = value
        elif field == b"data" and kind == b"done":
            event: dict[str, Any] = msgspec.json.decode(value)
            if event["id"] == call_id:
                return event
    raise AssertionError("the stream ended first")


async def test_a_deployment_without_a_free_seat_is_told_as_each_other_reason(
    serve: Serve, logged: list[EventDict]
) -> None:
    go = asyncio.Event()
    config = of_model(["fast/m", {"deployment": "slow/m", "max_in_flight": 1}])
    config["models"]["other"] = {"deployments": ["slow/m"], "race": {"mode": "single"}}
    async with serve(fast=answer("Hello"), slow=[Gate(go), *answer("Hello")], config=config) as running:
        running.prefer("fast", "slow")
        holder = asyncio.create_task(running.post({"model": "other", "messages": [{"role": "user", "content": "?"}]}))
        await running["slow"].requested.wait()
        async with running.chat() as response:
            await response.read()
        go.set()
        (await holder).close()
        assert response.headers["x-holeshot-narrowed"] == "max_in_flight"
        [row] = await running.rows(f"select narrowed, width_asked, launched from calls where model = '{MODEL}'")
        assert tuple(row.values()) == ("max_in_flight", 2, 1)
        async with running.get("/metrics") as metrics:
            counted = f'holeshot_refused_launches_total{{limit="max_in_flight",model="{MODEL}"}} 1.0'
            assert counted in await metrics.text()
    [line] = [each for each in logged if each["event"] == "call.finished" and each["model"] == MODEL]
    assert line["narrowed"] == "max_in_flight"


@pytest.mark.parametrize(
    ("config", "width_asked"),
    [
        (of_model(), 2),
        (of_model(mode="single"), 1),
        (of_model(mode="hedge", hedge_delay_s=30.0), 1),
    ],
    ids=["raced", "single", "a hedge that was not due"],
)
async def test_what_nothing_stood_in_the_way_of_is_not_narrowed(
    serve: Serve, config: dict[str, Any], width_asked: int
) -> None:
    async with serve(fast=answer("Hello"), slow=[Hang()], config=config) as running:
        running.prefer("fast", "slow")
        async with running.chat() as response:
            await response.read()
        call = await running.call()
        assert "x-holeshot-narrowed" not in response.headers
        assert (call["narrowed"], call["width_asked"]) == (None, width_asked)


@pytest.mark.parametrize(
    ("models", "fields", "reason"),
    [
        (of_model(mode="hedge", hedge_delay_s=0.02), {"store": True}, "stateful"),
        (of_model(mode="hedge", hedge_delay_s=0.02), {"provider": {"only": ["fast"]}}, "unfit"),
        (of_model(mode="hedge", hedge_delay_s=0.02), {}, "cooling"),
        (of_model(mode="hedge", hedge_delay_s=30.0), {"store": True}, None),
    ],
    ids=["stateful", "left out by the request", "paused", "not due"],
)
async def test_a_hedge_that_is_due_and_has_no_deployment_is_told(
    serve: Serve, models: dict[str, Any], fields: dict[str, Any], reason: str | None
) -> None:
    go, slow = asyncio.Event(), [Status(429, headers={"retry-after": "60"})]
    async with serve(fast=[Gate(go), *answer("Hello")], slow=slow, config=models) as running:
        running.prefer("fast", "slow")
        if reason == "cooling":
            await refuse_once(running)
        call = asyncio.ensure_future(running.chat(**fields))
        await running["fast"].requested.wait()
        told = "" if reason is None else f'holeshot_refused_launches_total{{limit="{reason}",model="{MODEL}"}} 1.0'
        async with asyncio.timeout(PATIENCE_S):
            while told not in await _metrics(running):
                pass
        go.set()
        async with await call as response:
            await response.read()
        row = (await running.rows("select narrowed, width_asked, launched from calls order by started_at"))[-1]
        assert (response.headers.get("x-holeshot-narrowed"), *row.values()) == (reason, reason, 1, 1)


async def test_a_call_that_failed_over_is_not_narrowed(serve: Serve) -> None:
    async with serve(fast=[Status(500)], slow=answer("Hello"), config=of_model(mode="single")) as running:
        running.prefer("fast", "slow")
        async with running.chat() as response:
            await response.read()
        call = await running.call()
        assert (call["launched"], call["narrowed"], call["width_asked"]) == (2, None, 1)
        assert "x-holeshot-narrowed" not in response.headers


async def test_what_is_never_raced_asks_for_no_width(serve: Serve) -> None:
    async with serve(fast=answer("Hello"), config=of_model(["fast/m"])) as running:
        async with running.post({"model": MODEL, "prompt": "a cat"}, path="/v1/images/generations") as response:
            await response.read()
        call = await running.call()
        assert (call["endpoint"], call["narrowed"], call["width_asked"]) == ("images.generations", None, None)


async def test_the_fallback_that_answered_says_why_it_had_one_attempt(serve: Serve) -> None:
    config = of_model(["broken/m", "broken/n"])
    config["models"][MODEL]["fallbacks"] = ["other"]
    config["models"]["other"] = {
        "deployments": ["fast/m", "slow/m"],
        "race": {"mode": "race", "width": 2, "budget": 0.1},
    }
    async with serve(broken=[Status(500)], fast=answer("Hello"), slow=answer("Hello"), config=config) as running:
        running.gateway.steering._budgets.of("other").tokens = 0.0
        async with running.chat() as response:
            await response.read()
        call = await running.call()
        assert (call["answered_model"], call["narrowed"], call["width_asked"]) == ("other", "budget", 2)
        assert response.headers["x-holeshot-narrowed"] == "budget"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_fallback_that_overtakes_keeps_the_word_of_the_late_model(serve: Serve, stream: bool) -> None:
    config = priced(extra_usd_per_call=1e-9)
    config["models"][MODEL] |= {"fallbacks": ["other"], "fallback_after": 0.05}
    config["models"]["other"] = {"deployments": ["third/m"]}
    async with serve(fast=[Hang()], slow=[Hang()], third=answer("Hello"), config=config) as running:
        async with running.chat(stream=stream) as response:
            await response.read()
        call = await running.call()
        assert (call["answered_model"], call["narrowed"], call["width_asked"]) == ("other", "extra_usd_per_call", 2)
        assert response.headers["x-holeshot-fallback"] == "other"
        assert response.headers["x-holeshot-narrowed"] == "extra_usd_per_call"


async def test_a_model_whose_racing_is_narrowed_says_since_when_and_why(serve: Serve, logged: list[EventDict]) -> None:
    async with serve(fast=answer("Hello"), slow=[Hang()], config=of_model(budget=0.0)) as running:
        running.prefer("fast", "slow")
        for _ in range(20):
            async with running.chat() as response:
                await response.read()
        async with running.get("/api/leaderboard") as board:
            [found] = (await board.json())["models"]
        [first] = await running.rows("select min(started_at) as at from calls")
    [told] = [each for each in logged if each["event"].startswith("race.")]
    assert (told["event"], told["log_level"], told["model"]) == ("race.narrowed", "warning", MODEL)
    assert found["narrowed"]["reason"] == told["reason"] == "budget"
    assert found["narrowed"]["why"] == told["why"] == "the budget for extra attempts is used up"
    assert abs(_unix_s(found["narrowed"]["since"]) - _unix_s(first["at"] + "+00:00")) < 60


def _unix_s(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp()
