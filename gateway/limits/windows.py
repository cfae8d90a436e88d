"""The windows in which limits count: the minute, and hours, days, weeks and months of a zone.

A day is named by its date and a month by its name, in any zone: so a limit whose zone is changed goes on from the usage
on that date. An hour is named by its first instant: so a change of clocks repeats or skips none.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from math import inf
from zoneinfo import ZoneInfo

import msgspec

MINUTE_S = 60.0
HOUR_S = 3600.0
UTC_ZONE = "UTC"


class LimitWindow(msgspec.Struct, frozen=True):
    """A span of time in Unix seconds; the name is the same on all replicas."""

    name: str
    starts_s: float
    ends_s: float


@cache
def _zone(name: str) -> tzinfo:
    return UTC if name == UTC_ZONE else ZoneInfo(name)


def _between(name: str, starts: date, ends: date, zone: tzinfo) -> LimitWindow:
    """Return a window of whole days; where clocks skip midnight, a day begins with its first instant."""
    start, end = (datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() for day in (starts, ends))
    return LimitWindow(name, start, end)


def minute(unix_s: float, zone: str = UTC_ZONE) -> LimitWindow:  # noqa: ARG001 - all windows are found with a zone
    """Return the minute of the clock around ``unix_s``."""
    number = int(unix_s // MINUTE_S)
    return LimitWindow(f"m{number}", number * MINUTE_S, (number + 1) * MINUTE_S)


def hour(unix_s: float, zone: str = UTC_ZONE) -> LimitWindow:
    """Return the hour of a zone around ``unix_s``, counted from local midnight, which may be at a quarter past in UTC.

    If a zone changes its clock by half an hour, the day's last hour is half as long.
    """
    midnight_s, end_s = 0.0, inf
    if zone != UTC_ZONE:
        today = day(unix_s, zone)
        midnight_s, end_s = today.starts_s, today.ends_s
    start_s = midnight_s + (unix_s - midnight_s) // HOUR_S * HOUR_S
    return LimitWindow(f"h{start_s / HOUR_S:.10g}", start_s, min(start_s + HOUR_S, end_s))


def day(unix_s: float, zone: str = UTC_ZONE) -> LimitWindow:
    """Return the day of a zone around ``unix_s``."""
    where = _zone(zone)
    today = datetime.fromtimestamp(unix_s, where).date()
    return _between(f"{today:%Y-%m-%d}", today, today + timedelta(days=1), where)


def week(unix_s: float, zone: str = UTC_ZONE) -> LimitWindow:
    """Return the week of a zone around ``unix_s``, which begins on Monday (ISO 8601)."""
    where = _zone(zone)
    today = datetime.fromtimestamp(unix_s, where).date()
    monday, iso = today - timedelta(days=today.weekday()), today.isocalendar()
    return _between(f"{iso.year}-W{iso.week:02}", monday, monday + timedelta(days=7), where)


def month(unix_s: float, zone: str = UTC_ZONE) -> LimitWindow:
    """Return the month of a zone around ``unix_s``."""
    where = _zone(zone)
    first = datetime.fromtimestamp(unix_s, where).date().replace(day=1)
    return _between(f"{first:%Y-%m}", first, (first + timedelta(days=32)).replace(day=1), where)


def ever(_: float, zone: str = UTC_ZONE) -> LimitWindow:  # noqa: ARG001 - as above
    """Return the only window of a total, which has no end."""
    return LimitWindow("total", -inf, inf)


def always(_: float, zone: str = UTC_ZONE) -> LimitWindow:  # noqa: ARG001 - as above
    """Return the only window of a limit on concurrent use, which has no end."""
    return LimitWindow("now", -inf, inf)


Find = Callable[[float, str], LimitWindow]

# Sums over long windows. By the end of the limit's name: the window, in words, and for how long Redis keeps it, in
# seconds.
_LONG: Mapping[str, tuple[Find, str, int]] = {
    "per_hour": (hour, " an hour", 2 * 3600),
    "per_day": (day, " a day", 3 * 86_400),
    "per_week": (week, " a week", 9 * 86_400),
    "per_month": (month, " a month", 35 * 86_400),
    "total": (ever, " in all", 400 * 86_400),
}
SHORT_S = 300  # for which Redis keeps the other limits

DOLLARS = frozenset(f"usd_{name}" for name in _LONG)  # the limits that are counted in US dollars
LONG_TOKENS = frozenset(f"tokens_{name}" for name in _LONG)
TOKENS = LONG_TOKENS | {"tpm"}  # tokens of any window
ESTIMATED = DOLLARS | TOKENS  # limits of which calls may use less than they hold
SUMMED = frozenset({"usd_per_day", "usd_per_month"})  # of UTC: the ledger's sums have the usage of all processes
REMEMBERED = DOLLARS | LONG_TOKENS  # after a start the usage before counts

WINDOWS: Mapping[str, Find] = {
    "rpm": minute,
    "tpm": minute,
    "max_parallel": always,
    "max_in_flight_fleet": always,
    **{f"{unit}_{name}": find for unit in ("tokens", "usd") for name, (find, _, _) in _LONG.items()},
}
IN_WORDS: Mapping[str, str] = {
    "rpm": "requests a minute",
    "tpm": "tokens a minute",
    "max_parallel": "calls at the same time",
    **{f"tokens_{name}": f"tokens{words}" for name, (_, words, _) in _LONG.items()},
    **{f"usd_{name}": f"US dollars{words}" for name, (_, words, _) in _LONG.items()},
}
EXPIRY_S: Mapping[str, int] = dict.fromkeys(WINDOWS, SHORT_S) | {
    f"{unit}_{name}": kept_s for unit in ("tokens", "usd") for name, (_, _, kept_s) in _LONG.items()
}

# The keys of amounts.
USD, TOKEN = "usd", "tokens"
COUNTS: Mapping[str, str] = {name: USD if name in DOLLARS else TOKEN if name in TOKENS else name for name in WINDOWS}


def began_s(zones: "Zones", unix_s: float, names: Collection[str] = REMEMBERED) -> list[float]:
    """Return when the current windows of the remembered limits among ``names`` began; -inf: a total's."""
    return sorted(
        {WINDOWS[name](unix_s, zone).starts_s for zone in zones.all for name in REMEMBERED.intersection(names)}
    )


def names_since(zone: str, unix_s: float) -> dict[float, list[tuple[str, str, str]]]:
    """Return by the start of a window the limits that count in it: of dollars, of tokens, and the window's name."""
    names_by_start: dict[float, list[tuple[str, str, str]]] = {}
    for name, (find, _, _) in _LONG.items():
        window = find(unix_s, zone)
        names_by_start.setdefault(window.starts_s, []).append((f"usd_{name}", f"tokens_{name}", window.name))
    return names_by_start


class Zones(msgspec.Struct, frozen=True):
    """The zone of each client's windows, and the zone of all other windows."""

    default: str = UTC_ZONE
    of_clients: Mapping[str, str] = {}

    @property
    def all(self) -> set[str]:
        """All zones."""
        return {self.default, *self.of_clients.values()}

    def of_client(self, client: str | None) -> str:
        """Return the zone of a client; None: of local programs."""
        return self.of_clients.get(client or "", self.default)


IN_UTC = Zones()
