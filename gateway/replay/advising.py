"""Recommends a setting, with the reason in words and the setting as YAML."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gateway.replay.draws import SettingOutcome
from gateway.replay.replaying import Replayed
from gateway.replay.sample import AUDITS_FOR_TAIL, AuditNeed

FEW_CALLS = 1_000  # with fewer, the intervals of p95 are wide, and the advice says so
FELT = 0.01  # share of single's p95: a setting that surely takes off no more is not worth an attempt
WORTH = 0.1  # share of single's p95: the reduction that one more attempt per call must bring
_SOON_DAYS = 7  # if the audits suffice within this time at the present rate, no change is advised


class Advice(Struct, frozen=True):
    """A setting, and the reason for it."""

    setting: str | None  # None: there is not enough data
    race: dict[str, object]
    why: str


def advice(replayed: Replayed) -> Advice:
    """Return the setting that is worth its attempts: each further one reduces the p95 of single by a tenth."""
    found = _advice(replayed)
    if replayed.note is not None or not replayed.is_enough or replayed.calls >= FEW_CALLS:
        return found
    return replace(found, why=f"{found.why} These are only {replayed.calls} calls, so the intervals are wide.")


def _advice(replayed: Replayed) -> Advice:
    known = [each for each in replayed.outcomes if each.ttft["p95"].value is not None]
    if replayed.note is not None or not replayed.is_enough or not known:
        return Advice(None, _audit_more(replayed.needs), missing(replayed))
    single = known[0]
    if len(known) == 1:
        return Advice(None, {}, f"Only {single.setting} is known: calls under another setting would have to be seen.")
    best = min(known, key=_p95)
    whole = _p95(single) - _p95(best)
    if (best.saved_p95_ms.low or 0.0) <= 0:
        if (best.saved_p95_ms.high or 0.0) <= FELT * _p95(single):
            return Advice(single.setting, single.race, f"No setting has a p95 below that of single.{_price(single)}")
        return Advice(None, {}, f"Not sure yet: {_range(best)} off the p95 of single ({_p95(single):,.0f} ms).")
    chosen = max(known, key=lambda each: -_p95(each) / _p95(single) - WORTH * each.attempts)
    if chosen is single:
        words = f"{best.setting.capitalize()} would take {whole:,.0f} ms off its p95 ({_p95(single):,.0f} ms)"
        words = f"{words}, which is little for {best.attempts:.2f} attempts per call.{_price(best, single)}"
        return Advice(single.setting, single.race, words)
    words = (
        f"It takes {_p95(single) - _p95(chosen):,.0f} ms off the p95 of single"
        f" ({_p95(single):,.0f} ms), for {chosen.attempts - single.attempts:.2f} more attempts per call."
        f"{_price(chosen, single)}"
    )
    if chosen is not best:
        words += (
            f" {best.setting.capitalize()} would take {whole:,.0f} ms off it, for"
            f" {best.attempts - single.attempts:.2f}.{_price(best, single)}"
        )
    return Advice(chosen.setting, chosen.race, words)


def _range(best: SettingOutcome) -> str:
    found = best.saved_p95_ms
    return f"{best.setting} would take between {found.low or 0.0:,.0f} and {found.high or 0.0:,.0f} ms"


def _price(of: SettingOutcome, single: SettingOutcome | None = None) -> str:
    """Return what a thousand calls cost, or how much more than with ``single``, in words; empty without prices."""
    low, high = of.cost_low_usd, of.cost_high_usd
    if low is None or high is None:
        return ""
    if single is None:
        return f" It costs ${1000 * high:,.2f} per 1,000 calls."
    if single.cost_low_usd is None or single.cost_high_usd is None:
        return ""
    least, most = 1000 * (low - single.cost_low_usd), 1000 * (high - single.cost_high_usd)
    spread = f"${least:,.2f}" if f"{least:.2f}" == f"{most:.2f}" else f"${least:,.2f} to ${most:,.2f}"
    return f" {of.setting.capitalize()} costs {spread} more per 1,000 calls than single."


def missing(replayed: Replayed) -> str:
    """Return why there is no p95, and how to get one, in words."""
    if replayed.note is not None and not any(each.more for each in replayed.needs):
        return f"Not enough data: {replayed.note}."
    short = [each for each in replayed.needs if each.more]
    words = "Not enough data for p95."
    if short:
        which = f"{len(short)} deployments have" if len(short) > 1 else f"{short[0].deployment} has"
        words = f"Not enough data for p95: {which} fewer than {AUDITS_FOR_TAIL} audited losers."
    if (raised := _share(short)) is not None:
        words += f" With race.audit_share at {raised:g} it would take a week."
    return words


def race_yaml(model: str, race: dict[str, object], *, begins: bool = True) -> str:
    """Return a model's setting as the configuration has it; ``begins``: with the name of the section that it is in."""
    lines = [f"      {name}: {json.dumps(value)}" for name, value in race.items()]
    lines = [line.replace('"', "") for line in lines]
    section = ["models:"] if begins else []
    return "\n".join([*section, f"  {json.dumps(model, ensure_ascii=False)}:", "    race:", *lines])


def _p95(outcome: SettingOutcome) -> float:
    return outcome.ttft["p95"].value or 0.0


def _audit_more(needs: Sequence[AuditNeed]) -> dict[str, object]:
    raised = _share([each for each in needs if each.more])
    return {} if raised is None else {"audit_share": raised}


def _share(short: Sequence[AuditNeed]) -> float | None:
    """Return the audit share with which all get enough audits in a week; None if they do already, or none is enough."""
    if all(each.days is not None and each.days <= _SOON_DAYS for each in short):
        return None
    shares = [each.audit_share for each in short if each.audit_share is not None]
    return min(1.0, -int(-max(shares) * 100 // 1) / 100) if shares else None


def time_left(need: AuditNeed) -> str:
    """Return in words when a deployment will have the audits it needs."""
    if need.days is None:
        return "unknown: none audited yet"
    if need.days < 2:  # noqa: PLR2004 - days
        hours = max(1, round(need.days * 24))
        return f"about {hours} {'hour' if hours == 1 else 'hours'} at the present rate"
    return f"about {need.days:,.0f} days at the present rate"


# A replay as JSON, for the command line and the page.

ASSUMPTIONS = (
    "A call would have had the same first attempt, and the same second one if it had one; others are the fastest left.",
    "More attempts would not have made the providers slower.",
    "A cancelled loser would have gone on like audited ones that were overtaken at about the same age.",
    "A third attempt of a call depends on the other two as these on each other, by a Gaussian copula with one factor.",
    "Calls in which something stood in the way of a race are left out: limits, seats, dollars, or the call itself.",
    "With a budget, attempts start as often as it pays; the gateway leaves out those that should save too little.",
    "Hedges start at their quantile of the whole window; the gateway takes that of the last minutes.",
    "Rescues of hanging calls are left out; a wait of more than 30 s counts as 30 s.",
    "Answers are as long as they were; whole answers of losers take what their deployments' answers usually take.",
)


def published(model: str, count: int, replayed: Replayed, without: Sequence[str]) -> dict[str, Any]:
    """Return the result for one model; ``count``: its calls in the ledger."""
    advised = advice(replayed)
    return {
        "model": model,
        "calls": count,
        "replayed_calls": replayed.calls,
        "without": list(without),
        "is_enough": replayed.is_enough and replayed.note is None,
        "note": replayed.note,
        "correlation": replayed.correlation,
        "providers": list(replayed.providers),
        "deployments": list(replayed.deployments),
        "seen": {"ttft_ms": replayed.seen_ms, "attempts": replayed.seen_attempts},
        "audits": [msgspec.to_builtins(each) for each in replayed.needs],
        "settings": [msgspec.to_builtins(each) for each in replayed.outcomes],
        "recommended": {
            "setting": advised.setting,
            "why": advised.why,
            "yaml": race_yaml(model, advised.race) if advised.race else None,
        },
        "assumptions": list(ASSUMPTIONS),
    }
