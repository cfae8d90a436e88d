"""The statements about targets: what was counted, from sums where they are still true and from rows elsewhere.

A window's counts are stored with the number of its calls at that time (``seen``), and of its known speeds. The database
keeps both numbers up to date as rows arrive, whoever stores them. Counts whose numbers are no longer the same are not
used, and the rows are read instead: so late rows are never missing, and it is no matter who counts, or how often.
"""

from datetime import datetime, timedelta

from gateway.ledger.reports.words import Words
from gateway.ledger.targets.cover import ROWS_UP_TO, begin, cover
from gateway.ledger.targets.judging import COUNTED, Judging
from gateway.targets.target import Definition

MOST_MISSES = 100
TABLE = "target_counts"


def counts(words: Words, definition: Definition, length: timedelta, now: datetime) -> str:
    """Return the statement that gives the counts (``COUNTED``) of the last ``length``."""
    since = begin(length, now)
    if length <= ROWS_UP_TO:
        return of_rows(words, definition, since)
    judging = Judging(words, definition)
    pieces = "\n    or ".join(piece.condition(words) for piece in cover(since, now))
    same = "t.minutes = s.minutes and t.window_start = s.window_start"
    sums = ", ".join(f"cast(coalesce(sum({name}), 0) as bigint) as {name}" for name in COUNTED)
    return f"""\
with seen as (
  select r.minutes, r.window_start, cast(sum(r.n) as bigint) as seen, cast(sum(r.slo_tps) as bigint) as seen_speeds
  from rollup_calls as r
  where ({pieces}){judging.scope("r")}
  group by r.minutes, r.window_start
),
known as (
  select s.minutes, s.window_start, {", ".join(f"t.{name}" for name in COUNTED)}
  from seen as s
  left join {TABLE} as t on t.definition = '{definition.key}' and {same}
    and t.seen = s.seen and t.seen_speeds = s.seen_speeds
)
select {sums}
from (
  select {", ".join(COUNTED)} from known where calls is not null
  union all
  {_of_other_windows(words, judging, since)}
) as every"""  # noqa: S608 - values are quoted by ``Words``


def of_rows(words: Words, definition: Definition, since: datetime, until: datetime | None = None) -> str:
    """Return the statement that gives the same counts from rows alone."""
    judging = Judging(words, definition)
    end = "" if until is None else f" and c.started_at < {words.instant(until)}"
    return f"""\
select {_listed(judging)}
from calls as c{judging.winner}
where c.started_at >= {words.instant(since)}{end}{judging.scope("c")}"""  # noqa: S608 - as above


def misses(words: Words, definition: Definition, length: timedelta, now: datetime) -> str:
    """Return the statement that lists the newest of the bad calls."""
    judging = Judging(words, definition)
    more = ", w.deployment, w.decode_tps, w.itl_max_ms, w.speech_pause_ms" if judging.needs_winner else ""
    return f"""\
select c.id, c.started_at, c.client, c.model, c.status_code, c.error_kind, c.ttft_ms, c.total_ms{more}
from calls as c{judging.winner}
where c.started_at >= {words.instant(begin(length, now))}{judging.scope("c")} and {judging.bad}
order by c.started_at desc limit {MOST_MISSES}"""  # noqa: S608 - as above


def missing(words: Words, definition: Definition, minutes: int, since: datetime, until: datetime) -> str:
    """Return the statement that gives the windows without counts, or with old ones; the newest first."""
    judging = Judging(words, definition)
    return f"""\
select {words.epoch("s.window_start")} as began
from (
  select r.window_start, sum(r.n) as seen, sum(r.slo_tps) as seen_speeds
  from rollup_calls as r
  where r.minutes = {minutes} and r.window_start >= {words.window(since)}
    and r.window_start < {words.window(until)}{judging.scope("r")}
  group by r.window_start
) as s
left join {TABLE} as t on t.definition = '{definition.key}' and t.minutes = {minutes}
  and t.window_start = s.window_start
where t.seen is null or t.seen <> s.seen or t.seen_speeds <> s.seen_speeds
order by s.window_start desc"""  # noqa: S608 - as above


def count(words: Words, definition: Definition, minutes: int, start: datetime) -> str:
    """Return the statement that counts the rows of a window, and stores that unless rows of it are gone.

    It is one statement, so that rows and their number are of the same instant.
    """
    judging = Judging(words, definition)
    until = start + timedelta(minutes=minutes)
    within = f"c.started_at >= {words.instant(start)} and c.started_at < {words.instant(until)}"
    rows = f"""\
select count(*) as n, {_listed(judging)}
  from calls as c{judging.winner}
  where {within}{judging.scope("c")}"""  # noqa: S608 - as above
    return _stored(words, definition, minutes, start, rows, "seen.seen, seen.seen_speeds")


def add_up(words: Words, definition: Definition, minutes: int, start: datetime, smaller: int) -> str:
    """Return the statement that stores the sum of the ``smaller`` windows within, unless one of them is missing."""
    until = start + timedelta(minutes=minutes)
    added = ", ".join(f"sum(t.{name}) as {name}" for name in COUNTED)
    sums = f"""\
select sum(t.seen) as n, sum(t.seen_speeds) as speeds, {added}
  from {TABLE} as t
  where t.definition = '{definition.key}' and t.minutes = {smaller}
    and t.window_start >= {words.window(start)} and t.window_start < {words.window(until)}"""  # noqa: S608 - as above
    return _stored(words, definition, minutes, start, sums, "found.n, found.speeds", "found.speeds = seen.seen_speeds")


def _stored(  # noqa: PLR0917 - the parts of one statement
    words: Words, definition: Definition, minutes: int, start: datetime, found: str, seen: str, more: str = "true"
) -> str:
    columns = ("seen", "seen_speeds", *COUNTED)
    judging = Judging(words, definition)
    values = ", ".join(f"found.{name}" for name in COUNTED)
    at = words.window(start)
    instant = f"cast({at} as timestamptz)" if words.is_postgres else at
    return f"""\
insert into {TABLE} (definition, minutes, window_start, {", ".join(columns)})
select '{definition.key}', {minutes}, {instant}, {seen}, {values}
from ({found}) as found
cross join (
  select coalesce(sum(r.n), 0) as seen, coalesce(sum(r.slo_tps), 0) as seen_speeds
  from rollup_calls as r
  where r.minutes = {minutes} and r.window_start = {at}{judging.scope("r")}
) as seen
where found.n = seen.seen and {more}
on conflict (definition, minutes, window_start) do update set
  {", ".join(f"{name} = excluded.{name}" for name in columns)}"""  # noqa: S608 - as above


def _listed(judging: Judging) -> str:
    return ",\n  ".join(f"{sums} as {name}" for name, sums in judging.sums.items())


def _of_other_windows(words: Words, judging: Judging, since: datetime) -> str:
    """Return the counts of the rows in windows that are not known.

    Both databases are to find the rows of each window by the index of their time: so Postgres looks at one window after
    the other (lateral), and SQLite at windows before calls (cross join).
    """
    floor = f"c.started_at >= {words.instant(since)}"
    if words.is_postgres:
        end = "k.window_start + k.minutes * interval '1 minute'"
        return f"""\
select {", ".join(f"found.{name}" for name in COUNTED)}
  from known as k
  cross join lateral (
    select {_listed(judging)}
    from calls as c{judging.winner_of_few}
    where {floor} and c.started_at >= k.window_start and c.started_at < {end}{judging.scope("c")}
  ) as found
  where k.calls is null"""  # noqa: S608 - as above
    end = "datetime(k.window_start, '+' || k.minutes || ' minutes')"
    return f"""\
select {_listed(judging)}
  from known as k
  cross join calls as c{judging.winner_of_few}
  where k.calls is null and {floor} and c.started_at >= k.window_start and c.started_at < {end}{judging.scope("c")}"""  # noqa: S608 - as above
