"""A sweep: load from a quarter of the capacity to two and a half times as much, and what became of it."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import ceil
from pathlib import Path
from statistics import fmean
from time import monotonic, sleep
from typing import Any, TypeVar

import msgspec

from benchmarks.harness import machine
from benchmarks.harness.machine import Company
from benchmarks.harness.report import quantile
from benchmarks.overload import load
from benchmarks.overload.load import REFUSED, Ended, Order
from tests.support.measured import gateways
from tests.support.measured.answers import BEHAVIOURS, TOKENS
from tests.support.measured.load import Question, asking
from tests.support.measured.servers import Server, fetch, gauges

GAUGES = ("holeshot_loop_delay_seconds", "holeshot_calls_in_flight", "holeshot_calls_limit")
UNLIMITED: Mapping[str, Any] = {"max_in_flight": 1_000_000, "loop_delay_ms": 0}
_LOOK_S = 0.5
_PATIENCE_S = 30.0
STEPS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5)  # times the capacity
LATE = 2.0  # times the TTFT without load: a later answer is not a good one
MORE = 1.25  # times as many connections, when the capacity is looked for
CALM = 0.15  # cores that others may use; what the kernel does for us, but not in our name, is among it
_T = TypeVar("_T")
_LIGHT_PER_S = 20.0
_LIGHT_S = 6.0
_FILLING = 1.5  # answers' lengths until as many end as begin
_SETTLING_S = 4.0  # before a window: a gateway takes a load for a crowd at first, and lets it wait for two seconds


class Seen(msgspec.Struct, frozen=True):
    """Means of what the gateway said of itself (None: it did not answer), and the share of its core that it used."""

    loop_delay_s: float | None
    in_flight: float | None
    limit: float | None
    core: float


def keep_a_core_free() -> int:
    """Leave one core to the gateway, for this process and all it starts; return the core.

    Raises:
        RuntimeError: there is only one.

    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise RuntimeError("it needs two cores: one for the gateway, one for all else")
    os.sched_setaffinity(0, cores[1:])
    return cores[0]


@contextmanager
def gateway(folder: Path, upstream_port: int, core: int, overload: Mapping[str, Any]) -> Iterator[Server]:
    """Run a gateway with these settings of overload on ``core``, until the block ends."""
    more = {"overload": dict(overload)}
    with gateways.gateway("gateway", upstream_port, folder, gateways.sqlite(folder), more=more, core=core) as server:
        yield server


def settle(server: Server) -> None:
    """Wait until no call is in flight, and all rows are in SQL.

    Raises:
        RuntimeError: that does not happen.

    """
    end = monotonic() + _PATIENCE_S
    while _gauges(server)["holeshot_calls_in_flight"]:
        if monotonic() > end:
            raise RuntimeError("calls are still in flight, long after their clients have gone")
        sleep(_LOOK_S)
    server.settle()


@contextmanager
def watched(server: Server, after_s: float, window_s: float) -> Iterator[list[Seen]]:
    """Look at the gateway for ``window_s``, ``after_s`` from now; at the block's end the list has what was seen."""
    seen: list[Seen] = []
    looks: list[Mapping[str, float]] = []
    cpu_s: list[float] = []

    def look() -> None:
        sleep(after_s)
        ends = monotonic() + window_s
        cpu_s.append(machine.cpu_s(server.pid))
        while (left_s := ends - monotonic()) > 0:
            with suppress(OSError, LookupError):  # without overload control it may not answer in time
                looks.append(_gauges(server, left_s))
            sleep(max(0.0, min(_LOOK_S, ends - monotonic())))
        cpu_s.append(machine.cpu_s(server.pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        thread.join()
    delay_s, in_flight, limit = (fmean(each[name] for each in looks) if looks else None for name in GAUGES)
    seen.append(Seen(delay_s, in_flight, limit, (cpu_s[1] - cpu_s[0]) / window_s))


def _gauges(server: Server, patience_s: float = _PATIENCE_S) -> Mapping[str, float]:
    page = fetch(server.port, "/metrics", server.headers, limit_s=patience_s).decode()
    return dict(zip(GAUGES, gauges(page, GAUGES), strict=True))


class Quiet:
    """Measures again when others used the machine meanwhile, up to ``tries`` times."""

    def __init__(self, tries: int, say: Callable[[str], None]) -> None:
        self._tries = tries
        self.say = say

    def measured(self, measure: Callable[[], _T]) -> tuple[_T, float]:
        """Return what the calmest try measured, and how many cores others used then."""
        found: list[tuple[float, _T]] = []
        while len(found) < self._tries:
            company = Company()
            result = measure()
            found.append((company.cores(), result))
            if found[-1][0] <= CALM:
                break
            self.say(f"others used {found[-1][0]:.2f} cores")
        others, result = min(found, key=lambda each: each[0])
        return result, others


class Workload(msgspec.Struct, frozen=True):
    """What is asked for: a model of the measured gateway, and the mock's behaviour behind it."""

    name: str
    model: str
    behaviour: str

    @property
    def answer_s(self) -> float:
        """How long an answer takes at the provider."""
        return BEHAVIOURS[self.behaviour].whole_s(TOKENS)

    def question(self, server: Server) -> Question:
        """Return what is sent to ``server``."""
        return asking(server.port, server.headers, self.model)


class Unloaded(msgspec.Struct, frozen=True):
    """A gateway at light load: TTFT in ms, and calls per second of CPU."""

    ttft_p50_ms: float
    ttft_p99_ms: float
    by_cpu_per_s: float


class Step(msgspec.Struct, frozen=True):
    """One load. Rates are per second; times are in ms; quantiles are of calls that were due in the window.

    ``good_per_s``: whole answers with a TTFT of at most ``LATE`` times that without load.
    """

    times: float
    offered_per_s: float
    answered_per_s: float
    refused_per_s: float
    good_per_s: float
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    refusal_p50_ms: float | None
    refusal_p99_ms: float | None
    unended: int  # calls without any answer when all hung up
    seen: Seen
    others: float = 0.0  # cores that other programs used meanwhile


class Load(msgspec.Struct, frozen=True):
    """What each step of a sweep has in common. Rates are per second.

    ``may_be_cut``: the gateway may close connections, as it must when it is short of descriptors.
    """

    workload: Workload
    capacity_per_s: float
    unloaded: Unloaded
    window_s: float
    may_be_cut: bool


def unloaded(workload: Workload, server: Server) -> Unloaded:
    """Measure TTFT and CPU at light load."""
    for_s = _LIGHT_S + _FILLING * workload.answer_s
    order = Order(question=workload.question(server), for_s=for_s, rate_per_s=_LIGHT_PER_S)
    load.run(order)
    settle(server)
    before_s = machine.cpu_s(server.pid)
    outcome = load.run(order)
    settle(server)
    cpu_s = machine.cpu_s(server.pid) - before_s
    ttfts = [each.ttft_s * 1000 for each in outcome.ended]
    return Unloaded(quantile(ttfts, 0.5), quantile(ttfts, 0.99), len(ttfts) / cpu_s)


def capacity_per_s(workload: Workload, server: Server, calm: Unloaded, window_s: float, quiet: Quiet) -> float:
    """Return how many good answers per second ``server`` can give.

    In closed loops of more and more connections, until that is no more: the more a gateway has to do, the less a call
    costs, as it has more of it at a time, so its CPU at light load says little.
    """
    connections, best = calm.by_cpu_per_s * workload.answer_s, 0.0
    while True:
        good, _ = quiet.measured(partial(_closed_loop, workload, server, ceil(connections), calm, window_s))
        if good <= best:
            return best
        connections, best = connections * MORE, good


def _closed_loop(workload: Workload, server: Server, connections: int, calm: Unloaded, window_s: float) -> float:
    """Return the good answers per second of a closed loop."""
    begins_s = 2 * workload.answer_s + 2.0
    outcome = load.run(
        Order(
            question=workload.question(server),
            for_s=begins_s + window_s,
            connections=connections,
            spread_s=workload.answer_s,
        )
    )
    settle(server)
    late_s = LATE * calm.ttft_p50_ms / 1000
    return (
        sum(begins_s <= each.ended_s < begins_s + window_s and each.ttft_s <= late_s for each in outcome.ended)
        / window_s
    )


def step(given: Load, server: Server, times: float, quiet: Quiet) -> Step:
    """Offer ``times`` the capacity for the window, after the time that it takes to fill up."""
    quiet.say(f"{times:g} x capacity")
    taken, others = quiet.measured(lambda: _step(given, server, times))
    return msgspec.structs.replace(taken, others=others)


def _step(given: Load, server: Server, times: float) -> Step:
    workload, window_s, calm = given.workload, given.window_s, given.unloaded
    begins_s = _FILLING * workload.answer_s + _SETTLING_S
    order = Order(
        question=workload.question(server),
        for_s=begins_s + window_s,
        rate_per_s=times * given.capacity_per_s,
        patience_s=2 * workload.answer_s + 2.0,
        may_be_cut=given.may_be_cut,
    )
    with watched(server, begins_s, window_s) as seen:
        outcome = load.run(order)
    settle(server)

    def in_window(at_s: float) -> bool:
        return begins_s <= at_s < begins_s + window_s

    due = [each for each in outcome.ended if in_window(each.due_s)]
    answered, refused = _parted(due)
    late_ms = LATE * calm.ttft_p50_ms
    ttfts = [each.ttft_s * 1000 for each in answered]
    refusals = [(each.ended_s - each.due_s) * 1000 for each in refused]
    whole, _ = _parted([each for each in outcome.ended if in_window(each.ended_s)])
    return Step(
        times=times,
        offered_per_s=sum(map(in_window, outcome.due)) / window_s,
        answered_per_s=len(whole) / window_s,
        refused_per_s=len(refused) / window_s,
        good_per_s=sum(each <= late_ms for each in ttfts) / window_s,
        ttft_p50_ms=quantile(ttfts, 0.5) if ttfts else None,
        ttft_p99_ms=quantile(ttfts, 0.99) if ttfts else None,
        refusal_p50_ms=quantile(refusals, 0.5) if refusals else None,
        refusal_p99_ms=quantile(refusals, 0.99) if refusals else None,
        unended=sum(map(in_window, outcome.due)) - len(due),
        seen=seen[0],
    )


def _parted(ended: Sequence[Ended]) -> tuple[list[Ended], list[Ended]]:
    return [each for each in ended if each.status != REFUSED], [each for each in ended if each.status == REFUSED]
