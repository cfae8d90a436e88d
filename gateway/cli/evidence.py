"""What a month of one provider's attempts shows: figures to send to it, with its own request ids."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import comb, exp, log
from typing import Any

import msgspec

from gateway.ledger import queries
from gateway.ledger.board import counts_since
from gateway.ledger.database import is_sqlite, parse_url
from gateway.ledger.reports.words import Words
from gateway.steering.leaderboard import Row, of_counts

PATIENCE_S = 600.0  # a month may have millions of rows
STEP_S = 300
FEWEST = 3  # errors of a window that is shown
CHANCE = 1e-4  # that so many errors come in five minutes by chance, at the month's own rate
LEAST_RATE = 0.002  # below it a few errors would always be a surprise
APART = timedelta(minutes=10)  # windows that are closer are one
SAMPLES_OF_A_STEP, SAMPLES_OF_A_WINDOW, MOST_SAMPLES = 3, 5, 5_000
SLOWEST = 10
_EXACT = 2_000  # attempts in five minutes, beyond which the chance is bounded instead of summed up


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
    """A time in which more attempts failed than the month's own rate explains."""

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

    ``requests`` are all that were sent, ``errors`` those that failed: whole numbers, where the row has a rounded share.
    """

    model: str
    row: Row
    requests: int
    errors: int


class Outage(msgspec.Struct, frozen=True):
    """A time in which we asked a deployment no more, but for a try now and then. ``ended`` None: unknown."""

    deployment: str
    began: datetime
    ended: datetime | None
    reason: str


class Evidence(msgspec.Struct, frozen=True):
    """All of it, of attempts launched from ``since`` until before ``until``."""

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
    """The ledger has no attempts of this provider; the message says of whom it has."""


async def evidence(url: str, provider: str, since: datetime, until: datetime) -> Evidence:
    """Read a provider's attempts of some time.

    Raises:
        UnknownProviderError: there are none of it, or none at that time.
        QueryError: it takes longer than ten minutes.
        DatabaseUnreachableError: the database cannot be reached.

    """
    asking = _Asking(url, provider, since, until)
    found = (await asking.rows(_ATTEMPTS))[0]
    if not found["n"]:
        raise UnknownProviderError(await asking.nothing())
    boards = await counts_since(url, since, until=until, provider=provider, timeout_s=PATIENCE_S)
    seconds = (until - since).total_seconds()
    sent = {(row["model"], row["deployment"]): row for row in await asking.rows(_SENT)}
    figures = tuple(
        Figures(model, row, sent[model, row.deployment]["requests"], sent[model, row.deployment]["errors"])
        for model, slots in sorted(boards.items())
        for row in sorted(of_counts(model, slots, seconds).deployments, key=lambda row: row.deployment)
    )
    samples = [_sample(row) for row in await asking.rows(_ERRORS)]
    return Evidence(
        provider=provider,
        since=since,
        until=until,
        first=_instant(found["first"]),
        last=_instant(found["last"]),
        attempts=found["n"],
        figures=figures,
        refused=tuple(Refused(**row) for row in await asking.rows(_REFUSED)),
        windows=error_windows(await asking.rows(_STEPS), samples),
        outages=tuple(
            Outage(
                deployment=row["deployment"],
                began=_instant(row["began_at"]),
                ended=None if row["ended_at"] is None else _instant(row["ended_at"]),
                reason=row["reason"],
            )
            for row in await asking.rows(_OUTAGES)
        ),
        slowest=tuple(_sample(row) for row in await asking.rows(_SLOWEST)),
    )


def error_windows(steps: Sequence[Mapping[str, Any]], samples: Sequence[Sample]) -> tuple[ErrorWindow, ...]:
    """Return the times with more errors than chance explains, those with the most errors first.

    ``steps``: of each deployment and five minutes ``deployment``, ``step`` (seconds since 1970), ``n`` and ``errors``.
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
    """Return a window's samples, those first that the provider can look up."""
    own = [each for each in samples if each.deployment == window.deployment and window.began <= each.at < window.ended]
    return tuple(sorted(own, key=lambda each: (each.request_id is None, each.at)))


def _chance(errors: int, n: int, rate: float) -> float:
    """Return the chance of so many errors or more among ``n``: binomial, for many attempts an upper bound of it."""
    share = errors / n
    if share <= rate:
        return 1.0
    if n <= _EXACT:
        return sum(comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(errors, n + 1)) if rate < 1 else 1.0
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


class _Asking:
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

    async def nothing(self) -> str:
        """Say why there is nothing to report."""
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
    """Return an instant of either database: SQLite has text, in UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return datetime.fromisoformat(value).replace(tzinfo=UTC)
