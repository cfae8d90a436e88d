"""What steering costs: planning a call, and each sample of the leaderboard, Redis' share of it included.

Microseconds, over all calls. Standings are made apart from calls, as at work: what that costs is told as well. Sixteen
calls are always under way, so that what is in flight changes with each call, as it does at work. A sample is all that
an attempt tells: its launch, its first token, its end, and the end of its call. With Redis, by process time, flushing
and reading back once for 400 samples, a second's, are part of it.
"""

import asyncio
import gc
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random

import msgspec

from benchmarks.harness.command import Run, Told, carry_out, command
from gateway.core.attempts import AttemptStart, Role
from gateway.core.calls import CallKind, CallRecord, CallStart, Objective
from gateway.core.processes import collect_less
from gateway.settings import RaceSettings
from gateway.steering import REFRESH_EVERY_S, MemoryBoard, RedisBoard, Steering, Terms
from gateway.steering.board import Board
from gateway.topology import connect
from tests.support.recorded import MODEL, SHORT, Race, begun, deployments, ended, races
from tests.support.servers import redis_server

FLEETS = (2, 3, 6, 20)
UNDER_WAY = 16
CALLS_PER_REFRESH = 50  # as at 500 calls a second
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SAMPLES_PER_S = 400
RACE = RaceSettings()
KINDS = tuple(  # taking turns, as calls do; their answers are of many lengths
    CallKind(client=f"client-{number % 3}", tags={"variant": "b"}, prompt_tokens=50 << number, max_tokens=8 << number)
    for number in range(8)
)


class Steered:
    """A steering that hears of races, each ended when sixteen more have begun."""

    def __init__(self, names: list[str], board: Board) -> None:
        self.names = names
        self.steering = Steering(board, clock=time.monotonic, unix_clock=time.time, random=Random(1))
        self._under_way: deque[Race] = deque()

    def plan(self, number: int) -> None:
        terms = Terms(Objective.FIRST_TOKEN, prompt_tokens=812, kind=KINDS[number % len(KINDS)])
        self.steering.plan(MODEL, self.names, RACE, terms, SHORT)

    def run(self, start: CallStart, record: CallRecord) -> None:
        begun(self.steering, start)
        self._under_way.append((start, record))
        if len(self._under_way) > UNDER_WAY:
            ended(self.steering, *self._under_way.popleft())


def in_memory(calls: int) -> Iterator[str]:
    for fleet in FLEETS:
        names = deployments(fleet)
        made = list(races(calls, Random(1), names))
        steered = Steered(names, MemoryBoard())
        planned_us, heard_us = [], []
        gc.collect()
        gc.freeze()
        for number, (start, plain) in enumerate(made):
            if number % CALLS_PER_REFRESH == 0:
                time.sleep(REFRESH_EVERY_S / 10)
                steered.steering.refresh()
            record = msgspec.structs.replace(plain, kind=KINDS[number % len(KINDS)])
            began_s = time.perf_counter()
            steered.plan(number)
            planned_s = time.perf_counter()
            steered.run(start, record)
            planned_us.append((planned_s - began_s) * 1e6)
            heard_us.append((time.perf_counter() - planned_s) / 2 * 1e6)
        planned_us.sort()
        p50, p99, p999 = (planned_us[int(share * calls)] for share in (0.5, 0.99, 0.999))
        yield (
            f"{fleet:3} deployments: plan p50 {p50:5.1f}, p99 {p99:5.1f}, p99.9 {p999:5.1f} µs a call;"
            f" board and health {sorted(heard_us)[calls // 2]:5.2f} a sample"
        )


def many_models(models: int, fleet: int, seconds: int = 20) -> str:
    """Return what keeping the standings of busy models costs: each has a call in every second of simulated time."""
    now = {"s": 0.0}
    steering = Steering(MemoryBoard(), clock=lambda: now["s"], unix_clock=lambda: 1.8e9 + now["s"], random=Random(1))
    names, random, spent_s = deployments(fleet), Random(2), 0.0
    for tick in range(seconds * 10):
        now["s"] += REFRESH_EVERY_S
        for model in range(tick % 10, models, 10):
            tokens = int(random.lognormvariate(6.7, 1.2))
            steering.plan(str(model), names, RACE, Terms(Objective.FIRST_TOKEN, tokens), SHORT)
            start = AttemptStart(f"{tick}.{model}", 1, EPOCH, Role.PRIMARY, "p", random.choice(names), 0.0)
            steering.attempt_started(str(model), start)
            steering.first_token(str(model), SHORT, start, random.lognormvariate(-1.0, 0.4))
        before_s = time.process_time()
        steering.refresh()
        spent_s += time.process_time() - before_s
    return f"{models} models of {fleet} deployments: {spent_s / seconds:.1%} of a core to keep their standings"


async def with_redis(url: str) -> str:
    names = deployments(6)
    board = RedisBoard(connect(url), unix_clock=time.time)
    steered = Steered(names, board)
    made = list(races(SAMPLES_PER_S // 2, Random(1), names))
    shared = []
    for _ in range(20):
        before_s = time.process_time()
        for start, record in made:
            steered.run(start, record)
        await board.sync()
        shared.append(time.process_time() - before_s)
    await board.close()
    return f"  6 deployments: board, health and Redis {sorted(shared)[5] / SAMPLES_PER_S * 1e6:5.2f} µs a sample"


def measured(run: Run) -> Told:
    lines = [*in_memory(run.options.calls), many_models(200, 20)]
    with redis_server() as url:
        lines.append(asyncio.run(with_redis(url)))
    return Told(facts=lines, lines=lines)


def main() -> None:
    collect_less()  # as each serving process does
    parser = command("micro.planning", __doc__)
    parser.add_argument("--calls", type=int, default=20_000, help="to be planned, with each number of deployments")
    carry_out(parser, measured)


if __name__ == "__main__":
    main()
