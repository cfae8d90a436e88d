"""Values as SQL literals that Postgres and SQLite read alike, for the evidence of alerts."""

from collections.abc import Iterable
from datetime import UTC, datetime


def text(value: str) -> str:
    """Return text as a literal. NUL characters, which neither database stores, are left out."""
    return "'" + value.replace("\x00", "").replace("'", "''") + "'"


def texts(values: Iterable[str]) -> str:
    """Return a list of texts, to stand after ``in``."""
    return f"({', '.join(map(text, values))})"


def instant(at: datetime) -> str:
    """Return an instant, for ``column >= …``. SQLite compares text: its rows have fractions, which come after the +."""
    return f"'{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}+00'"


def day(at: datetime) -> str:
    """Return the UTC day of an instant, for ``window_start >= …``."""
    return f"'{at.astimezone(UTC):%Y-%m-%d}'"
