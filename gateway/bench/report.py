"""The report of a bench: everything that is printed, written as JSON or CSV, or drawn."""

import csv
import io
from collections.abc import Sequence

import msgspec

from gateway.bench.figures import METRICS, Cell, cells, measured
from gateway.bench.plan import Plan
from gateway.bench.prompts import expected_answer
from gateway.bench.resampling import DRAWS, Draws
from gateway.bench.sample import Sample
from gateway.bench.verdicts import Verdict, verdicts


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A bench's results."""

    plan: Plan
    began_s: float | None  # Unix time of the first request
    ended_s: float | None
    sittings: int
    rounds_whole: int  # in which every request was sent
    requests: int
    spent_usd: float | None  # by reported usage and known prices; None: no price is known
    at_most_usd: float  # with what may have been billed for broken requests
    is_whole: bool  # everything in the plan was asked
    cells: list[Cell]
    verdicts: list[Verdict]
    method: list[str]
    samples: list[Sample]  # those that count


def report(plan: Plan, samples: Sequence[Sample], *, sittings: int, at_most_usd: float) -> Report:
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


def method(plan: Plan) -> list[str]:
    """Return how it was measured, in sentences."""
    at_most = ", ".join(f"{kind} {expected_answer(kind, plan.lengths).at_most}" for kind in plan.kinds)
    way = "through the gateway" if plan.url else "directly to the providers, without a gateway"
    levels = ", ".join(map(str, plan.concurrencies))
    said = f"""
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
    return [" ".join(paragraph.split()) for paragraph in said.split("\n\n")]


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
