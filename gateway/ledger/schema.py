"""What the schema has besides tables: views, and what keeps the sums, made of the texts in ``migrations``.

``migrations/views`` has a text for each view, ``migrations/functions`` those of Postgres's functions. ``{name}`` stands
for what the databases write differently, the windows that are read, or a rule or a text (``{text name}``) that is said
elsewhere; a line that begins with ``{postgresql}`` or ``{sqlite}`` is for that database alone, one that begins with
``--`` for readers of the file. Reports are made from the same texts, as of an instant. A text as it was before a
revision changed it is in ``views/before_REVISION``: a change moves the text that is there to such a folder, so that no
revision ever makes anything else than it did.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache, partial

from sqlalchemy import Connection, text

from gateway.core.rules import STEPS
from gateway.ledger.database import head_revision, migrations_folder
from gateway.ledger.old_names import RENAMED, RENAMED_SINCE, with_old_names
from gateway.ledger.reports.reader import Words, conditions, floor, has_failed, listed, quantile
from gateway.ledger.steps import of_sums
from gateway.ledger.sums import SAME_DAY, TAGS, Summing, all_cost, listing, no_errors
from gateway.ledger.turns import FOLD

SPANS = {"1h": "1 hour", "24h": "24 hours", "30d": "30 days"}  # that there are views of
LENGTHS = {**SPANS, "7d": "7 days"}  # that a report may have
# Minutes of the windows at the edge of a span, and of those within; and its seconds.
WINDOWS = {"1h": (5, 5, 3600), "24h": (5, 60, 86_400), "7d": (60, 1440, 7 * 86_400), "30d": (1440, 1440, 30 * 86_400)}

_PART = re.compile(r"\{([a-z]\w*(?: [\w.]+)*)\}")
_ONLY = {"postgresql": "{postgresql}", "sqlite": "{sqlite}"}


def _each(name: str, lately: Iterable[str] = ()) -> dict[str, tuple[str, str]]:
    """Return a view of all time and of each span; those of ``lately`` have a text of their own."""
    return {name: (name, "")} | {
        f"{name}_{span}": (f"{name}_lately" if span in lately else name, span) for span in SPANS
    }


def _spans(name: str) -> dict[str, tuple[str, str]]:
    return {f"{name}_{span}": (name, span) for span in SPANS}


# By view the name of its text and its span, each after those that it reads.
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
# The revision that a view came with, if not the first, and the one that it went with.
SINCE: dict[str, str] = {
    "would_win_24h": "0052",
    "client_usage_by_month": "0053",
    "team_usage_by_month": "0053",
    "end_user_usage_by_month": "0065",
}
UNTIL: Mapping[str, str] = dict.fromkeys(  # nobody read these, and another view or its rows answer the same
    (
        *("slo_1h", "slo_24h", "provider_errors_1h", "client_usage_1h", "tag_values_1h", "tag_values_24h"),
        *("cache_value_1h", "cache_value_24h", "answer_quality", "answer_quality_1h", "waste", "waste_1h"),
        *("gaps_1h", "gaps_30d", "speed_hours", "refusals_1h", "refusals_30d", "wrong_keys_1h", "wrong_keys_30d"),
    ),
    "0049",
)


def renamed(name: str, revision: str = "") -> Mapping[str, str]:
    """Return a view's columns under the names that they had before, each with its name, as a revision has them."""
    return {} if revision and revision < RENAMED_SINCE else RENAMED.get(VIEWS[name][0], {})


def views_of(revision: str) -> tuple[str, ...]:
    """Return the views that a revision has."""
    return tuple(
        name for name in VIEWS if SINCE.get(name, "") <= revision and (name not in UNTIL or revision < UNTIL[name])
    )


@cache
def text_of(name: str, revision: str = "") -> str:
    """Return a view's text at a revision; today's without one."""
    folder = migrations_folder() / "views"
    later = sorted(each for each in folder.glob("before_*") if each.name.removeprefix("before_") > (revision or "9"))
    found = next(path for each in (*later, folder) if (path := each / f"{name}.sql").exists())
    return found.read_text(encoding="utf-8")


def rendered(written: str, parts: Mapping[str, str | Callable[..., str]], *, is_postgres: bool) -> str:
    """Return a text with its parts filled in, for one of the two databases.

    Raises:
        KeyError: the text names a part that is not there.

    """
    mine, other = (_ONLY[name] for name in (("postgresql", "sqlite") if is_postgres else ("sqlite", "postgresql")))

    def part(found: re.Match[str]) -> str:
        whole = parts.get(found[1])
        if isinstance(whole, str):
            return whole
        name, *values = found[1].split()
        made = parts[name]
        return made(*values) if callable(made) else made

    lines = (line.removeprefix(mine) for line in written.splitlines() if not line.startswith((other, "--")))
    return _PART.sub(part, "\n".join(lines))


def view_sql(name: str, words: Words, revision: str = "", **parts: str) -> str:
    """Return the SELECT of a view; ``parts`` are taken instead of its own."""
    file, span = VIEWS[name]
    known = _parts(name, span, words, revision=revision)
    made = rendered(text_of(file, revision), known | parts, is_postgres=words.is_postgres)
    return with_old_names(made, renamed(name, revision))


def report_sql(text: str, words: Words, span: str, now: datetime, **parts: str) -> str:
    """Return the SELECT of a view's text as of an instant, of any span in ``WINDOWS``; ``parts`` as in ``view_sql``."""
    made = rendered(text_of(text), _parts(text, span, words, now) | parts, is_postgres=words.is_postgres)
    return with_old_names(made, RENAMED.get(text, {}))


def _parts(
    name: str, span: str, words: Words, now: datetime | None = None, revision: str = ""
) -> dict[str, str | Callable[..., str]]:
    """Return what stands for the names in a view's text. Without ``now`` it is the database's clock that says it."""
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


# Of speeds p95 is what 95 % reach.
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
    found = of_sums(
        words,
        minutes=minutes,
        within=f"window_start >= {since}",
        slot=slot("window_start"),
        which="deployment <> ''",
        key="model, deployment",
        quantiles=_OF_SPEED,
    )
    before = {"minutes": str(minutes), "slot": slot("r.window_start"), "since": since}  # schema 0048
    return {"named": named, "steps": found.tables, "of steps": found.joined, **before}


def _variance(figure: str, number: str) -> str:
    """Return the sample variance out of sums; what is no more than their rounding is 0."""
    squares = f"({figure}_squared - {figure} * {figure} / nullif({number}, 0))"
    return (
        f"case when {number} > 1 then case when {squares} > 1e-12 * {figure}_squared "
        f"then {squares} / ({number} - 1) else 0.0 end end"
    )


# On SQLite. Rounding alone may make a sum of squares less than zero; a variance is not.
_SAMPLE_VARIANCE = "max(0.0, sum({0} * {0}) - sum({0}) * sum({0}) / nullif(count({0}), 0)) / nullif(count({0}) - 1, 0)"


def _moment(words: Words, epoch: str) -> str:
    """Return the instant of so many seconds since 1970; ``{now}`` are those of now."""
    return words.moment(epoch.format(now=words.now_s))


def _before(words: Words, length: str, now: datetime | None) -> str:
    """Return the instant so long (``10 minutes``) before now."""
    if now is not None:
        number, unit = length.split()
        return words.instant(now - timedelta(**{f"{unit.removesuffix('s')}s": int(number)}))
    return f"now() - interval '{length}'" if words.is_postgres else f"datetime('now', '-{length}')"


def first_of(words: Words, span: str, now: datetime | None = None) -> str:
    """Return when the first window of a span begins."""
    small, _, seconds = WINDOWS[span]
    return _start(words, small, seconds, now)


def windows_of(words: Words, span: str, now: datetime | None = None) -> str:
    """Return what is true of the windows (r) of a span: small ones until the first large one begins."""
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
    """Return when the window began in which ``now`` was so many seconds ago, or the one that follows it."""
    length_s = minutes * 60
    if now is None:
        since = f"({{now}} - {ago_s})"
        return _moment(words, f"{since} - {since} % {length_s}" + (f" + {length_s}" if following else ""))
    return words.window(floor(now - timedelta(seconds=ago_s), minutes) + timedelta(seconds=length_s * following))


def function_sql(name: str, words: Words, path: str, revision: str = "") -> str:
    """Return the statement that makes a function of Postgres, or makes it again; ``path``: the schema that it is in."""
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
    """Return the statement that makes SQLite's trigger: to delete from ``rollup_pending`` adds up what is noted."""
    summing = Summing(words, revision or head_revision())
    new = "(select {0}.* from {0} join rollup_fresh_{0} as new_ones on new_ones.id = {0}.id) as f"
    adding = [*summing.of_calls(new.format("calls")), *summing.of_attempts(new.format("attempts"))]
    adding += [f"delete from rollup_fresh_{table}" for table in ("calls", "attempts")]
    return f"create trigger roll_up instead of delete on rollup_pending begin {'; '.join(adding)}; end"


class Changes:
    """Makes on a connection what a revision has: for migrations."""

    def __init__(self, connection: Connection, revision: str) -> None:
        self.words = Words(is_postgres=connection.dialect.name == "postgresql")
        self._connection = connection
        self._revision = revision

    def make_views(self, *names: str) -> None:
        """Make views, or make them again; on Postgres who may read one stays as it was."""
        for name in names:
            select = view_sql(name, self.words, self._revision)
            if self.words.is_postgres:
                self.run(f"create or replace view {name} as\n{select}")
            else:
                self.run(f"drop view if exists {name}")
                self.run(f"create view {name} as\n{select}")

    def rename_columns(self, *names: str) -> None:
        """Give columns of views that are there the names that they have: Postgres renames none as it replaces a view.

        So views that operators have made of these stay, and say what they said.
        """
        for name in names if self.words.is_postgres else ():
            there = {new: old for old, new in renamed(name, self._revision).items()}  # the last of two
            for new, old in there.items():
                self.run(f"alter table {name} rename column {old} to {new}")

    def drop_views(self, *names: str) -> None:
        """Drop views: Postgres takes no column away from one."""
        for name in names:
            self.run(f"drop view {name}")

    def make_views_again(self, *names: str) -> None:
        """Make views with fewer columns than they have, which Postgres takes from none; who may read one may still.

        They are given as ``VIEWS`` has them: each after those that it reads.
        """
        grants = [grant for name in names for grant in self._grants(name)]
        self.drop_views(*reversed(names))
        self.make_views(*names)
        for grant in grants:
            self.run(grant)

    def _grants(self, name: str) -> list[str]:
        """Return the statements that grant again what others than its owner may do with a view."""
        if not self.words.is_postgres:
            return []
        return list(self._connection.scalars(text(_GRANTS), {"name": name}))

    def make_sums(self) -> None:
        """Make what adds up rows, or make it again."""
        if self.words.is_postgres:
            path = str(self._connection.scalar(text("select current_schema()")))
            self.run(function_sql("roll_up_fresh", self.words, path, self._revision))
        else:
            self.run("drop trigger if exists roll_up")
            self.run(trigger_sql(self.words, self._revision))

    def add_up_what_is_new(self) -> None:
        """Add up the rows that are not yet in the sums, with what the revision before has."""
        self.run(_FOLD if self.words.is_postgres else "delete from rollup_pending")

    def add_sums_of_rows(self, *names: str) -> None:
        """Add sums that are new, of the rows that are there; what is new itself is added up before, or counts twice."""
        for statement in Summing(self.words, self._revision).added_later(names):
            self.run(statement)

    def identify_rows(self) -> None:
        """Have Postgres log whole rows that are changed in tables without a key: a publication refuses others."""
        if self.words.is_postgres:
            for table in list(self._connection.scalars(text(_WITHOUT_KEY))):
                self.run(f"alter table {table} replica identity full")

    def run(self, statement: str) -> None:
        """Run a statement as it is, without parameters."""
        self._connection.exec_driver_sql(statement)


_GRANTS = """
select format('grant %s on %I to %s%s', acl.privilege_type, view.relname,
  case when acl.grantee = 0 then 'public' else acl.grantee::regrole::text end,
  case when acl.is_grantable then ' with grant option' else '' end)
from pg_class as view cross join lateral aclexplode(view.relacl) as acl
where view.oid = to_regclass(:name) and acl.grantee <> view.relowner
"""
_FOLD = f"do $fold$ begin perform ({FOLD.sql}); while (select taken from roll_up_fresh()) > 0 loop end loop; end $fold$"
# Temporary and unlogged tables are in no publication. An index that the operator chose as identity stays.
_WITHOUT_KEY = """
select quote_ident(relname) from pg_class
where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p') and relpersistence = 'p'
and relname = any(array['ledger_readers', 'rollup_fresh', 'rollup_waiting'])
and (relreplident = 'n' or relreplident = 'd' and not exists (
  select from pg_index where indrelid = pg_class.oid and indisprimary
))
"""
