"""What the shared board costs one replica: 200 models of 20 deployments and 3 prompt classes, ten of them with traffic.

    python -m benchmarks.micro.shared_board [seconds]

A real Redis, two replicas: this process, measured, and another that feeds the same models. Together they take 200 calls
a second raced two ways, spread evenly; the traffic of the ten minutes before fills the slots first. Prints the share of
a core by process time, with and without the standings that a gateway makes of the board, what the loop was kept waiting
at worst, and memory by tracemalloc. What making up the attempts costs is measured alone and taken off.
"""

import asyncio
import gc
import multiprocessing
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import product
from random import Random

from gateway.core.attempts import AttemptRecord, AttemptStart, Outcome, Role, TokensSource
from gateway.core.prompt_classes import answer_class
from gateway.steering import SLOT_S, SLOTS_KEPT, RedisBoard, connect
from gateway.steering.constants import HALF_LIFE_S
from gateway.steering.counts import Counts, read_tallies
from gateway.steering.learning import of_end, of_token
from gateway.steering.snapshots import Snapshots
from tests.services.servers import redis_server

MODELS = [f"model-{number}" for number in range(200)]
BUSY = MODELS[:10]
CALLS_PER_S = 100  # of each of the two replicas
CLASSES = tuple(map(answer_class, (0, 0, 0, 1, 2)))
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def samples(random: Random) -> Iterator[tuple[str, Counts]]:
    """What one call's two attempts add, for ever: a winner with its token and its end, and a loser cut then."""
    while True:
        model, prompt_class = random.choice(BUSY), random.choice(CLASSES)
        winner, loser = (f"provider-{number}/{model}" for number in random.sample(range(20), 2))
        ttft_s, tokens = random.lognormvariate(-1.0, 0.5), random.randint(20, 500)
        start = AttemptStart("id", 1, _EPOCH, Role.PRIMARY, "provider", winner, 0.0)
        record = AttemptRecord(
            id="id", call_id="call", number=1, started_at=_EPOCH, role=Role.PRIMARY, provider="provider",
            deployment=winner, launch_offset_ms=0.0, outcome=Outcome.WON, ttft_ms=ttft_s * 1000,
            last_token_ms=ttft_s * 1000 + tokens * 12.5, completion_tokens=tokens, decode_tps=80.0,
            tokens_source=TokensSource.REPORTED,
        )  # fmt: skip
        cut = AttemptRecord(
            id="id", call_id="call", number=2, started_at=_EPOCH, role=Role.RACE, provider="provider",
            deployment=loser, launch_offset_ms=0.0, outcome=Outcome.LOST, censored_at_ms=ttft_s * 1000,
        )  # fmt: skip
        yield model, of_token(start, prompt_class, ttft_s)
        yield model, of_end(record, prompt_class)
        yield model, of_end(cut, prompt_class)


def replica(url: str, seed: int) -> tuple[RedisBoard, Iterator[tuple[str, Counts]]]:
    board = RedisBoard(connect(url), unix_clock=time.time)
    for model in MODELS:
        board.version(model, time.time() - SLOT_S)  # configured, and not in use
    made = samples(Random(seed))
    for age in range(1, SLOTS_KEPT):
        for _ in range(3 * CALLS_PER_S * SLOT_S):
            board.add(*next(made), time.time() - age * SLOT_S)
    return board, made


async def feed(url: str, seed: int) -> None:
    board, made = replica(url, seed)
    await board.start()
    while True:
        for _ in range(3 * CALLS_PER_S // 10):
            board.add(*next(made), time.time())
        await asyncio.sleep(0.1)


def feed_for_ever(url: str) -> None:
    asyncio.run(feed(url, 2))


class Loop:
    """How long the loop's other tasks had to wait, at worst."""

    def __init__(self) -> None:
        self.worst_s = 0.0

    async def watch(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            self.worst_s = max(self.worst_s, time.perf_counter() - began - 0.001)


async def measure(url: str, seconds: int) -> None:
    board, made = await weighed(url)
    snapshots = Snapshots(board, time.monotonic, time.time)

    def make_up() -> list[tuple[str, Counts]]:
        return [next(made) for _ in range(3 * CALLS_PER_S // 10)]

    def count() -> None:
        for model, counts in make_up():
            board.add(model, counts, time.time())

    def tally() -> None:
        for model in BUSY:
            board.version(model, time.time())
            read_tallies(board.counts(model, time.time(), half_life_s=HALF_LIFE_S))

    def stand() -> None:
        for model, prompt_class in product(BUSY, dict.fromkeys(CLASSES)):
            snapshots.fresh(model, prompt_class)

    await board.start()
    await spent(10, count, stand)
    alone = await spent(seconds, count, tally)
    whole = await spent(seconds, count, stand)
    loop = Loop()
    watching = asyncio.create_task(loop.watch())
    await spent(seconds, count, nothing)
    watching.cancel()
    await board.close()
    made_up = await spent(seconds, make_up, nothing)
    print(f"counted, shared and tallied {alone - made_up:.1%} of a core", end="; ")
    print(f"standings of 3 classes made of it, once a second each: {whole - made_up:.1%} in all")
    print(f"others on the loop waited at most {loop.worst_s * 1000:.1f} ms")


async def weighed(url: str) -> tuple[RedisBoard, Iterator[tuple[str, Counts]]]:
    tracemalloc.start()
    board, made = replica(url, 1)
    for _ in range(20):  # what ten minutes have gathered goes out in rounds
        await board.sync()
    gc.collect()
    board_mb, peak_mb = (size / 1e6 for size in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    fields = [len(counts) for model in BUSY for counts in board.slots(model, time.time()).values()]
    print(f"{len(fields)} slots of {sum(fields) / len(fields):.0f} fields on average")
    print(f"memory {board_mb:.1f} MB, at its peak {peak_mb:.1f} MB")
    return board, made


def nothing() -> None:
    pass


async def spent(seconds: int, often: Callable[[], object], once_a_second: Callable[[], object]) -> float:
    """The share of a core used while ``often`` is called ten times a second."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    for tick in range(10 * seconds):
        often()
        if tick % 10 == 0:
            once_a_second()
        await asyncio.sleep(max(0.0, began_s + (tick + 1) / 10 - time.perf_counter()))
    return (time.process_time() - cpu_s) / (time.perf_counter() - began_s)


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with redis_server() as url:
        other = multiprocessing.get_context("spawn").Process(target=feed_for_ever, args=(url,), daemon=True)
        other.start()
        try:
            asyncio.run(measure(url, seconds))
        finally:
            other.terminate()
            other.join()


if __name__ == "__main__":
    main()
