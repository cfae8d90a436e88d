"""What SQLite understands of Postgres's words, as ``holeshot sql`` asks it."""

import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from gateway.ledger.sqlite_words import SqliteWords, date_trunc, with_percentiles

VALUES = (30.0, 10.0, None, 20.0, 40.0)


def asked(sql: str, words: SqliteWords | None = None) -> list[Any]:
    with closing((words or SqliteWords()).connection(":memory:")) as database:
        database.execute("create table t (x, name, started_at)")
        database.executemany(
            "insert into t values (?, 'a', '2026-11-29 14:05:09.123456')", [(each,) for each in VALUES]
        )
        return [row[0] for row in database.execute(with_percentiles(sql))]


@pytest.mark.parametrize(
    ("unit", "zone", "expected"),
    [
        ("hour", "UTC", "2026-11-29 14:00:00"),
        ("minute", "UTC", "2026-11-29 14:05:00"),
        ("second", "UTC", "2026-11-29 14:05:09"),
        ("Day", "UTC", "2026-11-29 00:00:00"),
        ("week", "UTC", "2026-11-23 00:00:00"),
        ("month", "UTC", "2026-11-01 00:00:00"),
        ("quarter", "UTC", "2026-10-01 00:00:00"),
        ("year", "UTC", "2026-01-01 00:00:00"),
        ("day", "Europe/Berlin", "2026-11-28 23:00:00"),
        ("month", "Europe/Berlin", "2026-10-31 23:00:00"),
    ],
)
def test_an_instant_is_cut_to_where_its_unit_began(unit: str, zone: str, expected: str) -> None:
    assert date_trunc(unit, "2026-11-29 14:05:09.123456", zone) == expected
    assert date_trunc(unit, "2026-11-29T15:05:09.123456+01:00", zone) == expected
    assert asked(f"select distinct date_trunc('{unit}', started_at, '{zone}') from t") == [expected]


@pytest.mark.parametrize(
    ("called", "expected"),
    [
        ("percentile_cont(0.5) within group (order by x)", 25.0),
        ("PERCENTILE_CONT ( 0.95 ) WITHIN GROUP (ORDER BY x ASC)", 38.5),
        ("percentile_disc(0.5) within group (order by x)", 20.0),
        ("percentile_disc(0.5) within group (order by x desc)", 30.0),
        ("percentile_disc(0) within group (order by x)", 10.0),
        ("percentile_cont(0.5) within group (order by coalesce(x, 0) + 1) filter (where x > 15 or x is null)", 26.0),
        ("percentile_cont(0.5) within group (order by x) filter (where x > 100)", None),
        ("percentile_disc(0.9) within group (order by name)", "a"),
        ("round(percentile_cont(0.95) within group (order by x), 0)", 39.0),
    ],
)
def test_a_percentile_is_postgres_s(called: str, expected: object) -> None:
    assert asked(f"select {called} from t") == [expected]


@pytest.mark.parametrize(
    "sql",
    [
        "select 'percentile_cont(0.5) within group (order by x)'",
        "select percentile_cont(x, 0.5) from t",
        "select percentile_cont(0.5) within group (order by x",
        "select percentile_cont",
        "select 1 -- percentile_cont(0.5) within group (order by x)",
    ],
)
def test_what_is_no_whole_percentile_stays_as_it_is(sql: str) -> None:
    assert with_percentiles(sql) == sql


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("select date_trunc('hours', started_at) from t", "date_trunc knows no unit 'hours': second, minute, hour"),
        ("select date_trunc('hour', 'soon')", "cannot read 'soon' in the zone 'UTC'"),
        ("select date_trunc('hour', started_at, 'Mars/Base') from t", "in the zone 'Mars/Base'"),
        ("select date_trunc(started_at) from t", "takes a unit and an instant"),
        ("select percentile_cont(1.5) within group (order by x) from t", "a share between 0 and 1, not 1.5"),
        ("select percentile_cont(0.5) within group (order by name) from t", "is of numbers: use percentile_disc"),
        ("select percentile_cont(0.5) from t", r"write percentile_cont\(0.95\) within group"),
    ],
)
def test_what_a_function_cannot_answer_is_told(sql: str, why: str) -> None:
    words = SqliteWords()
    with pytest.raises(sqlite3.OperationalError):
        asked(sql, words)
    assert words.wrong is not None
    assert re.search(why, words.wrong)
