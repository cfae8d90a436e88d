"""The cards of the HTML report: each a plot, what it shows, and the same figures as a table."""

from collections.abc import Callable, Sequence
from html import escape

from gateway.bench.figures import ALL, Cell
from gateway.bench.plan import Plan
from gateway.bench.plots import Curve, Mark, Row, curves, intervals
from gateway.bench.report import Report
from gateway.bench.sample import Sample
from gateway.bench.shown import UNKNOWN, number, shown, unit_of

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


def _intervals_card(plan: Plan, cells: Sequence[Cell], title: str, said: str, names: tuple[str, str | None]) -> str:
    dot, tick = names
    groups: dict[str, list[Row]] = {}
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


def _row_of(plan: Plan, cell: Cell, dot: str, tick: str | None) -> Row:
    found, far = cell.figures[dot], cell.figures.get(tick or "")
    mark = None
    if found.value is not None:
        title = shown(dot, found) + (f", {tick} {shown(tick, far)}" if tick and far else "")
        mark = Mark(found.value, title, found.low, found.high, far.value if far and far.low is not None else None)
    return Row(plan.labels[cell.deployment], _series(plan, cell.deployment), mark)


def _spread_card(plan: Plan, samples: Sequence[Sample]) -> str:
    """Return the share of answers whose first token had come, by time."""
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
            lines.append(Curve(plan.labels[contender.name], _series(plan, contender.name), points, is_stepped=True))
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


def _rounds_card(plan: Plan, samples: Sequence[Sample]) -> str:
    """Return the median time to the first token, round by round: whether something changed meanwhile."""
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
            lines.append(Curve(plan.labels[contender.name], _series(plan, contender.name), points))
            by_round = dict(points)
            rows.append(
                [
                    plan.labels[contender.name],
                    *(number("ttft_ms", by_round[at + 1.0]) if at + 1.0 in by_round else UNKNOWN for at in rounds),
                ]
            )
    if len(rounds) < 3 or not lines:  # noqa: PLR2004 - no line to look at
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
                lines.append(Curve(plan.labels[contender.name], _series(plan, contender.name), points))
                known = dict(of_it)
                rows.append(
                    [plan.labels[contender.name], *(shown(name, known.get(level)) for level in plan.concurrencies)]
                )
        if lines:
            drawn = curves(lines, (lambda value: f"{value:g}", lambda value: number("", value)), said=title)
            table = plain_table(["deployment", *(f"{level} at a time" for level in plan.concurrencies)], rows)
            cards.append(_card(title, said, drawn, table))
    return cards


def _series(plan: Plan, name: str) -> int:
    return next(place for place, contender in enumerate(plan.contenders) if contender.name == name)


def _card(title: str, said: str, drawn: str, table: str) -> str:
    return (
        f'<section class="card"><h3>{escape(title)}</h3><p>{escape(said)}</p>{drawn}'
        f"<details><summary>the figures</summary>{table}</details></section>"
    )


def table(plan: Plan, cells: Sequence[Cell], names: Sequence[str]) -> str:
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
