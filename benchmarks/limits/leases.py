"""What processes take of Redis, by the number of those that share it: their reports on limits, and their standings.

    python -m benchmarks.limits.leases [--against DIR] [--most 300]

A report: µs of Redis' core for one on a limit. *Summed*: as processes report. *All read*: the sums are thrown away
before each report, so that the script reads the fields of all processes, as each report did once.

A fleet: each process has ten limits in use and three models with five deployments, and a call a second of each model.
Figures are for a second of the processes, which takes longer here: many of them share two cores, and a core of Redis is
a second of its CPU for each of theirs. *Age*: how long ago a process has reported, looked at four times a second. One
limit, of tokens, is used up: *over* is what was used beyond it, *bound* what running calls may.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from redis import Redis

from benchmarks.harness.report import markdown
from benchmarks.limits import clients
from gateway.limits.lease_scripts import GREET, LEASE
from tests.support.servers import redis_server

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


# Fleets: all that a process asks of Redis, by the gateway's own classes (``clients.py``), here and in another checkout.

FLEETS = {10: 1.0, 100: 2.0, 300: 4.0, 1000: 8.0}  # processes: seconds for a client second; a third of it is idle
DRIVERS = 2
WARMUP_S, MEASURED_S = 4.0, 6.0  # client seconds
SPENT_AT = 0.7  # of the time the limit of tokens is used up
STARTING_S = 0.02  # of a driver, for each process


def fleet(url: str, redis: Redis, checkout: Path, processes: int, stretch: float) -> list[str]:
    """Return a row: what so many processes take in a client second, and how old their reports are."""
    redis.flushall()
    seconds, each = WARMUP_S + MEASURED_S, processes // DRIVERS
    tpm = SPENT_AT * seconds * processes * clients.CALLS_S / 2 * clients.MOST_USED / 2
    starts_at = time.time() + 3.0 + STARTING_S * processes
    said = [
        clients.Told(url, number * each, each, stretch, WARMUP_S, MEASURED_S, starts_at, tpm)
        for number in range(DRIVERS)
    ]
    running = [
        subprocess.Popen(
            [sys.executable, str(Path(clients.__file__)), msgspec.json.encode(told).decode()],
            env={**os.environ, "PYTHONPATH": str(checkout)},
            cwd=checkout,
            stdout=subprocess.PIPE,
        )
        for told in said
    ]
    time.sleep(max(0.0, starts_at + WARMUP_S * stretch - time.time()))
    began_s, began_out, began_in = _cpu_s(redis), *_passed(redis)
    time.sleep(MEASURED_S * stretch)
    cores = (_cpu_s(redis) - began_s) / MEASURED_S
    out, into = (
        (now - began) / MEASURED_S / processes / 1000
        for now, began in zip(_passed(redis), (began_out, began_in), strict=True)
    )
    found = [msgspec.json.decode(driver.communicate()[0], type=clients.Found) for driver in running]
    if missed := sum(one.missed for one in found):
        raise RuntimeError(f"Redis did not answer {missed} times: is the machine too slow?")
    limits = sorted(age for one in found for age in one.limits_ages_s)
    standings = sorted(age for one in found for age in one.standings_ages_s)
    over, bound = sum(one.tokens for one in found) / tpm - 1.0, sum(one.bound for one in found) / tpm
    own_ms = sum(one.own_cpu_s for one in found) / MEASURED_S / processes * 1000
    ages = (f"{age[int(len(age) * share)]:.2f}" for age in (limits, standings) for share in (0.5, 0.95))
    return [
        f"{processes:,}", f"{cores:.2f}", f"{out:.1f}", f"{into:.1f}", *ages, f"{over:+.2%}", f"{bound:.2%}",
        f"{own_ms:.1f}",
    ]  # fmt: skip


def _passed(redis: Redis) -> tuple[int, int]:
    said = redis.info("stats")
    return int(said["total_net_output_bytes"]), int(said["total_net_input_bytes"])


def _fleets(checkouts: Mapping[str, Path], most: int) -> Iterator[list[str]]:
    with redis_server() as url, Redis.from_url(url) as redis:
        for processes, stretch in FLEETS.items():
            if processes <= most:
                for name, checkout in checkouts.items():
                    yield [name, *fleet(url, redis, checkout, processes, stretch)]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits.leases", description=__doc__)
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout, measured in turns with this one")
    parser.add_argument("--most", type=int, default=max(FLEETS), metavar="PROCESSES", help="the largest fleet")
    options = parser.parse_args()
    here = {"now": Path(__file__).parents[2]}
    checkouts = here if options.against is None else {"before": options.against.resolve(), **here}
    columns = ["processes", "a limit: all read", "summed", "ratio", "the processes: all read", "summed", "ratio"]
    sys.stdout.write("\n".join(markdown(columns, _rows(), words=0)) + "\n\n")
    columns = ["", "processes", "cores of Redis", "kB/s from Redis", "kB/s to Redis"]
    columns += ["limits' age p50, s", "p95", "standings' age p50, s", "p95", "over", "bound", "ms of its own a second"]
    sys.stdout.write("\n".join(markdown(columns, _fleets(checkouts, options.most), words=1)) + "\n")


if __name__ == "__main__":
    main()
