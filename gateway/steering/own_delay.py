"""The gateway's own share of measured times: an event loop that is late also reads answers late."""

from math import inf
from typing import Protocol

from gateway.steering.constants import OWN_SHARE, OWN_TURNS


class Lateness(Protocol):
    """The delay of the event loop, which a timer measures."""

    @property
    def total_s(self) -> float:
        """The sum of all delays until the timer last ran; it never decreases."""

    @property
    def due_s(self) -> float:
        """When the timer should run next, in seconds of the gateway's clock; infinite if it does not run."""

    def peak_s(self) -> float:
        """Return the longest recent delay."""


class NeverLate:
    """An event loop that is never late."""

    total_s, due_s = 0.0, inf

    def peak_s(self) -> float:
        """Return 0."""
        return 0.0


class LaunchedAttempt(Protocol):
    """An attempt: when it was launched, and the loop's total delay until then."""

    @property
    def unix_s(self) -> float:
        """Unix time."""

    @property
    def delayed_s(self) -> float:
        """The loop's ``total_s``."""


class OwnDelay:
    """Estimates the gateway's own share of an attempt's time; ``now_s`` is seconds on the gateway's clock."""

    __slots__ = ("lateness",)

    def __init__(self, lateness: Lateness) -> None:
        self.lateness = lateness

    def without_own_delay(self, age_s: float, launched: LaunchedAttempt | None, now_s: float) -> float:
        """Return an attempt's age minus the delay that the gateway itself may have added."""
        return age_s if launched is None else max(0.0, age_s - self._since(launched, now_s))

    def explains(self, launched: LaunchedAttempt | None, unix_s: float, now_s: float) -> bool:
        """Whether a time-out at ``unix_s`` may be the gateway's fault: a token in time may have been read too late."""
        return launched is not None and self._since(launched, now_s) >= OWN_SHARE * (unix_s - launched.unix_s) > 0

    def _since(self, launched: LaunchedAttempt, now_s: float) -> float:
        """Return an upper bound of the seconds that the loop may have added since a launch.

        The loop may have been late during all of a long wait, but only the turns in which the request is sent and the
        answer is read delay a token.
        """
        lateness = self.lateness
        total_s = lateness.total_s - launched.delayed_s
        if now_s > lateness.due_s:  # the timer has not run since
            total_s += now_s - lateness.due_s
        return min(total_s, OWN_TURNS * lateness.peak_s()) if total_s else 0.0
