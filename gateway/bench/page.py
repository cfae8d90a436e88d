"""The report as one HTML file, which asks nothing of any host: style and plots are in it, and there is no script."""

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from gateway.bench.cards import concurrency_cards, level_cards, plain_table, table
from gateway.bench.figures import ALL, METRICS, Cell
from gateway.bench.report import Report
from gateway.bench.shown import UNKNOWN, shown
from gateway.bench.verdicts import ASPECTS

_STYLE = Path(__file__).with_name("report.css")
_MINUTE_S = 60.0


def page(report: Report) -> str:
    """Return the document."""
    plan = report.plan
    title = f"Bench of {', '.join(dict.fromkeys(each.model for each in plan.contenders))}"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title><style>{_STYLE.read_text(encoding='utf-8')}</style></head><body>",
        f"<header><h1>{escape(title)}</h1>{_facts(report)}</header><main>",
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


def _facts(report: Report) -> str:
    plan = report.plan
    spent = "unknown" if report.spent_usd is None else f"${report.spent_usd:.4f}"
    began = UNKNOWN
    if report.began_s is not None:
        began = f"{datetime.fromtimestamp(report.began_s, UTC):%Y-%m-%d %H:%M} UTC"
    way = "simulated providers" if plan.is_demo else "directly at providers"
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
    heads = ["deployment", *(["at a time"] if levels else []), *(_MAIN[name] for name in names)]
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
