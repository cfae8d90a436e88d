"""A provider's month as a page: Markdown to paste into a letter, or one HTML file without any request."""

import html
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from gateway import __version__
from gateway.cli.evidence import APART, CHANCE, FEWEST, STEP_S, Evidence, Sample
from gateway.steering.constants import LEAST_AUDITS
from gateway.steering.leaderboard import Row
from gateway.terminal_text import visible

MOST_WINDOWS, MOST_OUTAGES, MOST_WAYS = 12, 20, 20
_NONE = "–"  # noqa: RUF001 - printed for unknown figures
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.87rem; }
th, td { text-align: left; padding: 0.25rem 0.9rem 0.25rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
td.figure, th.figure { text-align: right; font-variant-numeric: tabular-nums; }
code { font-size: 0.85rem; overflow-wrap: anywhere; }
"""


_METHOD = (
    """Times run from the moment at which our gateway began to send the request, so the network and, on a new
    connection, its set-up are in them. The first token is the first event with content, reasoning, a tool call or a
    refusal; events without content do not count. Tok/s are the tokens after those of the first event, as you counted
    them, over the time since, of all answers together.""",
    """Our gateway sends some requests to several providers and cuts those that have not answered when another has. A
    request that was cut after 300 ms took more than 300 ms: it is neither left out nor counted as 300 ms. Where a
    random share of such requests was watched on to the first token (audits), these stand for all that were cut;
    otherwise the estimate of Kaplan and Meier is used, which is too high where requests that are slow for one provider
    are slow for all, and then the basis says so. Buckets are 9 % wide.""",
    f"""Failures are answers with an error status, broken or undecodable streams, and requests without an answer in our
    time limits; rate limits (429), requests that you refused as invalid, and clients that left are not. A time is
    listed when it has {FEWEST} failures or more in {STEP_S // 60} minutes and so many come by chance, at the usual
    rate, in less than one of {1 / CHANCE:,.0f} such times; times at most {int(APART.total_seconds()) // 60} minutes
    apart are one. Neither prompts nor answers are kept.""",
)


class Part(msgspec.Struct, frozen=True):
    """A heading, paragraphs, and a table, whose columns are right-aligned where they are figures."""

    title: str
    words: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    figures: frozenset[str] = frozenset()


def as_markdown(found: Evidence) -> str:
    """Return the page as Markdown."""
    lines = [f"# {_plain(_title(found))}", ""]
    for part in parts(found):
        lines += [f"## {part.title}", ""]
        for words in part.words:
            lines += [_plain(words), ""]
        if part.rows:
            lines.append("| " + " | ".join(part.columns) + " |")
            lines.append("|" + "|".join("--:" if each in part.figures else "---" for each in part.columns) + "|")
            lines += ["| " + " | ".join(map(_plain, row)) + " |" for row in part.rows]
            lines.append("")
    return "\n".join(lines)


def as_html(found: Evidence) -> str:
    """Return the page as one file."""
    title = html.escape(visible(_title(found)))
    body = [f"<h1>{title}</h1>"]
    for part in parts(found):
        body.append(f"<h2>{part.title}</h2>")
        body += [f"<p>{html.escape(visible(words))}</p>" for words in part.words]
        if part.rows:
            heads = "".join(_cell("th", each, right=each in part.figures) for each in part.columns)
            rows = "".join(
                "<tr>"
                + "".join(_cell("td", value, right=name in part.figures) for name, value in _named(part, row))
                + "</tr>"
                for row in part.rows
            )
            body.append(f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>')
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    return (
        f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{"".join(body)}</body></html>'
    )


def parts(found: Evidence) -> Sequence[Part]:
    """Return the page's parts."""
    return (
        _summary(found),
        _times(found),
        _failures(found),
        _windows(found),
        _outages(found),
        _slowest(found),
        _method(),
    )


def _title(found: Evidence) -> str:
    last = found.until - timedelta(seconds=1)
    return f"{found.provider}: {found.since:%Y-%m-%d} to {last:%Y-%m-%d} (UTC)"


def _summary(found: Evidence) -> Part:
    errors = sum(window.errors for window in found.windows)
    counted = sum(figures.row.n for figures in found.figures)
    failed = sum(figures.errors for figures in found.figures)
    words = [
        f"We sent {found.attempts:,} requests, the first on {_at(found.first)}, the last on {_at(found.last)}. "
        f"Of {counted:,} that ended with a first token or an error, {failed:,} failed"
        + (f" ({failed / counted:.2%})." if counted else ".")
    ]
    if found.windows:
        words.append(
            f"{len(found.windows):,} times more of them failed than your usual rate explains; these times have "
            f"{errors:,} failures. The worst: {_span(found.windows[0].began, found.windows[0].ended)}, "
            f"{found.windows[0].errors:,} of {found.windows[0].attempts:,} at {found.windows[0].deployment}."
        )
    else:
        words.append("There was no time in which more of them failed than your usual rate explains.")
    return Part("In short", tuple(words))


def _times(found: Evidence) -> Part:
    columns = (
        "deployment", "asked as", "requests", "answered", "cut", "first token p50", "p95", "p99", "tok/s", "errors",
        "429s", "basis",
    )  # fmt: skip
    rows = []
    for each in found.figures:
        row = each.row
        rows.append((
            row.deployment,
            each.model,
            f"{each.requests:,}",
            f"{row.events:,}",
            f"{row.censored:,}",
            *(_quantile(row, q) for q in ("p50", "p95", "p99")),
            _NONE if row.decode_tps is None else f"{row.decode_tps:,.1f}",
            _NONE if row.error_rate is None else f"{row.error_rate:.2%}",
            f"{row.rate_limited:,}",
            _basis(row),
        ))  # fmt: skip
    return Part(
        "Times, as we measured them",
        (
            "Milliseconds from our request to the first token that has content, with intervals of 95 %.",
            f"{_NONE}: not known, as too many requests were cut before it, or too few were sent.",
        ),
        columns,
        tuple(rows),
        frozenset(columns[2:-1]),
    )


def _quantile(row: Row, q: str) -> str:
    value, low, high = (getattr(row, f"ttft_{q}{end}_ms") for end in ("", "_low", "_high"))
    if value is None:
        return _NONE
    ends = (_NONE if low is None else f"{low:,.0f}", "more" if high is None else f"{high:,.0f}")
    return f"{value:,.0f} ({ends[0]} to {ends[1]})"


def _basis(row: Row) -> str:
    if row.basis == "audited":
        return f"{row.audited:,} audits"
    if row.biased:
        return f"too high: {row.audited} of {LEAST_AUDITS} audits"
    return "all requests"


def _failures(found: Evidence) -> Part:
    rows = tuple(
        (each.deployment, each.error, _NONE if each.status is None else str(each.status), f"{each.n:,}")
        for each in found.refused[:MOST_WAYS]
    )
    return Part(
        "How requests failed",
        _left_out(len(found.refused) - MOST_WAYS) if rows else ("None did.",),
        ("deployment", "how", "status", "requests"),
        rows,
        frozenset({"requests"}),
    )


def _windows(found: Evidence) -> Part:
    rows = []
    for window in found.windows[:MOST_WINDOWS]:
        for number, sample in enumerate(window.samples or (None,)):
            first = number == 0
            rows.append((
                _span(window.began, window.ended) if first else "",
                window.deployment if first else "",
                f"{window.errors:,} of {window.attempts:,}" if first else "",
                *(_looked_up(sample) if sample is not None else (_NONE,) * 3),
            ))  # fmt: skip
    words = "Times (UTC) with more failures than chance explains, and some of their requests."
    left = _left_out(len(found.windows) - MOST_WINDOWS, ", with fewer failures each,")
    return Part(
        "When requests failed",
        (words, *left) if rows else ("At no time more often than chance explains.",),
        ("when", "deployment", "failed", "your request id", "at", "what we were told"),
        tuple(rows),
        frozenset({"failed"}),
    )


def _looked_up(sample: Sample) -> tuple[str, str, str]:
    told = " ".join(filter(None, (str(sample.status or ""), sample.error, sample.message)))
    named = sample.request_id or f"none came; ours is {sample.attempt}"
    return named, f"{sample.at:%H:%M:%S}", told[:200]


def _outages(found: Evidence) -> Part:
    rows = tuple(
        (each.deployment, _span(each.began, each.ended), each.reason.replace("_", " "))
        for each in found.outages[:MOST_OUTAGES]
    )
    words = (
        "Our gateway sent you nothing at these times, but for a try now and then. Each of its processes has its own."
    )
    left = _left_out(len(found.outages) - MOST_OUTAGES)
    return Part("When we stopped asking", (words, *left) if rows else ("Never.",), ("deployment", "when", "why"), rows)


def _left_out(number: int, which: str = "") -> tuple[str, ...]:
    return (f"{number:,} more of them{which} are left out here.",) if number > 0 else ()


def _slowest(found: Evidence) -> Part:
    rows = tuple(
        (
            f"{each.ttft_ms or 0:,.0f}",
            each.deployment,
            _at(each.at),
            each.request_id or f"none came; ours is {each.attempt}",
        )
        for each in found.slowest
    )
    return Part(
        "The slowest answers",
        () if rows else ("None.",),
        ("first token, ms", "deployment", "when", "your request id"),
        rows,
        frozenset({"first token, ms"}),
    )


def _method() -> Part:
    return Part(
        "How this was measured", (*(" ".join(words.split()) for words in _METHOD), f"Made by Holeshot {__version__}.")
    )


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S}"


def _span(began: datetime, ended: datetime | None) -> str:
    if ended is None:
        return f"{began:%Y-%m-%d %H:%M} to an unknown time"
    return f"{began:%Y-%m-%d %H:%M} to {ended:{'%H:%M' if ended.date() == began.date() else '%Y-%m-%d %H:%M'}}"


def _plain(text: str) -> str:
    return visible(text).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def _named(part: Part, row: tuple[str, ...]) -> Sequence[tuple[str, str]]:
    return tuple(zip(part.columns, row, strict=True))


def _cell(tag: str, text: str, *, right: bool) -> str:
    kind = ' class="figure"' if right else ""
    return f"<{tag}{kind}>{html.escape(visible(text))}</{tag}>"
