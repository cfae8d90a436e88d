"""Two hundred replicas with a call a second each, which share a board on a real Redis behind a delaying relay.

``python -m benchmarks.steering.replicas`` prints the table of docs/guides/capacity.md. Each replica has the gateway's
own steering and its own connection; providers' draws are scripted. A second of the replicas takes ``--stretch`` seconds
and the delay is stretched alike, so that all of them fit into a core: then what is told is what two hundred machines
would find. Halfway the best deployment becomes four times as slow. Dollars of extra attempts are limited, too.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from urllib.parse import urlsplit

from msgspec import Struct

from benchmarks.harness.report import markdown
from benchmarks.harness.servers import wait_until_listening
from benchmarks.steering.fleet import Fleet
from benchmarks.steering.gateway_policy import UNIX_S, GatewayPolicy
from benchmarks.steering.quiet import be_quiet
from benchmarks.steering.race import Race, Result
from benchmarks.steering.timeline import Timeline
from benchmarks.steering.traffic import Request, requests
from benchmarks.steering.weather import Weather
from benchmarks.steering.worlds import Provider, Spell, World
from gateway.core.calls import Objective
from gateway.settings import RaceSettings
from gateway.steering import redis_board
from gateway.steering.board import MemoryBoard
from gateway.steering.budget import Spending
from gateway.steering.constants import BURST_TOKENS
from gateway.steering.outages import Strikes
from gateway.steering.redis_board import RedisBoard
from gateway.topology.nodes import connect
from tests.patience import PATIENCE_S
from tests.services.servers import free_port, redis_server

CHANGE_S, RUN_S = 20.0, 60.0
BUDGET = 0.2  # extra attempts for each call
ATTEMPT_USD, USD_SHARE = 0.001, 0.5  # of what the budget would spend is the limit of the day
MEDIANS_S = (0.40, 0.50, 0.60, 0.80, 1.00)
AGREED = 0.95
LOOKS_S = 2.0
DELAYS_MS = (-1.0, 0.0, 5.0, 50.0)  # below 0: nothing is shared
SLOWER = 4.0


class Found(Struct):
    """What came of a run: when enough replicas ranked the best first, at the start and after the change; extras, $."""

    first_s: float | None
    again_s: float | None
    calls: int
    extra: int
    usd: float
    usd_limit: float
    round_trip_ms: float


def world(replicas: int) -> World:
    """Return five deployments, of which the first is the best until ``CHANGE_S``, and a call a second for a replica."""
    providers = tuple(
        Provider(
            name=f"provider{number}/model",
            median_s=median_s,
            sigma=0.35,
            tail_share=0.02,
            prefill_s=0.02,
            tok_s=80.0,
            error_share=0.005,
        )
        for number, median_s in enumerate(MEDIANS_S)
    )
    spell = Spell(provider=providers[0].name, begins_s=CHANGE_S, lasts_s=1e6, every_s=1e7, slow=SLOWER)
    return World(name="replicas", providers=providers, calls_per_s=replicas, replicas=replicas, spell=spell, day=0.0)


class Replicas:
    """All replicas of a run, in stretched time."""

    def __init__(self, url: str | None, replicas: int, seed: int, stretch: float) -> None:
        self.world = world(replicas)
        self.timeline = Timeline()
        self._stretch = stretch
        self._requests = tuple(requests(self.world, int(replicas * RUN_S * 1.2), seed))
        self._weather = Weather(self.world, int(RUN_S) + 300, seed)
        self._fleet = Fleet(self.world, self._weather, RUN_S, seed)
        self.usd_limit = USD_SHARE * BUDGET * replicas * RUN_S * ATTEMPT_USD
        race = RaceSettings(budget=BUDGET, usd_per_day=self.usd_limit)
        self.spendings = [Spending(self.unix_s) for _ in range(replicas)]
        self.boards = [] if url is None else [self._board(url, spending) for spending in self.spendings]
        self.policies = [
            GatewayPolicy(
                self.boards[number] if self.boards else MemoryBoard(),
                self.timeline,
                Random(f"{seed}:{number}"),
                race=race,
                objective=Objective.FIRST_TOKEN,
                world=self.world,
                spending=spending,
                attempt_usd=ATTEMPT_USD,
            )
            for number, spending in enumerate(self.spendings)
        ]
        self._results: list[Result] = []
        self._agreed: list[tuple[float, float]] = []  # when, and how many replicas rank the best first
        self._trips_s: list[float] = []

    def unix_s(self) -> float:
        """Return the replicas' Unix time."""
        return UNIX_S + self.timeline.now_s

    def _board(self, url: str, spending: Spending) -> RedisBoard:
        nodes = connect(url, PATIENCE_S)
        return RedisBoard(nodes, unix_clock=self.unix_s, spending=spending, strikes=Strikes(self.unix_s))

    async def run(self) -> Found:
        """Run until the end; return what was found."""
        timeline = self.timeline
        for request in self._requests:
            if request.at_s < RUN_S:
                timeline.at(request.at_s, lambda request=request: self._begin(request))  # type: ignore[misc] # binds it
        for number, policy in enumerate(self.policies):
            self._again(number / len(self.policies), 1.0, policy.refresh)
        self._again(LOOKS_S, LOOKS_S, self._look)
        syncing = [asyncio.create_task(self._sync(board, number)) for number, board in enumerate(self.boards)]
        began_s = time.monotonic()
        while timeline.now_s < RUN_S:
            timeline.run_until((time.monotonic() - began_s) / self._stretch)
            await asyncio.sleep(0.001)
        for task in syncing:
            task.cancel()
        await asyncio.gather(*syncing, return_exceptions=True)
        for board in self.boards:
            await board.close()
        return Found(
            first_s=self._settled(0.0, CHANGE_S),
            again_s=self._settled(CHANGE_S, RUN_S),
            calls=len(self._results),
            extra=sum(result.extra for result in self._results),
            usd=sum(spending.own_usd()[1].get("model", 0.0) for spending in self.spendings),
            usd_limit=self.usd_limit,
            round_trip_ms=1000 * sorted(self._trips_s)[len(self._trips_s) // 2] if self._trips_s else 0.0,
        )

    def _again(self, at_s: float, every_s: float, action: Callable[[], object]) -> None:
        def act() -> None:
            action()
            if self.timeline.now_s < RUN_S:
                self.timeline.after(every_s, act)

        self.timeline.at(at_s, act)

    def _begin(self, request: Request) -> None:
        policy = self.policies[request.replica]
        plan = policy.plan(request, self._fleet.names(self.timeline.now_s))
        Race(
            request,
            plan,
            policy,
            self._fleet,
            self.timeline,
            done=self._results.append,
            objective=Objective.FIRST_TOKEN,
        ).start()

    def _look(self) -> None:
        now_s = self.timeline.now_s
        best = self.world.providers[0 if now_s < CHANGE_S else 1].name
        right = sum(policy.first() == best for policy in self.policies)
        self._agreed.append((now_s, right / len(self.policies)))

    def _settled(self, since_s: float, until_s: float) -> float | None:
        """Return after how long so many replicas agreed as should, for the first time; None: never."""
        for at_s, share in self._agreed:
            if since_s < at_s <= until_s and share >= AGREED:
                return at_s - since_s
        return None

    async def _sync(self, board: RedisBoard, number: int) -> None:
        await asyncio.sleep(number / len(self.boards) * self._stretch)
        while True:
            began_s = time.monotonic()
            if not await board.sync():
                raise RuntimeError("Redis did not answer")
            took_s = time.monotonic() - began_s
            self._trips_s.append(took_s / self._stretch)
            await asyncio.sleep(max(0.0, board.round_s * self._stretch - took_s))


@contextmanager
def delayed(url: str, round_trip_s: float) -> Iterator[str]:
    """Run a relay in front of Redis, if a round trip is to take time; yield the URL by way of it."""
    if not round_trip_s:
        yield url
        return
    port = free_port()
    words = ("-m", "benchmarks.harness.delay", str(port), str(urlsplit(url).port), str(round_trip_s / 2))
    with subprocess.Popen([sys.executable, *words]) as relay:
        try:
            wait_until_listening(relay, port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            relay.terminate()


def row(name: str, replicas: int, found: Found) -> list[str]:
    """Return a row of the table."""
    first, again = ("never" if each is None else f"{each:.0f} s" for each in (found.first_s, found.again_s))
    of_budget = found.extra / (BUDGET * found.calls)
    most = 1 + 2 * BURST_TOKENS * replicas / (BUDGET * found.calls)
    over = found.usd / found.usd_limit - 1
    return [
        *(name, f"{found.round_trip_ms:.0f}", first, again, f"{found.extra:,} of {found.calls:,}", f"{of_budget:.2f}"),
        *(f"{most:.2f}", f"{over:+.2%}"),
    ]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steering.replicas", description=__doc__)
    parser.add_argument("--replicas", type=int, default=200)
    parser.add_argument("--stretch", type=float, default=2.0, help="seconds for a second of the replicas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--delays", type=float, nargs="+", default=DELAYS_MS, help="round trips to Redis, ms")
    options = parser.parse_args()
    be_quiet()
    redis_board.REDIS_TIMEOUT_S = PATIENCE_S  # type: ignore[attr-defined] # of all who share a core here
    rows = []
    for delay_ms in options.delays:
        shares = delay_ms >= 0
        with redis_server() as url, delayed(url, max(0.0, delay_ms) / 1000 * options.stretch) as way:
            fleet = Replicas(way if shares else None, options.replicas, options.seed, options.stretch)
            name = f"{delay_ms:g} ms" if shares else "nothing shared"
            rows.append(row(name, options.replicas, asyncio.run(fleet.run())))
    columns = ["to Redis and back", "a round, ms", "95 % agree after", "after the change", "extra attempts"]
    columns += ["of the budget", "at most", "dollars over the limit"]
    sys.stdout.write("\n".join(markdown(columns, rows, words=1)) + "\n")


if __name__ == "__main__":
    main()
