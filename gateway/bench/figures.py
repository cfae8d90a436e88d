"""The figures of a bench: of each deployment at each level of concurrency, for each class of prompts and for all.

Each figure of an answer is the column of the same name of the ledger's ``attempts`` (docs/sql.md).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from gateway.bench.goal import Goal
from gateway.bench.plan import WARM_UP, Plan
from gateway.bench.resampling import Draws, Estimate
from gateway.bench.sample import Sample

ALL = "all"  # classes of prompts together

Unit = Literal["ms", "tok/s", "share", "tokens", "usd", "1/s"]


class Metric(msgspec.Struct, frozen=True):
    """A figure: its name, unit, what it means, and whether less of it is better (None: neither)."""

    name: str
    unit: Unit
    meaning: str
    less_is_better: bool | None


METRICS: tuple[Metric, ...] = (
    Metric("ttft_p50_ms", "ms", "time to the first token, median", less_is_better=True),
    Metric("ttft_p95_ms", "ms", "time to the first token, 95 of 100 are faster", less_is_better=True),
    Metric("ttft_answer_p50_ms", "ms", "time to the first token that is not reasoning, median", less_is_better=True),
    Metric("decode_tps_p50", "tok/s", "tokens after the first over the time since, median", less_is_better=False),
    Metric("decode_tps_p05", "tok/s", "the same, 95 of 100 are faster", less_is_better=False),
    Metric("e2e_tps_p50", "tok/s", "all tokens over the whole time, median", less_is_better=False),
    Metric("itl_p50_ms", "ms", "gap between chunks: the median answer's median gap", less_is_better=True),
    Metric("itl_p95_ms", "ms", "the median answer's gap that 95 of its 100 are under", less_is_better=True),
    Metric("gap_p50_ms", "ms", "longest gap of an answer, median", less_is_better=True),
    Metric("gap_p95_ms", "ms", "longest gap of an answer, 95 of 100 are shorter", less_is_better=True),
    Metric("total_p50_ms", "ms", "time to the last token, median", less_is_better=True),
    Metric("total_p95_ms", "ms", "time to the last token, 95 of 100 are faster", less_is_better=True),
    Metric("tokens_mean", "tokens", "tokens of an answer, mean", less_is_better=None),
    Metric("errors", "share", "requests without a whole answer", less_is_better=True),
    Metric("goodput", "share", "requests that met the goal; errors did not", less_is_better=False),
    Metric("goodput_per_s", "1/s", "requests that met the goal, per second of its turns", less_is_better=False),
    Metric("as_asked", "share", "JSON that parses, tool calls with valid arguments", less_is_better=False),
    Metric("requests_per_s", "1/s", "whole answers per second of its turns", less_is_better=False),
    Metric("tokens_per_s", "tok/s", "tokens of all answers per second of its turns", less_is_better=False),
    Metric("cost_per_1000_usd", "usd", "cost of 1,000 such requests", less_is_better=True),
)

_QUANTILES: Mapping[str, tuple[Callable[[Sample], float | None], float]] = {
    "ttft_p50_ms": (lambda sample: sample.ttft_ms, 0.5),
    "ttft_p95_ms": (lambda sample: sample.ttft_ms, 0.95),
    "ttft_answer_p50_ms": (lambda sample: sample.ttft_answer_ms, 0.5),
    "decode_tps_p50": (lambda sample: sample.decode_tps, 0.5),
    "decode_tps_p05": (lambda sample: sample.decode_tps, 0.05),
    "e2e_tps_p50": (lambda sample: sample.e2e_tps, 0.5),
    "itl_p50_ms": (lambda sample: sample.itl_p50_ms, 0.5),
    "itl_p95_ms": (lambda sample: sample.itl_p95_ms, 0.5),
    "gap_p50_ms": (lambda sample: sample.itl_max_ms, 0.5),
    "gap_p95_ms": (lambda sample: sample.itl_max_ms, 0.95),
    "total_p50_ms": (lambda sample: sample.total_ms, 0.5),
    "total_p95_ms": (lambda sample: sample.total_ms, 0.95),
}
_MS_PER_S = 1000.0
_THOUSAND = 1000.0


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one deployment at one level, for one class of prompts or for all."""

    deployment: str
    concurrency: int
    kind: str  # the class, or ``ALL``
    requests: int
    error_kinds: dict[str, int]
    connected: int  # requests that had to connect first, which counts as time to their first token
    estimated_tokens: int  # answers whose provider reported no usage: a quarter of their characters
    in_flight_mean: float | None  # when requests were sent
    figures: dict[str, Estimate]  # by the metric's name; without those that nothing is known of


def measured(samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples that count: all but those of warming up."""
    return [sample for sample in samples if sample.key.round != WARM_UP]


def cells(plan: Plan, samples: Sequence[Sample], draws: Draws) -> list[Cell]:
    """Return the figures of ``samples``, in the plan's order; without cells that have no samples."""
    found: list[Cell] = []
    for concurrency in plan.concurrencies:
        for contender in plan.contenders:
            of_it = [
                sample
                for sample in samples
                if sample.key.concurrency == concurrency and sample.key.deployment == contender.name
            ]
            for kind in (ALL, *plan.kinds):
                chosen = [sample for sample in of_it if kind in (ALL, sample.key.kind)]
                if chosen and (kind == ALL or len(plan.kinds) > 1):
                    found.append(_cell(plan, chosen, draws, (contender.name, concurrency, kind)))
    return found


def _cell(plan: Plan, samples: Sequence[Sample], draws: Draws, place: tuple[str, int, str]) -> Cell:
    deployment, concurrency, kind = place
    errors: dict[str, int] = {}
    for sample in samples:
        if sample.error_kind is not None:
            errors[sample.error_kind] = errors.get(sample.error_kind, 0) + 1
    return Cell(
        deployment=deployment,
        concurrency=concurrency,
        kind=kind,
        requests=len(samples),
        error_kinds=dict(sorted(errors.items(), key=lambda item: -item[1])),
        connected=sum(sample.connect_ms is not None for sample in samples),
        estimated_tokens=sum(sample.tokens_source == "estimated" for sample in samples),
        in_flight_mean=sum(sample.in_flight for sample in samples) / len(samples) if samples else None,
        figures={name: estimate for name, estimate in _figures(plan, samples, draws, kind).items() if estimate.n},
    )


def _figures(plan: Plan, samples: Sequence[Sample], draws: Draws, kind: str) -> dict[str, Estimate]:
    whole = [sample for sample in samples if sample.error_kind is None]

    def values(of: Callable[[Sample], float | None]) -> list[tuple[int, float]]:
        return [(sample.key.round, value) for sample in whole if (value := of(sample)) is not None]

    figures = {name: draws.quantile(values(of), share) for name, (of, share) in _QUANTILES.items()}
    figures["tokens_mean"] = draws.mean(values(lambda sample: sample.completion_tokens))
    figures["errors"] = draws.share([(sample.key.round, sample.error_kind is not None) for sample in samples])
    figures["as_asked"] = draws.share(
        [(sample.key.round, sample.as_asked) for sample in whole if sample.as_asked is not None]
    )
    figures["cost_per_1000_usd"] = draws.mean(
        [(sample.key.round, sample.cost_usd * _THOUSAND) for sample in samples if sample.cost_usd is not None]
    )
    if plan.goal is not None:
        figures["goodput"] = draws.share(judged(plan.goal, samples))
    if kind == ALL:
        figures |= _rates(plan.goal, samples, draws)
    return figures


def judged(goal: Goal, samples: Iterable[Sample]) -> list[tuple[int, bool]]:
    """Return whether each sample met the goal, with its round; without those of which it is unknown."""
    return [(sample.key.round, met) for sample in samples if (met := goal.met(sample)) is not None]


def _rates(goal: Goal | None, samples: Sequence[Sample], draws: Draws) -> dict[str, Estimate]:
    """Return what a deployment does per second of its turns, from a turn's first request to its last answer."""
    by_turn: dict[tuple[int, int], list[Sample]] = {}
    for sample in samples:
        by_turn.setdefault((sample.key.round, sample.sitting), []).append(sample)
    answers, tokens, good = [], [], []
    for (round_, _), turn in by_turn.items():
        ends = max(sample.began_s + sample.ended_ms / _MS_PER_S for sample in turn)
        seconds = ends - min(sample.began_s for sample in turn)
        whole = [sample for sample in turn if sample.error_kind is None]
        answers.append((round_, float(len(whole)), seconds))
        tokens.append((round_, float(sum(sample.completion_tokens or 0 for sample in whole)), seconds))
        if goal is not None:
            good.append((round_, float(sum(goal.met(sample) is True for sample in turn)), seconds))
    rates = {"requests_per_s": draws.ratio(answers), "tokens_per_s": draws.ratio(tokens)}
    return rates | ({"goodput_per_s": draws.ratio(good)} if goal is not None else {})
