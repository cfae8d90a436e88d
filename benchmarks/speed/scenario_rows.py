"""The rows of a scenario: its comparisons, or what each subject adds to the first token."""

from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.harness.report import Row, quantile, row, skipped
from benchmarks.speed.measuring import Sample, Samples
from benchmarks.speed.scenarios import Comparison, Limit, Scenario


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
