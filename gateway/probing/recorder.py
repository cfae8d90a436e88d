"""Who hears of a probe: steering and the ledger's attempts. Nothing that counts calls, clients or their money."""

from typing import Protocol

import msgspec

from gateway.attempt_records import AttemptRecord, AttemptStart, Role
from gateway.calls import Call, CallRecord, CallStart
from gateway.probe_records import PROBES
from gateway.prompt_classes import PromptClass

NUMBER = 0  # of a probe's attempt: it belongs to no call


class Learns(Protocol):
    """Learns from attempts (steering)."""

    def attempt_started(self, model: str, start: AttemptStart) -> None:
        """An attempt starts."""

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """An attempt has its first token."""

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        """An attempt has ended."""


class Counts(Protocol):
    """Counts attempts (metrics)."""

    def attempt_started(self, model: str, start: AttemptStart) -> None:
        """An attempt starts."""

    def attempt_ended(self, model: str, attempt: AttemptRecord) -> None:
        """An attempt has ended."""


class Stores(Protocol):
    """Stores attempts (the ledger)."""

    def attempts_ended(self, call_id: str, attempts: tuple[AttemptRecord, ...]) -> None:
        """Attempts have ended."""


class ProbeRecorder:
    """The recorder of probes."""

    def __init__(self, learns: Learns, counts: Counts, stores: Stores) -> None:
        self._learns = learns
        self._counts = counts
        self._stores = stores

    def call_started(self, start: CallStart) -> None:
        """Do nothing: the book has it."""

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        """Count it as in flight."""
        start = _started(start)
        self._learns.attempt_started(call.model, start)
        self._counts.attempt_started(call.model, start)

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """Count it on the board."""
        self._learns.first_token(model, prompt_class, _started(start), ttft_s, ago_s)

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        """Update board, health and metrics."""
        attempt = as_probe(attempt)
        self._learns.attempt_ended(model, prompt_class, attempt, ago_s)
        self._counts.attempt_ended(model, attempt)

    def call_finished(self, record: CallRecord) -> None:
        """Store its attempt, not the call: there was none."""
        if record.attempts:
            self._stores.attempts_ended(record.id, tuple(as_probe(attempt) for attempt in record.attempts))

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        """Never called: nothing else runs, so nothing loses."""


def as_probe(attempt: AttemptRecord) -> AttemptRecord:
    """Return the record of a probe's attempt.

    It is without what figures of calls and clients are made of: gaps between chunks, caches and the quality of answers.
    """
    return msgspec.structs.replace(
        attempt,
        role=Role.PROBE,
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
    return msgspec.structs.replace(start, role=Role.PROBE, number=NUMBER)
