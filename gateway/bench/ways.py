"""The results of a bench for one's own page: a block of Markdown about ways of one model, and a picture as SVG."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape

from gateway import __version__
from gateway.bench.figures import ALL, Cell
from gateway.bench.gate import label_of, table_head, table_row
from gateway.bench.html import scale_of
from gateway.bench.plan import BenchPlan, expected_answer, read_way
from gateway.bench.verdicts import Report, few_calls, number, saved_up, shown

_COLUMNS: Mapping[str, str] = {
    "ttft_p50_ms": "first token, ms: p50",
    "ttft_p95_ms": "p95",
    "ttft_p99_ms": "p99",
    "total_p50_ms": "whole answer, ms: p50",
    "total_p95_ms": "p95",
    "total_p99_ms": "p99",
    "errors": "failed calls",
    "requests_per_call": "requests a call",
    "cost_per_1000_usd": "$ per 1,000 calls",
}


def ways_markdown(report: Report, picture: str | None) -> str:
    """Return a block of Markdown with the figures of each way, what is sure, and how it was measured.

    ``picture``: the name of the file with the picture, if there is one.
    """
    plan = report.plan
    lines = [f"### {plan.contenders[0].model}: one provider at a time, and raced", ""]
    lines += table_head("way", "calls", *_COLUMNS.values())
    for cell in _cells(report):
        figures = [shown(name, cell.figures.get(name)) for name in _COLUMNS]
        lines.append(table_row(label_of(plan, cell.deployment, cell.concurrency), str(cell.requests), *figures))
    if picture is not None:
        lines += ["", f"![First tokens and whole answers of each way]({picture.replace(' ', '%20')})"]
    sure = [verdict.words for verdict in report.verdicts if verdict.is_shown]
    lines += ["", *(f"- Sure: {words}." for words in sure or ())]
    if len(sure) < len(report.verdicts):
        lines.append(f"- Not sure: {len(report.verdicts) - len(sure)} of {len(report.verdicts)} comparisons.")
    lines += [f"- {words[0].upper()}{words[1:]}." for words in (*few_calls(report), *saved_up(report))]
    return "\n".join([*lines, "", *_how(report), ""])


def _how(report: Report) -> list[str]:
    plan = report.plan
    when = ""
    if report.began_s is not None and report.ended_s is not None:
        began, ended = (datetime.fromtimestamp(each, UTC) for each in (report.began_s, report.ended_s))
        when = f", {began:%Y-%m-%d %H:%M} to {ended:%Y-%m-%d %H:%M} UTC"
    ways = "; ".join(f"{each.name}: {read_way(each.name).meaning}" for each in plan.contenders)
    prompts = f"{plan.prompts.number} own prompts" if plan.prompts else f"prompts: {', '.join(plan.kinds)}"
    at_most = max(expected_answer(kind, plan.lengths).at_most for kind in plan.kinds)
    providers = "simulated providers: " if plan.is_demo else ""
    measured = (
        f"Measured with `holeshot bench` {__version__}{when}, in turns, seed {plan.seed}, with {providers}"
        f"{', '.join(plan.raced)}; {prompts}, answers of at most {at_most} tokens. {ways}."
    )
    intervals = (
        "Intervals are of 95 %. A difference is sure if its interval excludes 0, and the chance that any of them is"
        " false is 5 % (Holm). Times are of answered calls. Costs are at list price, estimated for cancelled requests."
    )
    return [measured, "", intervals]


def _cells(report: Report) -> list[Cell]:
    return [cell for cell in report.cells if cell.kind == ALL]


# The picture: a row for each quantile of each way, on an axis for first tokens and one for whole answers.

_WIDTH, _LEFT, _RIGHT = 760, 150, 150
_ROW, _HEAD, _AXIS, _GAP = 20, 30, 24, 8
# The first of the page's series (gateway/page/assets/style.css), on light and on dark ground.
_COLOURS = ("#4379de", "#af7832", "#1b5920", "#d20f92", "#362748", "#2b6a6a", "#726907", "#5518b1")
_ON_DARK = ("#3e80fb", "#ed9900", "#b8fbb2", "#f53297", "#d2aefb", "#4ec1be", "#8f8916", "#a28cd2")
_PANELS = (("Time to the first token, ms", "ttft"), ("Time to the last token, ms", "total"))
_SHARES = ("p50", "p95", "p99")


def picture(report: Report) -> str:
    """Return the times of each way, or deployment, as an SVG file: dots, with bars for their intervals."""
    cells, parts, top = _cells(report), [], 8
    for title, time in _PANELS:
        drawn, height = _panel(report.plan, cells, title, time)
        parts.append(f'<g transform="translate(0 {top})">{drawn}</g>')
        top += height
    legend = "Bar: interval of 95 %. Ring: too few calls for an interval."
    parts.append(f'<text class="dim" x="{_LEFT}" y="{top + 12}">{legend}</text>')
    top += _AXIS
    said = "; ".join(
        f"{cell.deployment}: first token {shown('ttft_p50_ms', cell.figures.get('ttft_p50_ms'))} ms" for cell in cells
    )
    colours = "".join(f".c{place} {{ --c: {colour} }} " for place, colour in enumerate(_COLOURS))
    dark = "".join(f".c{place} {{ --c: {colour} }} " for place, colour in enumerate(_ON_DARK))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}" height="{top}"'
        f' role="img" aria-label="{escape(said)}"><style>svg {{ --ink: #1f2937; --dim: #5a6170; --line: #e5e7eb;'
        f" font: 13px system-ui, sans-serif }} {colours}"
        f"@media (prefers-color-scheme: dark) {{ svg {{ --ink: #e5e7eb; --dim: #9ca3af; --line: #374151 }} {dark}}}"
        " text { fill: var(--ink) } .dim { fill: var(--dim) } .line { stroke: var(--line) } .head { font-weight: 600 }"
        " .range { fill: var(--c); opacity: 0.3 } .dot { fill: var(--c) }"
        f" .guess {{ fill: none; stroke: var(--c); stroke-width: 1.5 }}</style>{''.join(parts)}</svg>\n"
    )


def _panel(plan: BenchPlan, cells: Sequence[Cell], title: str, time: str) -> tuple[str, int]:
    """Return a panel and its height."""
    known = [
        value
        for cell in cells
        for share in _SHARES
        if (found := cell.figures.get(f"{time}_{share}_ms")) is not None
        for value in (found.value, found.low, found.high)
        if value is not None
    ]
    scale, wide = scale_of(known), _WIDTH - _LEFT - _RIGHT

    def at(value: float) -> float:
        return round(_LEFT + wide * scale.at(value) / 100, 1)

    parts = [f'<text class="head" x="0" y="14">{escape(title)}</text>']
    bottom = _HEAD + len(_SHARES) * (len(cells) * _ROW + _GAP)
    for tick in scale.ticks:
        parts.append(f'<line class="line" x1="{at(tick)}" x2="{at(tick)}" y1="{_HEAD - 6}" y2="{bottom - _GAP}"/>')
        parts.append(f'<text class="dim" x="{at(tick)}" y="{bottom + 8}" text-anchor="middle">{tick:g}</text>')
    top = _HEAD
    for share in _SHARES:
        parts.append(f'<text class="dim" x="0" y="{top + 14}">{share}</text>')
        for place, cell in enumerate(cells):
            middle, name, found = top + _ROW / 2, f"{time}_{share}_ms", cell.figures.get(f"{time}_{share}_ms")
            label = label_of(plan, cell.deployment, cell.concurrency)
            parts.append(f'<text x="{_LEFT - 12}" y="{middle + 4}" text-anchor="end">{escape(label)}</text>')
            words = "too few calls"
            if found is not None and found.value is not None:
                words, kind = number(name, found.value), "guess"
                if found.low is not None and found.high is not None:
                    kind, left, right = "dot", at(found.low), at(found.high)
                    width = max(1.0, right - left)
                    bar = f'x="{left}" y="{middle - 5}" width="{width:.1f}" height="10" rx="3"'
                    parts.append(f'<rect class="range c{place % len(_COLOURS)}" {bar}/>')
                    words = f"{words} ({number(name, found.low)} to {number(name, found.high)})"
                dot = f'cx="{at(found.value)}" cy="{middle}" r="4"'
                parts.append(f'<circle class="{kind} c{place % len(_COLOURS)}" {dot}/>')
            parts.append(f'<text class="dim" x="{_WIDTH}" y="{middle + 4}" text-anchor="end">{words}</text>')
            top += _ROW
        top += _GAP
    return "".join(parts), bottom + _AXIS
