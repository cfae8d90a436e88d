"""What is kept of a call until its spans are made, in the exporting thread."""

import msgspec

from gateway.attempt_records import AttemptRecord
from gateway.calls import CallRecord
from gateway.trace_context import TraceContext


class EndedCall(msgspec.Struct, frozen=True, gc=False):
    """A finished call. Milliseconds are since it was received."""

    record: CallRecord
    trace: TraceContext
    ended_ms: tuple[float, ...]  # when each of its attempts ended

    @property
    def spans(self) -> int:
        """The number of its spans."""
        return 1 + len(self.ended_ms)


class LateAttempt(msgspec.Struct, frozen=True, gc=False):
    """An audited loser that has ended after its call."""

    record: AttemptRecord
    call: EndedCall
    ended_ms: float  # since the call was received
    spans: int = 1


Ended = EndedCall | LateAttempt
