"""The SQL of targets: counts, from sums if these are current, else from rows.

A window's counts are stored with the number of the window's calls at that time (``seen``), and of known speeds. The
database updates both numbers as rows arrive, from every process. Counts with other numbers than now are not used, and
the rows are read instead: so late rows are never missing, and any process may count a window, repeatedly.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from gateway.core.targets import Definition
from gateway.ledger.reports.reader import FAILED, OWN_FAULT, RACED, Words, floor

# The windows of the ledger's sums that make up a target's time: large windows, and small ones at both ends. Running
# calls are stored late, in the window in which they began, so a window is used as a whole only some time after its end.

FIVE, HOUR, DAY = 5, 60, 1440  # minutes
ROWS_UP_TO = timedelta(minutes=15)  # shorter times are read from rows, exact to the second
FIVES_UP_TO, HOURS_UP_TO = (
    timedelta(hours=6),
    timedelta(days=7),
)  # the starts of longer times: at a full hour, at midnight
SETTLED = {HOUR: timedelta(minutes=10), DAY: timedelta(minutes=30)}  # by then nearly all calls have arrived


class Piece(msgspec.Struct, frozen=True):
    """Windows of ``minutes`` minutes each, from ``since`` to before ``until``; None: without an end."""

    minutes: int
    since: datetime
    until: datetime | None

    def condition(self, words: Words) -> str:
        """Return the SQL condition for the sums (r) of these windows."""
        end = "" if self.until is None else f" and r.window_start < {words.window(self.until)}"
        return f"(r.minutes = {self.minutes} and r.window_start >= {words.window(self.since)}{end})"


def begin(length: timedelta, now: datetime) -> datetime:
    """Return the start of the window in which the time of this length before ``now`` begins."""
    if length <= ROWS_UP_TO:
        return now - length
    return floor(now - length, FIVE if length <= FIVES_UP_TO else HOUR if length <= HOURS_UP_TO else DAY)


def cover(since: datetime, now: datetime) -> list[Piece]:
    """Return the windows from ``since``, which is the start of a window, until now."""
    hours_end = max(since, floor(now - SETTLED[HOUR], HOUR))
    days_end = max(since, floor(now - SETTLED[DAY], DAY))
    first_hour, first_day = ceiling(since, HOUR), ceiling(since, DAY)
    return list(_pieces(since, first_hour, first_day, days_end, hours_end))


def _pieces(
    since: datetime, first_hour: datetime, first_day: datetime, days_end: datetime, hours_end: datetime
) -> Iterator[Piece]:
    if first_hour >= hours_end:
        yield Piece(FIVE, since, None)
        return
    if since < first_hour:
        yield Piece(FIVE, since, first_hour)
    if first_day < days_end:
        if first_hour < first_day:
            yield Piece(HOUR, first_hour, first_day)
        yield Piece(DAY, first_day, days_end)
        first_hour = days_end
    if first_hour < hours_end:
        yield Piece(HOUR, first_hour, hours_end)
    yield Piece(FIVE, max(first_hour, hours_end), None)


def ceiling(at: datetime, minutes: int) -> datetime:
    """Return the first start of a window at or after ``at``."""
    begun = floor(at, minutes)
    return begun if begun == at else begun + timedelta(minutes=minutes)


# The calls that count for a target, and the bad calls among them: the rules of the view ``slo``, for any definition. In
# the SQL, ``c`` are calls, and ``w`` is the attempt that answered, if needed.

GONE = "(c.status_code = 499 and c.ttft_ms is null)"  # the client left before the first token
COUNTED = ("calls", "bad", "failed", "late", "slow", "halting")  # the columns of ``sums``


class TargetSql:
    """A target's definition as SQL."""

    def __init__(self, words: Words, definition: Definition) -> None:
        self._words = words
        self._definition = definition
        goals = definition
        self._late = "false"
        if goals.ttft_ms is not None:
            late, gave_up = f"c.ttft_ms >= {_figure(goals.ttft_ms)}", f"c.total_ms >= {_figure(goals.ttft_ms)}"
            self._late = f"coalesce({late} or ({GONE} and {gave_up}), false)"
        self._slow = "false"
        if goals.tok_s is not None:
            self._slow = f"coalesce(w.tokens_source = 'reported' and w.decode_tps < {_figure(goals.tok_s)}, false)"
        self._halting = "false"
        if goals.gap_ms is not None:
            # Of a spoken answer, only audible pauses count.
            gap = "coalesce(w.speech_pause_ms, w.itl_max_ms)"
            self._halting = f"coalesce({gap} > {_figure(goals.gap_ms)}, false)"

    @property
    def needs_winner(self) -> bool:
        """Whether calls must be joined with the attempt that answered."""
        return self._definition.tok_s is not None or self._definition.gap_ms is not None

    @property
    def counts(self) -> str:
        """The condition for calls that count."""
        is_judged = f"{FAILED} or not {GONE}"
        if self._definition.ttft_ms is not None:
            is_judged = f"{FAILED} or c.ttft_ms is not null or {self._late}"
        parts = [f"not {OWN_FAULT}", f"({is_judged})"]
        if self._definition.has_conditions:
            parts.append(RACED)  # only raced APIs have first tokens and speeds
        if self._definition.profile is not None:
            parts.append(f"coalesce(c.profile = {self._words.text(self._definition.profile)}, false)")
        return " and ".join(parts)

    @property
    def bad(self) -> str:
        """The condition for bad calls among those that count."""
        causes = [FAILED, *(cause for cause in (self._late, self._slow, self._halting) if cause != "false")]
        return f"{self.counts} and ({' or '.join(causes)})"

    @property
    def sums(self) -> Mapping[str, str]:
        """The counts of ``COUNTED``, as aggregates."""
        fine = f"{self.counts} and not {FAILED}"
        conditions = {
            "calls": self.counts,
            "bad": self.bad,
            "failed": f"{self.counts} and {FAILED}",
            "late": f"{fine} and {self._late}",
            "slow": f"{fine} and {self._slow}",
            "halting": f"{fine} and {self._halting}",
        }
        return {
            name: "0" if condition.endswith("and false") else f"count(*) filter (where {condition})"
            for name, condition in conditions.items()
        }

    def scope(self, rows: str) -> str:
        """Return `` and …``: the condition for the model and client of ``rows`` (calls, or sums of calls)."""
        filters = {"model": self._definition.model, "client": self._definition.client}
        return "".join(
            f" and {rows}.{name} = {self._words.text(value)}" for name, value in filters.items() if value is not None
        )

    @property
    def winner(self) -> str:
        """The join with the attempt that answered, if needed; on Postgres limited to near partitions."""
        return f"\n  left join attempts as w on {self._is_winner}" if self.needs_winner else ""

    @property
    def winner_of_few(self) -> str:
        """The join for few calls at an unknown time; with the plain join, Postgres would read all attempts."""
        if not self.needs_winner or not self._words.is_postgres:
            return self.winner
        return f"""
    left join lateral (
      select w.tokens_source, w.decode_tps, w.itl_max_ms, w.speech_pause_ms
      from attempts as w where {self._is_winner} limit 1
    ) as w on true"""  # noqa: S608 - our names

    @property
    def _is_winner(self) -> str:
        if not self._words.is_postgres:
            return "w.id = c.winner_attempt_id"
        near = "w.started_at >= c.started_at - interval '1 minute' and w.started_at < c.started_at + interval '1 day'"
        return f"w.id = c.winner_attempt_id and {near}"


def _figure(value: float) -> str:
    return repr(float(value))


MOST_MISSES = 100
TABLE = "target_counts"


def counts(words: Words, definition: Definition, length: timedelta, now: datetime) -> str:
    """Return the statement for the counts (``COUNTED``) of the last ``length``."""
    since = begin(length, now)
    if length <= ROWS_UP_TO:
        return of_rows(words, definition, since)
    judging = TargetSql(words, definition)
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
    """Return the statement for the same counts from rows only."""
    judging = TargetSql(words, definition)
    end = "" if until is None else f" and c.started_at < {words.instant(until)}"
    return f"""\
select {_listed(judging)}
from calls as c{judging.winner}
where c.started_at >= {words.instant(since)}{end}{judging.scope("c")}"""  # noqa: S608 - as above


def misses(words: Words, definition: Definition, length: timedelta, now: datetime) -> str:
    """Return the statement that lists the newest bad calls."""
    judging = TargetSql(words, definition)
    more = ", w.deployment, w.decode_tps, w.itl_max_ms, w.speech_pause_ms" if judging.needs_winner else ""
    return f"""\
select c.id, c.started_at, c.client, c.model, c.status_code, c.error_kind, c.ttft_ms, c.total_ms{more}
from calls as c{judging.winner}
where c.started_at >= {words.instant(begin(length, now))}{judging.scope("c")} and {judging.bad}
order by c.started_at desc limit {MOST_MISSES}"""  # noqa: S608 - as above


def missing(words: Words, definition: Definition, minutes: int, since: datetime, until: datetime) -> str:
    """Return the statement that lists the windows without counts, or with old counts, the newest first."""
    judging = TargetSql(words, definition)
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
    """Return the statement that counts the rows of a window, and stores the counts unless some rows were deleted.

    This is one statement, so that the rows and their number are from the same instant.
    """
    judging = TargetSql(words, definition)
    until = start + timedelta(minutes=minutes)
    within = f"c.started_at >= {words.instant(start)} and c.started_at < {words.instant(until)}"
    rows = f"""\
select count(*) as n, {_listed(judging)}
  from calls as c{judging.winner}
  where {within}{judging.scope("c")}"""  # noqa: S608 - as above
    return _stored(words, definition, minutes, start, rows, "seen.seen, seen.seen_speeds")


def add_up(words: Words, definition: Definition, minutes: int, start: datetime, smaller: int) -> str:
    """Return the statement that stores the sum of the ``smaller`` windows within a window, unless one is missing."""
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
    judging = TargetSql(words, definition)
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


def _listed(judging: TargetSql) -> str:
    return ",\n  ".join(f"{sums} as {name}" for name, sums in judging.sums.items())


def _of_other_windows(words: Words, judging: TargetSql, since: datetime) -> str:
    """Return the SQL that counts the rows in windows without current counts.

    Both databases have to find the rows of each window by the index on time: so Postgres reads one window after the
    other (lateral), and SQLite windows before calls (cross join).
    after the other (lateral), and SQLite windows before calls (cross join).
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
