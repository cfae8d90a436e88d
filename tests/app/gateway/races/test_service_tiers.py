"""A vendor's service tiers as deployments: the cheap one first, the dear one in time for the deadline."""

import time
from typing import Any

import pytest

from gateway.core.prompt_classes import MeasuredApi
from gateway.steering import event
from providers.simulator import Hang, answer
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

CHEAP, DEAR = {"input": 1.0, "output": 4.0}, {"input": 2.0, "output": 8.0}


def tiers(flex: str, standard: str, **race: Any) -> dict[str, Any]:
    """Return the configuration of one model in two tiers, at these providers."""
    deployments: list[dict[str, Any]] = [
        {
            "deployment": f"{flex}/m",
            "as": "m@flex",
            "extra_body": {"service_tier": "flex"},
            "price_per_mtok": CHEAP,
        },
        {"deployment": f"{standard}/m", "as": "m@standard", "price_per_mtok": DEAR},
    ]
    race = {"objective": "cost", "ttft_ms": 5000, "mode": "auto", "budget": 0.1, "width": 2} | race
    return {"models": {MODEL: {"deployments": deployments, "race": race}}}


def know(running: RunningGateway, **ttft_s: float) -> None:
    """Teach the policy how soon each tier answers."""
    for tier, seconds in ttft_s.items():
        name = f"m@{tier}"
        samples = {event(name, MeasuredApi.ANSWERS, seconds): 200.0, f"{name}|tok": 5000.0, f"{name}|sec": 50.0}
        running.gateway.steering._board.add(MODEL, samples, time.time())


async def test_the_cheap_tier_answers_alone_while_it_keeps_the_deadline(serve: Serve) -> None:
    async with serve(slow=answer("Hello"), fast=answer("Hello"), config=tiers("slow", "fast")) as running:
        know(running, flex=0.8, standard=0.2)
        for _ in range(5):
            async with running.chat({"x-holeshot-deadline-ms": "4000"}) as response:
                assert response.headers["x-holeshot-deployment"] == "m@flex"
        assert (running["slow"].counts.requests, running["fast"].counts.requests) == (5, 0)


async def test_the_dear_tier_starts_at_the_last_instant_that_keeps_the_deadline(serve: Serve) -> None:
    async with serve(slow=[Hang()], fast=answer("Hello"), config=tiers("slow", "fast")) as running:
        know(running, flex=0.8, standard=0.2)
        async with running.chat({"x-holeshot-deadline-ms": "1300", "x-holeshot-plan": "1"}) as response:
            assert response.headers["x-holeshot-deployment"] == "m@standard"
        plan = response.headers["x-holeshot-plan"]
        attempts = await running.rows("select deployment, role, outcome from attempts order by number")
        call = await running.call()
    assert "the latest start that can meet ttft_ms 1300" in plan
    assert [tuple(each.values()) for each in attempts] == [
        ("m@flex", "primary", "lost"),
        ("m@standard", "hedge", "won"),
    ]
    assert bool(call["deadline_met"]) == (call["ttft_ms"] <= 1300)


async def test_a_deadline_that_the_cheap_tier_misses_is_for_the_dear_one(serve: Serve) -> None:
    async with serve(slow=answer("Hello"), fast=answer("Hello"), config=tiers("slow", "fast")) as running:
        know(running, flex=3.0, standard=0.2)
        async with running.chat({"x-holeshot-deadline-ms": "1000"}) as response:
            assert response.headers["x-holeshot-deployment"] == "m@standard"
        assert running["slow"].counts.requests == 0


async def test_one_model_of_one_vendor_may_be_configured_in_both_tiers(serve: Serve) -> None:
    async with serve(vendor=answer("Hello"), config=tiers("vendor", "vendor", mode="single")) as running:
        know(running, flex=0.8, standard=0.2)
        for deadline_ms in ("4000", "500"):
            async with running.chat({"x-holeshot-deadline-ms": deadline_ms}) as response:
                await response.read()
        flex, standard = [each.body for each in running["vendor"].received]
        rows = await running.rows("select deployment, price ->> 'input' as usd from attempts order by started_at")
    assert flex["model"] == standard["model"] == "m"
    assert (flex["service_tier"], standard.get("service_tier")) == ("flex", None)
    assert [(each["deployment"], each["usd"]) for each in rows] == [
        ("m@flex", pytest.approx(1.0)),
        ("m@standard", pytest.approx(2.0)),
    ]
