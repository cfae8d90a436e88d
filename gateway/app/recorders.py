"""The recorders of a gateway, combined to one ``Recorder``."""

from collections.abc import Callable

import msgspec

from gateway.alerts import StatedModels
from gateway.app.named_rows import NamedRows
from gateway.app.usage_watch import UsageWatch
from gateway.core.attempts import AttemptRecord, AttemptStart, Role
from gateway.core.calls import Call, CallRecord, CallStart
from gateway.core.prompt_classes import MeasuredApi, PromptClass
from gateway.core.records import PROBES
from gateway.ledger import Ledger
from gateway.limits import Limits
from gateway.live import Live
from gateway.steering import Steering
from gateway.tracing import Tracing
from gateway.watching import CallLog, Metrics


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
        stated: StatedModels,
        names: NamedRows,
        clock: Callable[[], float],
    ) -> None:
        self._names, self._patterns = names, names.patterns
        self._ledger = ledger
        self._steering = steering
        self._metrics = metrics
        self._log = log
        self._limits = limits
        self._live = live
        self._tracing = tracing
        self._stated = stated
        self._usage = UsageWatch(clock, metrics.usage_far_off)

    def call_started(self, start: CallStart) -> None:
        """Spool the start, so that a crash leaves a trace of the call."""
        self._ledger.call_started(self._names.start(start) if self._patterns() else start)

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        """Count the attempt as in flight."""
        model = start.model or call.decision.model
        self._steering.attempt_started(model, start)
        self._metrics.attempt_started(model, start)
        if (live := self._live.own) is not None:
            live.attempt_started(call, start)

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """Count the first token on the board."""
        self._steering.first_token(model, prompt_class, start, ttft_s, ago_s)
        if (live := self._live.own) is not None and prompt_class.api is not MeasuredApi.WHOLE:
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
        """Spool the record, count the call, log its line."""
        row = self._names.call(record) if self._patterns() else record
        self._ledger.call_finished(row)
        self._limits.call_finished(record)
        self._steering.call_finished(record)
        self._metrics.call_finished(record)
        self._log.call_finished(record)
        if (live := self._live.own) is not None:
            live.call_finished(record)
        if (tracing := self._tracing.own) is not None:
            tracing.call_finished(record)
        for attempt in row.attempts:
            if attempt.id == row.winner_attempt_id:
                self._usage.answered(attempt.model or row.model, attempt)
                if attempt.model_version not in self._stated.known.get(attempt.deployment, ()):
                    self._stated.add(attempt.deployment, attempt.model_version)
                stated = attempt.system_fingerprint
                if stated is not None and stated not in self._stated.fingerprints.known.get(attempt.deployment, ()):
                    self._stated.add_fingerprint(attempt.deployment, stated, attempt.model_version)

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        """Spool the row of a loser that was measured beyond its call, and count its cost."""
        self._limits.attempt_audited(attempt)
        self._metrics.attempt_audited(model, attempt, duplicate_usd)
        self._ledger.attempts_ended(attempt.call_id, (self._names.attempt(model, attempt),))
        if (tracing := self._tracing.own) is not None:
            tracing.attempt_audited(attempt)


# Probes are recorded by steering, by metrics of attempts and in the ledger's attempts, not where calls, clients or
# their money are counted.

NUMBER = 0  # of a probe's attempt, which belongs to no call


class ProbeRecorder:
    """The recorder of probes."""

    def __init__(self, steering: Steering, metrics: Metrics, ledger: Ledger) -> None:
        self._steering = steering
        self._metrics = metrics
        self._ledger = ledger

    def call_started(self, start: CallStart) -> None:
        """Do nothing: the probe is in the book already."""

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        """Count the attempt as in flight."""
        start = _started(start)
        self._steering.attempt_started(call.decision.model, start)
        self._metrics.attempt_started(call.decision.model, start)

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """Count the first token on the board."""
        self._steering.first_token(model, prompt_class, _started(start), ttft_s, ago_s)

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        """Update board, health and metrics."""
        attempt = as_probe(attempt)
        self._steering.attempt_ended(model, prompt_class, attempt, ago_s)
        self._metrics.attempt_ended(model, attempt)

    def call_finished(self, record: CallRecord) -> None:
        """Store the probe's attempt, but no call."""
        if record.attempts:
            self._ledger.attempts_ended(record.id, tuple(as_probe(attempt) for attempt in record.attempts))

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        """Never called: a probe has one attempt, so there is no loser."""


def as_probe(attempt: AttemptRecord) -> AttemptRecord:
    """Return the record of a probe's attempt.

    The record lacks the fields for figures of calls and clients: gaps between chunks, caches, answer quality.
    """
    return msgspec.structs.replace(
        attempt,
        role=Role.PROBE,
        counts_as=None,
        number=NUMBER,
        api=PROBES,
        itl=None,
        cached_tokens=None,
        cache_write_tokens=None,
        cache_saved_usd=None,
        judged_as=None,
        flaw=None,
    )


def _started(start: AttemptStart) -> AttemptStart:
    return msgspec.structs.replace(start, role=Role.PROBE, counts_as=None, number=NUMBER)
