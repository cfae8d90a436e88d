"""The gateway's own delay in what it measures of providers: while the event loop is late, so is all that it reads."""

from math import inf
from typing import Protocol

from gateway.steering.constants import OWN_SHARE, OWN_TURNS


class Lateness(Protocol):
    """The delay of the event loop, which a timer measures."""

    @property
    def total_s(self) -> float:
        """The sum of all delays until the timer last ran, which only grows."""

    @property
    def due_s(self) -> float:
        """When the timer should run next, in seconds of the gateway's clock; infinite if it does not run."""

    def peak_s(self) -> float:
        """Return the longest delay lately."""


class InTime:
    """A loop that is never late."""

    total_s, due_s = 0.0, inf

    def peak_s(self) -> float:
        """Return 0."""
        return 0.0


class Launched(Protocol):
    """An attempt: when it was launched, and the loop's total delay until then."""

    @property
    def unix_s(self) -> float:
        """Unix time."""

    @property
    def delayed_s(self) -> float:
        """The loop's ``total_s``."""


class OwnDelay:
    """Tells how much of an attempt's time may be the gateway's own. ``now_s`` is on the gateway's clock."""

    __slots__ = ("lateness",)

    def __init__(self, lateness: Lateness) -> None:
        self.lateness = lateness

    def left_out(self, age_s: float, launched: Launched | None, now_s: float) -> float:
        """Return an attempt's age without what the gateway itself may have added."""
        return age_s if launched is None else max(0.0, age_s - self._since(launched, now_s))

    def explains(self, launched: Launched | None, unix_s: float, now_s: float) -> bool:
        """Whether a timeout at ``unix_s`` may be the gateway's fault: it saw too late what had come in time."""
        return launched is not None and self._since(launched, now_s) >= OWN_SHARE * (unix_s - launched.unix_s) > 0

    def _since(self, launched: Launched, now_s: float) -> float:
        """Return how many seconds the loop may have added since a launch: a bound, in the provider's favour.

        The loop may have been late for all of a long silence, but only some of its turns are in the way of a token:
        those in which the request is sent, and those in which the answer is read.
        """
        lateness = self.lateness
        total_s = lateness.total_s - launched.delayed_s
        if now_s > lateness.due_s:  # the timer has not run since
            total_s += now_s - lateness.due_s
        return min(total_s, OWN_TURNS * lateness.peak_s()) if total_s else 0.0
