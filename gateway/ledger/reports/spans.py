"""Which windows of the ledger's sums a report adds up, and the steps of a history."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from gateway.ledger.reports.words import Words
from gateway.reports import Window

# Minutes of the windows at the edge, and of those within; those of a day and a month are the views'.
_MINUTES: Mapping[Window, tuple[int, int]] = {
    Window.HOUR: (5, 5),
    Window.DAY: (5, 60),
    Window.WEEK: (60, 1440),
    Window.MONTH: (1440, 1440),
}
# Minutes of a history's steps: each is a window that the database keeps long enough.
_STEPS: Mapping[Window, int] = {Window.HOUR: 5, Window.DAY: 5, Window.WEEK: 60, Window.MONTH: 1440}


def first(window: Window, now: datetime) -> datetime:
    """Return when the first whole window of sums begins."""
    return _floor(now - window.length, _MINUTES[window][0])


def windows(words: Words, window: Window, now: datetime) -> str:
    """Return what is true of the sums (r) from then until now: small windows until the first large one."""
    small, large = _MINUTES[window]
    since = first(window, now)
    if small == large:
        return f"r.minutes = {small} and r.window_start >= {words.window(since)}"
    begin = _floor(now - window.length, large)
    turn = words.window(begin if begin == since else begin + timedelta(minutes=large))
    return (
        f"((r.minutes = {large} and r.window_start >= {turn}) "
        f"or (r.minutes = {small} and r.window_start >= {words.window(since)} and r.window_start < {turn}))"
    )


class Steps(msgspec.Struct, frozen=True):
    """The steps of a history: the last one is still going on."""

    since: datetime
    number: int
    minutes: int

    @classmethod
    def of(cls, window: Window, now: datetime) -> "Steps":
        """Return the steps of a window that ends now."""
        minutes = _STEPS[window]
        since, last = _floor(now - window.length, minutes), _floor(now, minutes)
        return cls(since, (last - since) // timedelta(minutes=minutes) + 1, minutes)

    @property
    def until(self) -> datetime:
        """The end of the last step."""
        return self.since + self.number * timedelta(minutes=self.minutes)

    @property
    def starts(self) -> range:
        """When each begins, in seconds since 1970."""
        return range(int(self.since.timestamp()), int(self.until.timestamp()), self.minutes * 60)


def _floor(at: datetime, minutes: int) -> datetime:
    seconds = minutes * 60
    return datetime.fromtimestamp(int(at.timestamp()) // seconds * seconds, UTC)
