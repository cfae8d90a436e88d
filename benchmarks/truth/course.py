"""The calls of one run: races, single calls at each provider, tools, and clients that give up waiting."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

from benchmarks.truth.fleet import Fleet

AT_ONCE = 12  # calls: more would measure this machine
PATIENCE_S = 0.513  # of those who give up
WAIT_S = 30.0
FILLER = "word " * 26  # so that the prompt is as long as the fleet says


class Course(msgspec.Struct, frozen=True):
    """Which call was what, by its number."""

    raced: range
    alone: dict[str, range]  # by provider
    tools: range
    broken: range
    cut: range
    slow: range  # of which the first ``leave`` are given up
    leave: int


def course(calls: int, fleet: Fleet) -> Course:
    """Share out ``calls`` races, and some single calls of each kind after them."""
    at = calls
    alone = {}
    for name in fleet.personas:
        if name != "slow":
            alone[name] = range(at, at + max(25, calls // 20))
            at = alone[name].stop
    some = max(8, calls // 100)
    return Course(
        range(calls),
        alone,
        range(at, at + some),
        range(at + some, at + 2 * some),
        range(at + 2 * some, at + 3 * some),
        range(at + 3 * some, at + 3 * some + 30),
        18,
    )


def write_config(folder: Path, fleet: Fleet, racing: list[str], port: int, origin: str) -> Path:
    """Write a gateway's configuration: the model ``race``, one model for each provider, and one that is slow."""

    def deployment(name: str) -> dict[str, Any]:
        persona = fleet.personas[name]
        price = {"input": persona.input_usd * 1e6, "output": persona.output_usd * 1e6}
        if persona.cached_usd is not None:
            price["cached_input"] = persona.cached_usd * 1e6
        return {"deployment": f"{name}/m", "price_per_mtok": price, "bills_after_disconnect": persona.bills_on}

    race = {"mode": "race", "width": 2, "budget": 1.0, "audit_share": 0.3}
    config = {
        "host": "127.0.0.1",
        "port": port,
        "database_url": f"sqlite:///{folder}/ledger.db",
        "spool_dir": f"{folder}/spool",
        "log_level": "warning",
        "providers": {
            name: {"kind": "openai_compatible", "base_url": f"{origin}/{name}/v1"} for name in fleet.personas
        },
        "models": {
            "race": {"deployments": [deployment(name) for name in racing], "race": race},
            "pool": {
                "deployments": [deployment(name) for name in fleet.personas if name != "slow"],
                "race": {"mode": "single"},
            },
            "slow": {"deployments": [deployment("slow")], "race": {"mode": "single"}},
        },
    }
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


class Job(msgspec.Struct, frozen=True):
    """One call to make."""

    model: str
    number: int
    kind: str = "text"
    patience_s: float = WAIT_S
    only: str | None = None  # the provider that is to answer


def jobs(todo: Course) -> Iterator[Job]:
    """Yield all calls."""
    yield from (Job("race", number) for number in todo.raced)
    for name, numbers in todo.alone.items():
        yield from (Job("pool", number, only=name) for number in numbers)
    plain = next(iter(todo.alone))
    for kind, numbers in (("tool", todo.tools), ("broken", todo.broken), ("cut", todo.cut)):
        yield from (Job("pool", number, kind, only=plain) for number in numbers)
    leaving = todo.slow.start + todo.leave
    yield from (Job("slow", number, patience_s=PATIENCE_S if number < leaving else WAIT_S) for number in todo.slow)


async def drive(port: int, todo: Course, done: Callable[[], None]) -> None:
    """Make all calls, some at a time; ``done`` hears of each."""
    waiting = jobs(todo)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def work() -> None:
            for job in waiting:
                await _call(session, port, job)
                done()

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())


async def _call(session: aiohttp.ClientSession, port: int, job: Job) -> None:
    body: dict[str, Any] = {
        "model": job.model,
        "stream": True,
        "max_tokens": 200,
        "messages": [{"role": "user", "content": f"call {job.number} {job.kind} {FILLER}"}],
    }
    if job.only is not None:
        body["provider"] = {"only": [job.only]}
    headers = {"x-request-id": str(job.number)}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    try:
        async with asyncio.timeout(job.patience_s), session.post(url, json=body, headers=headers) as response:
            await response.read()
    except TimeoutError:
        pass  # it has left
