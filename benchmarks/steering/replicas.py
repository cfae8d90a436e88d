"""Two hundred replicas that share one board: how soon they agree, what that costs, and how they keep a daily limit.

    python -m benchmarks.steering.replicas [--replicas 200] [--seed 1] [--only near far]

Each replica is the gateway's own steering over its own ``RedisBoard``, and gets a call a second. Calls, providers and
time are simulated. Redis is a real server that is asked for real, but by a simulated way: a command takes ``delay`` of
simulated time to get there, and its reply as long to come back. So what is read is exactly as old as it would be, on a
machine of any speed, and a run gives the same figures again.

Beside the fleet that shares a board: one replica that gets all calls, and as many replicas that share nothing.

- *Learning*: the best provider of six, ``alder``, becomes ten times slower at 60 s, and a better one joins at 120 s.
  After each of these, and after the cold start: after how many seconds a half, 95 % and all of the replicas have the
  best one as the most probable primary, and stay so for three looks; and the first tokens of the calls in that part.
- *Dollars*: each call has an extra attempt, which costs the same; ``usd_per_day`` is used up at two thirds of the run.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from random import Random
from statistics import fmean
from typing import Any

import structlog
from msgspec import Struct
from msgspec.structs import replace

from benchmarks.harness.report import markdown, quantile
from benchmarks.steering.fleet import Fleet
from benchmarks.steering.gateway_policy import UNIX_S, GatewayPolicy
from benchmarks.steering.policy import MODEL
from benchmarks.steering.race import Race, Result
from benchmarks.steering.simulation import Setting, setting
from benchmarks.steering.timeline import Timeline
from benchmarks.steering.traffic import Request
from benchmarks.steering.worlds import WORLDS, Spell, World
from gateway.core.calls import Objective
from gateway.settings import RaceSettings
from gateway.steering import redis_board
from gateway.steering.board import Board, MemoryBoard
from gateway.steering.budget import Spending
from gateway.steering.outages import Strikes
from gateway.steering.redis_board import RedisBoard
from gateway.topology.nodes import Command, Nodes
from gateway.topology.urls import read_url
from tests.support.servers import redis_server

REPLICAS = 200
PART_S = 60.0  # the cold start; then the best is slow; then a better one is there
PARTS = ("cold start", "the best becomes slow", "a better one joins")
LOOKED_EVERY_S, LOOKS = 0.5, 3
REFRESHED_EVERY_S = 1.0
DOLLARS_S, SPENT_AT = 60.0, 2 / 3
ATTEMPT_USD = 0.001
PATIENT_S = 60.0  # of real time, for a round: no simulated fault is meant by a slow machine


class Fleets(Struct, frozen=True):
    """Who runs: how many replicas, and how far Redis is from each, in seconds; None: they share nothing."""

    name: str
    replicas: int
    delay_s: float | None


class Rounds:
    """Rounds with Redis within simulated time: it stands still while any of them runs, and goes on while all wait."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._running = 0
        self._all_wait = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin ``work``, which waits by ``rest`` only."""
        self._running += 1
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def rest(self, seconds: float) -> None:
        """Wait for so many simulated seconds."""
        woken = asyncio.get_running_loop().create_future()

        def wake() -> None:
            self._running += 1
            woken.set_result(None)

        self._timeline.after(seconds, wake)
        self._pause()
        await woken

    async def run(self) -> None:
        """Let everything happen, in order."""
        while self._timeline.step():
            if self._running:
                self._all_wait.clear()
                await self._all_wait.wait()
        for task in self._tasks:
            task.result()

    def _pause(self) -> None:
        self._running -= 1
        if not self._running:
            self._all_wait.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._tasks.remove(task)
        self._pause()


class FarNodes(Nodes):
    """A real Redis that is ``delay_s`` of simulated time away."""

    def __init__(self, url: str, rounds: Rounds, delay_s: float) -> None:
        super().__init__(read_url(url), PATIENT_S)
        self._rounds, self._delay_s = rounds, delay_s

    async def run(self, shard: str, commands: Sequence[Command]) -> list[Any]:
        """Send commands; what they find is of the instant at which they arrive."""
        await self._rounds.rest(self._delay_s)
        replies = await super().run(shard, commands)
        await self._rounds.rest(self._delay_s)
        return replies


class Run:
    """One fleet in one world."""

    def __init__(self, where: Setting, fleets: Fleets, race: RaceSettings, url: str) -> None:
        self.results: list[Result] = []
        self.looks: list[tuple[float, list[str]]] = []  # when, and whom each replica would most probably ask first
        self._where, self._race, self._url = where, race, url
        self._timeline = Timeline()
        self._rounds = Rounds(self._timeline)
        self._fleet = Fleet(where.world, where.weather, where.run_s, where.seed)
        self._policies: list[GatewayPolicy] = []
        self._boards: list[RedisBoard] = []
        self.spendings: list[Spending] = []
        for number in range(fleets.replicas):
            self._add(number, fleets.delay_s)

    def _unix_s(self) -> float:
        return UNIX_S + self._timeline.now_s

    def _add(self, number: int, delay_s: float | None) -> None:
        board: Board = MemoryBoard()
        strikes, spending = Strikes(self._unix_s), Spending(self._unix_s)
        if delay_s is not None:
            shared = board = RedisBoard(
                FarNodes(self._url, self._rounds, delay_s),
                unix_clock=self._unix_s,
                spending=spending,
                strikes=strikes,
                new_id=lambda: f"replica{number}",
            )
            self._boards.append(shared)
        policy = GatewayPolicy(
            board,
            self._timeline,
            Random(f"{self._where.seed}:{number}"),
            race=self._race,
            objective=Objective.FIRST_TOKEN,
            world=self._where.world,
            strikes=strikes,
            spending=spending,
            attempt_usd=ATTEMPT_USD,
        )
        self._policies.append(policy)
        self.spendings.append(spending)

    async def run(self) -> None:
        """Run until the last call is over."""
        timeline, phases = self._timeline, Random(f"{self._where.seed}:phases")
        for request in self._where.requests:
            timeline.at(request.at_s, self._arrival(request))
        for policy in self._policies:
            self._repeat(phases.random() * REFRESHED_EVERY_S, REFRESHED_EVERY_S, policy.refresh)
        for board in self._boards:
            timeline.at(phases.random(), lambda board=board: self._rounds.start(self._keep_in_step(board)))  # type: ignore[misc] # binds the loop's
        if self._where.world.spell is not None:
            self._repeat(LOOKED_EVERY_S, LOOKED_EVERY_S, self._look)
        await self._rounds.run()
        for board in self._boards:
            await board.nodes.aclose()  # its last flush would be another simulated round

    def _repeat(self, first_s: float, every_s: float, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            if self._timeline.now_s < self._where.run_s:
                self._timeline.after(every_s, again)

        self._timeline.at(first_s, again)

    async def _keep_in_step(self, board: RedisBoard) -> None:
        """Exchange as often as the gateway's own task does."""
        due_s = self._timeline.now_s
        while self._timeline.now_s < self._where.run_s:
            if not await board.sync():
                raise RuntimeError("Redis did not answer: is the machine too slow?")
            due_s = max(due_s + board.round_s, self._timeline.now_s)
            await self._rounds.rest(due_s - self._timeline.now_s)

    def _arrival(self, request: Request) -> Callable[[], None]:
        def begin() -> None:
            policy = self._policies[request.replica % len(self._policies)]
            plan = policy.plan(request, self._fleet.names(self._timeline.now_s))
            Race(
                request,
                plan,
                policy,
                self._fleet,
                self._timeline,
                done=self.results.append,
                objective=Objective.FIRST_TOKEN,
            ).start()

        return begin

    def _look(self) -> None:
        names, usual = self._fleet.names(self._timeline.now_s), self._where.requests[0]
        first = []
        for policy in self._policies:
            prospects = policy.explain(usual, names).deployments
            first.append(max(prospects, key=lambda each: each.draw).deployment)
        self.looks.append((self._timeline.now_s, first))


def world_of(replicas: int) -> World:
    """Return six providers, of which one is clearly the best until it is slow, and a newcomer that is better still."""
    newcomer = WORLDS["newcomer"]
    medians = {"alder": 0.15, "cedar": 0.25, "ginkgo": 0.12}
    providers = [
        replace(each, median_s=medians.get(each.name, 0.5), joins=2 / 3 if each.joins else 0.0)
        for each in newcomer.providers
    ]
    slow = Spell(provider="alder", begins_s=PART_S, lasts_s=1e9, every_s=2e9, slow=10.0)
    return World(
        name="fleet", providers=tuple(providers), calls_per_s=float(replicas), replicas=replicas, spell=slow, day=0.0
    )


BEST = ("alder", "cedar", "ginkgo")  # in each part


def agreed_s(looks: Sequence[tuple[float, list[str]]], part: int, share: float) -> float | None:
    """Return after how many seconds of a part a ``share`` of the replicas prefer the best one, and go on to do so."""
    within = [(at_s - part * PART_S, first) for at_s, first in looks if part * PART_S < at_s <= (part + 1) * PART_S]
    agree = [sum(name == BEST[part] for name in first) >= share * len(first) for _, first in within]
    for at, (at_s, _) in enumerate(within):
        if len(agree) >= at + LOOKS and all(agree[at : at + LOOKS]):
            return at_s
    return None


def _learning_rows(found: Sequence[tuple[Fleets, Run]]) -> Iterator[list[str]]:
    for fleets, run in found:
        for part, name in enumerate(PARTS):
            within = [each for each in run.results if part * PART_S <= each.at_s < (part + 1) * PART_S]
            ttft_ms = [each.ttft_s * 1000 for each in within if each.ttft_s is not None]
            soon_ms = [each.ttft_s * 1000 for each in within if each.ttft_s is not None and each.at_s % PART_S < 15.0]
            soon = (agreed_s(run.looks, part, share) for share in (0.5, 0.95, 1.0))
            yield [
                fleets.name, name, *("never" if each is None else f"{each:.1f}" for each in soon),
                f"{fmean(soon_ms):.0f}", f"{fmean(ttft_ms):.0f}", f"{quantile(ttft_ms, 0.99):.0f}",
                f"{sum(each.extra for each in within) / len(within):.2f}", f"{len(within) - len(ttft_ms)}",
            ]  # fmt: skip


def _dollar_rows(found: Sequence[tuple[Fleets, Run]], limit_usd: float) -> Iterator[list[str]]:
    for fleets, run in found:
        spent_usd = sum(each.own_usd()[1].get(MODEL, 0.0) for each in run.spendings)
        usd_s = limit_usd / (DOLLARS_S * SPENT_AT)
        over_s = f"{(spent_usd - limit_usd) / usd_s:.2f}" if fleets.delay_s is not None else ""
        yield [fleets.name, f"{limit_usd:.2f}", f"{spent_usd:.2f}", f"{spent_usd / limit_usd - 1:+.1%}", over_s]


def _ran(where: Setting, several: Sequence[Fleets], race: RaceSettings) -> Iterator[tuple[Fleets, Run]]:
    for fleets in several:
        with redis_server() as url:

            async def go(fleets: Fleets = fleets, url: str = url) -> Run:
                run = Run(where, fleets, race, url)
                await run.run()
                return run

            yield fleets, asyncio.run(go())
        sys.stderr.write(f"{fleets.name}: done\n")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.steering.replicas",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--replicas", type=int, default=REPLICAS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=("one", "near", "far", "apart"), help="which fleets; default all")
    parser.add_argument("--skip", choices=("learning", "dollars"))
    options = parser.parse_args()
    redis_board.REDIS_TIMEOUT_S = PATIENT_S  # type: ignore[attr-defined] # of real time
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    world = world_of(options.replicas)
    fleets = {
        "one": Fleets("one that gets all calls", 1, None),
        "near": Fleets(f"{options.replicas}, Redis 5 ms away", options.replicas, 0.005),
        "far": Fleets(f"{options.replicas}, Redis 50 ms away", options.replicas, 0.05),
        "apart": Fleets(f"{options.replicas} that share nothing", options.replicas, None),
    }
    several = [fleets[name] for name in options.only or fleets]
    if options.skip != "learning":
        where = setting(world, round(len(PARTS) * PART_S * options.replicas), options.seed)
        where = replace(where, run_s=len(PARTS) * PART_S)
        found = list(_ran(where, several, RaceSettings(budget=0.1)))
        columns = ["replicas", "after", "half agree, s", "95 %", "all", "mean TTFT in the first 15 s, ms"]
        columns += [f"in all {PART_S:.0f} s", "p99", "extra attempts a call", "failed"]
        sys.stdout.write("\n".join(markdown(columns, _learning_rows(found), words=2)) + "\n\n")
    if options.skip != "dollars":
        calm = replace(world, spell=None, providers=world.providers[:-1])
        where = setting(calm, round(DOLLARS_S * options.replicas), options.seed)
        limit_usd = SPENT_AT * DOLLARS_S * options.replicas * ATTEMPT_USD
        # Not paced: this is about the limit itself.
        race = RaceSettings(budget=1.0, usd_per_day=limit_usd, value_usd_per_s=0.0)
        columns = ["replicas", "usd_per_day", "spent", "over", "seconds of spending over"]
        rows = _dollar_rows(list(_ran(where, several, race)), limit_usd)
        sys.stdout.write("\n".join(markdown(columns, rows, words=1)) + "\n")


if __name__ == "__main__":
    main()
