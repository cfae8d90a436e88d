"""The views of the schema, and what keeps the sums up to date, made from texts in ``migrations``.

``migrations/views`` has a text for each view, ``migrations/functions`` one for each function of Postgres. ``{name}``
stands for words in which the databases differ, for the windows to read, for a rule, or for another text (``{text
name}``). A line that begins with ``{postgresql}`` or ``{sqlite}`` is for that database only; a line that begins with
``--`` is for readers of the file. Reports are made from the same texts, as of an instant.

When a revision changes a text, the former text moves to ``views/before_REVISION``, so that each revision always makes
the same view.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache, partial

from sqlalchemy import Connection, text

from gateway.core.rules import STEPS
from gateway.ledger.migration_files import head_revision, migrations_folder
from gateway.ledger.old_names import RENAMED, RENAMED_SINCE, with_old_names
from gateway.ledger.reports.reader import Words, conditions, floor, has_failed, listed, quantile
from gateway.ledger.steps import of_sums
from gateway.ledger.sums import SAME_DAY, TAGS, Summing, all_cost, listing, no_errors
from gateway.ledger.turns import FOLD

SPANS = {"1h": "1 hour", "24h": "24 hours", "30d": "30 days"}  # for which there are views
LENGTHS = {**SPANS, "7d": "7 days"}  # which a report may have
# The length of a span's windows in minutes, at the edges and within; and the length of the span in seconds.
WINDOWS = {"1h": (5, 5, 3600), "24h": (5, 60, 86_400), "7d": (60, 1440, 7 * 86_400), "30d": (1440, 1440, 30 * 86_400)}

_PART = re.compile(r"\{([a-z]\w*(?: [\w.]+)*)\}")
_ONLY = {"postgresql": "{postgresql}", "sqlite": "{sqlite}"}


def _each(name: str, lately: Iterable[str] = ()) -> dict[str, tuple[str, str]]:
    """Return a view of all time and a view of each span; spans in ``lately`` have the text ``NAME_lately``."""
    return {name: (name, "")} | {
        f"{name}_{span}": (f"{name}_lately" if span in lately else name, span) for span in SPANS
    }


def _spans(name: str) -> dict[str, tuple[str, str]]:
    return {f"{name}_{span}": (name, span) for span in SPANS}


# The text and the span of each view; a view comes after the views that it reads.
VIEWS: Mapping[str, tuple[str, str]] = {
    "samples": ("samples", ""),
    "outages_30d": ("outages_30d", "30d"),
    "leaderboard": ("leaderboard", ""),
    "would_win_24h": ("would_win", "24h"),
    **_each("race_value"),
    **_each("slo"),
    **_each("throughput", ("1h", "24h")),
    "throughput_5m": ("throughput_5m", ""),
    **_each("provider_errors", ("1h", "24h")),
    **_each("client_usage"),
    "client_usage_by_month": ("client_usage_by_month", ""),
    "team_usage_by_month": ("team_usage_by_month", ""),
    "end_user_usage_by_month": ("end_user_usage_by_month", ""),
    **_each("tag_values", ("1h", "24h")),
    "tag_differences": ("tag_differences", ""),
    **_each("cache_value", SPANS),
    "cache_latency_24h": ("cache_latency", ""),
    **_each("answer_quality"),
    **_each("waste"),
    **_spans("gaps"),
    "speed_by_hour": ("speed", ""),
    "speed_hours": ("speed", ""),
    "speed_days": ("speed", ""),
    "load_5m": ("load_5m", ""),
    "load_peaks": ("load_peaks", ""),
    **_spans("refusals"),
    **_spans("wrong_keys"),
    "regions_1h": ("regions", "1h"),
    "regions_24h": ("regions", "24h"),
    "rollup_pending": ("rollup_pending", ""),
}
# The revision that made a view, if not the first, and the revision that dropped it.
SINCE: dict[str, str] = {
    "would_win_24h": "0052",
    "client_usage_by_month": "0053",
    "team_usage_by_month": "0053",
    "end_user_usage_by_month": "0065",
}
UNTIL: Mapping[str, str] = dict.fromkeys(  # nobody read these; another view, or a query on rows, has the same figures
    (
        *("slo_1h", "slo_24h", "provider_errors_1h", "client_usage_1h", "tag_values_1h", "tag_values_24h"),
        *("cache_value_1h", "cache_value_24h", "answer_quality", "answer_quality_1h", "waste", "waste_1h"),
        *("gaps_1h", "gaps_30d", "speed_hours", "refusals_1h", "refusals_30d", "wrong_keys_1h", "wrong_keys_30d"),
    ),
    "0049",
)


def renamed(name: str, revision: str = "") -> Mapping[str, str]:
    """Return the former names of a view's columns at a revision, each with the name of today."""
    return {} if revision and revision < RENAMED_SINCE else RENAMED.get(VIEWS[name][0], {})


def views_of(revision: str) -> tuple[str, ...]:
    """Return the views at a revision."""
    return tuple(
        name for name in VIEWS if SINCE.get(name, "") <= revision and (name not in UNTIL or revision < UNTIL[name])
    )


@cache
def text_of(name: str, revision: str = "") -> str:
    """Return a view's text at a revision; without a revision, today's."""
    folder = migrations_folder() / "views"
    later = sorted(each for each in folder.glob("before_*") if each.name.removeprefix("before_") > (revision or "9"))
    file = next(path for each in (*later, folder) if (path := each / f"{name}.sql").exists())
    return file.read_text(encoding="utf-8")


def rendered(written: str, parts: Mapping[str, str | Callable[..., str]], *, is_postgres: bool) -> str:
    """Return a text for one of the two databases, with parts in place of ``{name}``.

    Raises:
        KeyError: the text names an unknown part.

    """
    mark, other_mark = (_ONLY[name] for name in (("postgresql", "sqlite") if is_postgres else ("sqlite", "postgresql")))

    def part(found: re.Match[str]) -> str:
        whole = parts.get(found[1])
        if isinstance(whole, str):
            return whole
        name, *values = found[1].split()
        value = parts[name]
        return value(*values) if callable(value) else value

    lines = (line.removeprefix(mark) for line in written.splitlines() if not line.startswith((other_mark, "--")))
    return _PART.sub(part, "\n".join(lines))


def view_sql(name: str, words: Words, revision: str = "", **parts: str) -> str:
    """Return the SELECT of a view at a revision; ``parts`` replace the view's own."""
    file, span = VIEWS[name]
    own_parts = _parts(name, span, words, revision=revision)
    sql = rendered(text_of(file, revision), own_parts | parts, is_postgres=words.is_postgres)
    return with_old_names(sql, renamed(name, revision))


def report_sql(text: str, words: Words, span: str, now: datetime, **parts: str) -> str:
    """Return the SELECT of a view's text as of ``now``, over a span in ``WINDOWS``; ``parts``: as for ``view_sql``."""
    sql = rendered(text_of(text), _parts(text, span, words, now) | parts, is_postgres=words.is_postgres)
    return with_old_names(sql, RENAMED.get(text, {}))


def _parts(
    name: str, span: str, words: Words, now: datetime | None = None, revision: str = ""
) -> dict[str, str | Callable[..., str]]:
    """Return the parts of a view's text by name; without ``now``, the database's clock is asked."""
    is_postgres = words.is_postgres
    moment = partial(_moment, words)
    windows, first = (
        (windows_of(words, span, now), first_of(words, span, now)) if span else ("r.minutes = 1440", moment("0"))
    )
    since = _before(words, LENGTHS[span], now) if span else ""
    by_window = name == "throughput_5m"
    if by_window:
        windows = f"r.minutes = 5 and r.window_start >= {moment('{now} / 300 * 300 - 172800')}"
    parts: dict[str, str | Callable[..., str]] = {
        "windows": windows,
        "window": lambda of="": f"{of}window_start, " if by_window else "",
        "windows 24h": windows_of(words, "24h", now),
        "windows 7d": windows_of(words, "7d", now),
        "first": first,
        "since": since,
        "before": lambda number, unit: _before(words, f"{number} {unit}", now),
        "and": lambda _since, column: f"and {column} >= {since}" if since else "",
        "ago 24 hours": moment("{now} / 300 * 300 - 86400"),
        "wide tags": f"select r.tag from rollup_wide_tags as r where {windows}",
        "tag sums": listing(TAGS),
        "tag cost": TAGS["cost_usd"],
        "tag": words.tag,
        "all cost of c": all_cost(words),
        "month": words.month("r.window_start"),
        "tags": lambda _of, table: words.entries_of(f"{table}.tags", "jsonb"),
        "day": "cast(r.window_start at time zone 'UTC' as date)" if is_postgres else "date(r.window_start)",
        "hour of window_start": (
            "date_trunc('hour', window_start, 'UTC')" if is_postgres else "strftime('%Y-%m-%d %H:00:00', window_start)"
        ),
        "text": lambda name: rendered(text_of(name, revision), parts, is_postgres=is_postgres),
        "failed": lambda of="": has_failed(of),
        "broken": lambda of="": conditions(of)["broken"],
        "own": lambda of="": conditions(of)["own"],
        "no errors": listed(no_errors(revision)),
        "steps": listed(STEPS),
        "paid": partial(words.paid, of="r."),
        "bucket": words.bucket,
        "greatest": "greatest" if is_postgres else "max",
        "decimal": "numeric" if is_postgres else "real",  # schema 0048
        "hundredths": ("round(cast({} as numeric), 2)" if is_postgres else "printf('%.2f', {})").format,
        "quantile": lambda metric, q: quantile(q, metric),
        "variance": _variance,
        "var_samp": "var_samp({})".format if is_postgres else _SAMPLE_VARIANCE.format,
        "key": "model",
        "named key": "model",
    }
    if VIEWS.get(name, ("", ""))[0] == "speed":
        parts |= _parts_of_speed(name, words)
    return parts


# By figure the metric and the quantile. The 95th percentile of a speed is the speed that 95 % of answers reach.
_OF_SPEED = {
    "ttft_p50_ms": ("ttft", "0.50"),
    "ttft_p95_ms": ("ttft", "0.95"),
    "decode_tps_p50": ("tps", "0.50"),
    "decode_tps_p95": ("tps", "0.05"),
}


def _parts_of_speed(name: str, words: Words) -> dict[str, str]:
    minutes, named = (1440 if name == "speed_days" else 60), ("hour" if name == "speed_by_hour" else "window_start")
    length_s, days = minutes * 60, 30 if name == "speed_days" else 7
    since = _moment(words, f"{{now}} / {length_s} * {length_s} - {days * 86_400}")
    slot = words.hour if name == "speed_by_hour" else str
    source = of_sums(
        words,
        minutes=minutes,
        within=f"window_start >= {since}",
        slot=slot("window_start"),
        which="deployment <> ''",
        key="model, deployment",
        quantiles=_OF_SPEED,
    )
    before = {"minutes": str(minutes), "slot": slot("r.window_start"), "since": since}  # schema 0048
    return {"named": named, "steps": source.tables, "of steps": source.joined, **before}


def _variance(figure: str, number: str) -> str:
    """Return the sample variance from sums; a variance as small as the sums' rounding errors is 0."""
    squares = f"({figure}_squared - {figure} * {figure} / nullif({number}, 0))"
    return (
        f"case when {number} > 1 then case when {squares} > 1e-12 * {figure}_squared "
        f"then {squares} / ({number} - 1) else 0.0 end end"
    )


# For SQLite. Rounding errors can make the sum of squares negative, but a variance is not.
_SAMPLE_VARIANCE = "max(0.0, sum({0} * {0}) - sum({0}) * sum({0}) / nullif(count({0}), 0)) / nullif(count({0}) - 1, 0)"


def _moment(words: Words, epoch: str) -> str:
    """Return the instant of Unix seconds, an expression in SQL with ``{now}`` for the seconds of now."""
    return words.moment(epoch.format(now=words.now_s))


def _before(words: Words, length: str, now: datetime | None) -> str:
    """Return the instant ``length`` (e.g. ``10 minutes``) before now."""
    if now is not None:
        number, unit = length.split()
        return words.instant(now - timedelta(**{f"{unit.removesuffix('s')}s": int(number)}))
    return f"now() - interval '{length}'" if words.is_postgres else f"datetime('now', '-{length}')"


def first_of(words: Words, span: str, now: datetime | None = None) -> str:
    """Return the beginning of a span's first window."""
    small, _, seconds = WINDOWS[span]
    return _start(words, small, seconds, now)


def windows_of(words: Words, span: str, now: datetime | None = None) -> str:
    """Return the condition for the windows (r) of a span: small windows until the first large window begins."""
    small, large, seconds = WINDOWS[span]
    first = first_of(words, span, now)
    if small == large:
        return f"r.minutes = {small} and r.window_start >= {first}"
    turn = _start(words, large, seconds, now, following=True)
    return (
        f"((r.minutes = {large} and r.window_start >= {turn}) "
        f"or (r.minutes = {small} and r.window_start >= {first} and r.window_start < {turn}))"
    )


def _start(words: Words, minutes: int, ago_s: int, now: datetime | None, *, following: bool = False) -> str:
    """Return the beginning of the window ``ago_s`` before ``now``, or of the window after it."""
    length_s = minutes * 60
    if now is None:
        since = f"({{now}} - {ago_s})"
        return _moment(words, f"{since} - {since} % {length_s}" + (f" + {length_s}" if following else ""))
    return words.window(floor(now - timedelta(seconds=ago_s), minutes) + timedelta(seconds=length_s * following))


def function_sql(name: str, words: Words, path: str, revision: str = "") -> str:
    """Return the statement that makes or replaces a function of Postgres; ``path``: the schema of the function."""
    summing = Summing(words, revision or head_revision())
    called = summing.called("unnest(of_calls) as f")
    of_attempts = [summing.of_races(called), *summing.of_attempts("unnest(the_attempts) as f", called)]
    parts: dict[str, str | Callable[..., str]] = {
        "path": path,
        "lock": FOLD.key,
        "same day": SAME_DAY,
        "tag sums": listing(TAGS),
        "tags of f": words.entries_of("f.tags", "jsonb"),
        "sums of calls": ";\n    ".join(summing.of_calls("unnest(the_calls) as f")),
        "sums of attempts": ";\n    ".join(of_attempts),
    }
    written = (migrations_folder() / "functions" / f"{name}.sql").read_text(encoding="utf-8")
    return rendered(written, parts, is_postgres=True).rstrip()


def trigger_sql(words: Words, revision: str = "") -> str:
    """Return the statement that makes SQLite's trigger: DELETE on ``rollup_pending`` adds up the noted rows."""
    summing = Summing(words, revision or head_revision())
    new = "(select {0}.* from {0} join rollup_fresh_{0} as new_ones on new_ones.id = {0}.id) as f"
    adding = [*summing.of_calls(new.format("calls")), *summing.of_attempts(new.format("attempts"))]
    adding += [f"delete from rollup_fresh_{table}" for table in ("calls", "attempts")]
    return f"create trigger roll_up instead of delete on rollup_pending begin {'; '.join(adding)}; end"


class Changes:
    """Makes the views and sums of a revision on a connection, for migrations."""

    def __init__(self, connection: Connection, revision: str) -> None:
        self.words = Words(is_postgres=connection.dialect.name == "postgresql")
        self._connection = connection
        self._revision = revision

    def make_views(self, *names: str) -> None:
        """Make or replace views; on Postgres a view's grants stay."""
        for name in names:
            select = view_sql(name, self.words, self._revision)
            if self.words.is_postgres:
                self.run(f"create or replace view {name} as\n{select}")
            else:
                self.run(f"drop view if exists {name}")
                self.run(f"create view {name} as\n{select}")

    def rename_columns(self, *names: str) -> None:
        """Rename columns of existing views to today's names: Postgres renames no column when it replaces a view.

        So the operator's own views of these views stay, with the same columns.
        """
        for name in names if self.words.is_postgres else ():
            there = {new: old for old, new in renamed(name, self._revision).items()}  # of two former names, the last
            for new, old in there.items():
                self.run(f"alter table {name} rename column {old} to {new}")

    def drop_views(self, *names: str) -> None:
        """Drop views, as Postgres cannot take a column away from a view."""
        for name in names:
            self.run(f"drop view {name}")

    def make_views_again(self, *names: str) -> None:
        """Make views again that have fewer columns than before; the grants are restored.

        ``names``: in the order of ``VIEWS``, each view after the views that it reads.
        """
        grants = [grant for name in names for grant in self._grants(name)]
        self.drop_views(*reversed(names))
        self.make_views(*names)
        for grant in grants:
            self.run(grant)

    def _grants(self, name: str) -> list[str]:
        """Return the statements that grant the rights on a view again, but for the owner's."""
        if not self.words.is_postgres:
            return []
        return list(self._connection.scalars(text(_GRANTS), {"name": name}))

    def make_sums(self) -> None:
        """Make or replace the function (Postgres) or trigger (SQLite) that adds up rows."""
        if self.words.is_postgres:
            path = str(self._connection.scalar(text("select current_schema()")))
            self.run(function_sql("roll_up_fresh", self.words, path, self._revision))
        else:
            self.run("drop trigger if exists roll_up")
            self.run(trigger_sql(self.words, self._revision))

    def add_up_what_is_new(self) -> None:
        """Add up the rows that are not yet in the sums, by the function or trigger of the former revision."""
        self.run(_FOLD if self.words.is_postgres else "delete from rollup_pending")

    def add_sums_of_rows(self, *names: str) -> None:
        """Add new kinds of sums over the stored rows; before this, ``add_up_what_is_new``, or new rows count twice."""
        for statement in Summing(self.words, self._revision).added_later(names):
            self.run(statement)

    def identify_rows(self) -> None:
        """Have Postgres log whole changed rows of tables without a key; otherwise a publication refuses them."""
        if self.words.is_postgres:
            for table in list(self._connection.scalars(text(_WITHOUT_KEY))):
                self.run(f"alter table {table} replica identity full")

    def run(self, statement: str) -> None:
        """Run a statement as written, without parameters."""
        self._connection.exec_driver_sql(statement)


_GRANTS = """
select format('grant %s on %I to %s%s', acl.privilege_type, view.relname,
  case when acl.grantee = 0 then 'public' else acl.grantee::regrole::text end,
  case when acl.is_grantable then ' with grant option' else '' end)
from pg_class as view cross join lateral aclexplode(view.relacl) as acl
where view.oid = to_regclass(:name) and acl.grantee <> view.relowner
"""
_FOLD = f"do $fold$ begin perform ({FOLD.sql}); while (select taken from roll_up_fresh()) > 0 loop end loop; end $fold$"
# Temporary and unlogged tables are in no publication. If the operator chose an index as the identity, it stays.
_WITHOUT_KEY = """
select quote_ident(relname) from pg_class
where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p') and relpersistence = 'p'
and relname = any(array['ledger_readers', 'rollup_fresh', 'rollup_waiting'])
and (relreplident = 'n' or relreplident = 'd' and not exists (
  select from pg_index where indrelid = pg_class.oid and indisprimary
))
"""
