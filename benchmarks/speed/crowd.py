"""Many streams at the same time, each at a reading pace: cores, memory, and the first token when all come at once."""

from collections.abc import Iterator
from statistics import median

import msgspec

from benchmarks.harness import machine
from benchmarks.harness.machine import metered
from benchmarks.harness.report import Row, quantile, row, skipped
from benchmarks.speed.scenarios import Effort, Subject, gateway, nginx, passthrough
from tests.support.measured import gateways, load
from tests.support.measured.answers import BEHAVIOURS, TOKENS
from tests.support.measured.gateways import MeasuredServers, over
from tests.support.measured.load import LoadError, Order, Question
from tests.support.measured.nginx import Missing
from tests.support.measured.servers import Server, count

NAME = "crowd"
ROUNDS = 3
TOKENS_PER_S = 20
STREAM_S = BEHAVIOURS["crowd"].whole_s(TOKENS)


class Promise(msgspec.Struct, frozen=True):
    """What 1,000 streams may take; more streams that much more. ``ttft`` is p99 against the upstream's own.

    ``beside``: the same against the pass-through's in this run, for as many streams.
    """

    mb: float = 50
    cores: float | None = None
    ttft: float | None = None
    beside: float | None = None


class Crowd(msgspec.Struct, frozen=True):
    """So many streams through a measured server."""

    subject: Subject
    streams: int = 1000
    promise: Promise | None = None

    @property
    def title(self) -> str:
        """What its rows begin with."""
        return f"{self.streams:,} streams at {TOKENS_PER_S} tok/s, {self.subject.name}"


def _over_tls(name: str, version: str, mb: float) -> Crowd:
    subject = gateway(f"race over TLS, {name}", f"crowd-race{over(version)}", f"crowded over {name}")
    return Crowd(subject, promise=Promise(mb))


_PASS_THROUGH = Crowd(passthrough(NAME))
CROWDS = (
    Crowd(nginx(NAME)),
    _PASS_THROUGH,
    Crowd(gateway("single", "crowd-single", "crowded by single"), promise=Promise(beside=1.05)),
    Crowd(gateway("race", "crowd-race", "crowded"), promise=Promise(cores=0.55, beside=1.15)),
    Crowd(gateway("race", "crowd-race", "crowded by 2,000"), 2000, Promise(cores=0.55, ttft=1.6)),
    _over_tls("HTTP/2", "auto", 40),
    _over_tls("HTTP/1.1", "1.1", 100),
)


class Sample(msgspec.Struct, frozen=True):
    """One crowd. ``others_cores``: what the load generator and the mock upstream took, which share the other core.

    Cores are CPU seconds per second that the streams should take: who is late does not look cheaper for it.
    """

    cores: float
    peak_mb: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    others_cores: float
    cut_share: float


def rows(measured: MeasuredServers, effort: Effort) -> Iterator[Row]:
    """Measure, after a rehearsal; the servers take turns. One that does not carry its crowd is a row that says so."""
    direct = Crowd(Subject("direct", "upstream", f"/{NAME}{gateways.PATH}"))
    idle_mb: dict[str, float] = {}
    samples: dict[Crowd, list[Sample]] = {}
    for crowd in (direct, *CROWDS):
        try:
            server = measured[crowd.subject.server]
        except Missing as missing:
            yield skipped(crowd.title, missing)
            continue
        if crowd.subject.server not in idle_mb:
            idle_mb[crowd.subject.server] = _idle_mb(crowd, server)
        samples[crowd] = []
    turns = 1 if effort.quick else ROUNDS
    for number in range(turns + 1):
        for crowd, taken in list(samples.items()):
            effort.say(f"{NAME}: round {number} of {turns}, {crowd.streams:,} through {crowd.subject.name}")
            try:
                taken.append(_gather(crowd, measured[crowd.subject.server], measured.upstream))
            except LoadError as error:
                del samples[crowd]
                yield Row(title=f"{crowd.title}: broken", value=None, broken=True, detail=str(error))
        if number == 0:  # the rehearsal
            for taken in samples.values():
                taken.clear()
    base_ms = median(sample.ttft_p99_ms for sample in samples.pop(direct))
    for crowd, taken in samples.items():
        yield from _told(crowd, taken, idle_mb[crowd.subject.server], base_ms)
        yield from _beside(crowd, taken, samples.get(_PASS_THROUGH))


def _idle_mb(crowd: Crowd, server: Server) -> float:
    """Return the memory of a server that has made one short call, for what is only loaded then."""
    question = crowd.subject.question(server)
    short = msgspec.structs.replace(
        question, path=question.path.replace(NAME, "burst"), model=question.model.replace(NAME, "burst")
    )
    load.run(Order(question=short, calls=1, concurrency=1))
    server.settle()
    return machine.memory_mb(server.pid)


def gathered(question: Question, server: Server, streams: int) -> tuple[float, float, load.Outcome]:
    """Return cores, the peak of memory in MB, and what clients saw, of so many streams that begin at once."""
    machine.forget_peak(server.pid)
    with metered(server) as spent:
        outcome = load.run(Order(question=question, calls=streams, concurrency=streams, together=True))
    return spent.cpu_s / STREAM_S, machine.peak_mb(server.pid), outcome


def _gather(crowd: Crowd, server: Server, upstream: Server) -> Sample:
    server.settle()
    cut, before_s = count(upstream, "cut_before_first_byte"), machine.cpu_s(upstream.pid)
    cores, peak_mb, outcome = gathered(crowd.subject.question(server), server, crowd.streams)
    return Sample(
        cores=cores,
        peak_mb=peak_mb,
        ttft_p50_ms=quantile(outcome.latencies_ms, 0.5),
        ttft_p99_ms=quantile(outcome.latencies_ms, 0.99),
        others_cores=(machine.cpu_s(upstream.pid) - before_s + outcome.cpu_s) / STREAM_S,
        cut_share=(count(upstream, "cut_before_first_byte") - cut) / crowd.streams,
    )


def _beside(crowd: Crowd, samples: list[Sample], passed: list[Sample] | None) -> Iterator[Row]:
    """Yield its first tokens beside the pass-through's of the same round, if that is promised and was measured."""
    if crowd.promise is None or crowd.promise.beside is None or passed is None:
        return
    own, other = ([sample.ttft_p99_ms for sample in each] for each in (samples, passed))
    yield row(
        f"{crowd.title}: TTFT p99 / pass-through's",
        [each / beside for each, beside in zip(own, other, strict=True)],
        "x",
        at_most=crowd.promise.beside,
        detail=f"{median(own):.0f} / {median(other):.0f} ms",
    )


def _told(crowd: Crowd, samples: list[Sample], idle_mb: float, base_ms: float) -> Iterator[Row]:
    title = crowd.title
    promise, scale = crowd.promise, crowd.streams / 1000
    others = median(sample.others_cores for sample in samples)
    cores = row(
        f"{title}: cores",
        [sample.cores for sample in samples],
        "",
        at_most=promise.cores * scale if promise is not None and promise.cores is not None else None,
        detail=f"upstream and load generator together {others:.2f}",
    )
    grown = row(
        f"{title}: memory over idle",
        [sample.peak_mb - idle_mb for sample in samples],
        "MB",
        at_most=promise.mb * scale if promise is not None else None,
        detail=f"idle {idle_mb:.0f} MB",
    )
    cut = median(sample.cut_share for sample in samples)
    ttft = row(
        f"{title}: TTFT p99 / upstream's",
        [sample.ttft_p99_ms / base_ms for sample in samples],
        "x",
        at_most=promise.ttft * scale if promise is not None and promise.ttft is not None else None,
        detail=(
            f"{median(sample.ttft_p99_ms for sample in samples):.0f} / {base_ms:.0f} ms, p50 "
            f"{median(sample.ttft_p50_ms for sample in samples):.0f} ms"
            + (f"; losers cut before their first byte: {cut:.1%}" if crowd.subject.launched == 2 else "")
        ),
    )
    yield from (cores, grown, ttft)
