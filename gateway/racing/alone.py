"""What racing gained one call: an estimate of when the primary alone would have given the first token.

The view ``race_value`` sums it up. An overtaken primary is usually cut, so only a prediction is known. Audited ones
run on to their first token and show the error of the predictions (docs/steering.md, "What racing saves").
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from gateway.racing.measurement import Measurement
from gateway.racing.watch import Overtaken


class Ran(Protocol):
    """The fields of an attempt that are needed here."""

    measurement: Measurement
    overtaken: Overtaken | None
    failed_at: float | None
    claimed_at: float | None  # when it claimed the win with a first token, whether or not it got it

    def token_at(self) -> float | None:
        """The time of the delta that may win the call; None before it."""


class Alone(msgspec.Struct, frozen=True):
    """The first token of the primary alone, in ms since the call was received; ``age_ms`` is since its launch."""

    seen_ms: float | None = None
    predicted_ms: float | None = None  # of an overtaken primary
    age_ms: float | None = None  # its age when it was overtaken


UNKNOWN = Alone()


def alone(
    attempts: Sequence[Ran],
    winner: Ran | None,
    first_at: float | None,
    since_received_ms: Callable[[float], float],
    *,
    streamed: bool,
) -> Alone:
    """Return what is known about a call whose client had its first token at ``first_at``.

    Without racing the primary runs alone, and only its failure launches the next one, which then wins and takes the
    same time. With its first token a ``streamed`` answer has begun: if it breaks later, the client had that token all
    the same. A whole answer that breaks is replaced.
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
    if streamed and primary.claimed_at is not None:
        return Alone(since_received_ms(primary.claimed_at))
    waited_s = max(0.0, primary.failed_at - winner.measurement.started)
    own_at = winner.token_at() or first_at  # it may have had to wait: held back, or behind the one that failed
    return Alone(since_received_ms(min(own_at, first_at) + waited_s))
