"""Losers near the limit: is each cut before its first byte when calls come by chance, at 80 % of what is possible?

A loop that is late cuts late, and a loser that is cut late is paid for.
"""

from collections.abc import Iterator

from benchmarks.harness import gateways, load, machine
from benchmarks.harness.gateways import MeasuredServers
from benchmarks.harness.load import Order, Question
from benchmarks.harness.report import Row
from benchmarks.harness.servers import count
from benchmarks.speed.measuring import Effort

NAME = "losers"
LOAD_SHARE = 0.8
MODEL = "soon-race"  # first tokens after 5 ms, and after 100 ms
SATURATING_CALLS, CONCURRENCY = 4000, 64
RUN_S, QUICK_RUN_S = 20.0, 6.0


def rows(measured: MeasuredServers, effort: Effort) -> Iterator[Row]:
    """Find the rate that saturates the gateway, and call it at 80 % of that.

    Raises:
        LoadError: an answer was not whole.

    """
    server, upstream = measured["gateway"], measured.upstream
    question = Question(
        port=server.port, path=gateways.PATH, model=MODEL, streamed=True, headers=server.headers, launched=2
    )
    effort.say(f"{NAME}: saturating")
    load.run(Order(question=question, calls=SATURATING_CALLS // 4, concurrency=CONCURRENCY))
    full = load.run(Order(question=question, calls=SATURATING_CALLS, concurrency=CONCURRENCY))
    server.settle()
    rate_per_s = LOAD_SHARE * SATURATING_CALLS / full.wall_s
    calls = int(rate_per_s * (QUICK_RUN_S if effort.quick else RUN_S))
    effort.say(f"{NAME}: {calls:,} races, {rate_per_s:.0f} a second")
    before = {what: count(upstream, what) for what in _COUNTED}
    before_s = machine.cpu_s(server.pid)
    outcome = load.run(Order(question=question, calls=calls, concurrency=CONCURRENCY, rate_per_s=rate_per_s))
    cores = (machine.cpu_s(server.pid) - before_s) / outcome.wall_s
    server.settle()
    seen = {what: count(upstream, what) - before[what] for what in _COUNTED}
    ran_on = max(0, seen["answered"] - calls)
    yield Row(
        title=f"losers not cut before their first byte, at {LOAD_SHARE:.0%} load",
        value=(seen["cut_later"] + ran_on) / calls * 100,
        unit="%",
        at_most=0.0,
        detail=(
            f"{calls:,} races, {rate_per_s:.0f}/s by chance, {cores:.2f} core: {seen['cut_before_first_byte']:,} cut "
            f"before, {seen['cut_later']:,} later, {ran_on:,} ran to the end"
        ),
    )


_COUNTED = ("cut_before_first_byte", "cut_later", "answered")
