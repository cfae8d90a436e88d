"""The report as one HTML file that loads nothing: style and plots are in it, and there is no script."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from math import ceil, floor, log10
from pathlib import Path

import msgspec

from gateway.bench.figures import ALL, METRICS, Cell
from gateway.bench.gate import MARKS, CheckOutcome, GateResult, label_of
from gateway.bench.plan import BenchPlan, BenchSample
from gateway.bench.verdicts import ASPECTS, UNKNOWN, Report, number, shown, unit_of

# The axes of plots: positions of values, in percent of the width, and labelled ticks.

_WIDE = 20.0  # above this ratio of the largest to the smallest value, an axis is logarithmic
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_MOST_TICKS = 5
_FEW_DECADES = 2.2  # up to this many, ticks at 2 and 5 are labelled too


class Scale(msgspec.Struct, frozen=True):
    """An axis from ``low`` to ``high``."""

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def at(self, value: float) -> float:
        """Return the position of ``value``, in percent of the axis."""
        if self.is_log:
            value = max(value, self.low)
            place = (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        else:
            place = (value - self.low) / (self.high - self.low)
        return round(100.0 * min(1.0, max(0.0, place)), 3)


def scale_of(values: Iterable[float], *, most: float | None = None) -> Scale:
    """Return an axis for ``values``, from 0 unless they differ too much for a linear one. ``most``: its end."""
    known = sorted(values)
    high = known[-1] if known else 1.0
    positive = [value for value in known if value > 0]
    if most is None and positive and len(positive) == len(known) and high / positive[0] > _WIDE:
        return _logarithmic(positive[0], high)
    high = most if most is not None else high or 1.0
    step = _step(high)
    ticks = [step * number for number in range(ceil(high / step - 1e-9) + 1)]
    return Scale(0.0, max(ticks[-1], high), tuple(tick for tick in ticks if tick <= high * 1.0001 or most is None))


def _logarithmic(low: float, high: float) -> Scale:
    bottom, top = 10.0 ** floor(log10(low)), 10.0 ** ceil(log10(high))
    digits = (1, 2, 5) if log10(high / low) <= _FEW_DECADES else (1,)
    marks = [10.0**power * digit for power in range(round(log10(bottom)), round(log10(top)) + 1) for digit in digits]
    start = max((mark for mark in marks if mark <= low), default=bottom)
    end = min((mark for mark in marks if mark >= high), default=top)
    return Scale(start, end, tuple(mark for mark in marks if start <= mark <= end), is_log=True)


def _step(high: float) -> float:
    size = 10.0 ** floor(log10(high / _MOST_TICKS)) if high > 0 else 1.0
    return next((size * step for step in _STEPS if high / (size * step) <= _MOST_TICKS), size * 10)


# Plots as inline SVG, as wide as their container: positions are percentages, so that text keeps its size on a phone.
# Colours are classes of the page's style (``series-0`` to ``series-7``), so they follow light and dark.

SERIES = 8  # colours
_ROW_PX = 22
_END_PX = 10
_CURVE_PX = 240
_AXIS_PX = 22
_LAST = 96.0  # percent: a tick's label beyond this is right-aligned instead of centred
_FIRST = 4.0
_ROOM = 13.0  # percent: the width of a tick's label on a phone


class Mark(msgspec.Struct, frozen=True):
    """A figure in a row: a dot, its interval, and a further tick. ``title`` is shown on pointing at it."""

    value: float
    title: str
    low: float | None = None
    high: float | None = None
    tick: float | None = None


class PlotRow(msgspec.Struct, frozen=True):
    """A row of a plot of intervals; ``series`` is its colour."""

    label: str
    series: int
    mark: Mark | None


class PlotCurve(msgspec.Struct, frozen=True):
    """A line of a plot; ``points`` in the units of the axes."""

    label: str
    series: int
    points: Sequence[tuple[float, float]]
    is_stepped: bool = False


Named = Callable[[float], str]


def intervals(groups: Mapping[str, Sequence[PlotRow]], named: Named, *, most: float | None = None) -> str:
    """Return rows of dots with intervals, in groups, on one axis; ``named`` returns the text of a tick."""
    marks = [row.mark for rows in groups.values() for row in rows if row.mark is not None]
    ends = [value for mark in marks for value in (mark.value, mark.low, mark.high, mark.tick) if value is not None]
    scale = scale_of(ends, most=most)
    parts = ['<div class="plot">']
    for title, rows in groups.items():
        if title:
            parts.append(f'<p class="group">{escape(title)}</p>')
        parts += [_row(row, scale, named) for row in rows]
    parts.append(f'<div class="row axis"><span></span>{_axis(scale, named)}</div></div>')
    return "".join(parts)


def curves(lines: Sequence[PlotCurve], names: tuple[Named, Named], *, most: float | None = None, said: str) -> str:
    """Return a line plot; ``names`` return the texts of ticks on x and y, ``said`` is for screen readers."""
    x = scale_of([point[0] for line in lines for point in line.points])
    y = scale_of([point[1] for line in lines for point in line.points], most=most)
    grid = labels = ""
    for tick in y.ticks:
        down = round(100.0 - y.at(tick), 3)
        grid += f'<line class="grid" x1="0" x2="100%" y1="{down}%" y2="{down}%"/>'
        beside = 12 if y.at(tick) > _LAST else -3  # below its line at the top, else above it
        if y.at(tick) > 0:
            labels += f'<text class="tick" x="2" y="{down}%" dy="{beside}">{escape(names[1](tick))}</text>'
    drawn = "".join(_curve(line, x, y) for line in lines)
    return (
        f'<div class="plot"><svg class="curves" role="img" aria-label="{escape(said)}" height="{_CURVE_PX}">{grid}'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="100%">{drawn}</svg>{labels}</svg>'
        f"{_axis(x, names[0])}{legend([(line.label, line.series) for line in lines])}</div>"
    )


def legend(entries: Sequence[tuple[str, int]]) -> str:
    """Return the legend, a label for each colour."""
    items = (f'<li class="series-{series % SERIES}"><i></i>{escape(label)}</li>' for label, series in entries)
    return f'<ul class="legend">{"".join(items)}</ul>'


def _row(row: PlotRow, scale: Scale, named: Named) -> str:
    colour = f"series-{row.series % SERIES}"
    label = f'<span class="label">{escape(row.label)}</span>'
    if row.mark is None:
        return f'<div class="row {colour}">{label}<svg height="{_ROW_PX}"></svg><b class="value">no figure</b></div>'
    mark = row.mark
    drawn = "".join(_upright("grid", scale.at(tick), _ROW_PX) for tick in scale.ticks)
    at = scale.at(mark.value)
    if mark.low is not None and mark.high is not None:
        left, width = scale.at(mark.low), max(0.2, scale.at(mark.high) - scale.at(mark.low))
        drawn += f'<rect class="range" x="{left}%" width="{width:.3f}%" y="{_ROW_PX / 2 - 5}" height="10" rx="3"/>'
    if mark.tick is not None:
        far = scale.at(mark.tick)
        drawn += f'<line class="far" x1="{at}%" x2="{far}%" y1="{_ROW_PX / 2}" y2="{_ROW_PX / 2}"/>'
        drawn += _upright("end", far, _END_PX)
    drawn += f'<circle cx="{at}%" cy="{_ROW_PX / 2}" r="4"/>'
    said = escape(f"{row.label}: {mark.title}")
    return (
        f'<div class="row {colour}">{label}<svg role="img" aria-label="{said}" height="{_ROW_PX}"><title>{said}</title>'
        f'{drawn}</svg><b class="value">{escape(named(mark.value))}</b></div>'
    )


def _upright(kind: str, at: float, height: float) -> str:
    """Return a vertical line in the middle of a row."""
    top, bottom = (_ROW_PX - height) / 2, (_ROW_PX + height) / 2
    return f'<line class="{kind}" x1="{at}%" x2="{at}%" y1="{top}" y2="{bottom}"/>'


def _axis(scale: Scale, named: Named) -> str:
    """Return the labels of the ticks; those without room on a phone are left out."""
    ticks = ""
    before = -_ROOM
    for tick in scale.ticks:
        at = scale.at(tick)
        is_crowded = at - before < _ROOM or (100.0 - at < _ROOM and tick != scale.ticks[-1])
        if is_crowded:
            continue
        before = at
        anchor = "start" if at < _FIRST else "end" if at > _LAST else "middle"
        ticks += f'<text class="tick" x="{at}%" y="14" text-anchor="{anchor}">{escape(named(tick))}</text>'
    return f'<svg aria-hidden="true" height="{_AXIS_PX}">{ticks}</svg>'


def _curve(line: PlotCurve, x: Scale, y: Scale) -> str:
    places: list[tuple[float, float]] = []
    for at, value in line.points:
        if line.is_stepped and places:
            places.append((x.at(at), places[-1][1]))
        places.append((x.at(at), round(100.0 - y.at(value), 3)))
    points = " ".join(f"{left:g},{top:g}" for left, top in places)
    return f'<polyline class="curve series-{line.series % SERIES}" points="{points}"/>'


# The cards of the HTML report: each has a plot, its caption, and the same figures as a table.

# The plots of intervals: title, explanation, the figure of the dot, that of the tick.
_INTERVALS: tuple[tuple[str, str, str, str | None], ...] = (
    (
        "Time to the first token, ms",
        "Less is better. Dot: median, bar: its interval of 95 %, tick: p95.",
        "ttft_p50_ms",
        "ttft_p95_ms",
    ),
    (
        "Decoding, tok/s",
        "Tokens per second after the first; more is better. Tick: 95 of 100 are faster.",
        "decode_tps_p50",
        "decode_tps_p05",
    ),
    (
        "Time to the last token, ms",
        "Less is better; longer answers take longer. Tick: p95.",
        "total_p50_ms",
        "total_p95_ms",
    ),
    ("Longest gap within an answer, ms", "Less is better. Tick: p95.", "gap_p50_ms", "gap_p95_ms"),
)
_SHARES: tuple[tuple[str, str, str], ...] = (
    ("Requests that met the goal", "More is better; errors do not meet it.", "goodput"),
    ("Errors", "Requests without a whole answer; less is better.", "errors"),
    ("Answers in the form asked for", "JSON that parses, tool calls with valid arguments.", "as_asked"),
)
_SECOND_MS = 1000


def level_cards(report: Report, level: int) -> list[str]:
    """Return the cards of one level of concurrency."""
    of_level = [cell for cell in report.cells if cell.concurrency == level]
    cards = [_intervals_card(report.plan, of_level, title, said, (dot, tick)) for title, said, dot, tick in _INTERVALS]
    samples = [sample for sample in report.samples if sample.key.concurrency == level]
    cards.insert(1, _spread_card(report.plan, samples))
    cards.insert(2, _rounds_card(report.plan, samples))
    cards += [_intervals_card(report.plan, of_level, title, said, (name, None)) for title, said, name in _SHARES]
    return [card for card in cards if card]


def _intervals_card(
    plan: BenchPlan, cells: Sequence[Cell], title: str, said: str, names: tuple[str, str | None]
) -> str:
    dot, tick = names
    groups: dict[str, list[PlotRow]] = {}
    for kind in (ALL, *plan.kinds):
        of_kind = [cell for cell in cells if cell.kind == kind and dot in cell.figures]
        if of_kind:
            label = "all classes of prompts" if kind == ALL else kind
            groups[label] = [_row_of(plan, cell, dot, tick) for cell in of_kind]
    if not groups:
        return ""
    is_share = unit_of(dot) == "share"
    drawn = intervals(groups, lambda value: number(dot, value), most=1.0 if is_share else None)
    columns = [name for name in (dot, tick) if name is not None]
    shown_cells = [cell for cell in cells if dot in cell.figures]
    return _card(title, said, drawn, table(plan, shown_cells, columns))


def _row_of(plan: BenchPlan, cell: Cell, dot: str, tick: str | None) -> PlotRow:
    found, far = cell.figures[dot], cell.figures.get(tick or "")
    mark = None
    if found.value is not None:
        title = shown(dot, found) + (f", {tick} {shown(tick, far)}" if tick and far else "")
        mark = Mark(found.value, title, found.low, found.high, far.value if far and far.low is not None else None)
    return PlotRow(plan.labels[cell.deployment], _series(plan, cell.deployment), mark)


def _spread_card(plan: BenchPlan, samples: Sequence[BenchSample]) -> str:
    """Return the plot of the share of answers that had their first token, by time."""
    lines = []
    rows = []
    for contender in plan.contenders:
        times = sorted(
            sample.ttft_ms
            for sample in samples
            if sample.key.deployment == contender.name and sample.error_kind is None and sample.ttft_ms is not None
        )
        if times:
            points = [(time, (place + 1) / len(times)) for place, time in enumerate(times)]
            lines.append(PlotCurve(plan.labels[contender.name], _series(plan, contender.name), points, is_stepped=True))
            rows.append(
                [contender.name, *(number("ttft_ms", times[round(share * (len(times) - 1))]) for share in _SPREAD)]
            )
    if not lines:
        return ""
    said = "Share of whole answers whose first token had come after so many milliseconds, all classes of prompts."
    named: tuple[Callable[[float], str], Callable[[float], str]] = (_ms, lambda value: f"{value * 100:.0f} %")
    table = plain_table(["deployment", *(f"{share * 100:.0f} % within, ms" for share in _SPREAD)], rows)
    return _card(
        "First tokens, from the fastest to the slowest", said, curves(lines, named, most=1.0, said=said), table
    )


_SPREAD = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


def _rounds_card(plan: BenchPlan, samples: Sequence[BenchSample]) -> str:
    """Return the plot of the median time to the first token by round, which shows changes during the bench."""
    lines, rows = [], []
    rounds = sorted({sample.key.round for sample in samples})
    for contender in plan.contenders:
        points = []
        for round_ in rounds:
            times = sorted(
                sample.ttft_ms
                for sample in samples
                if sample.key.round == round_
                and sample.key.deployment == contender.name
                and sample.error_kind is None
                and sample.ttft_ms is not None
            )
            if times:
                points.append((round_ + 1.0, times[len(times) // 2]))
        if points:
            lines.append(PlotCurve(plan.labels[contender.name], _series(plan, contender.name), points))
            by_round = dict(points)
            rows.append(
                [
                    plan.labels[contender.name],
                    *(number("ttft_ms", by_round[at + 1.0]) if at + 1.0 in by_round else UNKNOWN for at in rounds),
                ]
            )
    if len(rounds) < 3 or not lines:  # noqa: PLR2004 - too few points for a line
        return ""
    said = "Median time to the first token in each round: a slope or a step means that something changed meanwhile."
    drawn = curves(lines, (lambda value: f"{value:g}", _ms), said=said)
    return _card(
        "Over the rounds", said, drawn, plain_table(["deployment", *(f"round {at + 1}" for at in rounds)], rows)
    )


def concurrency_cards(report: Report) -> list[str]:
    """Return the cards that compare levels of concurrency."""
    plan, cards = report.plan, []
    for title, said, name in (
        ("Tokens per second, all requests together", "Per second of a deployment's turns.", "tokens_per_s"),
        ("Median time to the first token", "In ms.", "ttft_p50_ms"),
        ("Median speed of one answer", "Tokens per second after the first.", "decode_tps_p50"),
    ):
        lines, rows = [], []
        for contender in plan.contenders:
            of_it = [
                (cell.concurrency, cell.figures[name])
                for cell in report.cells
                if cell.deployment == contender.name and cell.kind == ALL and name in cell.figures
            ]
            points = [(float(level), found.value) for level, found in sorted(of_it) if found.value is not None]
            if points:
                lines.append(PlotCurve(plan.labels[contender.name], _series(plan, contender.name), points))
                known = dict(of_it)
                rows.append(
                    [plan.labels[contender.name], *(shown(name, known.get(level)) for level in plan.concurrencies)]
                )
        if lines:
            drawn = curves(lines, (lambda value: f"{value:g}", lambda value: number("", value)), said=title)
            table = plain_table(["deployment", *(f"{level} at a time" for level in plan.concurrencies)], rows)
            cards.append(_card(title, said, drawn, table))
    return cards


def _series(plan: BenchPlan, name: str) -> int:
    return next(place for place, contender in enumerate(plan.contenders) if contender.name == name)


def _card(title: str, said: str, drawn: str, table: str) -> str:
    return (
        f'<section class="card"><h3>{escape(title)}</h3><p>{escape(said)}</p>{drawn}'
        f"<details><summary>the figures</summary>{table}</details></section>"
    )


def table(plan: BenchPlan, cells: Sequence[Cell], names: Sequence[str]) -> str:
    """Return a table of some metrics, a row for each cell."""
    heads = ["class", "deployment", "at a time", "requests", *names]
    rows = [
        [
            cell.kind,
            plan.labels[cell.deployment],
            str(cell.concurrency),
            str(cell.requests),
            *(shown(name, cell.figures.get(name)) for name in names),
        ]
        for cell in cells
    ]
    return plain_table(heads, rows, texts=2)


def plain_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1) -> str:
    """Return a table; the first ``texts`` columns are words, the others figures."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=text' if place < texts else ''}>{escape(said)}</{tag}>" for place, said in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', heads)}</tr></thead>"
    return f'<div class="scroll" tabindex="0"><table>{head}<tbody>{body}</tbody></table></div>'


def _ms(value: float) -> str:
    return f"{value:g} ms" if value < _SECOND_MS else f"{value / _SECOND_MS:g} s"


_STYLE = Path(__file__).with_name("report.css")
_MINUTE_S = 60.0


def page(report: Report, gate: GateResult | None = None) -> str:
    """Return the HTML document, with the gate's results if there is one."""
    plan = report.plan
    title = f"Bench of {', '.join(dict.fromkeys(each.model for each in plan.contenders))}"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title><style>{_STYLE.read_text(encoding='utf-8')}</style></head><body>",
        f"<header><h1>{escape(title)}</h1>{_facts(report)}</header><main>",
        "" if gate is None else _gate(plan, gate),
        _glance(report),
        _verdicts(report),
    ]
    for level in plan.concurrencies:
        if len(plan.concurrencies) > 1:
            parts.append(f"<h2>{level} at a time</h2>")
        else:
            parts.append("<h2>Figures</h2>")
        parts += level_cards(report, level)
    if len(plan.concurrencies) > 1:
        parts += ["<h2>By concurrency</h2>", *concurrency_cards(report)]
    parts += ["<h2>All figures</h2>", _all_figures(report), "<h2>Method</h2>", _method(report), "</main></body></html>"]
    return "".join(parts)


def _gate(plan: BenchPlan, gate: GateResult) -> str:
    rows = [
        (label_of(plan, check.deployment, check.concurrency), check.name, MARKS[check.outcome], check.words)
        for check in gate.checks
    ]
    kind = "" if gate.outcome is CheckOutcome.HOLDS else " class=warn"
    parts = [f"<h2>Gate</h2><p{kind}><strong>{MARKS[gate.outcome]}</strong></p>"]
    if rows:
        parts.append(plain_table(("deployment", "check", "outcome", "found"), rows, texts=4))
    return "".join(parts) + (_list("verdicts silent", gate.notes) if gate.notes else "")


def _facts(report: Report) -> str:
    plan = report.plan
    spent = "unknown" if report.spent_usd is None else f"${report.spent_usd:.4f}"
    began = UNKNOWN
    if report.began_s is not None:
        began = f"{datetime.fromtimestamp(report.began_s, UTC):%Y-%m-%d %H:%M} UTC"
    way = "simulated providers" if plan.is_demo else "raced at providers" if plan.raced else "directly at providers"
    facts = [
        ("began", began),
        ("took", _duration(report)),
        ("way", way if plan.url is None else f"through {plan.url}"),
        ("rounds", f"{report.rounds_whole} of {plan.rounds}"),
        ("requests", f"{report.requests} of {plan.requests}"),
        ("at a time", ", ".join(map(str, plan.concurrencies))),
        ("goal", plan.goal.text if plan.goal else "none"),
        ("spent", spent),
        ("seed", str(plan.seed)),
    ]
    return (
        '<dl class="facts">'
        + "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(said)}</dd></div>" for name, said in facts)
        + "</dl>"
    )


def _duration(report: Report) -> str:
    if report.began_s is None or report.ended_s is None:
        return UNKNOWN
    seconds = report.ended_s - report.began_s
    again = f", in {report.sittings} starts" if report.sittings > 1 else ""
    return (f"{seconds / _MINUTE_S:.1f} min" if seconds >= _MINUTE_S else f"{seconds:.0f} s") + again


def _glance(report: Report) -> str:
    """Return the main figures of all classes together, a row for each deployment and level."""
    cells = [cell for cell in report.cells if cell.kind == ALL]
    names = [name for name in _MAIN if any(name in cell.figures for cell in cells)]
    labels, levels = report.plan.labels, len(report.plan.concurrencies) > 1
    heads = [
        "way" if report.plan.raced else "deployment",
        *(["at a time"] if levels else []),
        *(_MAIN[name] for name in names),
    ]
    rows = [
        [
            labels[cell.deployment],
            *([str(cell.concurrency)] if levels else []),
            *(shown(name, cell.figures.get(name)) for name in names),
        ]
        for cell in cells
    ]
    return f'<section class="card">{plain_table(heads, rows)}</section>'


_MAIN = {
    "ttft_p50_ms": "first token, ms",
    "decode_tps_p50": "decoding, tok/s",
    "total_p50_ms": "last token, ms",
    "goodput": "met the goal",
    "errors": "errors",
    "cost_per_1000_usd": "cost of 1,000 requests, $",
}


def _verdicts(report: Report) -> str:
    silent = [verdict.words for verdict in report.verdicts if not verdict.is_shown]
    parts = ["<h2>Verdicts</h2>"]
    if not report.is_whole:
        parts.append('<p class="warn">Not everything in the plan was asked.</p>')
    if len(silent) == len(report.verdicts):
        parts.append('<p class="soft">No difference was shown.</p>')
    for aspect, title in ASPECTS.items():
        found = [verdict.words for verdict in report.verdicts if verdict.is_shown and verdict.aspect == aspect]
        if found:
            parts.append(f'<p class="group">{escape(title)}</p>{_list("verdicts", found)}')
    if silent:
        summary = f"no difference shown in {len(silent)} of {len(report.verdicts)} comparisons"
        parts.append(f"<details><summary>{summary}</summary>{_list('verdicts silent', silent)}</details>")
    return "".join(parts)


def _list(kind: str, items: Iterable[str]) -> str:
    return f'<ul class="{kind}">' + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def _all_figures(report: Report) -> str:
    names = [metric.name for metric in METRICS if any(metric.name in cell.figures for cell in report.cells)]
    meanings = [f"{metric.name}: {metric.meaning}" for metric in METRICS if metric.name in names]
    errors = [
        [
            report.plan.labels[cell.deployment],
            str(cell.concurrency),
            str(cell.requests),
            str(cell.connected),
            str(cell.estimated_tokens),
            _kinds(cell),
        ]
        for cell in report.cells
        if cell.kind == ALL
    ]
    heads = ["deployment", "at a time", "requests", "had to connect", "tokens estimated", "errors"]
    return (
        f'<section class="card"><h3>Requests</h3>{plain_table(heads, errors)}</section>'
        f"<details><summary>every figure, with n and interval</summary>{table(report.plan, report.cells, names)}"
        f'<ul class="method">{"".join(f"<li>{escape(said)}</li>" for said in meanings)}</ul></details>'
    )


def _kinds(cell: Cell) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in cell.error_kinds.items()) or "none"


def _method(report: Report) -> str:
    prices = [
        f"{each.name} ({each.model}): "
        + (
            "price unknown"
            if each.input_usd is None
            else f"${each.input_usd:g} in, ${each.output_usd:g} out per million tokens"
        )
        + "".join(f"; not asked {kind}: {reason}" for kind, reason in each.leaves_out.items())
        for each in report.plan.contenders
    ]
    return _list("method", [*report.method, *prices])
