"""What a report on limits takes of Redis' core, by the number of processes that share it: µs of CPU.

    python -m benchmarks.limits.leases

*Summed*: as processes report. *All read*: the sums are thrown away before each report, so that the script reads the
fields of all processes, as each report did once. A process reports twice a second on each limit in use.
"""

import sys
from collections.abc import Iterator, Sequence

from redis import Redis

from benchmarks.harness.report import markdown
from gateway.limits.shared_leases import GREET, LEASE
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


def main() -> None:
    """Run from the command line."""
    columns = ["processes", "a limit: all read", "summed", "ratio", "the processes: all read", "summed", "ratio"]
    sys.stdout.write("\n".join(markdown(columns, _rows(), words=0)) + "\n")


if __name__ == "__main__":
    main()
