"""What the two databases write differently, and values as SQL: a report runs the very statement that it shows.

So values are literals in it, not parameters. Text comes from whoever asks, and is quoted here and nowhere else.
"""

from datetime import UTC, datetime

import msgspec

# What is true of calls (c) that failed, as ``gateway.calls.has_failed`` says, and of those that were wrong themselves.
FAILED = "(c.error_kind is not null and (c.status_code in (424, 429) or c.status_code not between 400 and 499))"
OWN_FAULT = "(c.status_code between 400 and 498 and c.status_code not in (424, 429))"
LOWEST, HIGHEST = -56, 111  # numbers of the ledger's buckets


def paid(column: str) -> str:
    """Return a cost of ``rollup_calls`` as ``client_usage`` has it: with attempts that ended after their call."""
    return f"case when coalesce(race_{column}, 0) > coalesce({column}, 0) then race_{column} else {column} end"


class Words:
    """How Postgres, or SQLite, writes it."""

    def __init__(self, *, is_postgres: bool) -> None:
        self.is_postgres = is_postgres

    def text(self, value: str) -> str:
        """Return text as a literal. NUL characters, which neither stores, are left out."""
        quoted = "'" + value.replace("\x00", "").replace("'", "''") + "'"
        if self.is_postgres and "\\" in quoted:  # whatever standard_conforming_strings says
            return "E" + quoted.replace("\\", "\\\\")
        return quoted

    def instant(self, at: datetime) -> str:
        """Return an instant as a literal, to be compared with those of rows: SQLite compares text, digit by digit."""
        return self._instant(at, "%Y-%m-%d %H:%M:%S.%f")

    def window(self, at: datetime) -> str:
        """Return an instant as a literal, to be compared with the starts of windows, which have no fractions."""
        return self._instant(at, "%Y-%m-%d %H:%M:%S")

    def _instant(self, at: datetime, form: str) -> str:
        written = at.astimezone(UTC).strftime(form)
        return f"'{written}+00'" if self.is_postgres else f"'{written}'"

    def epoch(self, instant: str) -> str:
        """Return seconds since 1970, whole, of an instant in a row. SQLite would round them to milliseconds first."""
        if self.is_postgres:
            return f"cast(floor(extract(epoch from {instant})) as bigint)"
        return f"cast(strftime('%s', substr({instant}, 1, 19)) as integer)"

    def moment(self, epoch: str) -> str:
        """Return the instant of so many seconds since 1970."""
        return f"to_timestamp({epoch})" if self.is_postgres else f"datetime({epoch}, 'unixepoch')"

    def hour(self, instant: str) -> str:
        """Return the hour of the day, UTC."""
        if self.is_postgres:
            return f"cast(extract(hour from {instant} at time zone 'UTC') as integer)"
        return f"cast(strftime('%H', {instant}) as integer)"

    def weekday(self, instant: str) -> str:
        """Return the day of the week, UTC; 0 is Monday."""
        if self.is_postgres:
            return f"cast(extract(isodow from {instant} at time zone 'UTC') as integer) - 1"
        return f"(cast(strftime('%w', {instant}) as integer) + 6) % 7"

    def has_tag(self, name: str, value: str) -> str:
        """Return what is true of a call with this tag; on Postgres an index finds it."""
        if self.is_postgres:
            return f"tags @> {self.text(msgspec.json.encode({name: value}).decode())}"
        is_it = f"tag.key = {self.text(name)} and tag.value = {self.text(value)}"
        return f"exists (select 1 from json_each(tags) as tag where {is_it})"  # noqa: S608 - quoted

    def bucket(self, value: str) -> str:
        """Return the number of the bucket that a value is in, as in migrations/versions/0006."""
        if self.is_postgres:
            index = f"floor(8 * ln(greatest({value}, 0.01) / 10) / ln(2) + 1e-9)"
            return f"cast(greatest({LOWEST}, least({HIGHEST}, {index})) as smallint)"
        edge = f"{value} * 1.0000000001 order by from_ms desc limit 1"
        return f"coalesce((select bucket from buckets where from_ms <= {edge}), {LOWEST})"  # noqa: S608 - our names

    def pairs(self, json: str) -> str:
        """Return what yields the keys and values of a JSON object, to be joined."""
        return f"json_each_text({json})" if self.is_postgres else f"json_each({json})"


def quantile(metric: str, q: str) -> str:
    """Return the value below which the share ``q`` of a metric lies: inside its bucket, between its edges.

    As in migrations/versions/0007, so that a report and the views give the same.
    """
    is_there = f"o.metric = '{metric}' and o.so_far >= {q} * o.total and o.so_far - o.n < {q} * o.total"
    inside = f"b.from_ms + (b.to_ms - b.from_ms) * ({q} * o.total - (o.so_far - o.n)) / o.n"
    return f"max(case when {is_there} then {inside} end)"
