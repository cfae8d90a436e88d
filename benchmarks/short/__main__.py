"""One in a hundred embeddings takes 17 s: what do callers feel of it, alone, hedged and raced?

    python -m benchmarks.short [--calls 3000] [--per-second 40] [--json]

One gateway in its own process, two providers, real sockets, defaults. A body takes 0.2 s in the median, lognormal with
sigma 0.2 or 0.4; each request, wherever it is sent, may be a straggler. Calls come by chance, whatever became of those
before, and are timed from when they were due. All six cells run beside each other, so that the machine is the same for
all. The first thousand calls of a cell teach the gateway, and are not counted. Whole (30,000 calls a cell), it takes 13
minutes.

  hedged   mode auto: p99.9 at most 1.1 x (q95 of a request + q91 of a body) + 20 ms, with at most 6 % extra attempts
  together for 5 s every request to the first provider is a straggler: shown, without a bar

It exits with 1 when a bar is missed.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from statistics import NormalDist
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.harness.replicas import alone
from benchmarks.harness.report import Grid, bad, quantile
from tests.support.servers import free_port

BODY_S, STRAGGLER_S, STRAGGLERS = 0.2, 17.0, 0.01
SIGMAS = (0.2, 0.4)
RACES = {"single": {"mode": "single"}, "hedged": {"mode": "auto"}, "raced": {"mode": "race", "width": 2}}
CALLS, WARM_UP, PER_SECOND = 30_000, 1_000, 40.0
TOGETHER_S, TOGETHER_CALLS = 5.0, 600  # of a cell, while and after its first provider has only stragglers
LEEWAY, LEEWAY_S, MOST_EXTRAS = 1.1, 0.02, 0.06
LIMIT_S = 120.0
ANSWER = msgspec.json.encode(
    {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.1] * 8}],
        "model": "e5",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one cell: seconds, and extra attempts a call. ``at_most_s``: for p99.9; None: no bar."""

    sigma: float
    race: str
    calls: int
    p50_s: float
    p99_s: float
    p999_s: float
    extras: float
    failed: int
    at_most_s: float | None

    @property
    def is_missed(self) -> bool:
        return self.at_most_s is not None and (self.p999_s > self.at_most_s or self.extras > MOST_EXTRAS)


def bar_s(sigma: float) -> float:
    """Return the most that p99.9 may be: a call that straggles waits for the hedge, and then for a body."""

    def body_s(q: float) -> float:
        return BODY_S * math.exp(sigma * NormalDist().inv_cdf(q))

    return LEEWAY * (body_s(0.95 / (1 - STRAGGLERS)) + body_s(0.91)) + LEEWAY_S


class Provider:
    """Answers embeddings after a time that is drawn; the model's name has the sigma."""

    def __init__(self, name: str, dice: Random) -> None:
        self.name = name
        self.is_hanging = False  # all its requests are stragglers
        self._dice = dice

    async def answer(self, request: web.Request) -> web.Response:
        sigma = float((await request.json())["model"].partition("-")[2])
        drawn_s = BODY_S * self._dice.lognormvariate(0.0, sigma)
        await asyncio.sleep(STRAGGLER_S if self.is_hanging or self._dice.random() < STRAGGLERS else drawn_s)
        return web.Response(body=ANSWER, content_type="application/json")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve; yield the base URL."""
        app = web.Application()
        app.router.add_post("/v1/embeddings", self.answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            await runner.cleanup()


def settings(urls: dict[str, str]) -> dict[str, Any]:
    """Return the gateway's configuration: a model for each cell."""
    return {
        "connections": {"max_per_address": 8192},
        "overload": {"loop_delay_ms": 0},  # the machine may be busy with other things
        "providers": {name: {"base_url": url, "api_key": f"key-of-{name}"} for name, url in urls.items()},
        "models": {
            f"{race}-{sigma}": {
                "deployments": [{"deployment": f"{name}/{race}-{sigma}", "apis": ["embeddings"]} for name in urls],
                "race": asked,
            }
            for sigma in SIGMAS
            for race, asked in RACES.items()
        },
    }


class Cell:
    """The calls of one model."""

    def __init__(self, url: str, sigma: float, race: str, seed: int) -> None:
        self._url, self._sigma, self._race = f"{url}/v1/embeddings", sigma, race
        self._dice = Random(seed)

    async def run(self, http: aiohttp.ClientSession, calls: int, per_second: float, *, has_bar: bool = True) -> Row:
        """Make so many calls; return their figures."""
        seen: list[tuple[float, int | None]] = []
        due = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(calls):
                due += self._dice.expovariate(per_second)
                await asyncio.sleep(due - time.monotonic())
                group.create_task(self._call(http, due, seen))
        answered = [launched for _, launched in seen if launched is not None]
        times_s = [seconds for seconds, _ in seen]
        return Row(
            sigma=self._sigma,
            race=self._race,
            calls=calls,
            p50_s=quantile(times_s, 0.5),
            p99_s=quantile(times_s, 0.99),
            p999_s=quantile(times_s, 0.999),
            extras=sum(answered) / max(1, len(answered)) - 1,  # nothing fails here, so nothing is replaced
            failed=calls - len(answered),
            at_most_s=bar_s(self._sigma) if has_bar and self._race == "hedged" else None,
        )

    async def _call(self, http: aiohttp.ClientSession, due: float, seen: list[tuple[float, int | None]]) -> None:
        launched: int | None = None
        body = {"model": f"{self._race}-{self._sigma}", "input": "one"}
        try:
            async with http.post(self._url, json=body) as response:
                await response.read()
                if response.ok:
                    launched = int(response.headers["x-holeshot-launched"])
        except aiohttp.ClientError:
            pass
        seen.append((time.monotonic() - due, launched))


async def measured(calls: int, per_second: float, folder: Path) -> list[Row]:
    """Run all cells, then those whose first provider hangs for a while."""
    async with AsyncExitStack() as stack:
        providers = [Provider(name, Random(name)) for name in ("first", "second")]
        urls = {each.name: await stack.enter_async_context(each.serving()) for each in providers}
        gateway = await stack.enter_async_context(alone(folder, settings(urls)))
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=LIMIT_S)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, timeout=timeout))
        pairs = [(sigma, race) for sigma in SIGMAS for race in RACES]
        cells = [Cell(f"http://127.0.0.1:{gateway.port}", *pair, seed) for seed, pair in enumerate(pairs)]
        await asyncio.gather(*(cell.run(http, min(calls, WARM_UP), per_second) for cell in cells))
        rows = await asyncio.gather(*(cell.run(http, calls, per_second) for cell in cells))

        async def hang() -> None:
            providers[0].is_hanging = True
            await asyncio.sleep(TOGETHER_S)
            providers[0].is_hanging = False

        few = min(calls, TOGETHER_CALLS)
        together = [cell.run(http, few, per_second, has_bar=False) for cell in cells]
        hanging = asyncio.create_task(hang())
        last = await asyncio.gather(*together)
        await hanging
        return [*rows, *(msgspec.structs.replace(row, race=f"{row.race}, together") for row in last)]


def _cells(row: Row) -> Sequence[str]:
    bar = "" if row.at_most_s is None else f"{row.at_most_s:.3f}, {MOST_EXTRAS:.0%}"
    times = (f"{seconds:.3f}" for seconds in (row.p50_s, row.p99_s, row.p999_s))
    return (
        row.race,
        f"{row.sigma}",
        str(row.calls),
        *times,
        f"{row.extras:.1%}",
        bad(bar, row.is_missed),
        str(row.failed),
    )


def told(run: Run) -> Told:
    rows = asyncio.run(measured(run.options.calls, run.options.per_second, run.folder))
    columns = ("race", "sigma", "calls", "p50 s", "p99 s", "p99.9 s", "extras", "at most", "failed")
    grid = Grid("Embeddings, one request in a hundred takes 17 s", columns, [_cells(row) for row in rows])
    return Told(facts=rows, grids=[grid], missed=[f"{row.race}, sigma {row.sigma}" for row in rows if row.is_missed])


def main() -> None:
    parser = command("short", __doc__)
    parser.add_argument("--calls", type=int, default=CALLS, help="of each cell")
    parser.add_argument("--per-second", type=float, default=PER_SECOND, help="calls of a cell")
    carry_out(parser, told)


if __name__ == "__main__":
    main()
