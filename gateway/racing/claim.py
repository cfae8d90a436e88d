"""The times of a race from its plan to its win, and their part in the call's record."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.calls import CallRecord
from gateway.racing.alone import UNKNOWN, alone
from gateway.racing.attempt import Attempt
from gateway.racing.milliseconds import milliseconds
from gateway.racing.open_call import OpenCall, Times
from gateway.racing.sink import Winner
from providers.exchange import Exchange

if TYPE_CHECKING:
    from gateway.racing.hold import Held


class Claim:
    """Times of one race, by the gateway's clock."""

    __slots__ = ("_open_call", "_overhead_ms", "claimed_at", "held", "planned_at")

    def __init__(self, open_call: OpenCall) -> None:
        self.planned_at = 0.0  # when the first attempt is launched, unless it waits for a seat
        self.claimed_at: float | None = None
        self.held: Held | None = None  # the hold that the win has ended
        self._open_call = open_call
        self._overhead_ms: float | None = None

    def winner(self, attempt: Attempt, exchange: Exchange, now: float, *, is_last: bool) -> Winner:
        """Return the facts about ``attempt``, which has won with a first token at ``now``, for the response headers."""
        open_call = self._open_call
        own_s = (self.planned_at - open_call.call.received_at) + max(0.0, open_call.services.clock() - now)
        self._overhead_ms = milliseconds(own_s)
        return Winner(
            call=open_call.call,
            provider=attempt.deployment.provider,
            deployment=attempt.deployment.name,
            launched=open_call.launched,
            ttft_ms=open_call.since_received_ms(now),
            overhead_ms=self._overhead_ms,
            exchange=exchange,
            is_last=is_last,
        )

    def close(
        self, attempts: Sequence[Attempt], winner: Attempt | None, status_code: int, error_kind: str | None
    ) -> CallRecord:
        """Record the call, once."""
        self._open_call.services.outbox.drain()  # the winner's record is built with the others
        times = self.times(attempts, winner)
        return self._open_call.finish(
            None if winner is None else winner.record,
            status_code=status_code,
            error_kind=error_kind,
            ttft_ms=times.ttft_ms,
            overhead_ms=times.overhead_ms,
            alone=times.alone,
            held=times.held,
        )

    def times(self, attempts: Sequence[Attempt], winner: Attempt | None) -> Times:
        """Return the call's times, as far as this race tells them."""
        # After a hold, the client's first token is not the provider's but the moment of release.
        first_at = self.claimed_at if winner is not None and winner.measurement.meaningful else None
        since_received_ms = self._open_call.since_received_ms
        streamed = self._open_call.call.streamed
        is_first = bool(attempts) and attempts[0].start.number == 1  # of all the call's models
        return Times(
            None if first_at is None else since_received_ms(first_at),
            self._overhead_ms,
            alone(attempts, winner, first_at, since_received_ms, streamed=streamed) if is_first else UNKNOWN,
            None if winner is None else self.held,
        )
