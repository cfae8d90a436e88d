"""The database's clock, by which replicas decide what they share, and how far this process's clock is off it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import structlog

TOLD_S = 2.0  # a clock that is off by more is told
LEAVES_S = 60.0  # one that is off by more leaves shared work to replicas whose clock is right
RIGHT_S = 1.0  # below this it counts as right again
MEASURE_INTERVAL_S = 30.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SharedClock(msgspec.Struct):
    """The database's clock, carried on by the monotonic one between two readings; before the first, our own."""

    utc_now: Callable[[], datetime]
    clock: Callable[[], float]
    ahead_s: float | None = None  # of the database's; None: not known, or its clock is this machine's
    others_are_right: bool = False  # another replica stores calls, and its clock is not off
    _zero_s: float | None = None  # unix time of the database's clock at 0 of the monotonic one
    _told: bool = False

    def now(self) -> datetime:
        """Return the instant by the database's clock."""
        return self.utc_now() if self._zero_s is None else _EPOCH + timedelta(seconds=self._zero_s + self.clock())

    def unix_s(self) -> float:
        """Return the same in seconds since 1970."""
        return self.utc_now().timestamp() if self._zero_s is None else self._zero_s + self.clock()

    @property
    def is_off(self) -> bool:
        """Whether our clock is off by more than two seconds."""
        return self._told

    @property
    def is_far_off(self) -> bool:
        """Whether our clock is off by more than a minute."""
        return self.ahead_s is not None and abs(self.ahead_s) > LEAVES_S

    @property
    def leaves_turns(self) -> bool:
        """Whether this process leaves shared work to others: its clock is off by more than a minute, theirs is not."""
        return self.is_far_off and self.others_are_right

    def note(self, there: datetime, asked_s: float) -> None:
        """Note what the database's clock showed, by an answer asked for at ``asked_s`` of the monotonic clock.

        How long the answer took is how uncertain it is; a clock is only told to be off by more than that.
        """
        here_s, took_s = self.clock(), self.clock() - asked_s
        unix_s = there.timestamp() + took_s / 2
        self._zero_s = unix_s - here_s
        self.ahead_s = self.utc_now().timestamp() - unix_s
        off_s = abs(self.ahead_s) - took_s / 2
        if off_s > TOLD_S and not self._told:
            self._told = True
            # Event ledger.clock_off: This machine's clock is `ahead_s` seconds ahead of the database's (negative:
            # behind). Rows of its calls have its times. What replicas share goes by the database's clock. By more than
            # a minute, it leaves such work to other replicas, if there are any.
            # Do: Set the clock of this machine, or of the database's, by NTP.
            structlog.get_logger().warning(
                "ledger.clock_off",
                ahead_s=round(self.ahead_s, 1),
                hint="set the clocks of this machine and of the database's by NTP; rows of calls have this one's times",
            )
        elif abs(self.ahead_s) < RIGHT_S and self._told:
            self._told = False
            # Event ledger.clock_right: This machine's clock is right again.
            # Do: Nothing.
            structlog.get_logger().info("ledger.clock_right", ahead_s=round(self.ahead_s, 1))
