"""A trial for each capability: what a client or an operator sees of it, the same for everything that is asked for."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import msgspec

from gateway.core.prompt_classes import MeasuredApi, PromptClass
from gateway.steering import event, event_field
from providers.simulator import Drop, Hang
from tests.app.gateway.capabilities.asked import (
    APIS,
    FIRST,
    REST,
    SECOND,
    TEXT,
    Cell,
    Reply,
    after,
    begins,
    both_providers,
    hangs,
    other,
    refuses,
    streams,
)
from tests.app.gateway.collector import collecting
from tests.app.gateway.key_desk import bearer, sha256
from tests.app.gateway.running_gateway import MODEL, Incurious, serving
from tests.app.gateway.watcher import watching
from tests.patience import eventually, until

PRICE = {"price_per_mtok": {"input": 1.0, "output": 2.0}}
SOON_S = 0.05
SINGLE = MappingProxyType({"mode": "single"})


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """How a capability is tried: at a cell's model, in a gateway with these settings."""

    see: Callable[[Cell], Awaitable[None]]
    race: Mapping[str, Any] = SINGLE
    model: Mapping[str, Any] = {}  # further settings of each cell's model
    deployment: Mapping[str, Any] = {}  # of each deployment
    settings: Mapping[str, Any] = {}  # of the gateway
    client: Mapping[str, Any] | None = None  # of each cell's key; None: no keys
    random: Random = msgspec.field(default_factory=Incurious)


class Curious(Random):
    """Randomness that always explores."""

    def random(self) -> float:
        return 0.0


LOST_AND_WON = {FIRST: "lost", SECOND: "won"}


def teach(cell: Cell) -> None:
    """Let it be known that both are fast, and the first one is faster."""
    samples: dict[str, float] = {}
    for name, first_s in ((FIRST, 0.02), (SECOND, 0.08)):
        deployment = f"{name}/{cell.model}"
        for api in MeasuredApi:
            if api is not MeasuredApi.UNKNOWN:
                samples |= {event_field(deployment, PromptClass(api, size), first_s): 50.0 for size in range(3)}
                samples[event(deployment, api, first_s)] = 50.0
        samples |= {f"{deployment}|tok": 1000.0, f"{deployment}|sec": 100.0 * first_s}
    cell.running.gateway.steering._board.add(cell.model, samples, time.time())


async def outcomes(cell: Cell) -> dict[str, str]:
    return {provider: outcome for provider, _, outcome in await cell.tried()}


async def race(cell: Cell) -> None:
    cell.script(first=hangs, second=after(cell.has_asked(FIRST)))
    await cell.is_answered()
    assert await outcomes(cell) == LOST_AND_WON
    assert (await cell.call())["extras"] == 1


async def hedge(cell: Cell) -> None:
    teach(cell)
    cell.script(first=hangs)
    await cell.is_answered()
    assert await cell.tried() == [(FIRST, "primary", "lost"), (SECOND, "hedge", "won")]


async def rescue(cell: Cell) -> None:
    teach(cell)
    cell.script(first=hangs)
    await cell.is_answered()
    assert await cell.tried() == [(FIRST, "primary", "lost"), (SECOND, "failover", "won")]


async def replace_one_that_fails(cell: Cell) -> None:
    teach(cell)
    cell.script(first=refuses)
    await cell.is_answered()
    assert await cell.tried() == [(FIRST, "primary", "failed"), (SECOND, "failover", "won")]


async def fall_back(cell: Cell) -> None:
    cell.script(first=refuses)
    await cell.is_answered()
    assert await outcomes(cell) == {FIRST: "failed", SECOND: "won"}
    assert (await cell.call())["answered_model"] == other(cell.model)


async def fall_back_beside(cell: Cell) -> None:
    teach(cell)
    cell.script(first=hangs)
    await cell.is_answered()
    assert await cell.tried() == [(FIRST, "primary", "lost"), (SECOND, "fallback", "won")]
    assert (await cell.call())["answered_model"] == other(cell.model)


async def probe(cell: Cell) -> None:
    teach(cell)
    health = cell.running.gateway.steering.health_of(f"{SECOND}/{cell.model}")
    health.open_breaker(time.monotonic() - 12.0)  # so long ago that the next call probes it
    cell.script(first=after(cell.has_asked(SECOND)))
    await cell.is_answered()
    await eventually(lambda: _with(cell, provider=SECOND, role="probe"))


async def explore(cell: Cell) -> None:
    teach(cell)
    cell.script(first=after(cell.has_asked(SECOND)))
    await cell.is_answered()
    await eventually(lambda: _with(cell, provider=SECOND, role="explore"))


async def audit(cell: Cell) -> None:
    teach(cell)
    go_on = asyncio.Event()
    cell.script(first=after(go_on), second=after(cell.has_asked(FIRST)))
    await cell.is_answered()
    go_on.set()
    await eventually(lambda: _with(cell, provider=FIRST, outcome="superseded", audited=1, is_overtaken=1))


async def saved(cell: Cell) -> None:
    teach(cell)
    cell.script(first=hangs, second=after(cell.has_asked(FIRST)))
    await cell.is_answered()
    call = await cell.call()
    assert call["alone_age_ms"] is not None
    assert call["alone_predicted_ms"] > call["ttft_ms"]


async def narrow(cell: Cell) -> None:
    teach(cell)
    cell.running.gateway.steering.health_of(f"{SECOND}/{cell.model}").open_breaker(time.monotonic())
    reply = await cell.is_answered()
    call = await cell.call()
    assert call["narrowed"] is not None
    assert cell.asked == "turn" or reply.headers["x-holeshot-narrowed"] == call["narrowed"]


async def keep_a_deadline(cell: Cell) -> None:
    teach(cell)
    cell.script(first=hangs)
    reply = await cell.is_answered(x_holeshot_deadline_ms="400")
    call = await cell.call()
    assert call["deadline_ms"] == 400.0
    assert cell.asked == "turn" or "x-holeshot-deadline-met" in reply.headers
    first, second = await cell.attempts()
    assert (second["provider"], second["role"], second["outcome"]) == (SECOND, "hedge", "won")
    assert first["launch_offset_ms"] < second["launch_offset_ms"]


async def notice_a_silence(cell: Cell) -> None:
    cell.script(first=begins(*TEXT, then=Hang()), second=_goes_on(cell))
    teach(cell)
    reply = await cell.is_answered()
    assert b"jumps" in reply.body
    assert await outcomes(cell) == {FIRST: "stalled", SECOND: "won"}


async def take_over(cell: Cell) -> None:
    cell.script(first=begins(*TEXT, then=Drop()), second=_goes_on(cell))
    teach(cell)
    reply = await cell.is_answered()
    assert b"jumps" in reply.body
    assert (await cell.call())["takeover"] == "finished"


def _goes_on(cell: Cell) -> Any:
    """Return the script of a continuation, or of an answer of its own where nothing was delivered."""
    return streams(*TEXT, " jumps.") if cell.asked == "whole" else streams(REST)


async def explain(cell: Cell) -> None:
    reply = await cell.is_answered(x_holeshot_plan="1")
    launches = json.loads(reply.headers["x-holeshot-plan"])["launches"]
    assert launches[0]["role"] == "primary"


async def wait_for_a_seat(cell: Cell) -> None:
    await _one_at_a_time(cell, "max_in_flight")


async def call_in_parallel(cell: Cell) -> None:
    await _one_at_a_time(cell, "max_parallel")


async def _one_at_a_time(cell: Cell, limit: str) -> None:
    go_on = asyncio.Event()
    cell.script(first=after(go_on))
    first = asyncio.ensure_future(cell.is_answered())
    await cell.has_asked(FIRST).wait()
    refused = await cell.ask()
    go_on.set()
    assert _is_refused(refused, limit), refused
    await first


async def count_requests(cell: Cell) -> None:
    await cell.is_answered()
    refused = await cell.ask()
    assert _is_refused(refused, "rpm"), refused


async def count_tokens(cell: Cell) -> None:
    await _until_refused(cell, "tpm")


async def count_dollars(cell: Cell) -> None:
    await _until_refused(cell, "usd_per_day")


async def _until_refused(cell: Cell, limit: str) -> None:
    """Ask until no more is left; the first is answered."""
    reply = await cell.is_answered()
    most_calls = 20
    for _ in range(most_calls):
        if reply.status == HTTPStatus.OK:
            reply = await cell.ask()
    assert _is_refused(reply, limit), reply


def _is_refused(reply: Reply, limit: str) -> bool:
    return reply.status == HTTPStatus.TOO_MANY_REQUESTS and limit.encode() in reply.body


async def bound_dollars(cell: Cell) -> None:
    cell.script(first=hangs, second=after(cell.has_asked(FIRST)))
    await cell.is_answered()
    [lost] = [row for row in await cell.attempts() if row["outcome"] == "lost"]
    assert lost["cost_high_usd"] > lost["cost_low_usd"] >= 0.0
    call = await cell.call()
    assert call["cost_high_usd"] > call["cost_low_usd"] > 0.0


async def spend_no_more(cell: Cell) -> None:
    teach(cell)
    await cell.is_answered()
    assert len(await cell.attempts()) == 1
    assert (await cell.call())["narrowed"] == "usd_per_day"


async def show_live(cell: Cell) -> None:
    await cell.is_answered()
    id_ = (await cell.call())["id"]
    await cell.watcher.until(lambda watcher: any(each["id"] == id_ for each in watcher.of("done")))
    [call] = [each for each in cell.watcher.of("call") if each["id"] == id_]
    [launch] = [each for each in cell.watcher.of("launch") if each["call"] == id_]
    assert (call["model"], launch["provider"]) == (cell.model, (await cell.attempts())[0]["provider"])


async def trace(cell: Cell) -> None:
    await cell.is_answered()
    id_ = (await cell.call())["id"].replace("-", "")
    await until(
        lambda: len([span for span in cell.collector.spans if span.trace_id == id_]) == len(("call", "attempt"))
    )


async def _with(cell: Cell, **columns: Any) -> list[dict[str, Any]]:
    """Return the attempts with these values."""
    rows = await cell.attempts()
    return [row for row in rows if all(row[name] == value for name, value in columns.items())]


RACE = {"mode": "race", "width": 2, "audit_share": 0}
AUTO = {"mode": "auto", "width": 2, "budget": 1.0, "audit_share": 0}
TAKEOVER = {"takeover": {"when": "always"}}
CONTINUES = {"continues": "prefix"}

TRIALS: Mapping[str, Trial] = {
    "race": Trial(see=race, race=RACE),
    "hedge": Trial(see=hedge, race={"mode": "hedge", "hedge_delay_s": SOON_S}),
    "rescue": Trial(see=rescue, race={"mode": "auto", "budget": 0.0}),
    "failover": Trial(see=replace_one_that_fails),
    "fallback": Trial(see=fall_back, model={"fallback_after": "failure"}),
    "beside": Trial(see=fall_back_beside, model={"fallback_after": SOON_S}),
    "probe": Trial(see=probe, race=AUTO),
    "explore": Trial(see=explore, race={**AUTO, "budget": 0.01}, random=Curious()),
    "audit": Trial(see=audit, race={**RACE, "audit_share": 1.0}),
    "saved": Trial(see=saved, race=RACE),
    "narrowed": Trial(see=narrow, race=RACE),
    "deadline": Trial(see=keep_a_deadline, race={**AUTO, "budget": 0.1, "objective": "first_token"}),
    "stalls": Trial(see=notice_a_silence, race={"mode": "single"}, model=TAKEOVER, deployment=CONTINUES),
    "takeover": Trial(see=take_over, race={"mode": "single"}, model=TAKEOVER, deployment=CONTINUES),
    "explain": Trial(see=explain),
    "seats": Trial(see=wait_for_a_seat, deployment={"max_in_flight": 1}, settings={"queue_timeout_s": SOON_S}),
    "rpm": Trial(see=count_requests, client={"rpm": 1}),
    "tpm": Trial(see=count_tokens, client={"tpm": 2_500}),
    "max_parallel": Trial(see=call_in_parallel, client={"max_parallel": 1}),
    "usd": Trial(see=count_dollars, deployment=PRICE, client={"usd_per_day": 0.009}),
    "model_usd": Trial(see=count_dollars, deployment=PRICE, model={"usd_per_day": 0.009}),
    "extra_usd": Trial(see=spend_no_more, race={**RACE, "usd_per_day": 1e-9}, deployment=PRICE),
    "bounds": Trial(see=bound_dollars, race=RACE, deployment=PRICE),
    "live": Trial(see=show_live),
    "traces": Trial(see=trace),
}
ALONE = {"seats", "max_parallel", "rpm", "tpm", "usd", "model_usd"}  # of one deployment: who is asked is known


def _models(name: str, trial: Trial, asked: str) -> dict[str, Any]:
    """Return a cell's model, and its fallback where there is to be one."""
    falls_back = "fallback_after" in trial.model
    providers = (FIRST,) if falls_back or name in ALONE else (FIRST, SECOND)
    settings = dict(trial.deployment)
    if asked == "turn" and "continues" in settings:
        settings["continues"] = "in_progress"  # in its API
    model: dict[str, Any] = {
        "deployments": [{"deployment": f"{each}/{asked}", **settings} for each in providers],
        "race": dict(trial.race),
        **trial.model,
    }
    if not falls_back:
        return {asked: model}
    spare = {"deployments": [f"{SECOND}/{asked}"], "race": dict(SINGLE)}
    return {asked: {**model, "fallbacks": [other(asked)]}, other(asked): spare}


@asynccontextmanager
async def cells_of(name: str, folder: Path, kinds: Sequence[str]) -> AsyncIterator[list[Cell]]:
    """Serve a gateway for the trial of a capability, and yield a cell for each kind of question."""
    trial = TRIALS[name]
    is_keyed = trial.client is not None
    models: dict[str, Any] = {MODEL: {"deployments": [f"{FIRST}/unused"]}}
    for kind in kinds:
        models |= _models(name, trial, kind)
    async with AsyncExitStack() as stack:
        providers = await stack.enter_async_context(both_providers())
        collector = await stack.enter_async_context(collecting())
        settings: dict[str, Any] = {
            "providers": {each: {"base_url": one.base_url, "apis": APIS} for each, one in providers.items()},
            "models": models,
            "tracing": {"enabled": True, "endpoint": collector.url},
            **trial.settings,
        }
        if trial.client is not None:
            keys = {kind: {"key_sha256": sha256(f"hs-{kind}"), **trial.client} for kind in kinds}
            settings["clients"] = {**keys, "viewer": {"key_sha256": sha256("hs-viewer"), "role": "viewer"}}
        running = await stack.enter_async_context(
            serving(folder, {}, in_one_minute=True, random=trial.random, **settings)
        )
        headers = bearer("hs-viewer") if is_keyed else {}
        watcher = await stack.enter_async_context(watching(running.http, running.url, headers))
        yield [
            Cell(kind, running, providers, watcher=watcher, collector=collector, is_keyed=is_keyed) for kind in kinds
        ]
