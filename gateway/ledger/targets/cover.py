"""Which windows of the ledger's sums make up the time that a target looks back: large ones, and small ones at its ends.

Calls that run arrive late in the window that they began in, so a window is looked at as a whole only a while after its
end.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from gateway.ledger.reports.words import Words

FIVE, HOUR, DAY = 5, 60, 1440  # minutes
ROWS_UP_TO = timedelta(minutes=15)  # shorter times are read from rows, to the second
FIVES_UP_TO, HOURS_UP_TO = (
    timedelta(hours=6),
    timedelta(days=7),
)  # where longer times begin: at a full hour, at midnight
SETTLED = {HOUR: timedelta(minutes=10), DAY: timedelta(minutes=30)}  # after their end nearly all calls have arrived


class Piece(msgspec.Struct, frozen=True):
    """Windows of so many minutes, from ``since`` to before ``until``; None: without an end."""

    minutes: int
    since: datetime
    until: datetime | None

    def condition(self, words: Words) -> str:
        """Return what is true of the sums (r) in it."""
        end = "" if self.until is None else f" and r.window_start < {words.window(self.until)}"
        return f"(r.minutes = {self.minutes} and r.window_start >= {words.window(self.since)}{end})"


def begin(length: timedelta, now: datetime) -> datetime:
    """Return when so long a time before now begins: at the start of a window."""
    if length <= ROWS_UP_TO:
        return now - length
    return floor(now - length, FIVE if length <= FIVES_UP_TO else HOUR if length <= HOURS_UP_TO else DAY)


def cover(since: datetime, now: datetime) -> list[Piece]:
    """Return the windows from ``since``, the start of one, until now."""
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


def floor(at: datetime, minutes: int) -> datetime:
    """Return when the window that ``at`` is in begins."""
    seconds = minutes * 60
    return datetime.fromtimestamp(int(at.timestamp()) // seconds * seconds, UTC)


def ceiling(at: datetime, minutes: int) -> datetime:
    """Return the first start of a window that is not before ``at``."""
    begun = floor(at, minutes)
    return begun if begun == at else begun + timedelta(minutes=minutes)
