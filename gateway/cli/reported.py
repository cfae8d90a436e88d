"""The report of a provider's month: Markdown to paste into a letter, or one HTML file that loads nothing."""

import html
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import exp, lgamma, log
from typing import Any

import msgspec

from gateway import __version__
from gateway.core.terminal_text import visible
from gateway.ledger import Words, counts_since, is_sqlite, parse_url, queries
from gateway.steering import LEAST_AUDITS, Row, of_counts

# The evidence: figures of one provider's attempts, to send to it, with its own request ids.

PATIENCE_S = 600.0  # a month may have millions of rows
STEP_S = 300
FEWEST = 3  # errors in a window that is shown
CHANCE = 1e-4  # a window's errors must be less probable than this, at the month's own rate
LEAST_RATE = 0.002  # with a lower one, a few errors would always be improbable
APART = timedelta(minutes=10)  # windows that are closer are merged
SAMPLES_OF_A_STEP, SAMPLES_OF_A_WINDOW, MOST_SAMPLES = 3, 5, 5_000
SLOWEST = 10
_EXACT = 2_000  # with more attempts in five minutes, the probability is bounded instead of summed


class Sample(msgspec.Struct, frozen=True):
    """One attempt that the provider can look up. ``request_id`` is its own; None if it sent none."""

    at: datetime
    deployment: str
    attempt: str  # our id, which the ledger has
    request_id: str | None
    status: int | None
    error: str | None
    message: str | None
    ttft_ms: float | None


class ErrorWindow(msgspec.Struct, frozen=True):
    """A period in which more attempts failed than the month's own rate explains."""

    deployment: str
    began: datetime
    ended: datetime
    attempts: int
    errors: int
    samples: tuple[Sample, ...]


class Refused(msgspec.Struct, frozen=True):
    """How often attempts failed in one way."""

    deployment: str
    error: str
    status: int | None
    n: int


class Figures(msgspec.Struct, frozen=True):
    """One deployment's figures for one of our models, as the leaderboard has them.

    ``requests`` and ``errors`` are the exact numbers of those sent and failed; the row has a rounded share.
    """

    model: str
    row: Row
    requests: int
    errors: int


class Outage(msgspec.Struct, frozen=True):
    """A period in which we sent a deployment nothing but an occasional probe. ``ended`` None: unknown."""

    deployment: str
    began: datetime
    ended: datetime | None
    reason: str


class Evidence(msgspec.Struct, frozen=True):
    """The whole report, of attempts launched at or after ``since`` and before ``until``."""

    provider: str
    since: datetime
    until: datetime
    first: datetime
    last: datetime
    attempts: int
    figures: tuple[Figures, ...]
    refused: tuple[Refused, ...]
    windows: tuple[ErrorWindow, ...]
    outages: tuple[Outage, ...]
    slowest: tuple[Sample, ...]


class UnknownProviderError(Exception):
    """The ledger has no attempts of this provider; the message names those it has."""


async def evidence(url: str, provider: str, since: datetime, until: datetime) -> Evidence:
    """Return the report of a provider's attempts in a period.

    Raises:
        UnknownProviderError: it has none, or none in this period.
        QueryError: it takes longer than ten minutes.
        DatabaseUnreachableError: the database cannot be reached.

    """
    statements = _Statements(url, provider, since, until)
    found = (await statements.rows(_ATTEMPTS))[0]
    if not found["n"]:
        raise UnknownProviderError(await statements.why_empty())
    boards = await counts_since(url, since, until=until, provider=provider, timeout_s=PATIENCE_S)
    seconds = (until - since).total_seconds()
    sent = {(row["model"], row["deployment"]): row for row in await statements.rows(_SENT)}
    figures = tuple(
        Figures(model, row, sent[model, row.deployment]["requests"], sent[model, row.deployment]["errors"])
        for model, slots in sorted(boards.items())
        for row in sorted(of_counts(model, slots, seconds).deployments, key=lambda row: row.deployment)
    )
    samples = [_sample(row) for row in await statements.rows(_ERRORS)]
    return Evidence(
        provider=provider,
        since=since,
        until=until,
        first=_instant(found["first"]),
        last=_instant(found["last"]),
        attempts=found["n"],
        figures=figures,
        refused=tuple(Refused(**row) for row in await statements.rows(_REFUSED)),
        windows=error_windows(await statements.rows(_STEPS), samples),
        outages=tuple(
            Outage(
                deployment=row["deployment"],
                began=_instant(row["began_at"]),
                ended=None if row["ended_at"] is None else _instant(row["ended_at"]),
                reason=row["reason"],
            )
            for row in await statements.rows(_OUTAGES)
        ),
        slowest=tuple(_sample(row) for row in await statements.rows(_SLOWEST)),
    )


def error_windows(steps: Sequence[Mapping[str, Any]], samples: Sequence[Sample]) -> tuple[ErrorWindow, ...]:
    """Return the periods with more errors than chance explains, those with the most errors first.

    ``steps`` has, for each deployment and five minutes, ``deployment``, ``step`` (unix seconds), ``n`` and ``errors``.
    """
    found: list[ErrorWindow] = []
    by_deployment: dict[str, list[Mapping[str, Any]]] = {}
    for step in steps:
        by_deployment.setdefault(step["deployment"], []).append(step)
    for deployment, own in by_deployment.items():
        rate = max(LEAST_RATE, sum(step["errors"] for step in own) / sum(step["n"] for step in own))
        spans: list[tuple[datetime, datetime]] = []
        for step in sorted(own, key=lambda step: step["step"]):
            if step["errors"] < FEWEST or _chance(step["errors"], step["n"], rate) >= CHANCE:
                continue
            began = datetime.fromtimestamp(step["step"], UTC)
            ended = began + timedelta(seconds=STEP_S)
            if spans and began - spans[-1][1] <= APART:
                began, _ = spans.pop()
            spans.append((began, ended))
        found += [_counted(deployment, began, ended, own) for began, ended in spans]
    found.sort(key=lambda window: -window.errors)
    return tuple(
        msgspec.structs.replace(window, samples=_of_window(window, samples)[:SAMPLES_OF_A_WINDOW]) for window in found
    )


def _counted(deployment: str, began: datetime, ended: datetime, steps: Sequence[Mapping[str, Any]]) -> ErrorWindow:
    """Return a window with all its attempts, also those of the minutes between its failures."""
    within = [step for step in steps if began.timestamp() <= step["step"] < ended.timestamp()]
    attempts, errors = (sum(step[name] for step in within) for name in ("n", "errors"))
    return ErrorWindow(deployment, began, ended, attempts, errors, ())


def _of_window(window: ErrorWindow, samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Return a window's samples; those that the provider can look up come first."""
    own = [each for each in samples if each.deployment == window.deployment and window.began <= each.at < window.ended]
    return tuple(sorted(own, key=lambda each: (each.request_id is None, each.at)))


def _chance(errors: int, n: int, rate: float) -> float:
    """Return the binomial probability of at least ``errors`` among ``n``; for many attempts, an upper bound of it."""
    share = errors / n
    if share <= rate:
        return 1.0
    if n <= _EXACT:  # by logarithms: from a thousand attempts on, the number of ways is no float any more
        of_all, good, bad = lgamma(n + 1), log(1 - rate), log(rate)
        return sum(
            exp(of_all - lgamma(k + 1) - lgamma(n - k + 1) + k * bad + (n - k) * good) for k in range(errors, n + 1)
        )
    other = (1 - share) * log((1 - share) / (1 - rate)) if share < 1 else 0.0
    return exp(-n * (share * log(share / rate) + other))  # Chernoff


_ERROR = "outcome in ('failed', 'timeout', 'stalled') and coalesce(error_kind, '') not in ({ours})"
_ATTEMPTS = 'select count(*) as n, min(started_at) as "first", max(started_at) as "last" from attempts where {which}'
_SENT = """\
select model, deployment, count(*) as requests, count(*) filter (where is_error) as errors
from samples where {which} group by model, deployment"""
_REFUSED = """\
select deployment, coalesce(error_kind, outcome) as error, status_code as status, count(*) as n
from attempts
where {which} and outcome in ('failed', 'timeout', 'stalled') and coalesce(error_kind, '') <> 'bad_request'
group by deployment, coalesce(error_kind, outcome), status_code
order by n desc, deployment"""
_STEPS = """\
select deployment, {epoch} / {step_s} * {step_s} as step, count(*) as n,
  count(*) filter (where {error}) as errors
from attempts where {which} and outcome <> 'interrupted'
group by deployment, {epoch} / {step_s} * {step_s}"""
_COLUMNS = """id, started_at, deployment, provider_request_id, status_code, coalesce(error_kind, outcome) as error,
  error_message, ttft_ms"""
_ERRORS = """\
select id, started_at, deployment, provider_request_id, status_code, error, error_message, ttft_ms
from (
  select {columns}, row_number() over (
    partition by deployment, {epoch} / {step_s} order by provider_request_id is null, started_at
  ) as place
  from attempts where {which} and {error}
) as numbered
where place <= {samples} order by started_at limit {most}"""
_SLOWEST = """\
select id, started_at, deployment, provider_request_id, status_code, null as error, null as error_message, ttft_ms
from attempts where {which} and ttft_ms is not null
order by ttft_ms desc limit {slowest}"""
_OUTAGES = """\
select deployment, began_at, ended_at, reason from outages
where began_at < {until} and (began_at >= {since} or ended_at > {since}) and deployment in (
  select deployment from rollup_series where provider = {provider}
)
order by began_at limit {most}"""


class _Statements:
    """The statements of one report."""

    def __init__(self, url: str, provider: str, since: datetime, until: datetime) -> None:
        self._url = url
        words = Words(is_postgres=not is_sqlite(parse_url(url)))
        self._words = {
            "which": f"provider = {words.text(provider)} and started_at >= {words.instant(since)} "
            f"and started_at < {words.instant(until)}",
            "provider": words.text(provider),
            "since": words.instant(since),
            "until": words.instant(until),
            "epoch": words.epoch("started_at"),
            "error": _ERROR.format(ours="'rate_limited', 'bad_request', 'no_such_api'"),
            "columns": _COLUMNS,
            "step_s": STEP_S,
            "samples": SAMPLES_OF_A_STEP,
            "most": MOST_SAMPLES,
            "slowest": SLOWEST,
        }
        self._provider = provider
        self._period = f"{since:%Y-%m-%d} to {until - timedelta(seconds=1):%Y-%m-%d}"

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        result = await queries.run(self._url, sql.format(**self._words), timeout_s=PATIENCE_S)
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows]

    async def why_empty(self) -> str:
        """Return the message for a report without attempts."""
        found = await self.rows("select distinct provider from rollup_series where provider <> '' order by provider")
        known = [str(row["provider"]) for row in found]
        if not known:
            return "the ledger has no attempts yet"
        if self._provider not in known:
            return f"the ledger has no attempts of {self._provider!r}; it has of: {', '.join(known)}"
        return f"the ledger has no attempts of {self._provider!r} from {self._period}"


def _sample(row: Mapping[str, Any]) -> Sample:
    return Sample(
        at=_instant(row["started_at"]),
        deployment=row["deployment"],
        attempt=str(row["id"]),
        request_id=row["provider_request_id"],
        status=row["status_code"],
        error=row["error"],
        message=row["error_message"],
        ttft_ms=row["ttft_ms"],
    )


def _instant(value: datetime | str) -> datetime:
    """Return an instant from either database: SQLite returns text, in UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return datetime.fromisoformat(value).replace(tzinfo=UTC)


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
                *(_sample_cells(sample) if sample is not None else (_NONE,) * 3),
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


def _sample_cells(sample: Sample) -> tuple[str, str, str]:
    answer = " ".join(filter(None, (str(sample.status or ""), sample.error, sample.message)))
    named = sample.request_id or f"none came; ours is {sample.attempt}"
    return named, f"{sample.at:%H:%M:%S}", answer[:200]


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
