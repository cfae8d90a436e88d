"""What Postgres understands of times, as SQLite is asked it."""

import sqlite3
from contextlib import closing

import pytest

from gateway.ledger.queries import in_sqlite_time


@pytest.mark.parametrize(
    ("now", "shift", "expected"),
    [
        ("2026-03-31 12:30:45", "- interval '1 month'", "2026-02-28 12:30:45"),
        ("2028-03-31 12:30:45", "- interval '1 month'", "2028-02-29 12:30:45"),
        ("2028-02-29 12:30:45", "- interval '1 year'", "2027-02-28 12:30:45"),
        ("2028-02-29 12:30:45", "+ INTERVAL '4 Years'", "2032-02-29 12:30:45"),
        ("2026-01-31 00:00:00", "+ interval '1 month'", "2026-02-28 00:00:00"),
        ("2026-05-15 12:30:45", "- interval '5 months'", "2025-12-15 12:30:45"),
        ("2026-03-01 00:00:00", "- interval '1 day'", "2026-02-28 00:00:00"),
        ("2026-03-01 00:00:00", "", "2026-03-01 00:00:00"),
    ],
)
def test_an_interval_from_now_ends_on_the_day_that_postgres_says(now: str, shift: str, expected: str) -> None:
    asked = in_sqlite_time(f"select now() {shift}").replace("'now'", f"'{now}'")
    with closing(sqlite3.connect(":memory:")) as database:
        assert database.execute(asked).fetchone() == (expected,)
