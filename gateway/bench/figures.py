"""The figures of a bench: for each deployment, level of concurrency and class of prompts, and for all classes.

Each figure of an answer is the column of the same name of the ledger's ``attempts`` (docs/sql.md).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from math import ceil, hypot, log, sqrt
from random import Random
from statistics import stdev
from typing import Literal

import msgspec
from scipy import special  # its `stats` has names for these, and takes a second to import

from gateway.bench.plan import WARM_UP, BenchPlan, BenchSample, Goal


def share_limits(hits: float, number: float, tail: float) -> tuple[float, float]:
    """Return Clopper and Pearson's limits of a share; the probability beyond each is at most ``tail``.

    ``hits`` of ``number`` need not be whole.
    """
    low = 0.0 if hits <= 0 else float(special.betaincinv(hits, number - hits + 1, tail))
    high = 1.0 if hits >= number else float(special.betainccinv(hits + 1, number - hits, tail))
    return low, high


# Intervals of 95 % by the bootstrap over rounds, and the correction for multiple comparisons. In a round every
# deployment gets the same requests, one shortly after the other. A provider that is slow for a minute slows several of
# its answers, so rounds are drawn, not answers, and the same rounds for all deployments. The percentile interval is too
# short with few rounds. Its levels are those of Hesterberg's expanded interval (What Teachers Should Know about the
# Bootstrap, 2015, section 5.3): the normal quantile is replaced by that of Student's t times sqrt(n / (n - 1)).

CONFIDENCE = 0.95
DRAWS = 2000
FLIPS = 20_000
FEWEST_ROUNDS = 8  # with fewer no interval is given: the bootstrap's would be too short
_POWER = 0.8  # the probability with which an existing difference is to be shown
_RATHER = 0.5  # a quantile needs so many values that the largest is probably beyond it: 14 for p95

_FEW_DRAWS = 100  # with fewer their spread says little

Weights = Sequence[int]  # for one draw: how often each round was drawn


class IntervalEstimate(msgspec.Struct, frozen=True):
    """A figure with its interval of 95 %; ``low`` and ``high`` are None where there are too few answers for one."""

    n: int
    value: float | None
    low: float | None = None
    high: float | None = None


class Draws:
    """The same draws of rounds for all figures, so that figures can be compared."""

    def __init__(self, rounds: Sequence[int], seed: int, number: int = DRAWS) -> None:
        """``rounds`` are their numbers; ``seed`` makes the draws the same each time."""
        self.seed = seed
        random = Random(f"draws/{seed}")  # noqa: S311 - statistics
        self.rounds = tuple(rounds)
        self._place = {round_: place for place, round_ in enumerate(self.rounds)}
        self._weights: list[Weights] = []
        n = len(self.rounds)
        if n >= FEWEST_ROUNDS:
            for _ in range(number):
                weights = [0] * n
                for place in random.choices(range(n), k=n):
                    weights[place] += 1
                self._weights.append(weights)
            t = student_beyond((1.0 - CONFIDENCE) / 2, n - 1)
            self._tail = float(special.ndtr(-t * sqrt(n / (n - 1))))

    def interval(self, figure: Callable[[Weights], float | None]) -> tuple[float | None, float | None]:
        """Return the interval of ``figure``, which returns None for a draw without data."""
        return self._interval_of([figure(weights) for weights in self._weights])

    def _interval_of(self, drawn: Sequence[float | None]) -> tuple[float | None, float | None]:
        values = sorted(value for value in drawn if value is not None)
        if not self._weights or len(values) < len(self._weights) / 2:
            return None, None
        last = len(values) - 1
        return _between(values, self._tail * last), _between(values, (1.0 - self._tail) * last)

    def quantile(self, values: Sequence[tuple[int, float]], share: float) -> IntervalEstimate:
        """Return a quantile of ``values``, each with its round.

        The bootstrap's interval is too short near the ends, so it is joined with that of the order statistics, which
        holds for any distribution. It needs so many values that the largest is very probably beyond the quantile.
        """
        return self.drawn_quantile(values, share)[0]

    def drawn_quantile(
        self, values: Sequence[tuple[int, float]], share: float
    ) -> tuple[IntervalEstimate, list[float | None]]:
        """Return a quantile with its interval, and the quantile of each draw; no draws if there is no interval."""
        ordered = sorted((value, self._place[round_]) for round_, value in values)
        amounts = [value for value, _ in ordered]
        beyond = max(share, 1.0 - share)
        point = _quantile(amounts, share) if beyond ** len(ordered) <= _RATHER else None
        if beyond ** len(ordered) > (1.0 - CONFIDENCE) / 2:
            return IntervalEstimate(len(ordered), point), []
        places = [place for _, place in ordered]

        def drawn(weights: Weights) -> float | None:
            below = list(accumulate(map(weights.__getitem__, places)))
            total = below[-1]
            if not total:
                return None
            at = share * (total - 1)
            lower = amounts[bisect_left(below, int(at) + 1)]
            upper = amounts[bisect_left(below, ceil(at) + 1)]
            return lower + (upper - lower) * (at - int(at))

        drawn_ = [drawn(weights) for weights in self._weights]
        low, high = self._interval_of(drawn_)
        if low is None or high is None:
            return IntervalEstimate(len(ordered), point), []
        below, above = order_limits(len(ordered), share)
        return IntervalEstimate(len(ordered), point, min(low, amounts[below]), max(high, amounts[above])), drawn_

    def ratio(self, parts: Sequence[tuple[int, float, float]]) -> IntervalEstimate:
        """Return the ratio of two sums, such as a mean or a rate. ``parts``: round, numerator and denominator."""
        return self._drawn_ratio(parts)[0]

    def _drawn_ratio(self, parts: Sequence[tuple[int, float, float]]) -> tuple[IntervalEstimate, list[float | None]]:
        above, below = [0.0] * len(self.rounds), [0.0] * len(self.rounds)
        for round_, numerator, denominator in parts:
            above[self._place[round_]] += numerator
            below[self._place[round_]] += denominator

        def drawn(weights: Weights) -> float | None:
            total = sum(map(float.__mul__, map(float, weights), below))
            return sum(map(float.__mul__, map(float, weights), above)) / total if total else None

        value = drawn([1] * len(self.rounds))
        if value is None or len(parts) < 2:  # noqa: PLR2004 - one has no spread
            return IntervalEstimate(len(parts), value), []
        drawn_ = [drawn(weights) for weights in self._weights]
        return IntervalEstimate(len(parts), value, *self._interval_of(drawn_)), drawn_

    def mean(self, values: Sequence[tuple[int, float]]) -> IntervalEstimate:
        """Return the mean of ``values``, each with its round."""
        return self.drawn_mean(values)[0]

    def drawn_mean(self, values: Sequence[tuple[int, float]]) -> tuple[IntervalEstimate, list[float | None]]:
        """Return a mean with its interval, and the mean of each draw."""
        return self._drawn_ratio([(round_, value, 1.0) for round_, value in values])

    def share(self, values: Sequence[tuple[int, bool]], tail: float = (1.0 - CONFIDENCE) / 2) -> IntervalEstimate:
        """Return the share of true ``values``, each with its round; ``tail`` is the probability beyond each end.

        The interval is Clopper and Pearson's, which holds for shares near 0 and 1 too, where the bootstrap has nothing
        to draw from. If rounds differ more than chance explains, the number of values is reduced accordingly.
        """
        n = len(values)
        if not n:
            return IntervalEstimate(0, None)
        share = sum(value for _, value in values) / n
        by_round: dict[int, list[bool]] = {}
        for round_, value in values:
            by_round.setdefault(round_, []).append(value)
        effective = n / _design_effect(share, list(by_round.values()))
        return IntervalEstimate(n, share, *share_limits(share * effective, effective, tail))


@cache
def order_limits(number: int, share: float) -> tuple[int, int]:
    """Return the indices of two of ``number`` ordered values between which a quantile lies with a probability of 95 %.

    The probability beyond each is at most 2.5 %: the number of values below the quantile is binomial.
    """
    most = (1.0 - CONFIDENCE) / 2
    low = _fewest_below(most, number, share)
    if special.bdtr(low, number, share) > most:
        low -= 1
    return max(0, low), min(number - 1, _fewest_below(1.0 - most, number, share))


def _fewest_below(probability: float, number: int, share: float) -> int:
    """Return the quantile of a binomial distribution: the least value that is not exceeded with that probability."""
    found = max(0, ceil(float(special.bdtrik(probability, number, share))))  # rounded, it may be one too many
    return found - 1 if found and special.bdtr(found - 1, number, share) >= probability else found


def student_beyond(tail: float, freedom: float) -> float:
    """Return the value beyond which Student's distribution has the probability ``tail``."""
    return -float(special.stdtrit(freedom, tail))


def share_difference(a: IntervalEstimate, b: IntervalEstimate) -> IntervalEstimate:
    """Return the first of two shares minus the second, with Newcombe's interval (1998, method 10)."""
    if a.value is None or b.value is None or a.low is None or a.high is None or b.low is None or b.high is None:
        return IntervalEstimate(min(a.n, b.n), None)
    value = a.value - b.value
    down = sqrt((a.value - a.low) ** 2 + (b.high - b.value) ** 2)
    up = sqrt((a.high - a.value) ** 2 + (b.value - b.low) ** 2)
    return IntervalEstimate(min(a.n, b.n), value, value - down, value + up)


def log_ratio(
    a: tuple[IntervalEstimate, Sequence[float | None]], b: tuple[IntervalEstimate, Sequence[float | None]], rounds: int
) -> tuple[IntervalEstimate, float] | None:
    """Return the logarithm of the ratio of two figures with its interval, and the p-value that it is 0.

    ``a`` and ``b``: each figure with its value of each draw of the same ``rounds``. None: too few answers for one.

    The interval is made of those of the two figures, as Newcombe does for shares (Zou and Donner, 2008). So it holds
    where theirs do, near the ends of distributions too; where both ways were slow in the same rounds it is too wide.
    The p-value takes the spread of the draws, which knows of these rounds; it is 1 if the interval includes 0.
    """
    (of_a, drawn_a), (of_b, drawn_b) = a, b
    if any(each.value is None or each.low is None or each.high is None for each in (of_a, of_b)):
        return None
    known = [(x, y) for x, y in zip(drawn_a, drawn_b, strict=True) if x and y]
    if not (of_a.low and of_b.low and of_a.value and of_b.value and of_a.high and of_b.high) or len(known) < _FEW_DRAWS:
        return None  # a figure that may be 0 has no ratio
    value = log(of_a.value / of_b.value)
    low = value - hypot(log(of_a.value / of_a.low), log(of_b.high / of_b.value))
    high = value + hypot(log(of_a.high / of_a.value), log(of_b.value / of_b.low))
    found = IntervalEstimate(min(of_a.n, of_b.n), value, low, high)
    if low <= 0.0 <= high:
        return found, 1.0
    spread = stdev(log(x / y) for x, y in known)
    return found, float(2.0 * special.stdtr(rounds - 1, -abs(value) / spread)) if spread else 0.0


def calls_needed(share: float) -> int:
    """Return the fewest answers with which a quantile has an interval: the largest is very probably beyond it."""
    return ceil(log((1.0 - CONFIDENCE) / 2) / log(max(share, 1.0 - share)))


def flipped_p(differences: Sequence[float], seed: int) -> float:
    """Return the p-value of the sign-flip test that the rounds' differences are as often positive as negative.

    For shares, whose differences take few values, so that Student's test does not fit. All flips are tried if there are
    few rounds, else ``FLIPS`` random ones.
    """
    known = [each for each in differences if each]
    if len(differences) < FEWEST_ROUNDS or not known:
        return 1.0
    least = abs(sum(known)) - 1e-9
    if 2 ** len(known) <= FLIPS:
        sums = [0.0]
        for each in known:
            sums = [total + sign for total in sums for sign in (each, -each)]
        return sum(abs(total) >= least for total in sums) / len(sums)
    random = Random(f"flips/{seed}")  # noqa: S311 - statistics
    far = 0
    for _ in range(FLIPS):
        bits = random.getrandbits(len(known))
        far += abs(sum(each if bits >> place & 1 else -each for place, each in enumerate(known))) >= least
    return (far + 1) / (FLIPS + 1)


def paired_p(differences: Sequence[float]) -> float:
    """Return the p-value of Student's test that the mean of the rounds' ``differences`` is 0."""
    n = len(differences)
    if n < FEWEST_ROUNDS:
        return 1.0
    mean = sum(differences) / n
    variance = sum((each - mean) ** 2 for each in differences) / (n - 1)
    if not variance:
        return 0.0 if mean else 1.0
    return float(2.0 * special.stdtr(n - 1, -abs(mean) / sqrt(variance / n)))


def rounds_needed(differences: Sequence[float], amount: float, comparisons: int) -> int | None:
    """Return how many rounds show a mean difference of ``amount`` in four of five benches; None: too few to estimate.

    ``differences`` are of the finished rounds, whose variance is assumed for all. The paired test's level is that of
    the strictest of so many ``comparisons`` (``holm``).
    """
    n = len(differences)
    if n < FEWEST_ROUNDS:
        return None
    mean = sum(differences) / n
    variance = sum((each - mean) ** 2 for each in differences) / (n - 1)
    level = -float(special.ndtri((1.0 - CONFIDENCE) / 2 / comparisons))
    together = level + float(special.ndtri(_POWER))
    needed = (together / amount) ** 2 * variance + level**2 / 2  # Student's test needs more
    return max(FEWEST_ROUNDS, ceil(needed))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return the p-values of one family, corrected by Holm's method, so that they bound the chance of any false one."""
    corrected: dict[str, float] = {}
    worst = 0.0
    for place, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        worst = max(worst, min(1.0, p * (len(p_values) - place)))
        corrected[name] = worst
    return corrected


def _design_effect(share: float, rounds: Sequence[Sequence[bool]]) -> float:
    """Return the ratio of the variance of the rounds' shares to that of independent values; at least 1."""
    n, number = sum(map(len, rounds)), len(rounds)
    expected = share * (1.0 - share) / n
    if number < FEWEST_ROUNDS or not expected:
        return 1.0
    off = sum((sum(each) - share * len(each)) ** 2 for each in rounds)
    return max(1.0, number / (number - 1) * off / n**2 / expected)


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return _between(ordered, share * (len(ordered) - 1)) if ordered else None


def _between(ordered: Sequence[float], at: float) -> float:
    """Return the value at the fractional index ``at``, by linear interpolation."""
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


ALL = "all"  # classes of prompts together

Unit = Literal["ms", "number", "tok/s", "share", "tokens", "usd", "1/s"]


class BenchMetric(msgspec.Struct, frozen=True):
    """A figure: its name, unit, what it means, and whether less of it is better (None: neither)."""

    name: str
    unit: Unit
    meaning: str
    less_is_better: bool | None


METRICS: tuple[BenchMetric, ...] = (
    BenchMetric("ttft_p50_ms", "ms", "time to the first token, median", less_is_better=True),
    BenchMetric("ttft_p95_ms", "ms", "time to the first token, 95 of 100 are faster", less_is_better=True),
    BenchMetric("ttft_p99_ms", "ms", "time to the first token, 99 of 100 are faster", less_is_better=True),
    BenchMetric(
        "ttft_answer_p50_ms", "ms", "time to the first token that is not reasoning, median", less_is_better=True
    ),
    BenchMetric("sentence_p50_ms", "ms", "time to the first clause that can be spoken, median", less_is_better=True),
    BenchMetric("sentence_p95_ms", "ms", "time to the first clause, 95 of 100 are faster", less_is_better=True),
    BenchMetric("sentence_p99_ms", "ms", "time to the first clause, 99 of 100 are faster", less_is_better=True),
    BenchMetric("silence_p95_ms", "ms", "longest silence of a voice, 95 of 100 are shorter", less_is_better=True),
    BenchMetric("decode_tps_p50", "tok/s", "tokens after the first over the time since, median", less_is_better=False),
    BenchMetric("decode_tps_p05", "tok/s", "the same, 95 of 100 are faster", less_is_better=False),
    BenchMetric("e2e_tps_p50", "tok/s", "all tokens over the whole time, median", less_is_better=False),
    BenchMetric("itl_p50_ms", "ms", "gap between chunks: the median answer's median gap", less_is_better=True),
    BenchMetric("itl_p95_ms", "ms", "the median answer's gap that 95 of its 100 are under", less_is_better=True),
    BenchMetric("gap_p50_ms", "ms", "longest gap of an answer, median", less_is_better=True),
    BenchMetric("gap_p95_ms", "ms", "longest gap of an answer, 95 of 100 are shorter", less_is_better=True),
    BenchMetric("total_p50_ms", "ms", "time to the last token, median", less_is_better=True),
    BenchMetric("total_p95_ms", "ms", "time to the last token, 95 of 100 are faster", less_is_better=True),
    BenchMetric("total_p99_ms", "ms", "time to the last token, 99 of 100 are faster", less_is_better=True),
    BenchMetric("tokens_mean", "tokens", "tokens of an answer, mean", less_is_better=None),
    BenchMetric("errors", "share", "requests without a whole answer", less_is_better=True),
    BenchMetric("goodput", "share", "requests that met the goal; errors did not", less_is_better=False),
    BenchMetric("goodput_per_s", "1/s", "requests that met the goal, per second of its turns", less_is_better=False),
    BenchMetric("as_asked", "share", "JSON that parses, tool calls with valid arguments", less_is_better=False),
    BenchMetric("requests_per_s", "1/s", "whole answers per second of its turns", less_is_better=False),
    BenchMetric("tokens_per_s", "tok/s", "tokens of all answers per second of its turns", less_is_better=False),
    BenchMetric("requests_per_call", "number", "requests to providers for one call of a way", less_is_better=None),
    BenchMetric("cost_per_1000_usd", "usd", "cost of 1,000 such requests", less_is_better=True),
    BenchMetric("cost_per_spoken_hour_usd", "usd", "cost of an hour of such speech", less_is_better=True),
)

QUANTILES: Mapping[str, tuple[Callable[[BenchSample], float | None], float]] = {
    "ttft_p50_ms": (lambda sample: sample.ttft_ms, 0.5),
    "ttft_p95_ms": (lambda sample: sample.ttft_ms, 0.95),
    "ttft_p99_ms": (lambda sample: sample.ttft_ms, 0.99),
    "ttft_answer_p50_ms": (lambda sample: sample.ttft_answer_ms, 0.5),
    "sentence_p50_ms": (lambda sample: sample.sentence_ms, 0.5),
    "sentence_p95_ms": (lambda sample: sample.sentence_ms, 0.95),
    "sentence_p99_ms": (lambda sample: sample.sentence_ms, 0.99),
    "silence_p95_ms": (lambda sample: sample.speech_pause_ms, 0.95),
    "decode_tps_p50": (lambda sample: sample.decode_tps, 0.5),
    "decode_tps_p05": (lambda sample: sample.decode_tps, 0.05),
    "e2e_tps_p50": (lambda sample: sample.e2e_tps, 0.5),
    "itl_p50_ms": (lambda sample: sample.itl_p50_ms, 0.5),
    "itl_p95_ms": (lambda sample: sample.itl_p95_ms, 0.5),
    "gap_p50_ms": (lambda sample: sample.itl_max_ms, 0.5),
    "gap_p95_ms": (lambda sample: sample.itl_max_ms, 0.95),
    "total_p50_ms": (lambda sample: sample.total_ms, 0.5),
    "total_p95_ms": (lambda sample: sample.total_ms, 0.95),
    "total_p99_ms": (lambda sample: sample.total_ms, 0.99),
}
_MS_PER_S = 1000.0
_THOUSAND = 1000.0
_HOUR_S = 3600.0


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one deployment at one level, for one class of prompts or for all."""

    deployment: str
    concurrency: int
    kind: str  # the class, or ``ALL``
    requests: int
    error_kinds: dict[str, int]
    connected: int  # requests that opened a connection, which counts as time to their first token
    estimated_tokens: int  # answers whose provider reported no usage: a quarter of their characters
    in_flight_mean: float | None  # when requests were sent
    figures: dict[str, IntervalEstimate]  # by the metric's name; without unknown ones


def measured(samples: Iterable[BenchSample]) -> list[BenchSample]:
    """Return the samples that count: all but those of warming up."""
    return [sample for sample in samples if sample.key.round != WARM_UP]


def cells(plan: BenchPlan, samples: Sequence[BenchSample], draws: Draws) -> list[Cell]:
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


def _cell(plan: BenchPlan, samples: Sequence[BenchSample], draws: Draws, place: tuple[str, int, str]) -> Cell:
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


def _figures(plan: BenchPlan, samples: Sequence[BenchSample], draws: Draws, kind: str) -> dict[str, IntervalEstimate]:
    whole = [sample for sample in samples if sample.error_kind is None]

    def values(of: Callable[[BenchSample], float | None]) -> list[tuple[int, float]]:
        return [(sample.key.round, value) for sample in whole if (value := of(sample)) is not None]

    figures = {name: draws.quantile(values(of), share) for name, (of, share) in QUANTILES.items()}
    figures["tokens_mean"] = draws.mean(values(lambda sample: sample.completion_tokens))
    figures["errors"] = draws.share([(sample.key.round, sample.error_kind is not None) for sample in samples])
    figures["as_asked"] = draws.share(
        [(sample.key.round, sample.as_asked) for sample in whole if sample.as_asked is not None]
    )
    figures["requests_per_call"] = draws.mean(
        [(sample.key.round, sample.launched) for sample in samples if sample.launched is not None]
    )
    figures["cost_per_1000_usd"] = draws.mean(
        [(sample.key.round, sample.cost_usd * _THOUSAND) for sample in samples if sample.cost_usd is not None]
    )
    figures["cost_per_spoken_hour_usd"] = draws.ratio(
        [
            (sample.key.round, sample.cost_usd * _HOUR_S, sample.spoken_s)
            for sample in samples
            if sample.cost_usd is not None and sample.spoken_s
        ]
    )
    if plan.goal is not None:
        figures["goodput"] = draws.share(judged(plan.goal, samples))
    if kind == ALL:
        figures |= _rates(plan.goal, samples, draws)
    return figures


def judged(goal: Goal, samples: Iterable[BenchSample]) -> list[tuple[int, bool]]:
    """Return each sample's round, and whether it met the goal; without samples for which this is unknown."""
    return [(sample.key.round, met) for sample in samples if (met := goal.met(sample)) is not None]


def _rates(goal: Goal | None, samples: Sequence[BenchSample], draws: Draws) -> dict[str, IntervalEstimate]:
    """Return the rates per second of a deployment's turns; a turn lasts from its first request to its last answer."""
    by_turn: dict[tuple[int, int], list[BenchSample]] = {}
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
