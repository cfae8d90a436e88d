"""Windows: the minute, the UTC day and the UTC month that a limit counts in."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import inf

import msgspec

MINUTE_S = 60.0


class Window(msgspec.Struct, frozen=True):
    """A span of time with its name, which is the same on all replicas; Unix seconds."""

    name: str
    starts_s: float
    ends_s: float


def minute(unix_s: float) -> Window:
    """Return the minute of the clock around ``unix_s``."""
    number = int(unix_s // MINUTE_S)
    return Window(f"m{number}", number * MINUTE_S, (number + 1) * MINUTE_S)


def day(unix_s: float) -> Window:
    """Return the UTC day around ``unix_s``."""
    start = datetime.fromtimestamp(unix_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return Window(f"{start:%Y-%m-%d}", start.timestamp(), (start + timedelta(days=1)).timestamp())


def month(unix_s: float) -> Window:
    """Return the UTC month around ``unix_s``."""
    start = datetime.fromtimestamp(unix_s, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = (start + timedelta(days=32)).replace(day=1)
    return Window(f"{start:%Y-%m}", start.timestamp(), following.timestamp())


def always(_: float) -> Window:
    """Return the only window of a limit that counts what is in use, not what was used."""
    return Window("now", -inf, inf)


WINDOWS: dict[str, Callable[[float], Window]] = {
    "rpm": minute,
    "tpm": minute,
    "max_parallel": always,
    "usd_per_day": day,
    "usd_per_month": month,
}

DOLLARS = frozenset({"usd_per_day", "usd_per_month"})  # the limits that are counted in US dollars
