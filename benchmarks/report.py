"""The figures as they are told: rows with medians and their spread, as a table or as JSON."""

from collections.abc import Sequence
from statistics import median

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.measuring import Sample, Samples
from benchmarks.scenarios import Comparison, Scenario
from benchmarks.startup import Start

PIPED_WIDTH = 140  # columns, where no terminal says


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. ``low`` and ``high`` are the extremes over rounds; ``detail`` says what it is made of."""

    title: str
    value: float
    low: float | None = None
    high: float | None = None
    unit: str
    at_most: float | None = None
    detail: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether it is as good as promised; None when nothing was."""
        return None if self.at_most is None else self.value <= self.at_most


def cpu_rows(scenario: Scenario, samples: Samples) -> list[Row]:
    """Return the comparisons of a scenario: ratios of the same round, their median and extremes."""
    return [_ratio(scenario, comparison, samples) for comparison in scenario.comparisons]


def latency_rows(scenario: Scenario, samples: Samples) -> list[Row]:
    """Return what each subject adds to the first one's time to the first token, at p50 and p99."""
    direct, *others = scenario.subjects
    rows = []
    for quantile in (0.5, 0.99):
        base = [_quantile(sample, quantile) for sample in samples[direct.name]]
        for subject in others:
            own = [_quantile(sample, quantile) for sample in samples[subject.name]]
            added = [each - least for each, least in zip(own, base, strict=True)]
            rows.append(
                Row(
                    title=f"added time to first token, p{quantile * 100:.0f}: {subject.name}",
                    value=median(added),
                    low=min(added),
                    high=max(added),
                    unit="ms",
                    detail=f"{median(own):.2f} ms, direct {median(base):.2f} ms",
                )
            )
    return rows


def start_rows(first: Start, later: Sequence[Start]) -> list[Row]:
    """Return start-up and idle memory: of the ``first`` start, which makes the database, and of ``later`` ones."""
    seconds = [start.first_answer_s for start in later]
    memory = [start.rss_mb for start in later]
    return [
        Row(title="start to first answer, new database", value=first.first_answer_s, unit="s", at_most=1.5),
        Row(
            title="start to first answer",
            value=median(seconds),
            low=min(seconds),
            high=max(seconds),
            unit="s",
            at_most=1.5,
        ),
        Row(
            title="memory of one idle worker (resident)",
            value=median(memory),
            low=min(memory),
            high=max(memory),
            unit="MB",
            at_most=115,
            detail=f"proportional: {median(start.pss_mb for start in later):.0f} MB",
        ),
    ]


def table(rows: Sequence[Row], conditions: str) -> Table:
    """Return the rows as a table for a terminal."""
    made = Table(title="Holeshot, measured", caption=conditions, title_justify="left", caption_justify="left")
    for name, justify in (("", "left"), ("median", "right"), ("min to max", "right"), ("at most", "right")):
        made.add_column(name, justify=justify, no_wrap=bool(name))  # type: ignore[arg-type] # the literals above
    made.add_column("made of", overflow="fold")
    for row in rows:
        colour = {None: "default", True: "green", False: "red"}[row.reached]
        spread = "" if row.low is None or row.high is None else f"{_number(row.low)} to {_number(row.high)}"
        promised = "" if row.at_most is None else f"{row.at_most:g} {row.unit}"
        made.add_row(row.title, f"[{colour}]{_number(row.value)} {row.unit}[/]", spread, promised, row.detail)
    return made


def show(rows: Sequence[Row], conditions: str) -> None:
    """Print the table."""
    console().print(table(rows, conditions))


def console() -> Console:
    """Return the console to print to; wide when it is a file or a pipe."""
    made = Console()
    return made if made.is_terminal else Console(width=PIPED_WIDTH)


def as_json(rows: Sequence[Row], conditions: str) -> str:
    """Return the rows as JSON."""
    facts = [{**msgspec.to_builtins(row), "reached": row.reached} for row in rows]
    return msgspec.json.format(msgspec.json.encode({"conditions": conditions, "rows": facts})).decode()


def _ratio(scenario: Scenario, comparison: Comparison, samples: Samples) -> Row:
    own, base = samples[comparison.subject], samples[comparison.baseline]
    ratios = [each.cpu_us / other.cpu_us for each, other in zip(own, base, strict=True)]
    own_us, base_us = (median(sample.cpu_us for sample in each) for each in (own, base))
    detail = f"{own_us:.0f} / {base_us:.0f} µs of CPU per {scenario.unit}"
    if cut_share := median(sample.cut_share for sample in own):
        detail += f"; losers cut before their first byte: {cut_share:.0%}"
    return Row(
        title=comparison.title,
        value=median(ratios),
        low=min(ratios),
        high=max(ratios),
        unit="x",
        at_most=comparison.at_most,
        detail=detail,
    )


def _quantile(sample: Sample, quantile: float) -> float:
    ordered = sorted(sample.latencies_ms)
    return ordered[round((len(ordered) - 1) * quantile)]


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.2f}"
