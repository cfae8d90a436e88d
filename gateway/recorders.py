"""The recorders of a gateway, combined to one ``Recorder``."""

from collections.abc import Callable

from gateway.attempt_records import AttemptRecord, AttemptStart
from gateway.calls import Call, CallRecord, CallStart
from gateway.ledger.writer import Ledger
from gateway.limits.limits import Limits
from gateway.live.live import Live
from gateway.prompt_classes import PromptClass
from gateway.steering.steering import Steering
from gateway.tracing.tracing import Tracing
from gateway.watching.logs import CallLog
from gateway.watching.metrics import Metrics
from gateway.watching.usage import UsageWatch


class Recorders:
    """Ledger, leaderboard, metrics, log, live view and traces. The ledger comes first, as it must not miss an event."""

    def __init__(
        self,
        ledger: Ledger,
        steering: Steering,
        metrics: Metrics,
        log: CallLog,
        *,
        limits: Limits,
        live: Live,
        tracing: Tracing,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._steering = steering
        self._metrics = metrics
        self._log = log
        self._limits = limits
        self._live = live
        self._tracing = tracing
        self._usage = UsageWatch(clock, metrics.usage_far_off)

    def call_started(self, start: CallStart) -> None:
        """Spool the start, so that a crash leaves a trace of the call."""
        self._ledger.call_started(start)

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        """Count it as in flight."""
        model = call.model
        self._steering.attempt_started(model, start)
        self._metrics.attempt_started(model, start)
        if (live := self._live.own) is not None:
            live.attempt_started(call, start)

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """Count it on the board."""
        self._steering.first_token(model, prompt_class, start, ttft_s, ago_s)
        if (live := self._live.own) is not None:
            live.first_token(start, ttft_s)

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        """Update board, health and metrics."""
        self._steering.attempt_ended(model, prompt_class, attempt, ago_s)
        self._metrics.attempt_ended(model, attempt)
        if (live := self._live.own) is not None:
            live.attempt_ended(attempt, ago_s)
        if (tracing := self._tracing.own) is not None:
            tracing.attempt_ended(attempt, ago_s)

    def call_finished(self, record: CallRecord) -> None:
        """Spool the record, count it, log its line."""
        self._ledger.call_finished(record)
        self._limits.call_finished(record)
        self._steering.call_finished(record)
        self._metrics.call_finished(record)
        self._log.call_finished(record)
        if (live := self._live.own) is not None:
            live.call_finished(record)
        if (tracing := self._tracing.own) is not None:
            tracing.call_finished(record)
        for attempt in record.attempts:
            if attempt.id == record.winner_attempt_id:
                self._usage.answered(attempt.model or record.model, attempt)

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        """Spool the row of a loser that was watched beyond its call, and count its cost."""
        self._limits.attempt_audited(attempt)
        self._metrics.attempt_audited(model, attempt, duplicate_usd)
        self._ledger.attempts_ended(attempt.call_id, (attempt,))
        if (tracing := self._tracing.own) is not None:
            tracing.attempt_audited(attempt)
