"""The report of a bench: all results that are printed, written as JSON or CSV, or drawn."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import exp, floor, log, log1p, log10
from typing import NamedTuple

import msgspec

from gateway.bench.figures import (
    ALL,
    CONFIDENCE,
    DRAWS,
    FEWEST_ROUNDS,
    METRICS,
    QUANTILES,
    Cell,
    Draws,
    IntervalEstimate,
    Unit,
    calls_needed,
    cells,
    flipped_p,
    holm,
    log_ratio,
    measured,
    paired_p,
    rounds_needed,
    share_difference,
)
from gateway.bench.plan import BenchPlan, BenchSample, Key, expected_answer, read_way
from gateway.core.terminal_text import counted
from gateway.steering import BURST_TOKENS

# Verdicts: comparisons of two deployments by the same requests of the same rounds, in words. The two answers to the
# same request of a round are compared by the logarithm of their ratio, so one slow answer does not outweigh many
# others. A verdict needs Student's paired test over the rounds' means, corrected by Holm's method for all pairs,
# figures and levels of the bench; the interval is the bootstrap's, of this one comparison.

NOTICED = 0.10  # less time, or cost: the difference for which the number of rounds is computed that would show it
_LITTLE_MORE = 0.05  # requests a call, beyond a budget
_OTHER_LENGTH = 0.10  # if the mean lengths of answers differ by more than this, the verdict has a note


class Aspect(msgspec.Struct, frozen=True):
    """A figure by which two deployments are compared."""

    name: str
    what: str  # after "a is faster than b"
    better: str  # "faster"
    of: Callable[[BenchSample], float | None]
    less_is_better: bool
    more: str  # after the percentage: "less time"
    is_share: bool = False  # compared by the difference, in points


def _error(sample: BenchSample) -> float:
    return float(sample.error_kind is not None)


def _whole(of: Callable[[BenchSample], float | None]) -> Callable[[BenchSample], float | None]:
    return lambda sample: of(sample) if sample.error_kind is None else None


COMPARED: tuple[Aspect, ...] = (
    Aspect("ttft", "at first tokens", "faster", _whole(lambda each: each.ttft_ms), True, "less time"),  # noqa: FBT003 - a row
    Aspect("decode_tps", "at decoding", "faster", _whole(lambda each: each.decode_tps), False, "more tok/s"),  # noqa: FBT003 - likewise
    Aspect("total", "at whole answers", "faster", _whole(lambda each: each.total_ms), True, "less time"),  # noqa: FBT003 - likewise
    Aspect("cost", "per request", "cheaper", _whole(lambda each: each.cost_usd or None), True, "less cost"),  # noqa: FBT003 - likewise
    Aspect("errors", "in errors", "better", _error, True, "points fewer errors", is_share=True),  # noqa: FBT003 - likewise
)


_WORDS_OF_TIMES = {"ttft": "first tokens", "total": "whole answers"}
_WORDS_OF_SHARES = {0.5: "median", 0.95: "p95", 0.99: "p99"}


def _of_way(time: str, share: float) -> Aspect:
    """Return the comparison of ways by a quantile of their times: of the slow ones too, which a race changes most."""
    name = f"{time}_p{share * 100:.0f}_ms"
    what = f"at the {_WORDS_OF_SHARES[share]} of {_WORDS_OF_TIMES[time]}"
    return Aspect(name, what, "faster", QUANTILES[name][0], True, "less time")  # noqa: FBT003 - a row


_COST_OF_WAY = Aspect("cost_mean", "per call", "cheaper", lambda sample: sample.cost_usd, True, "less cost")  # noqa: FBT003 - likewise
_OF_WAYS = (*(_of_way(time, share) for time in _WORDS_OF_TIMES for share in _WORDS_OF_SHARES), _COST_OF_WAY)

ASPECTS: Mapping[str, str] = {
    **{each.name: each.what.removeprefix("at the ").capitalize() for each in _OF_WAYS if each is not _COST_OF_WAY},
    _COST_OF_WAY.name: "Cost of a call",
    "ttft": "First tokens",
    "decode_tps": "Decoding",
    "total": "Whole answers",
    "goodput": "The goal",
    "errors": "Errors",
    "cost": "Cost",
}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of two deployments in one aspect, at one level of concurrency."""

    aspect: str
    concurrency: int
    a: str  # the better one, as far as this bench has seen
    b: str
    rounds: int  # in which both answered
    difference: IntervalEstimate  # a share (0.23: 23 %); for errors and goodput the difference of two shares
    p: float  # the p-value of this comparison
    p_corrected: float  # by Holm's method, for all comparisons of the bench
    is_shown: bool
    rounds_needed: int | None = None  # in all, to show NOTICED in four of five benches; only of times and costs
    words: str
    note: str | None = None


def verdicts(plan: BenchPlan, samples: Sequence[BenchSample], draws: Draws) -> list[Verdict]:
    """Return all comparisons, those that are shown first."""
    aspects = _aspects(plan)
    found: dict[str, Verdict] = {}
    differences: dict[str, list[float]] = {}  # of the rounds; only for figures compared by their logarithm
    for concurrency in plan.concurrencies:
        by_name: dict[str, dict[Key, BenchSample]] = {contender.name: {} for contender in plan.contenders}
        for sample in samples:
            if sample.key.concurrency == concurrency:
                by_name[sample.key.deployment][sample.key] = sample
        for aspect in aspects:
            for a, b in combinations(by_name, 2):
                name = f"{concurrency}/{aspect.name}/{a}/{b}"
                means = _means(aspect, _pairs(aspect, by_name[a], by_name[b], b))
                verdict = _compared(aspect, concurrency, by_name, (a, b), draws)
                if verdict is not None:
                    found[name] = verdict
                    differences[name] = [] if aspect.is_share else [value for _, value in means]
    if plan.raced:
        found |= _of_ways(plan, samples, draws)
        aspects += _OF_WAYS
    corrected = holm({name: verdict.p for name, verdict in found.items()})
    by_aspect = {aspect.name: aspect for aspect in aspects}
    for name, each in differences.items():
        needed = rounds_needed(each, log1p(NOTICED), len(found))
        found[name] = msgspec.structs.replace(found[name], rounds_needed=needed)
    rendered = [_with_words(each, corrected[name], len(found), by_aspect, plan.labels) for name, each in found.items()]
    return sorted(rendered, key=lambda verdict: not verdict.is_shown)


def _aspects(plan: BenchPlan) -> list[Aspect]:
    """Return the figures that are compared request by request: of ways only shares."""
    aspects = [each for each in COMPARED if each.is_share or not plan.raced]
    if plan.goal is not None:
        goal = plan.goal

        def good(sample: BenchSample) -> float | None:
            met = goal.met(sample)
            return None if met is None else float(met)

        aspects.append(
            Aspect("goodput", "at the goal", "better", good, False, "points more requests meet it", is_share=True)  # noqa: FBT003 - a row
        )
    return aspects


def _of_ways(plan: BenchPlan, samples: Sequence[BenchSample], draws: Draws) -> dict[str, Verdict]:
    """Return the comparisons of ways by the quantiles of their times, and by their cost; where there are intervals."""
    found: dict[str, Verdict] = {}
    for concurrency in plan.concurrencies:
        for aspect in _OF_WAYS:
            figures: dict[str, tuple[IntervalEstimate, list[float | None]]] = {}
            for contender in plan.contenders:
                values = [
                    (sample.key.round, value)
                    for sample in samples
                    if sample.key.deployment == contender.name and sample.key.concurrency == concurrency
                    if (sample.error_kind is None or aspect.name not in QUANTILES)
                    if (value := aspect.of(sample)) is not None
                ]
                share = QUANTILES.get(aspect.name, (None, None))[1]
                drawn = draws.drawn_mean(values) if share is None else draws.drawn_quantile(values, share)
                figures[contender.name] = drawn
            for a, b in combinations(figures, 2):
                compared = log_ratio(figures[a], figures[b], len(draws.rounds))
                if compared is not None:
                    name = f"{concurrency}/{aspect.name}/{a}/{b}"
                    found[name] = _unworded(aspect, concurrency, (a, b), _Difference(*compared, len(draws.rounds)))
    return found


class _Pair(msgspec.Struct, frozen=True):
    """Two values of the same request, of a and of b, and the lengths of their answers."""

    round: int
    a: float
    b: float
    tokens_a: int
    tokens_b: int


def _pairs(aspect: Aspect, of_a: Mapping[Key, BenchSample], of_b: Mapping[Key, BenchSample], b: str) -> list[_Pair]:
    """Return the pairs of values of requests for which both have one."""
    found = []
    for key, sample in of_a.items():
        other = of_b.get(msgspec.structs.replace(key, deployment=b))
        if other is None:
            continue
        x, y = aspect.of(sample), aspect.of(other)
        if x is None or y is None or (not aspect.is_share and (x <= 0 or y <= 0)):
            continue
        found.append(_Pair(key.round, x, y, sample.completion_tokens or 0, other.completion_tokens or 0))
    return found


def _means(aspect: Aspect, pairs: Sequence[_Pair]) -> list[tuple[int, float]]:
    """Return each round's mean difference: of shares the plain one, else that of the logarithms."""
    by_round: dict[int, list[float]] = {}
    for pair in pairs:
        value = pair.a - pair.b if aspect.is_share else log(pair.a) - log(pair.b)
        by_round.setdefault(pair.round, []).append(value)
    return [(round_, sum(values) / len(values)) for round_, values in sorted(by_round.items())]


def _compared(
    aspect: Aspect,
    concurrency: int,
    by_name: Mapping[str, Mapping[Key, BenchSample]],
    names: tuple[str, str],
    draws: Draws,
) -> Verdict | None:
    """Return the comparison, without its words; None if the two have no request in common."""
    a, b = names
    pairs = _pairs(aspect, by_name[a], by_name[b], b)
    if not pairs:
        return None
    means = _means(aspect, pairs)
    if aspect.is_share:
        shares = [draws.share([(pair.round, value > 0) for pair, value in _sided(pairs, side)]) for side in (0, 1)]
        estimate = share_difference(*shares)
        p = flipped_p([value for _, value in means], draws.seed)
    else:
        estimate = draws.mean(means)
        p = paired_p([value for _, value in means])
    if estimate.value is None:
        return None
    tokens = sum(pair.tokens_a for pair in pairs), sum(pair.tokens_b for pair in pairs)
    return _unworded(aspect, concurrency, names, _Difference(estimate, p, len(means), tokens))


class _Difference(NamedTuple):
    """The first one's figure less the second's: of shares, or of the logarithms."""

    estimate: IntervalEstimate
    p: float
    rounds: int
    tokens: tuple[int, int] = (0, 0)  # of the answers


def _unworded(aspect: Aspect, concurrency: int, names: tuple[str, str], found: _Difference) -> Verdict:
    """Return the comparison without its words."""
    (a, b), (estimate, p, rounds, tokens) = names, found
    assert estimate.value is not None
    if (estimate.value > 0) is aspect.less_is_better:  # b is the better one
        a, b, tokens = b, a, (tokens[1], tokens[0])
        estimate = IntervalEstimate(estimate.n, -estimate.value, _negative(estimate.high), _negative(estimate.low))
    return Verdict(
        aspect=aspect.name,
        concurrency=concurrency,
        a=a,
        b=b,
        rounds=rounds,
        difference=_as_difference(aspect, estimate),
        p=p,
        p_corrected=1.0,
        is_shown=False,
        words="",
        note=length_note(aspect, *tokens),
    )


def _sided(pairs: Sequence[_Pair], side: int) -> list[tuple[_Pair, float]]:
    return [(pair, pair.b if side else pair.a) for pair in pairs]


def _negative(value: float | None) -> float | None:
    return None if value is None else -value


def _as_difference(aspect: Aspect, estimate: IntervalEstimate) -> IntervalEstimate:
    """Return the advantage of the better one as a share of the other's value; positive for an advantage."""

    def of(value: float | None) -> float | None:
        if value is None:
            return None
        if aspect.is_share:
            return -value if aspect.less_is_better else value
        return 1.0 - exp(value) if aspect.less_is_better else exp(value) - 1.0

    low, high = of(estimate.low), of(estimate.high)
    if low is not None and high is not None:
        low, high = min(low, high), max(low, high)
    return IntervalEstimate(estimate.n, of(estimate.value), low, high)


def length_note(aspect: Aspect, tokens_a: float, tokens_b: float) -> str | None:
    """Return a note if ``a``'s answers are longer or shorter than ``b``'s, for aspects that depend on their length."""
    if aspect.name not in ("total", "cost") or not tokens_a or not tokens_b:
        return None
    off = tokens_a / tokens_b - 1.0
    if abs(off) <= _OTHER_LENGTH:
        return None
    return f"its answers are {abs(off) * 100:.0f} % {'longer' if off > 0 else 'shorter'}"


def _with_words(
    verdict: Verdict, p_corrected: float, comparisons: int, aspects: Mapping[str, Aspect], labels: Mapping[str, str]
) -> Verdict:
    """Return the verdict with its words."""
    aspect = aspects[verdict.aspect]
    better, what, more = aspect.better, aspect.what, aspect.more
    is_shown = p_corrected < 1.0 - CONFIDENCE
    a, b, found = labels[verdict.a], labels[verdict.b], verdict.difference
    at = f" (concurrency {verdict.concurrency})" if verdict.concurrency > 1 else ""
    range_ = "" if found.low is None or found.high is None else f" ({found.low * 100:.0f} to {found.high * 100:.0f})"
    amount = f"{(found.value or 0.0) * 100:.0f}{'' if aspect.is_share else ' %'}"
    if is_shown:
        words = f"{a} is {better} than {b} {what}: {amount}{range_} {more}{at}"
        if verdict.note:
            words += f"; {verdict.note}"
    elif verdict.rounds < FEWEST_ROUNDS:
        words = f"too few rounds to compare {a} and {b} {what}{at}: {verdict.rounds} of at least {FEWEST_ROUNDS}"
    elif verdict.p < 1.0 - CONFIDENCE:
        words = (
            f"no difference shown between {a} and {b} {what}{at}: {amount}{range_} would be one alone, but is not"
            f" among {comparisons} comparisons"
        )
    else:
        words = f"no difference shown between {a} and {b} {what}{at}: {amount}{range_}"
    return msgspec.structs.replace(verdict, p_corrected=p_corrected, is_shown=is_shown, words=words)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A bench's results."""

    plan: BenchPlan
    began_s: float | None  # Unix time of the first request
    ended_s: float | None
    sittings: int
    rounds_whole: int  # in which every request was sent
    requests: int
    spent_usd: float | None  # by reported usage and known prices; None: no price is known
    at_most_usd: float  # with what may have been billed for broken requests
    is_whole: bool  # every request of the plan was sent
    cells: list[Cell]
    verdicts: list[Verdict]
    method: list[str]
    samples: list[BenchSample]  # those that count


def report(plan: BenchPlan, samples: Sequence[BenchSample], *, sittings: int, at_most_usd: float) -> Report:
    """Return the report of ``samples``, which may be part of the plan."""
    counting = sorted(measured(samples), key=lambda sample: sample.began_s)
    seen = sorted({sample.key.round for sample in counting})
    draws = Draws(seen, plan.seed)
    costs = [sample.cost_usd for sample in samples if sample.cost_usd is not None]
    per_round = plan.requests // plan.rounds if plan.rounds else 0
    numbers = [sum(sample.key.round == round_ for sample in counting) for round_ in seen]
    return Report(
        plan=plan,
        began_s=counting[0].began_s if counting else None,
        ended_s=max((sample.began_s + sample.ended_ms / 1000 for sample in counting), default=None),
        sittings=sittings,
        rounds_whole=sum(number == per_round for number in numbers),
        requests=len(counting),
        spent_usd=sum(costs) if costs else None,
        at_most_usd=at_most_usd,
        is_whole=len(counting) >= plan.requests,
        cells=cells(plan, counting, draws),
        verdicts=verdicts(plan, counting, draws),
        method=method(plan),
        samples=counting,
    )


def few_calls(of: Report) -> list[str]:
    """Return notes on ways with too few answers, for a quantile or its interval, and on ways that failed."""
    words: list[str] = []
    cells_ = [cell for cell in of.cells if cell.kind == ALL]
    for share, name in ((0.95, "p95"), (0.99, "p99")):
        figures = {cell.deployment: cell.figures.get(f"ttft_{name}_ms", IntervalEstimate(0, None)) for cell in cells_}
        fewest = min(figures.values(), key=lambda each: each.n, default=None)
        if fewest is not None and fewest.n < calls_needed(share):
            what = f"no {name} yet" if fewest.value is None else f"{name} is a guess without an interval"
            words.append(f"{what}: of {fewest.n} answers of a way; it needs {calls_needed(share)}")
    failed: dict[str, int] = {}
    for sample in of.samples:
        for deployment, number_ in sample.failed_at.items():
            failed[deployment] = failed.get(deployment, 0) + number_
    if failed:
        each = ", ".join(f"{name} {number_}" for name, number_ in sorted(failed.items(), key=lambda item: -item[1]))
        words.append(f"requests that failed at providers, also where another answered the call: {each}")
    return words


def saved_up(of: Report) -> list[str]:
    """Return what the extra requests that a budget begins with may add to a call, if that is not little."""
    raced = [each for each in of.plan.contenders if of.plan.raced and (read_way(each.name).budget or 0) > 0]
    calls = min((cell.requests for cell in of.cells if cell.kind == ALL), default=0)
    more = BURST_TOKENS * of.sittings / calls if calls else 0.0
    if not raced or more <= _LITTLE_MORE:
        return []
    words = (
        f"budgets begin with {BURST_TOKENS:g} extra requests saved up, as in a gateway that starts: of {calls} calls"
        f" of a way in {counted(of.sittings, 'sitting')} up to {more:.2f} a call beyond its budget; the more calls in"
        " one sitting, the nearer to what it takes in the long run"
    )
    return [words]


def method(plan: BenchPlan) -> list[str]:
    """Return the description of the method, in paragraphs."""
    at_most = ", ".join(f"{kind} {expected_answer(kind, plan.lengths).at_most}" for kind in plan.kinds)
    if plan.raced:
        return _method_of_ways(plan, at_most)
    way = "through the gateway" if plan.url else "directly to the providers, without a gateway"
    levels = ", ".join(map(str, plan.concurrencies))
    settings = [f"{plan.labels[each.name]}: {each.setting}" for each in plan.contenders if each.setting]
    run = [f"Where and how they run, as configured: {'; '.join(settings)}."] if settings else []
    text = f"""
Requests went {way}, streamed. In each round every deployment was asked the same, in turns, in a random order (seed
{plan.seed}). No two deployments were measured at the same time.

Closed loop: in a turn {levels} requests ran at a time, and the next was sent when one had ended; at the end of a turn
fewer run. An open loop (arrivals at a fixed rate) would show how a queue grows; this does not.

{plan.warm_up} requests to each deployment warmed up before the first round, and again after each resumption. They count
for nothing but cost.

Answers had at most these tokens: {at_most}. Shorter ones are not filled up: no parameter for that works everywhere. So
compare first tokens and decoding before whole answers.

Prompts begin with a salt, so that no prompt cache knows them, except those of classes named “:fixed”.

A first token is the first text, reasoning or tool call; an empty or role-only chunk is none. Decoding: tokens after
those of the first chunk over the time since it. e2e tok/s: all tokens over the time since the request was sent. Gaps
are between chunks, which may have several tokens. Time to connect counts.

Tokens are counted by the provider, or else estimated as a quarter of the characters (“tokens estimated”).

An answer that was refused (429 too), broke off or was empty is an error; its times count nowhere. After a 429 the next
request waits as long as the provider asks, for at most a minute.

Intervals are of 95 %: the bootstrap over rounds with expanded percentiles ({DRAWS:,} draws); for shares Clopper and
Pearson's, with fewer effective requests where rounds differ. Without an interval there were too few answers for one.

Verdicts compare two deployments by the same requests of the same rounds: the mean logarithm of the ratio by Student's
test over rounds, shares by flipping the rounds' signs. They are corrected by Holm's method for all comparisons
together: the chance that any of them is false is 5 %. Intervals in verdicts are of the one comparison alone.

The figures are of these minutes and from this machine. Providers differ by hour and place.
"""
    return [*(" ".join(paragraph.split()) for paragraph in text.split("\n\n")), *run]


def _method_of_ways(plan: BenchPlan, at_most: str) -> list[str]:
    ways = "; ".join(f"{each.name}: {read_way(each.name).meaning}" for each in plan.contenders)
    text = f"""
Calls of {plan.contenders[0].model} ({", ".join(plan.raced)}), streamed, through the engine of a gateway that ran in the
process of the bench. {ways}. In each round every way was asked the same, in a random order (seed {plan.seed}), one
call after the other.

Each way had a name, estimates and a budget of its own, and knew at its beginning what the ledger knew of the model.
Nothing was audited, and no fallback was asked. Its calls are in the ledger as bench:MODEL:WAY, with the tag “from:
holeshot bench”; no figure of the model itself has them.

{plan.warm_up} calls of each way warmed up before the first round, and again after each resumption. They count for
nothing but cost.

Answers had at most these tokens: {at_most}. Prompts begin with a salt, so that no prompt cache knows them.

Times are the ledger's: since the call was received, to the first token of the winner and to the end. A call without a
whole answer has failed; its times count nowhere. Cost is of all requests of a call, of
cancelled ones as estimated.

Intervals are of 95 %: the bootstrap over rounds with expanded percentiles ({DRAWS:,} draws), joined with order
statistics; for shares Clopper and Pearson's. Without an interval there were too few answers for one.

A difference is sure if its interval, made of those of the two figures (Zou and Donner), excludes 0, and by Holm's
method for all comparisons together: the chance that any of them is false is 5 %.

The figures are of these minutes and from this machine. Providers differ by hour and place.
"""
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def as_csv(of: Report) -> str:
    """Return the figures as CSV: a row for each figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("deployment", "concurrency", "class", "metric", "unit", "n", "value", "low", "high"))
    for cell in of.cells:
        for metric in METRICS:
            if (found := cell.figures.get(metric.name)) is not None:
                place = (cell.deployment, cell.concurrency, cell.kind, metric.name, metric.unit)
                writer.writerow((*place, found.n, *map(_number, (found.value, found.low, found.high))))
    return text.getvalue()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


# Figures as text, the same on the terminal and in the report.

UNKNOWN = "–"  # noqa: RUF001 - a dash
_LARGE = 100.0
_UNITS: dict[str, Unit] = {metric.name: metric.unit for metric in METRICS}


def unit_of(name: str) -> Unit | None:
    """Return the unit of a metric."""
    return _UNITS.get(name)


def shown(name: str, estimate: IntervalEstimate | None) -> str:
    """Return a figure with its interval: ``123 (110 to 140)``."""
    if estimate is None or estimate.value is None:
        return UNKNOWN
    if estimate.low is None or estimate.high is None:
        return number(name, estimate.value)
    return f"{number(name, estimate.value)} ({number(name, estimate.low)} to {number(name, estimate.high)})"


def number(name: str, value: float) -> str:
    """Return the value of a metric, with three digits or so."""
    if unit_of(name) == "share":
        return f"{value * 100:.1f}%" if 0 < value < 1 else f"{value * 100:.0f}%"
    size = abs(value)
    if size >= _LARGE or not size:
        return f"{value:.0f}"
    return f"{value:.{2 - floor(log10(size))}f}"
