"""The gate of a bench: conditions on its figures, comparison with an earlier run, and the reports for pipelines."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from html import escape
from math import exp, log, sqrt
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any

import msgspec

from gateway.bench.figures import (
    ALL,
    CONFIDENCE,
    FEWEST_ROUNDS,
    METRICS,
    BenchMetric,
    Cell,
    Draws,
    IntervalEstimate,
    measured,
    share_difference,
    student_beyond,
)
from gateway.bench.plan import BenchPlan, BenchSample, Contender, PromptKind, kind_of
from gateway.bench.running import JournalError, read_journal
from gateway.bench.verdicts import COMPARED, UNKNOWN, Aspect, Report, length_note, number, shown
from gateway.core.terminal_text import visible
from gateway.settings import nearest

# Goals: ``ttft_p95_ms > 800`` breaks the gate. A figure is an estimate, so a goal has three outcomes. It is broken if
# the whole interval of 95 % breaks it: chance alone does that to at most one of forty goals that are just kept. It
# holds if the estimate keeps it. It is undecided in between, where the estimate breaks it and a part of the interval
# does not, and if there are too few answers for an interval.

EXAMPLE = "ttft_p95_ms > 800"
_CONDITION = re.compile(r"\s*(?:(\S+):\s*)?([a-z]\w*)\s*(>=|<=|>|<)\s*([0-9]+(?:\.[0-9]+)?)\s*+(ms|s|%|)\s*")
_SIGNS: Mapping[str, Callable[[float, float], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}
_TURNED = {">": "<", "<": ">", ">=": "<=", "<=": ">="}
_UNITS: Mapping[str, Mapping[str, float]] = {"ms": {"": 1.0, "ms": 1.0, "s": 1000.0}, "share": {"": 1.0, "%": 0.01}}
_BARE: Mapping[str, float] = {"": 1.0}
_BY_NAME: Mapping[str, BenchMetric] = {metric.name: metric for metric in METRICS}
_OF_GOAL = ("goodput", "goodput_per_s")  # unknown without ``--goal``
_WITH_LENGTH = (PromptKind.LONG_ANSWER, PromptKind.LONG_PROMPT)  # their lengths may differ between two runs


class GateError(ValueError):
    """The gate is not understood, or does not fit the bench; the message says what is possible."""


class CheckOutcome(StrEnum):
    """How a check ended."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNDECIDED = "undecided"  # too little data


class GateCondition(msgspec.Struct, frozen=True):
    """A condition that breaks the gate. ``limit`` is in the metric's unit; ``deployment`` None: it is for each."""

    text: str
    deployment: str | None
    metric: str
    sign: str
    limit: float

    def is_met(self, value: float) -> bool:
        """Whether ``value`` breaks the gate."""
        return _SIGNS[self.sign](value, self.limit)


class Check(msgspec.Struct, frozen=True):
    """The outcome of one condition or comparison, for one deployment at one level of concurrency."""

    name: str
    deployment: str
    concurrency: int
    outcome: CheckOutcome
    words: str


class GateResult(msgspec.Struct, frozen=True):
    """All checks of a bench, and the outcome of all: broken if one is, else undecided if one is."""

    outcome: CheckOutcome
    checks: list[Check]
    notes: list[str]  # why something could not be compared


class SavedBench(msgspec.Struct, frozen=True):
    """An earlier bench."""

    plan: BenchPlan
    samples: list[BenchSample]


class GateChecks(msgspec.Struct, frozen=True):
    """What a gate checks: conditions, and an earlier run with its file's name."""

    conditions: tuple[GateCondition, ...] = ()
    against: SavedBench | None = None
    name: str = ""


def read_condition(text: str) -> GateCondition:
    """Return the condition that ``text`` states, as in ``groq/llama: ttft_p95_ms > 800``.

    Raises:
        GateError: it is not understood, or better figures would break it.

    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise GateError(f'--fail-if {text.strip()!r} is not understood; write it like "{EXAMPLE}", with >, >=, < or <=')
    deployment, name, sign, said, unit = found.groups()
    metric = _BY_NAME.get(name)
    if metric is None:
        raise GateError(f"there is no figure {name!r}; {nearest(name, _BY_NAME)}")
    factors = _UNITS.get(metric.unit, _BARE)
    if unit not in factors:
        raise GateError(f"{name} is in {_unit_words(metric)}: {said}{unit} is none; write {name} {sign} {said}")
    if metric.less_is_better is not None and metric.less_is_better is sign.startswith("<"):
        raise GateError(
            f"{text.strip()!r} would fail the better ones; did you mean {name} {_TURNED[sign]} {said}{unit}?"
        )
    return GateCondition(text.strip(), deployment, name, sign, float(said) * factors[unit])


def _unit_words(metric: BenchMetric) -> str:
    return {"share": "shares from 0 to 1, or in %", "ms": "ms, or in s with that unit"}.get(metric.unit, metric.unit)


def read_saved(path: Path) -> SavedBench:
    """Return the bench of a journal, or of a report that ``--json`` printed.

    Raises:
        GateError: the file is neither, or cannot be read.

    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedBench)
    except OSError as error:
        raise GateError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            past = read_journal(path)
        except JournalError as error:
            raise GateError(f"{error}; --against takes a journal, or what --json printed") from None
        return SavedBench(past.plan, past.samples)


def check_plan(wanted: GateChecks, plan: BenchPlan) -> None:
    """Check, before anything is sent, that the gate fits this bench.

    Raises:
        GateError: a condition's deployment or goal is not in the plan, or nothing can be compared.

    """
    names = [contender.name for contender in plan.contenders]
    for condition in wanted.conditions:
        if condition.deployment is not None and condition.deployment not in names:
            raise GateError(
                f"{condition.text!r}: {condition.deployment} is not measured; {nearest(condition.deployment, names)}"
            )
        if condition.metric in _OF_GOAL and plan.goal is None:
            raise GateError(f"{condition.text!r} needs a --goal, as in --goal ttft<500ms,tps>45")
    if wanted.against is not None and not _places(plan, wanted.against.plan):
        before = wanted.against.plan
        theirs = ", ".join(contender.name for contender in before.contenders)
        raise GateError(
            f"nothing of this bench can be compared with {wanted.name}: it has {theirs}, the classes"
            f" {', '.join(before.kinds)} and the levels {', '.join(map(str, before.concurrencies))}"
        )


def judge(wanted: GateChecks, report: Report) -> GateResult:
    """Return the gate's checks of a report."""
    checks, notes = list[Check](), list[str]()
    for condition in wanted.conditions:
        checks += [
            _judged(condition, cell, _rounds(report.samples, cell))
            for cell in report.cells
            if cell.kind == ALL and condition.deployment in (None, cell.deployment)
        ]
        asked = [each.name for each in report.plan.contenders if condition.deployment in (None, each.name)]
        checks += [
            Check(condition.text, name, level, CheckOutcome.UNDECIDED, f"{condition.text}: nothing was measured")
            for name in asked
            for level in report.plan.concurrencies
            if not any(cell.deployment == name and cell.concurrency == level for cell in report.cells)
        ]
    if wanted.against is not None:
        checks += _compared(report, wanted.against, wanted.name)
        notes += _differences(report.plan, wanted.against.plan, wanted.name)
    outcomes = {check.outcome for check in checks}
    outcome = next(
        (each for each in (CheckOutcome.BROKEN, CheckOutcome.UNDECIDED) if each in outcomes), CheckOutcome.HOLDS
    )
    return GateResult(outcome, checks, notes)


def _rounds(samples: Sequence[BenchSample], cell: Cell) -> int:
    place = cell.deployment, cell.concurrency
    return len({each.key.round for each in samples if (each.key.deployment, each.key.concurrency) == place})


def _judged(condition: GateCondition, cell: Cell, rounds: int) -> Check:
    """Return whether the figures of ``cell`` break a condition."""
    found = cell.figures.get(condition.metric)
    said = f"{condition.text}: {shown(condition.metric, found)}"
    if found is None or found.value is None:
        outcome = CheckOutcome.UNDECIDED
        said += f"; too few answers: {cell.requests - sum(cell.error_kinds.values())} of {cell.requests} requests"
    elif rounds < FEWEST_ROUNDS:
        outcome, said = CheckOutcome.UNDECIDED, f"{said}; too few rounds: {rounds} of at least {FEWEST_ROUNDS}"
    elif found.low is None or found.high is None:
        outcome, said = CheckOutcome.UNDECIDED, f"{said}; too few answers for an interval: {found.n}"
    elif not condition.is_met(found.value):
        outcome = CheckOutcome.HOLDS
    elif condition.is_met(found.low) and condition.is_met(found.high):
        outcome = CheckOutcome.BROKEN
    else:
        limit = number(condition.metric, condition.limit)
        outcome, said = CheckOutcome.UNDECIDED, f"{said}; the interval has {limit}: more rounds would tell"
    return Check(condition.text, cell.deployment, cell.concurrency, outcome, said)


# Comparison with an earlier run: two runs have no round in common, so nothing is paired. Each answer is compared with
# the mean of its class (of logarithms, over both runs), and the means of rounds by Welch's interval; errors by
# Newcombe's. With m comparisons each interval is of 1 - 5 % / m (Bonferroni), and only worse breaks the gate: where
# nothing has changed, chance alone breaks at most one gate in forty. Differences by hour of day count as differences.

_WORSE = {"ttft": "more time", "total": "more time", "decode_tps": "fewer tok/s", "errors": "points more errors"}


def _places(plan: BenchPlan, before: BenchPlan) -> list[tuple[Contender, int, tuple[str, ...]]]:
    """Return the deployments and levels that two runs have in common, each with the common classes of prompts."""
    known = {contender.name: contender for contender in before.contenders}
    found = []
    for contender in plan.contenders:
        other = known.get(contender.name)
        if other is None:
            continue
        theirs = before.kinds_of(other)
        kinds = tuple(kind for kind in plan.kinds_of(contender) if kind in theirs and _alike(kind, plan, before))
        found += [(contender, level, kinds) for level in plan.concurrencies if kinds and level in before.concurrencies]
    return found


def _alike(kind: str, plan: BenchPlan, before: BenchPlan) -> bool:
    return plan.lengths == before.lengths or kind_of(kind) not in _WITH_LENGTH


def _differences(plan: BenchPlan, before: BenchPlan, name: str) -> list[str]:
    """Return notes on the differences between the plans of two runs."""
    notes = []
    known = {contender.name for contender in before.contenders}
    new = [contender.name for contender in plan.contenders if contender.name not in known]
    if new:
        notes.append(f"{name} does not have {', '.join(new)}")
    kinds = [kind for kind in plan.kinds if kind not in before.kinds or not _alike(kind, plan, before)]
    if kinds:
        notes.append(f"{name} does not have {', '.join(kinds)}, or with other lengths: not compared")
    if (plan.url is None) is not (before.url is None):
        notes.append(f"{name} was measured {'directly' if before.url is None else 'through a gateway'}, this was not")
    return notes


def _compared(report: Report, saved: SavedBench, name: str) -> list[Check]:
    """Return a check for each deployment, level and aspect: whether it is worse than in ``saved``."""
    places = _places(report.plan, saved.plan)
    aspects = [aspect for aspect in COMPARED if aspect.name in _WORSE]
    tail = (1.0 - CONFIDENCE) / 2 / max(1, len(places) * len(aspects))
    before = measured(saved.samples)
    checks = []
    for contender, level, kinds in places:
        place = contender.name, level
        runs = [
            [
                each
                for each in samples
                if (each.key.deployment, each.key.concurrency) == place and each.key.kind in kinds
            ]
            for samples in (report.samples, before)
        ]
        checks += [
            Check(f"{aspect.name} not worse", *place, *_worse(aspect, runs[0], runs[1], tail, name))
            for aspect in aspects
        ]
    return checks


def _worse(
    aspect: Aspect, new: Sequence[BenchSample], old: Sequence[BenchSample], tail: float, name: str
) -> tuple[CheckOutcome, str]:
    """Return whether ``new`` is worse than ``old``, and by how much in words."""
    rounds = min(len({each.key.round for each in run if aspect.of(each) is not None}) for run in (new, old))
    if rounds < FEWEST_ROUNDS:
        return (
            CheckOutcome.UNDECIDED,
            f"{aspect.name}: too few rounds to compare with {name}: {rounds} of at least {FEWEST_ROUNDS}",
        )
    found = _share_worse(aspect, new, old, tail) if aspect.is_share else _time_worse(aspect, new, old, tail)
    if found.value is None or found.low is None or found.high is None:
        return CheckOutcome.UNDECIDED, f"{aspect.name}: too little to compare with {name}"
    value, low, high = (f"{_as_points(aspect, each):g}" for each in (found.value, found.low, found.high))
    unit = "" if aspect.is_share else " %"
    outcome = CheckOutcome.BROKEN if found.low > 0 else CheckOutcome.HOLDS
    words = f"{aspect.name}: {value}{unit} ({low} to {high}) {_WORSE[aspect.name]} than in {name}"
    note = length_note(aspect, _mean_tokens(new), _mean_tokens(old))
    return outcome, f"{words}; {note}" if note else words


def _mean_tokens(run: Sequence[BenchSample]) -> float:
    known = [each.completion_tokens for each in run if each.completion_tokens]
    return sum(known) / len(known) if known else 0.0


def _as_points(aspect: Aspect, worse: float) -> float:
    """Return the deterioration in percent of the earlier value, or in points, with one decimal."""
    of_log = exp(worse) - 1.0 if aspect.less_is_better else 1.0 - exp(-worse)
    return round((worse if aspect.is_share else of_log) * 100, 1) + 0.0  # never -0


def _time_worse(
    aspect: Aspect, new: Sequence[BenchSample], old: Sequence[BenchSample], tail: float
) -> IntervalEstimate:
    """Return the difference of the mean logarithms, positive if ``new`` is worse, with Welch's interval."""
    logs = [
        [
            (each.key.kind, each.key.round, log(value))
            for each in run
            if (value := aspect.of(each)) is not None and value > 0
        ]
        for run in (new, old)
    ]
    usual: dict[str, list[float]] = {}
    for kind, _, value in logs[0] + logs[1]:
        usual.setdefault(kind, []).append(value)
    means = {kind: sum(values) / len(values) for kind, values in usual.items()}
    of_rounds = []
    for run in logs:
        by_round: dict[int, list[float]] = {}
        for kind, round_, value in run:
            by_round.setdefault(round_, []).append(value - means[kind])
        of_rounds.append([sum(values) / len(values) for values in by_round.values()])
    if min(map(len, of_rounds)) < FEWEST_ROUNDS:
        return IntervalEstimate(min(map(len, of_rounds)), None)
    sign = 1.0 if aspect.less_is_better else -1.0
    return _welch([sign * each for each in of_rounds[0]], [sign * each for each in of_rounds[1]], tail)


def _welch(new: Sequence[float], old: Sequence[float], tail: float) -> IntervalEstimate:
    """Return the difference of two means with Welch's interval; ``tail`` is the probability beyond each end."""
    parts = []
    for run in (new, old):
        mean = sum(run) / len(run)
        parts.append((mean, sum((each - mean) ** 2 for each in run) / (len(run) - 1) / len(run), len(run) - 1))
    (a, variance_a, free_a), (b, variance_b, free_b) = parts
    variance = variance_a + variance_b
    if not variance:
        return IntervalEstimate(len(new), a - b, a - b, a - b)
    freedom = variance**2 / (variance_a**2 / free_a + variance_b**2 / free_b)
    reach = student_beyond(tail, freedom) * sqrt(variance)
    return IntervalEstimate(len(new), a - b, a - b - reach, a - b + reach)


def _share_worse(
    aspect: Aspect, new: Sequence[BenchSample], old: Sequence[BenchSample], tail: float
) -> IntervalEstimate:
    shares = []
    for run in (new, old):
        values = [(each.key.round, value > 0) for each in run if (value := aspect.of(each)) is not None]
        shares.append(Draws(sorted({round_ for round_, _ in values}), 0, 0).share(values, tail))
    found = share_difference(*shares)
    if found.low is None or found.high is None or found.value is None or aspect.less_is_better:
        return found
    return IntervalEstimate(found.n, -found.value, -found.high, -found.low)


# The reports for pipelines.

MARKS = {CheckOutcome.HOLDS: "✅ holds", CheckOutcome.BROKEN: "❌ broken", CheckOutcome.UNDECIDED: "⚠️ too little data"}
_COLUMNS = ("ttft_p50_ms", "ttft_p95_ms", "decode_tps_p50", "total_p50_ms", "errors", "goodput", "cost_per_1000_usd")


class GatedReport(Report, frozen=True, kw_only=True):
    """A bench's results, with those of its gate."""

    gate: GateResult


def with_gate(report: Report, gate: GateResult) -> GatedReport:
    """Return the report with its gate, for ``--json``."""
    fields: dict[str, Any] = {name: getattr(report, name) for name in report.__struct_fields__}
    return GatedReport(**fields, gate=gate)


def junit(report: Report, gate: GateResult) -> str:
    """Return the checks as JUnit's XML: broken ones are failures, undecided ones errors."""
    counts = {outcome: sum(check.outcome is outcome for check in gate.checks) for outcome in CheckOutcome}
    seconds = 0.0 if report.began_s is None or report.ended_s is None else report.ended_s - report.began_s
    began = (
        ""
        if report.began_s is None
        else f' timestamp="{datetime.fromtimestamp(report.began_s, UTC):%Y-%m-%dT%H:%M:%S}"'
    )
    totals = (
        f'name="holeshot bench" tests="{len(gate.checks)}" failures="{counts[CheckOutcome.BROKEN]}"'
        f' errors="{counts[CheckOutcome.UNDECIDED]}" time="{seconds:.3f}"'
    )
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites {totals}>",
        f'<testsuite {totals} skipped="0"{began}>',
    ]
    for check in gate.checks:
        name = check.name if len(report.plan.concurrencies) == 1 else f"{check.name} ({check.concurrency} at a time)"
        case = f'<testcase classname="{_xml(check.deployment)}" name="{_xml(name)}" time="0"'
        words = _xml(check.words)
        if check.outcome is CheckOutcome.BROKEN:
            lines.append(f'{case}><failure message="{words}" type="broken"/></testcase>')
        elif check.outcome is CheckOutcome.UNDECIDED:
            lines.append(f'{case}><error message="{words}" type="too little data"/></testcase>')
        else:
            lines.append(f"{case}><system-out>{words}</system-out></testcase>")
    return "\n".join([*lines, "</testsuite>", "</testsuites>", ""])


def gate_markdown(report: Report, gate: GateResult | None) -> str:
    """Return figures, verdicts and checks as Markdown, for a comment or a job's summary."""
    plan = report.plan
    known = [name for name in _COLUMNS if any(name in cell.figures for cell in report.cells)]
    lines = ["### holeshot bench", ""]
    if gate is not None:
        lines += [f"**{MARKS[gate.outcome]}**", "", *table_head("deployment", "check", "outcome", "found")]
        lines += [
            table_row(
                label_of(plan, check.deployment, check.concurrency), check.name, MARKS[check.outcome], check.words
            )
            for check in gate.checks
        ]
        lines += ["", *(f"- {_cell(note)}" for note in gate.notes), ""]
    lines += table_head("deployment", "requests", *known)
    for cell in report.cells:
        if cell.kind == ALL:
            figures = [shown(name, cell.figures.get(name)) for name in known]
            lines.append(table_row(label_of(plan, cell.deployment, cell.concurrency), str(cell.requests), *figures))
    verdicts = [verdict.words for verdict in report.verdicts if verdict.is_shown]
    lines += ["", *(f"- {_cell(words)}" for words in verdicts)]
    spent = UNKNOWN if report.spent_usd is None else f"${report.spent_usd:.4f}"
    lines += ["", f"{report.requests} of {plan.requests} requests, spent {spent}. Intervals are of 95 %.", ""]
    return "\n".join(lines)


def label_of(plan: BenchPlan, deployment: str, concurrency: int) -> str:
    """Return the deployment's name, with the level of concurrency if there are several."""
    return deployment if len(plan.concurrencies) == 1 else f"{deployment} × {concurrency}"  # noqa: RUF001 - times


def table_head(*names: str) -> list[str]:
    """Return the first two lines of a Markdown table."""
    return [table_row(*names), table_row(*("---" for _ in names))]


def table_row(*cells: str) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Return ``text`` as one line of Markdown, without markup and without the end of a table's cell."""
    return re.sub(r"([\\`*_\[\]|<>])", r"\\\1", visible(text))


def _xml(text: str) -> str:
    return escape(visible(text))
