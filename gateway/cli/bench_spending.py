"""What a bench costs: stated before it starts, and agreed to."""

import sys
from collections.abc import Mapping
from typing import NamedTuple

import typer

from gateway.bench.figures import measured
from gateway.bench.journal import Past
from gateway.bench.plan import Plan
from gateway.bench.purse import Cost, Purse
from gateway.bench.resampling import FEWEST_ROUNDS
from gateway.cli.bench_field import Field
from gateway.cli.terminal import FAILED, MISUSED, fail, prose, say
from gateway.terminal_text import counted


class Spending(NamedTuple):
    """What the user allows."""

    cap_usd: float
    unpriced: bool
    yes: bool


def paid(past: Past) -> float:
    """Return what an earlier start has cost at most."""
    purse = Purse(None, {})
    for sent in past.sent:
        purse.sent(sent.key, sent.sitting, sent.most_usd)
    for sample in past.samples:
        purse.done(sample)
    return purse.committed_usd


def unpriced_of(field: Field) -> list[str]:
    """Return the deployments whose price is unknown."""
    return [name for name, deployment in field.deployments.items() if deployment.price is None]


class _Estimate(NamedTuple):
    """US dollars: of a round about and at most, and of warming up at most."""

    about: float
    most: float
    warming: float


def agree(plan: Plan, field: Field, costs: Mapping[tuple[str, str], Cost], spending: Spending, past: Past) -> None:
    """State what it will cost, and ask; exit if the user does not agree."""
    unpriced = unpriced_of(field)
    if unpriced and not spending.unpriced:
        fail(
            f"the price of {', '.join(unpriced)} is unknown, so --max-usd cannot hold: set price_per_mtok for it"
            " (0 if it is yours), or add --unpriced",
            MISUSED,
        )
    _note(plan)
    round_ = _estimate(plan, costs)
    left_usd = spending.cap_usd - paid(past)
    if not unpriced and round_.most + round_.warming > left_usd:
        what = f"--max-usd {spending.cap_usd:g} does not pay for one round"
        after = f" after the ${paid(past):.4f} that are spent" if past.samples else ""
        fail(f"{what}{after}: it may cost ${round_.most + round_.warming:.4f}", MISUSED)
    requests = plan.requests - len(measured(past.samples))
    rounds = plan.rounds * requests / plan.requests
    what = f"{counted(requests, 'request')} to {counted(len(plan.contenders), 'deployment')}"
    known = " of the deployments with a known price" if unpriced else ""
    cap = "no cap holds for the others" if unpriced else f"never more than ${spending.cap_usd:.2f}"
    most_usd = round_.most * rounds + round_.warming
    prose(f"{what}: about ${round_.about * rounds:.4f}{known}, at most ${most_usd:.4f}; {cap}", err=True)
    if not unpriced and round_.about * rounds > left_usd:
        lasts = counted(int(left_usd / round_.about), "round")
        say(f"note: the cap will probably end it after {lasts}", err=True)
    if spending.yes or plan.is_demo or (not most_usd and not unpriced):
        return
    if not sys.stdin.isatty():
        fail("this costs money: add --yes to agree", MISUSED)
    if not typer.confirm("Start?", err=True):
        raise typer.Exit(FAILED)


def _note(plan: Plan) -> None:
    """Tell what will be missing."""
    for contender in plan.contenders:
        for kind, reason in contender.leaves_out.items():
            prose(f"note: {contender.name} is not asked {kind}: {reason}", err=True)
    if not plan.requests:
        fail("none of the deployments can be asked any of these classes of prompts", MISUSED)
    if plan.rounds < FEWEST_ROUNDS:
        say(f"note: intervals and verdicts need at least {FEWEST_ROUNDS} rounds", err=True)


def _estimate(plan: Plan, costs: Mapping[tuple[str, str], Cost]) -> _Estimate:
    about = most = warming = 0.0
    for contender in plan.contenders:
        each = [costs[contender.name, kind] for kind in plan.kinds_of(contender)]
        about += sum(cost.about_usd for cost in each) * sum(plan.concurrencies)
        most += sum(cost.most_usd for cost in each) * sum(plan.concurrencies)
        warming += max((cost.most_usd for cost in each), default=0.0) * plan.warm_up
    return _Estimate(about, most, warming)
