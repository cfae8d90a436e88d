"""The gateway's own delay in what it measures of providers: while the event loop is late, so is all that it reads."""

from typing import Protocol

from gateway.steering.constants import OWN_SHARE, OWN_TURNS


class Lateness(Protocol):
    """The delay of the event loop."""

    def total_s(self) -> float:
        """Return the sum of all delays so far, which only grows."""

    def peak_s(self) -> float:
        """Return the longest delay lately."""


class InTime:
    """A loop that is never late."""

    def total_s(self) -> float:
        """Return 0."""
        return 0.0

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
        """Seconds, as ``OwnDelay.total_s`` returned them."""


class OwnDelay:
    """Tells how much of an attempt's time may be the gateway's own. ``total_s`` is to be kept at each launch."""

    __slots__ = ("_lateness", "total_s")

    def __init__(self, lateness: Lateness) -> None:
        self._lateness = lateness
        self.total_s = lateness.total_s

    def left_out(self, age_s: float, launched: Launched | None) -> float:
        """Return an attempt's age without what the gateway itself may have added."""
        return age_s if launched is None else max(0.0, age_s - self._since(launched))

    def explains(self, launched: Launched | None, unix_s: float) -> bool:
        """Whether a timeout at ``unix_s`` may be the gateway's fault: it saw too late what had come in time."""
        return launched is not None and self._since(launched) >= OWN_SHARE * (unix_s - launched.unix_s) > 0

    def _since(self, launched: Launched) -> float:
        """Return how many seconds the loop may have added since a launch: a bound, in the provider's favour.

        The loop may have been late for all of a long silence, but only some of its turns are in the way of a token:
        those in which the request is sent, and those in which the answer is read.
        """
        return min(self.total_s() - launched.delayed_s, OWN_TURNS * self._lateness.peak_s())
