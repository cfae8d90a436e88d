"""Measuring one scenario: its subjects take turns, so that a machine that grows slower grows slower for all."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

import msgspec

from benchmarks.harness import load
from benchmarks.harness.gateways import MeasuredServers
from benchmarks.harness.load import Order, Question
from benchmarks.harness.machine import metered
from benchmarks.harness.nginx import Missing
from benchmarks.harness.report import Row, quantile, row, skipped
from benchmarks.harness.servers import Server, count
from benchmarks.speed.scenarios import Comparison, Limit, Scenario, Subject

WARM_UP_SHARE = 0.2
ROUNDS, QUICK_ROUNDS = 9, 3
QUICK_SHARE = 0.3  # of the calls


class Effort(msgspec.Struct, frozen=True):
    """How much is done for a figure, and whom to tell what is being done."""

    quick: bool
    say: Callable[[str], None]

    @property
    def rounds(self) -> int:
        """How often each subject takes its turn."""
        return QUICK_ROUNDS if self.quick else ROUNDS

    def calls(self, scenario: Scenario) -> int:
        """How many calls are made in a turn."""
        return max(scenario.concurrency, int(scenario.calls * QUICK_SHARE) if self.quick else scenario.calls)


class Sample(msgspec.Struct, frozen=True):
    """One subject in one round: CPU of the server's process tree per unit, and each call's latency.

    ``cut_share``: requests that the upstream saw cut before it had sent a byte, per call.
    """

    cpu_us: float
    latencies_ms: list[float]
    cut_share: float


Samples = Mapping[str, list[Sample]]  # by subject, one for each round; a subject that could not be had is not there


def measure(scenario: Scenario, measured: MeasuredServers, effort: Effort) -> Samples:
    """Measure every subject, after a warm-up.

    Raises:
        LoadError: an answer was not whole.

    """
    effort.say(f"{scenario.name}: starting servers")
    found = {
        subject.name: server for subject in scenario.subjects if (server := _server(measured, subject)) is not None
    }
    subjects = [subject for subject in scenario.subjects if subject.name in found]
    calls = effort.calls(scenario)
    for subject in subjects:
        effort.say(f"{scenario.name}: warming up {subject.name}")
        load.run(order(scenario, subject, found[subject.name], max(scenario.concurrency, int(calls * WARM_UP_SHARE))))
    samples: dict[str, list[Sample]] = {name: [] for name in found}
    for number in range(1, effort.rounds + 1):
        for subject in subjects:
            effort.say(f"{scenario.name}: round {number} of {effort.rounds}, {subject.name}")
            samples[subject.name].append(_take(scenario, subject, found[subject.name], measured.upstream, calls))
    return samples


def order(scenario: Scenario, subject: Subject, server: Server, calls: int) -> Order:
    """Return what the load generator is to do."""
    question = Question(
        port=server.port,
        path=subject.path,
        model=subject.model,
        streamed=scenario.streamed,
        headers=server.headers,
        launched=subject.launched,
    )
    if scenario.prompt_bytes is not None:
        question = msgspec.structs.replace(question, prompt_bytes=scenario.prompt_bytes)
    return Order(question=question, calls=calls, concurrency=scenario.concurrency)


def _server(measured: MeasuredServers, subject: Subject) -> Server | None:
    try:
        return measured[subject.server]
    except Missing:
        return None


def _take(scenario: Scenario, subject: Subject, server: Server, upstream: Server, calls: int) -> Sample:
    cut_before = count(upstream, "cut_before_first_byte")
    with metered(server) as spent:
        outcome = load.run(order(scenario, subject, server, calls))
    cut = count(upstream, "cut_before_first_byte") - cut_before
    return Sample(spent.cpu_s / (calls * scenario.units_per_call) * 1e6, outcome.latencies_ms, cut / calls)


def cpu_rows(scenario: Scenario, samples: Samples) -> Iterator[Row]:
    """Yield the comparisons of a scenario: ratios of the same round, their median and extremes."""
    for comparison in scenario.comparisons:
        if not {comparison.subject, comparison.baseline or comparison.subject} <= samples.keys():
            yield skipped(comparison.title, "nginx")
        elif comparison.baseline is None:
            values = [sample.cpu_us / 1000 for sample in samples[comparison.subject]]
            detail = f"of CPU per {scenario.unit}{_cut(samples[comparison.subject])}"
            yield row(comparison.title, values, "ms", at_most=comparison.at_most, detail=detail)
        else:
            yield _ratio(scenario, comparison, samples[comparison.subject], samples[comparison.baseline])


def latency_rows(scenario: Scenario, samples: Samples, limits: dict[str, Limit]) -> Iterator[Row]:
    """Yield what each subject adds to the first one's time to the first token, at p50 and p99."""
    direct, *others = scenario.subjects
    for share in (0.5, 0.99):
        base = [quantile(sample.latencies_ms, share) for sample in samples[direct.name]]
        for subject in others:
            title = f"added time to first token, p{share * 100:.0f}: {subject.name}"
            if subject.name not in samples:
                yield skipped(title, "nginx")
                continue
            own = [quantile(sample.latencies_ms, share) for sample in samples[subject.name]]
            added = [each - least for each, least in zip(own, base, strict=True)]
            limit = limits.get(subject.name)
            at_most = None if limit is None else limit.p50_ms if share == 0.5 else limit.p99_ms
            detail = f"{median(own):.2f} ms, direct {median(base):.2f} ms"
            yield row(title, added, "ms", at_most=at_most, detail=detail)


def _ratio(scenario: Scenario, comparison: Comparison, own: Sequence[Sample], base: Sequence[Sample]) -> Row:
    ratios = [each.cpu_us / other.cpu_us for each, other in zip(own, base, strict=True)]
    own_us, base_us = (median(sample.cpu_us for sample in each) for each in (own, base))
    detail = f"{_us(own_us)} / {_us(base_us)} µs of CPU per {scenario.unit}{_cut(own)}"
    return row(comparison.title, ratios, "x", at_most=comparison.at_most, detail=detail)


def _cut(samples: Sequence[Sample]) -> str:
    share = median(sample.cut_share for sample in samples)
    return f"; requests cut before their first byte: {share:.2f} per call" if share else ""


def _us(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
