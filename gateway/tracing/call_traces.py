"""Hears of calls while traces are on, and hands those that are sampled to the exporting thread."""

from collections.abc import Callable

from gateway.attempt_records import AttemptRecord
from gateway.calls import CallRecord
from gateway.trace_context import TraceContext, begun_here
from gateway.tracing.ended import EndedCall, LateAttempt
from gateway.tracing.sender import Sender

MOST_WAITING = 10_000  # calls with an attempt that is still watched


class CallTraces:
    """The traces of a process's calls. ``clock``: monotonic seconds, that of the records.

    A call pays for keeping when its attempts ended, and for its place in a queue: spans are made elsewhere.
    """

    def __init__(self, sender: Sender, *, sample_ratio: float, is_passed_on: bool, clock: Callable[[], float]) -> None:
        self.sender = sender
        self._sample_ratio = sample_ratio
        self._is_passed_on = is_passed_on
        self._clock = clock
        self._ended_at: dict[str, float] = {}  # attempts of running calls, in seconds of the clock
        self._waiting: dict[str, _Waiting] = {}  # calls with attempts that are still watched

    def use(self, sender: Sender, *, sample_ratio: float, is_passed_on: bool) -> None:
        """Hand spans to ``sender`` from now on; the rest is for new calls."""
        self.sender = sender
        self._sample_ratio = sample_ratio
        self._is_passed_on = is_passed_on

    def trace(self, call_id: str, parent: TraceContext | None) -> TraceContext:
        """Return the trace of a new call: its client's, or one of its own."""
        found = begun_here(call_id, self._sample_ratio) if parent is None else parent
        if found.is_passed_on is self._is_passed_on:
            return found
        return TraceContext(found.trace_id, found.parent_id, found.flags, found.state, self._is_passed_on)

    def attempt_ended(self, attempt: AttemptRecord, ago_s: float) -> None:
        """Keep when an attempt has ended, ``ago_s`` seconds ago: records have the times of tokens, not of ends."""
        self._ended_at[attempt.id] = self._clock() - ago_s

    def call_finished(self, record: CallRecord) -> None:
        """Queue a call's spans, if it is sampled."""
        now, ended_at = self._clock(), self._ended_at
        received_at = now - record.total_ms / 1000
        ended_ms = tuple([(ended_at.pop(each.id, now) - received_at) * 1000 for each in record.attempts])
        trace = record.trace
        if trace is None or not trace.is_sampled:
            return
        call = EndedCall(record, trace, ended_ms)
        self.sender.offer(call)
        if (missing := record.launched - len(ended_ms)) and len(self._waiting) < MOST_WAITING:
            self._waiting[record.id] = _Waiting(call, received_at, missing)

    def attempt_audited(self, attempt: AttemptRecord) -> None:
        """Queue the span of an attempt that was watched beyond its call."""
        ended_at = self._ended_at.pop(attempt.id, None)
        waiting = self._waiting.get(attempt.call_id)
        if waiting is None:
            return
        waiting.missing -= 1
        if not waiting.missing:
            del self._waiting[attempt.call_id]
        at = self._clock() if ended_at is None else ended_at
        self.sender.offer(LateAttempt(attempt, waiting.call, (at - waiting.received_at) * 1000))


class _Waiting:
    """A finished call with attempts that still run."""

    __slots__ = ("call", "missing", "received_at")

    def __init__(self, call: EndedCall, received_at: float, missing: int) -> None:
        self.call = call
        self.received_at = received_at
        self.missing = missing
