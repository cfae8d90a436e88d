"""Tests whether two deployments, or two runs of one, write alike: a permutation test on answers to fixed prompts."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from gateway.alerts.stated_models import Written
from gateway.bench.figures import holm, measured
from gateway.bench.gate import Check, Gate, GateError, Outcome, Wanted
from gateway.bench.plan import WRITTEN_KINDS, Contender, Key, Lengths, Plan, PromptKind, Sample
from gateway.bench.report import Report, report
from gateway.detecting.writing import A_WEEK, LEAST_KNOWN, Discrepancy, discrepancy

LEVEL = 0.01
LEAST_SAMPLES = 10  # answers to each prompt
_LEAST_PROMPTS = 0.5  # the share of prompts that must have enough answers
_MORE_TOKENS = "a model that reasons first may need more --answer-tokens"
MORE_PROBES = f"switch on probes.same_model, which asks each prompt {A_WEEK} times a week"
_OF_PROBES = (
    "The answers are those of the last seven days to the fixed prompts of probes.same_model, from the ledger: nothing"
    " was asked. Each deployment was asked each prompt in turns of twenty minutes, at all hours."
)


def check_same(plan: Plan, wanted: Wanted | None) -> None:
    """Check, before anything is sent, that the bench can be compared.

    Raises:
        GateError: there would be too few answers, or the earlier run is not comparable.

    """
    samples = plan.rounds * sum(plan.concurrencies)
    if samples < LEAST_SAMPLES:
        raise GateError(
            f"--same-model needs at least {LEAST_SAMPLES} answers to each prompt;"
            f" --rounds times --concurrency is {samples}"
        )
    before = None if wanted is None else wanted.against
    if wanted is None or before is None:
        return
    if not before.plan.is_written:
        raise GateError(f"{wanted.name} is no run of --same-model: it has no answers to compare with")
    if before.plan.lengths.long_answer != plan.lengths.long_answer:
        raise GateError(
            f"{wanted.name} has answers of {before.plan.lengths.long_answer} tokens: add"
            f" --answer-tokens {before.plan.lengths.long_answer}"
        )
    theirs = {contender.name for contender in before.plan.contenders}
    if not theirs & {contender.name for contender in plan.contenders}:
        raise GateError(f"nothing of this bench can be compared with {wanted.name}: it has {', '.join(sorted(theirs))}")


def judge_same(report: Report, wanted: Wanted | None, advice: str = _MORE_TOKENS) -> Gate:
    """Compare each deployment with the first, or with its earlier run; ``advice`` says how to get more answers."""
    now = written_by(report.samples)
    names = [contender.name for contender in report.plan.contenders]
    if wanted is not None and wanted.against is not None:
        before = written_by(measured(wanted.against.samples))
        known = {contender.name for contender in wanted.against.plan.contenders}
        pairs = [(name, wanted.name, now.get(name, {}), before.get(name, {})) for name in names if name in known]
        notes = [f"{wanted.name} does not have {name}" for name in names if name not in known]
    else:
        first = names[0]
        pairs = [(name, first, now.get(name, {}), now.get(first, {})) for name in names[1:]]
        notes = [] if pairs else ["nothing is compared yet: give this run's journal to --against in a later run"]
    found = {name: discrepancy(a, b, seed=report.plan.seed) for name, _, a, b in pairs}
    corrected = holm({name: each.p for name, each in found.items() if each is not None})
    checks = [
        _check_of(name, other, found[name], corrected.get(name, 1.0), report.plan, advice=advice)
        for name, other, _, _ in pairs
    ]
    notes += [
        f"{name} always writes the same to a prompt: it ignores the temperature, or its answers are cached"
        for name in names
        if (answers := now.get(name)) and all(len(set(texts)) == 1 for texts in answers.values())
    ]
    outcomes = {check.outcome for check in checks}
    outcome = next((each for each in (Outcome.BROKEN, Outcome.UNDECIDED) if each in outcomes), Outcome.HOLDS)
    return Gate(outcome, checks, notes)


def _check_of(name: str, other: str, found: Discrepancy | None, p: float, plan: Plan, *, advice: str) -> Check:
    level = max(plan.concurrencies)
    title = f"same model as {other}"
    if found is None or found.prompts < _LEAST_PROMPTS * len(plan.kinds):
        prompts = 0 if found is None else found.prompts
        words = (
            f"too few answers to compare with {other}: {prompts} of {len(plan.kinds)} prompts have {LEAST_KNOWN} of"
            f" each ({advice})"
        )
        return Check(title, name, level, Outcome.UNDECIDED, words)
    a, b = found.answers
    on = f"p = {p:.4f}, MMD² {found.mmd2:.4f}, {a} and {b} answers to {found.prompts} prompts"
    if p < LEVEL:
        return Check(title, name, level, Outcome.BROKEN, f"does not write as {other} does: {on}")
    return Check(title, name, level, Outcome.HOLDS, f"no difference from {other} is shown: {on}")


def written_by(samples: Sequence[Sample]) -> dict[str, dict[str, list[str]]]:
    """Return the texts of whole answers, by deployment and prompt."""
    found: dict[str, dict[str, list[str]]] = {}
    for sample in samples:
        if sample.error_kind is None and sample.text:
            found.setdefault(sample.key.deployment, {}).setdefault(sample.key.kind, []).append(sample.text)
    return found


def stored_report(written: Mapping[str, Sequence[Written]], tokens: int, seed: int) -> Report:
    """Return a report on stored answers to probes, by deployment; they have at most ``tokens`` tokens."""
    plan = Plan(
        seed=seed,
        contenders=tuple(Contender(name=name, model=",".join(written)) for name in written),
        kinds=WRITTEN_KINDS,
        concurrencies=(1,),
        rounds=A_WEEK,
        warm_up=0,
        lengths=Lengths(long_answer=tokens),
    )
    samples, rounds = [], Counter[tuple[str, str]]()
    for name, rows in written.items():
        for row in rows:
            place = name, f"{PromptKind.WRITTEN}:{row.prompt}"
            key = Key(rounds[place], 1, *place, 0)
            rounds[place] += 1
            samples.append(
                Sample(key=key, sitting=0, began_s=row.started_at.timestamp(), ended_ms=0.0, text=row.answer)
            )
    return msgspec.structs.replace(report(plan, samples, sittings=0, at_most_usd=0.0), method=[_OF_PROBES])
