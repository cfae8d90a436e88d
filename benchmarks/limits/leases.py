"""What a process takes of Redis, by the number of processes that share it: its reports on limits, and its standings.

    python -m benchmarks.limits.leases

Limits: µs of Redis' core for a report. *Summed*: as processes report. *All read*: the sums are thrown away before each
report, so that the script reads the fields of all processes, as each report did once. A process reports twice a second
on each limit in use. Standings: what a process that has a call a second of each of three models with five deployments
takes each second, of Redis' core, of the network and of its own.
"""

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from random import Random

from redis import Redis

from benchmarks.harness.report import markdown
from gateway.core.prompt_classes import MeasuredApi
from gateway.limits.lease_scripts import GREET, LEASE
from gateway.steering.counts import event
from gateway.steering.outages import Strikes
from gateway.steering.redis_board import RedisBoard
from gateway.topology.nodes import connect
from tests.services.servers import redis_server

PROCESSES = (1, 10, 100, 300, 1000)
REPORTS, AT_ONCE = 2_000, 100
# What the scripts are told besides who reports, and what it has used.
LEASED = ("1.0", "3.0", "1e9", "5.0", "60.0", "300", "0.0", "1", "1", "0.0")
GREETED = ("15.0", "2.0", "0", "0")


def measured(redis: Redis, script: str, sums: str, told: tuple[str, ...], processes: int, *, summed: bool) -> float:
    """Return Redis' µs of CPU for a report of one of ``processes``, without what sending it takes."""
    redis.flushall()
    digest = str(redis.script_load(script))
    _report(redis, digest, told, range(processes), sums=None)
    began_s = _cpu_s(redis)
    for start in range(0, REPORTS, AT_ONCE):
        some = [number % processes for number in range(start, start + AT_ONCE)]
        _report(redis, digest, told, some, sums=None if summed else sums)
    return (_cpu_s(redis) - began_s) / REPORTS * 1e6


def _report(redis: Redis, digest: str, told: tuple[str, ...], numbers: Sequence[int], sums: str | None) -> None:
    pipeline = redis.pipeline(transaction=False)
    for number in numbers:
        if sums is not None:
            pipeline.hdel("k", sums)
        pipeline.evalsha(digest, 1, "k", f"p{number}", *told)
    pipeline.execute()


def _cpu_s(redis: Redis) -> float:
    used = redis.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def _rows() -> Iterator[list[str]]:
    with redis_server() as url, Redis.from_url(url) as redis:
        for processes in PROCESSES:
            row = [f"{processes:,}"]
            for script, sums, told in ((LEASE, "sums", ("1.0", *LEASED)), (GREET, "known", GREETED)):
                whole, summed = (measured(redis, script, sums, told, processes, summed=way) for way in (False, True))
                row += [f"{whole:,.0f}", f"{summed:,.0f}", f"{whole / summed:.1f}"]
            yield row


MODELS, DEPLOYMENTS, SECONDS = 3, 5, 3
BEGAN_S = 1_800_000_000.0


async def standings(url: str, redis: Redis, processes: int) -> list[str]:
    """Return a row: what one of ``processes`` takes each second. They take turns, so a second is as long as needed."""
    redis.flushall()
    now_s, random = BEGAN_S, Random(processes)

    def unix_s() -> float:
        return now_s

    boards = [RedisBoard(connect(url, 10.0), unix_clock=unix_s, strikes=Strikes(unix_s)) for _ in range(processes)]

    async def pass_a_second() -> None:
        for board in boards:
            for model in range(MODELS):
                name = f"provider{random.randrange(DEPLOYMENTS)}/model"
                first = event(name, MeasuredApi.ANSWERS, random.lognormvariate(-1.0, 0.5))
                board.add(f"model{model}", {first: 1.0, "req": 1.0, f"{name}|n": 1.0}, now_s)
            if not await board.sync():
                raise RuntimeError("Redis did not answer")

    for _ in range(2):
        await pass_a_second()
        now_s += 1.0
    began_s, began_bytes, began_own_s = _cpu_s(redis), _sent(redis), time.process_time()
    for _ in range(SECONDS):
        await pass_a_second()
        now_s += 1.0
    rounds = SECONDS * processes
    redis_us = (_cpu_s(redis) - began_s) / rounds * 1e6
    kilobytes = (_sent(redis) - began_bytes) / rounds / 1000
    own_ms = (time.process_time() - began_own_s) / rounds * 1000
    for board in boards:
        await board.close()
    return [f"{processes:,}", f"{redis_us:,.0f}", f"{kilobytes:.1f}", f"{own_ms:.1f}"]


def _sent(redis: Redis) -> int:
    return int(redis.info("stats")["total_net_output_bytes"])


def _standings() -> Iterator[list[str]]:
    with redis_server() as url, Redis.from_url(url) as redis:
        for processes in PROCESSES[1:]:
            yield asyncio.run(standings(url, redis, processes))


def main() -> None:
    """Run from the command line."""
    columns = ["processes", "a limit: all read", "summed", "ratio", "the processes: all read", "summed", "ratio"]
    sys.stdout.write("\n".join(markdown(columns, _rows(), words=0)) + "\n\n")
    columns = ["processes", "standings: µs of Redis a second", "kB from Redis a second", "ms of its own a second"]
    sys.stdout.write("\n".join(markdown(columns, _standings(), words=0)) + "\n")


if __name__ == "__main__":
    main()
