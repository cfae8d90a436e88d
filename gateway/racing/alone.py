"""What racing gained one call: when its first token would have come from the primary alone, as far as that was seen.

The view ``race_value`` adds it up. An overtaken primary is cut, so of most only a prediction is known; audited ones
run on to their first token, and tell by how much predictions are wrong (docs/steering.md, "What racing saves").
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from gateway.racing.measurement import Measurement
from gateway.racing.watch import Overtaken


class Ran(Protocol):
    """An attempt, as far as it matters here."""

    measurement: Measurement
    overtaken: Overtaken | None
    failed_at: float | None

    def token_at(self) -> float | None:
        """When the delta came that its call is won on."""


class Alone(msgspec.Struct, frozen=True):
    """The first token of the primary alone, milliseconds since the call was received; ``age_ms`` since its launch."""

    seen_ms: float | None = None
    predicted_ms: float | None = None  # of an overtaken one
    age_ms: float | None = None  # when it was overtaken


UNKNOWN = Alone()


def alone(
    attempts: Sequence[Ran],
    winner: Ran | None,
    first_at: float | None,
    since_received_ms: Callable[[float], float],
) -> Alone:
    """Return what is known of a call whose client had its first token at ``first_at``.

    Without racing the primary runs alone, and when it fails the next one is launched then: that would have been the
    winner, and would have taken it as long.
    """
    if winner is None or first_at is None:
        return UNKNOWN
    primary = attempts[0]
    if (overtaken := primary.overtaken) is not None:
        age_ms = primary.measurement.since_start_ms(overtaken.at)
        if overtaken.expected_s is None:
            return Alone(age_ms=age_ms)
        return Alone(None, since_received_ms(primary.measurement.started + overtaken.expected_s), age_ms)
    token_at = primary.token_at()
    if primary.failed_at is None:
        return Alone(since_received_ms(first_at if token_at is None else token_at))
    waited_s = max(0.0, primary.failed_at - winner.measurement.started)
    return Alone(since_received_ms(first_at + waited_s))
