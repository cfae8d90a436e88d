"""Three vendors' keys and a coding agent: how long is the first token waited for, alone, hedged and raced?

    python -m benchmarks.developer [--calls 400] [--json]

A gateway in its own process, before strict stand-ins of Anthropic, OpenAI and Google, over real sockets. Their first
tokens are drawn: medians of 0.80, 0.70 and 0.60 s, lognormal with sigma 0.35; of each three in a hundred come after 4
to 20 s. The calls are streamed in Anthropic's Messages, six at a time, the rows one after the other. It takes four
minutes; docs/guides/one-developer.md has its table.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import msgspec

from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.harness.replicas import alone
from benchmarks.harness.report import Grid, quantile
from strict_vendors import Served, made, served

CALLS, AT_ONCE, LIMIT_S = 400, 6, 60.0
SIGMA, STALLS, STALL_S = 0.35, 0.03, (4.0, 20.0)
VENDORS = {  # by the name of the stand-in: the model, and the median of its first token in seconds
    "anthropic": ("claude-sonnet-5-5", 0.80),
    "openai": ("gpt-6.1-sol", 0.70),
    "gemini": ("gemini-4-argon", 0.60),
}
WAYS: dict[str, tuple[int, dict[str, Any]]] = {  # how many of the vendors, and the race
    "alone: Anthropic's model": (1, {"mode": "single"}),
    "hedged: `budget: 0.1`": (3, {"budget": 0.1}),
    "raced: two of the three at once": (3, {"mode": "race", "width": 2, "budget": 1}),
    "raced: all three at once": (3, {"mode": "race", "width": 3, "budget": 2}),
}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds to the first token, and requests to vendors per call."""

    way: str
    p50_s: float
    p95_s: float
    p99_s: float
    requests: float
    failed: int


def drawn(median_s: float, dice: Random) -> float:
    """Return when a stand-in begins to answer, in seconds."""
    return dice.uniform(*STALL_S) if dice.random() < STALLS else median_s * dice.lognormvariate(0.0, SIGMA)


def settings(running: dict[str, Served]) -> dict[str, Any]:
    """Return the gateway's configuration: a model for each way."""
    names = [f"{vendor}/{VENDORS[vendor][0]}" for vendor in running]
    return {
        "providers": {name: {"base_url": each.base_url, "api_key": each.key} for name, each in running.items()},
        "models": {
            f"way-{place}": {"deployments": names[:count], "race": race}
            for place, (count, race) in enumerate(WAYS.values())
        },
    }


async def call(http: aiohttp.ClientSession, url: str, model: str, number: int) -> float | None:
    """Return the seconds to the first text of an answer; None: it failed."""
    body = {
        "model": model,
        "max_tokens": 64,
        "stream": True,
        "messages": [{"role": "user", "content": f"say: Done with step {number}."}],
    }
    begun = time.monotonic()
    try:
        async with http.post(f"{url}/v1/messages", json=body) as response:
            first_s = None
            async for line in response.content:
                if first_s is None and b"text_delta" in line:
                    first_s = time.monotonic() - begun
            return first_s
    except (aiohttp.ClientError, TimeoutError):
        return None


async def measured(calls: int, folder: Path, run: Run) -> list[Row]:
    """Make the calls of each way."""
    async with AsyncExitStack() as stack:
        running: dict[str, Served] = {}
        for name, (_, median_s) in VENDORS.items():
            dice = Random(name)
            pause = lambda median_s=median_s, dice=dice: drawn(median_s, dice)  # noqa: E731 - a default binds it
            running[name] = await stack.enter_async_context(served(made(name), pause=pause))
        gateway = await stack.enter_async_context(alone(folder, settings(running)))
        timeout = aiohttp.ClientTimeout(total=LIMIT_S)
        http = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        rows = []
        for place, way in enumerate(WAYS):
            run.say(way)
            before = sum(len(each.seen) for each in running.values())
            free = asyncio.Semaphore(AT_ONCE)

            async def one(number: int, place: int = place, free: asyncio.Semaphore = free) -> float | None:
                async with free:
                    return await call(http, f"http://127.0.0.1:{gateway.port}", f"way-{place}", number)

            seen = [each for each in await asyncio.gather(*map(one, range(calls))) if each is not None]
            requests = sum(len(each.seen) for each in running.values()) - before
            rows.append(
                Row(
                    way=way,
                    p50_s=quantile(seen, 0.5),
                    p95_s=quantile(seen, 0.95),
                    p99_s=quantile(seen, 0.99),
                    requests=requests / calls,
                    failed=calls - len(seen),
                )
            )
        return rows


def _cells(row: Row) -> Sequence[str]:
    return (row.way, *(f"{each:.2f}" for each in (row.p50_s, row.p95_s, row.p99_s, row.requests)), str(row.failed))


def told(run: Run) -> Told:
    rows = asyncio.run(measured(run.options.calls, run.folder, run))
    columns = ("", "p50 s", "p95 s", "p99 s", "requests a call", "failed")
    grid = Grid("Seconds to the first token of a coding agent's call", columns, [_cells(row) for row in rows])
    missed = [f"{row.way}: {row.failed} calls failed" for row in rows if row.failed]
    return Told(facts=rows, grids=[grid], missed=missed)


def main() -> None:
    parser = command("developer", __doc__)
    parser.add_argument("--calls", type=int, default=CALLS, help="of each row")
    carry_out(parser, told)


if __name__ == "__main__":
    main()
