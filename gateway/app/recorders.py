"""The recorders of a gateway, combined to one ``Recorder``."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
import structlog

from gateway.alerts.stated_models import StatedModels
from gateway.core.attempts import AttemptRecord, AttemptStart, Role
from gateway.core.calls import Call, CallRecord, CallStart
from gateway.core.prompt_classes import PromptClass
from gateway.core.records import PROBES
from gateway.ledger import Ledger, LedgerError
from gateway.limits import Leases, Limits, spent_by_quota
from gateway.live.live import Live
from gateway.racing import PausesByDeployment
from gateway.steering import Spending, Steering
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
        stated: StatedModels,
        clock: Callable[[], float],
    ) -> None:
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
        self._ledger.call_started(start)

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        """Count it as in flight."""
        model = start.model or call.model
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
                if attempt.model_version not in self._stated.known.get(attempt.deployment, ()):
                    self._stated.add(attempt.deployment, attempt.model_version)
                stated = attempt.system_fingerprint
                if stated is not None and stated not in self._stated.fingerprints.known.get(attempt.deployment, ()):
                    self._stated.add_fingerprint(attempt.deployment, stated, attempt.model_version)

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        """Spool the row of a loser that was measured beyond its call, and count its cost."""
        self._limits.attempt_audited(attempt)
        self._metrics.attempt_audited(model, attempt, duplicate_usd)
        self._ledger.attempts_ended(attempt.call_id, (attempt,))
        if (tracing := self._tracing.own) is not None:
            tracing.attempt_audited(attempt)


# Loaded from the ledger at the start: the figures of the last day, and the spending of this day and month.

_SUMS_PER_SLICE = 2000  # take some milliseconds of the event loop
_SPENDING_RETRY_S = 10.0
_SPENDING_TIMEOUT_S = 3.0  # a database that is away must not delay the start
_SUMS_AFTER_S = (0.0, 10.0, 60.0)  # the database may start together with the gateway

_log = structlog.get_logger(__name__)


class StartupHistory:
    """Loads from ``ledger`` what steering and limits knew before a restart. The database may be away."""

    def __init__(
        self,
        ledger: Ledger,
        steering: Steering,
        leases: Leases,
        spending: Spending,
        *,
        teams: Callable[[], Mapping[str, str]],
        payer_of: Callable[[], Callable[[str], str]],
        unix_clock: Callable[[], float],
    ) -> None:
        """``teams`` returns the team of each client, by the client's name; ``payer_of`` that method of the fleet."""
        self._teams = teams
        self._payer_of = payer_of
        self._spending = spending
        self._ledger = ledger
        self._steering = steering
        self._leases = leases
        self._unix_clock = unix_clock

    async def load_sums(self) -> None:
        """Load the ledger's sums of the last day into steering. No call waits for this."""
        for wait_s in _SUMS_AFTER_S:
            await asyncio.sleep(wait_s)
            try:
                sums = await self._ledger.remembered()
                for start in range(0, len(sums), _SUMS_PER_SLICE):
                    self._steering.recollect(sums[start : start + _SUMS_PER_SLICE])
                    await asyncio.sleep(0)
            except LedgerError as error:
                # Event steering.not_recollected: The figures of the last day could not be read at the start. Steering
                # learns from new calls alone, and tries again.
                # Do: Nothing.
                _log.info("steering.not_recollected", error=str(error))
            else:
                # Event steering.recollected: The figures of the last day were read at the start.
                # Do: Nothing.
                _log.debug("steering.recollected", models=len({each.model for each in sums}))
                return

    async def load_pauses(self, pauses: PausesByDeployment) -> None:
        """Load how long the latest streams of each deployment paused in their text. No call waits for this."""
        with suppress(LedgerError):  # then they are learnt again
            pauses.refill(await self._ledger.text_gaps())

    async def load_spending(self) -> bool:
        """Load what was spent today and this month, so that a restart does not reset the limits.

        Return whether the database answered.
        """
        unix_s = self._unix_clock()  # before it answers: what it says may be of the day that ends meanwhile
        try:
            async with asyncio.timeout(_SPENDING_TIMEOUT_S):
                rows = await self._ledger.spent()
        except (LedgerError, TimeoutError) as error:
            # Event limits.not_recollected: What clients and races have spent before the start could not be read, so
            # limits in dollars may allow too much until it can.
            # Do: Make the database reachable: it is tried again.
            _log.warning(
                "limits.not_recollected",
                error=str(error) or type(error).__name__,
                hint="what was spent before the start is not counted yet, unless Redis knows it",
            )
            return False
        payer_of = self._payer_of()
        self._leases.recollect(spent_by_quota(rows, unix_s, self._teams(), payer_of))
        self._spending.recollect(rows, unix_s, payer_of)
        return True

    async def retry_spending(self, after_s: float = _SPENDING_RETRY_S) -> None:
        """Try in ``after_s`` seconds, and again until the database answers."""
        while True:
            await asyncio.sleep(after_s)
            if await self.load_spending():
                return
            after_s = _SPENDING_RETRY_S


# Probes are recorded by steering, by metrics of attempts and in the ledger's attempts, not where calls, clients or
# their money are counted.

NUMBER = 0  # of a probe's attempt: it belongs to no call


class ProbeRecorder:
    """The recorder of probes."""

    def __init__(self, steering: Steering, metrics: Metrics, ledger: Ledger) -> None:
        self._steering = steering
        self._metrics = metrics
        self._ledger = ledger

    def call_started(self, start: CallStart) -> None:
        """Do nothing: the probe is in the book already."""

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        """Count it as in flight."""
        start = _started(start)
        self._steering.attempt_started(call.model, start)
        self._metrics.attempt_started(call.model, start)

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """Count it on the board."""
        self._steering.first_token(model, prompt_class, _started(start), ttft_s, ago_s)

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        """Update board, health and metrics."""
        attempt = as_probe(attempt)
        self._steering.attempt_ended(model, prompt_class, attempt, ago_s)
        self._metrics.attempt_ended(model, attempt)

    def call_finished(self, record: CallRecord) -> None:
        """Store its attempt, not the call: there was none."""
        if record.attempts:
            self._ledger.attempts_ended(record.id, tuple(as_probe(attempt) for attempt in record.attempts))

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        """Never called: a probe has one attempt, so there is no loser."""


def as_probe(attempt: AttemptRecord) -> AttemptRecord:
    """Return the record of a probe's attempt.

    It lacks the fields from which figures of calls and clients are made: gaps between chunks, caches, answer quality.
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
