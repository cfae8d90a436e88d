"""Slowdowns in the ledger: who may look for them, what has been found, and the sums they are found in.

``Slowdowns`` reads windows with the reader of reports and writes few rows, so that one connection is enough.
"""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import text

from gateway.detecting.slowdowns import Change, Happened, Slowdown
from gateway.detecting.windows import DAY_S, HOUR_S, WINDOW_S, Counts, Histogram, Metric, Tally, Window
from gateway.ledger.database import DATABASE_ERRORS, create_engine, is_sqlite, unreachable
from gateway.ledger.reports import shapes
from gateway.ledger.reports.reader import Reader
from gateway.ledger.reports.words import Words

CUT = "ttft_cut"  # the name of the histogram of the ages at which attempts were cut
_METRICS = (Metric.TTFT, Metric.TPS, Metric.ITL)
_NEARLY_ALL = 0.9  # of the attempts that were cut are in that histogram: otherwise it is from before there was one
_MINUTES = {WINDOW_S: 5, HOUR_S: 60, DAY_S: 1440}
_EVIDENCE_AFTER = timedelta(hours=24)
_EVIDENCE_BEFORE = timedelta(days=8)

Windows = Mapping[int, Mapping[str, Mapping[str, Window]]]  # by begin, model and deployment


class Past(msgspec.Struct, frozen=True):
    """A slowdown of the ledger; ``ended_s`` None: it goes on."""

    slowdown: Slowdown
    ended_s: int | None


class Slowdowns:
    """The detector's part of the ledger. Every method raises ``LedgerError`` or an error of reports if it is away."""

    def __init__(self, url: str, reader: Reader, holder: str) -> None:
        """``holder`` names this process among those that might look.

        Raises:
            DatabaseUrlError: ``url`` is invalid.

        """
        self._reader = reader
        self._engine = create_engine(url, pool_size=1)
        self._holder = holder

    async def elected(self, now: datetime, lasts: timedelta) -> bool:
        """Return whether this process is the one that looks, until ``lasts`` from now unless it says so again."""
        statement = text(
            "update detector set holder = :holder, until_at = :until "
            "where id = 1 and (holder is null or holder = :holder or until_at < :now)"
        )
        values = {"holder": self._holder, "until": self._instant(now + lasts), "now": self._instant(now)}
        return await self._write(statement, values) == 1

    async def resign(self) -> None:
        """Let another process look at once."""
        statement = text("update detector set holder = null where id = 1 and holder = :holder")
        await self._write(statement, {"holder": self._holder})

    async def store(self, change: Change) -> bool:
        """Store a begin or an end; return False if it was there already."""
        slowdown = change.slowdown
        if change.happened is Happened.BEGAN:
            values: dict[str, Any] = {
                "id": str(uuid.uuid4()) if is_sqlite(self._engine.url) else uuid.uuid4(),
                "deployment": slowdown.deployment,
                "model": slowdown.model,
                "metric": str(slowdown.metric),
                "began_at": self._instant(_at(slowdown.began_s)),
                "noticed_at": self._instant(_at(slowdown.noticed_s)),
                "ratio": slowdown.ratio,
                "low": slowdown.low,
                "high": slowdown.high,
                "n": slowdown.n,
                "evidence_sql": evidence_sql(self._reader.words, slowdown),
            }
            names = ", ".join(values)
            places = ", ".join(f":{name}" for name in values)
            statement = text(f"insert into slowdowns ({names}) values ({places}) on conflict do nothing")  # noqa: S608 - our names
        else:
            values = {
                "model": slowdown.model,
                "deployment": slowdown.deployment,
                "metric": str(slowdown.metric),
                "ended_at": self._instant(_at(change.ended_s or slowdown.noticed_s)),
                "ending": None if change.ending is None else str(change.ending),
            }
            statement = text(
                "update slowdowns set ended_at = :ended_at, ending = :ending "
                "where model = :model and deployment = :deployment and metric = :metric and ended_at is null"
            )
        return await self._write(statement, values) == 1

    async def past(self, since: datetime) -> list[Past]:
        """Return slowdowns that went on since then, the oldest first."""
        words = self._reader.words
        at = ", ".join(f"{words.epoch(name)} as {name[:-3]}" for name in ("began_at", "noticed_at", "ended_at"))
        answer = await self._reader.run(
            f"select model, deployment, metric, {at}, ratio, low, high, n from slowdowns "  # noqa: S608 - quoted
            f"where ended_at is null or ended_at >= {words.instant(since)} order by began_at"
        )
        found = []
        for row in shapes.rows(answer):
            known = {name: row[name] for name in ("model", "deployment", "ratio", "low", "high", "n")}
            slowdown = Slowdown(**known, metric=Metric(row["metric"]), began_s=row["began"], noticed_s=row["noticed"])
            found.append(Past(slowdown, row["ended"]))
        return found

    async def windows(self, length_s: int, since_s: int, until_s: int) -> Windows:
        """Return the sums of the windows that began from ``since_s`` to before ``until_s``, of all deployments."""
        sums, histograms = _windows_sql(self._reader.words, length_s, since_s, until_s)
        tallies = await self._reader.run(sums)
        counted: dict[tuple[int, str, str], dict[str, dict[int, float]]] = {}
        for at, model, deployment, metric, bucket, n in (await self._reader.run(histograms)).rows:
            place = counted.setdefault((int(at), model, deployment), {})
            place.setdefault(metric, {})[int(bucket)] = float(n)
        found: dict[int, dict[str, dict[str, Window]]] = {}
        for at, model, deployment, won, first, cut, errors in tallies.rows:
            counts = counted.get((int(at), model, deployment), {})
            tally = Tally(float(first + errors), float(errors))
            window = Window(int(at), _histograms(counts, float(won), float(cut)), tally)
            found.setdefault(int(at), {}).setdefault(model, {})[deployment] = window
        return found

    async def aclose(self) -> None:
        """Close the connections."""
        await self._reader.aclose()
        await self._engine.dispose()

    async def _write(self, statement: Any, values: Mapping[str, Any]) -> int:
        try:
            async with self._engine.begin() as connection:
                return int((await connection.execute(statement, dict(values))).rowcount)
        except DATABASE_ERRORS as error:
            raise unreachable(self._engine.url, error) from error

    def _instant(self, at: datetime) -> datetime | str:
        return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f") if is_sqlite(self._engine.url) else at


def evidence_sql(words: Words, slowdown: Slowdown) -> str:
    """Return a statement that shows by the hour, before and after, the deployment and its peers."""
    began = _at(slowdown.began_s)
    since, until = began - _EVIDENCE_BEFORE, began + _EVIDENCE_AFTER
    span = (
        f"r.minutes = 60 and r.window_start >= {words.window(since)} and r.window_start < {words.window(until)} "
        f"and s.model = {words.text(slowdown.model)} and s.deployment <> ''"
    )
    if slowdown.metric is Metric.ERRORS:
        return (
            "select r.window_start, s.deployment, sum(r.n_errors + r.n_first_token) as n, sum(r.n_errors) as n_errors "  # noqa: S608 - quoted
            f"from rollup_attempts as r join rollup_series as s on s.id = r.series_id where {span} "
            "group by r.window_start, s.deployment order by r.window_start, s.deployment"
        )
    mean = "sum(r.n * (b.from_ms + b.to_ms) / 2) / sum(r.n)"
    named = "mean_tps" if slowdown.metric is Metric.TPS else "mean_ms"
    return (
        f"select r.window_start, s.deployment, sum(r.n) as n, {mean} as {named} "  # noqa: S608 - quoted
        "from rollup_histograms as r join rollup_series as s on s.id = r.series_id "
        f"join buckets as b on b.bucket = r.bucket where {span} and r.metric = {words.text(slowdown.metric)} "
        "group by r.window_start, s.deployment order by r.window_start, s.deployment"
    )


def _windows_sql(words: Words, length_s: int, since_s: int, until_s: int) -> tuple[str, str]:
    at = words.epoch("r.window_start")
    span = (
        f"r.minutes = {_MINUTES[length_s]} and r.window_start >= {words.window(_at(since_s))} "
        f"and r.window_start < {words.window(_at(until_s))}"
    )
    of_deployments = "join rollup_series as s on s.id = r.series_id and s.deployment <> ''"
    sums = ", ".join(f"cast(sum(r.{name}) as bigint)" for name in ("n_won", "n_first_token", "n_censored", "n_errors"))
    metrics = ", ".join(words.text(name) for name in (*_METRICS, CUT))
    tallies = (
        f"select {at}, s.model, s.deployment, {sums} from rollup_attempts as r {of_deployments} where {span} "  # noqa: S608 - quoted
        "group by r.window_start, s.model, s.deployment"
    )
    histograms = (
        f"select {at}, s.model, s.deployment, r.metric, r.bucket, cast(sum(r.n) as bigint) "  # noqa: S608 - likewise
        f"from rollup_histograms as r {of_deployments} where {span} and r.metric in ({metrics}) "
        "group by r.window_start, s.model, s.deployment, r.metric, r.bucket"
    )
    return tallies, histograms


def _histograms(counts: Mapping[str, Counts], won: float, cut: float) -> dict[Metric, Histogram]:
    """Return the histograms of a window; without first tokens if ages of those that were cut are not known."""
    found: dict[Metric, Histogram] = {}
    for metric in _METRICS:
        seen = counts.get(metric, {})
        if metric is Metric.TTFT:
            ages = counts.get(CUT, {})
            if (seen or ages) and sum(ages.values()) >= _NEARLY_ALL * cut:
                found[metric] = Histogram(seen, ages)
        elif seen:
            found[metric] = Histogram(seen, {}, won if metric is Metric.ITL else None)
    return found


def _at(unix_s: int) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)
