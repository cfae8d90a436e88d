"""The recorders of a gateway, combined to one ``Recorder``."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from math import hypot, inf, sqrt
from statistics import median
from typing import NamedTuple

import msgspec
import structlog

from gateway.alerts.stated_models import StatedModels
from gateway.api.stored_responses import InBackground
from gateway.app.named_rows import NamedRows
from gateway.core.attempts import AttemptRecord, AttemptStart, Outcome, Role, TokensSource
from gateway.core.calls import Call, CallRecord, CallStart, Used
from gateway.core.prompt_classes import MeasuredApi, PromptClass
from gateway.core.records import PROBES
from gateway.core.tasks import end_if_cancelled
from gateway.ledger import Ledger, LedgerError
from gateway.limits import Leases, Limits, Zones, began_s, spent_by_owners, used_by_quota
from gateway.live.live import Live
from gateway.racing import PausesByDeployment
from gateway.steering import Spending, Steering
from gateway.tracing.tracing import Tracing
from gateway.watching.logs import CallLog
from gateway.watching.metrics import Metrics


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
        model = start.model or call.how.model
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
        """Spool the record, count it, log its line."""
        kept = self._names.call(record) if self._patterns() else record
        self._ledger.call_finished(kept)
        self._limits.call_finished(record)
        self._steering.call_finished(record)
        self._metrics.call_finished(record)
        self._log.call_finished(record)
        if (live := self._live.own) is not None:
            live.call_finished(record)
        if (tracing := self._tracing.own) is not None:
            tracing.call_finished(record)
        for attempt in kept.attempts:
            if attempt.id == kept.winner_attempt_id:
                self._usage.answered(attempt.model or kept.model, attempt)
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


# Loaded from the ledger at the start: the figures of the last day, and what was used in the windows of limits.

_SUMS_PER_SLICE = 2000  # take some milliseconds of the event loop
_SPENDING_RETRY_S = 10.0
_SPENDING_TIMEOUT_S = 3.0  # a database that is away must not delay the start
SPOOL_WITHIN_S = 3.0  # a start waits so long for what waits on disk: half a GB
FIGURES_WITHIN_S = 1.0  # a start waits so long for them; then its first calls go on without
_FIGURES_AFTER_S = (0.0, 10.0, 60.0)  # the database may start together with the gateway
_PAYERS_AGAIN_S = 60.0  # their rows are many: a database that took too long is asked less often

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
        zones: Callable[[], Zones] = Zones,
        board_is_shared: bool = False,
        has_answered: Callable[[], Callable[..., None]] = lambda: lambda *_: None,
    ) -> None:
        """``teams`` returns the team of each client, by the client's name; ``payer_of`` that method of the fleet.

        ``zones`` returns whose windows are of which zone.

        ``has_answered`` returns the fleet's method of this name, which is told the names that the ledger has.
        ``board_is_shared``: other replicas, or this one before, have the last minutes on a board in Redis.
        """
        self._board_is_shared = board_is_shared
        self._tried = asyncio.Event()
        self._payers_tried = asyncio.Event()
        self._payers_tried.set()  # nobody has asked
        self._by_quota: Mapping[str, float] = {}
        self._of_payers: Mapping[str, float] = {}
        self._added: Mapping[str, float] = {}  # of the first, what was set at run time
        self._added_payers: Mapping[str, float] = {}  # … of the second
        self._handed_over: Mapping[str, float] = {}  # at least so much was used, of limits that were set again
        self._in_background: Mapping[str, float] = {}
        self._adding = asyncio.Lock()
        self._is_told = False  # by the database, what clients have used
        self._zones = zones
        self._attempts: int | None = None
        self._teams = teams
        self._payer_of = payer_of
        self._has_answered = has_answered
        self._spending = spending
        self._ledger = ledger
        self._steering = steering
        self._leases = leases
        self._unix_clock = unix_clock

    async def load_figures(self) -> None:
        """Load the figures of the last day into steering: without a shared board also those of the last minutes."""
        for wait_s in _FIGURES_AFTER_S:
            await asyncio.sleep(wait_s)
            try:
                sums = await self._ledger.remembered()
                lately = {} if self._board_is_shared else await self._ledger.lately()
                self._has_answered()(*dict.fromkeys(each.model for each in sums))
            except LedgerError as error:
                # Event steering.not_recollected: The last day's figures could not be read at the start. Steering learns
                # from new calls, and tries again.
                # Do: Nothing.
                _log.info("steering.not_recollected", error=str(error))
                self._tried.set()
            else:
                for start in range(0, len(sums), _SUMS_PER_SLICE):
                    self._steering.recollect(sums[start : start + _SUMS_PER_SLICE])
                    await asyncio.sleep(0)
                self._attempts = round(sum(each.n for each in sums if each.metric == "n"))
                self._attempts += self._steering.recall(lately)
                self._tried.set()
                # Event steering.recollected: The last day's figures were read at the start: of so many `attempts` at
                # deployments of so many `models`. Without Redis, those of the last ten minutes are among them.
                # Do: Nothing.
                models = {each.model for each in sums} | lately.keys()
                _log.info("steering.recollected", attempts=self._attempts, models=len(models))
                return

    async def tried(self, most_s: float = FIGURES_WITHIN_S) -> None:
        """Wait until the figures are there, or could not be read; at most so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._tried.wait()
                await self._payers_tried.wait()

    @property
    def attempts(self) -> int | None:
        """The attempts before the start that steering knows; None while they are not read."""
        return self._attempts

    async def load_pauses(self, pauses: PausesByDeployment) -> None:
        """Load how long the latest streams of each deployment paused in their text. No call waits for this."""
        with suppress(LedgerError):  # then they are learnt again
            pauses.refill(await self._ledger.text_gaps())

    async def load_spending(self) -> bool:
        """Load what was used in the windows that last, so that a restart does not reset the limits.

        Return whether the database answered.
        """
        unix_s, zones = self._unix_clock(), self._zones()  # before it answers: what it says may be of a day that ends
        try:
            async with asyncio.timeout(_SPENDING_TIMEOUT_S):
                rows = await self._ledger.spent()
                used = await self._ledger.used(began_s(zones, unix_s))
        except (LedgerError, TimeoutError) as error:
            # Event limits.not_recollected: What was spent before the start could not be read yet, so limits in dollars
            # may allow too much: of it only what rows in the spool have cost is counted.
            # Do: Make the database reachable.
            _log.warning(
                "limits.not_recollected",
                error=str(error) or type(error).__name__,
                hint="of what was spent before the start only rows that wait on this disk count, or what Redis knows",
            )
            return False
        payer_of = self._payer_of()
        self._is_told = True
        self._by_quota = {**used_by_quota(used, unix_s, self._teams(), payer_of, zones), **self._added}
        self._count()
        self._spending.recollect(rows, unix_s, payer_of)
        return True

    async def count_spooled(self) -> None:
        """Let limits go on from what waits on disk. What the database tells later has that too, and replaces it."""
        unix_s, zones = self._unix_clock(), self._zones()
        waiting = await self._ledger.spooled(began_s(zones, unix_s))
        teams, payer_of = self._teams(), self._payer_of()
        used: list[list[Used]] = [[], []]
        for each in waiting.used:
            used[each.team is not None or each.end_user is not None].append(each)
        self._of_payers = self._of_payers or used_by_quota(used[True], unix_s, teams, payer_of, zones)
        if not self._is_told:
            self._by_quota = used_by_quota(used[False], unix_s, teams, payer_of, zones)
            self._spending.recollect(waiting.spent, unix_s, payer_of)
        self._count()

    def _count(self) -> None:
        """Let limits go on from all that is known to be spent."""
        known = dict(self._of_payers)
        for more in (self._by_quota, self._in_background):
            for key, usd in more.items():
                known[key] = known.get(key, 0.0) + usd
        for key, usd in self._handed_over.items():
            known[key] = max(known.get(key, 0.0), usd)
        self._leases.recollect(known)

    def count_background(self, calls: Iterable[tuple[InBackground, float]]) -> None:
        """Let limits count so many US dollars for each response that ran in the background at the start."""
        each = [(begun.owners, begun.ran_as, usd, begun.since_s) for begun, usd in calls]
        self._in_background = spent_by_owners(each, self._unix_clock(), self._payer_of(), self._zones())
        self._count()

    async def load_payers(self, names: Collection[str]) -> None:
        """Load what teams and end users have used, until the database tells. Its rows are read: it may take seconds.

        ``names``: the limits that one of them has.
        """
        self._payers_tried.clear()
        after_s = _SPENDING_RETRY_S
        while True:
            unix_s, zones = self._unix_clock(), self._zones()
            try:
                rows = await self._ledger.used_by_payers(began_s(zones, unix_s, names))
            except LedgerError as error:
                # Event limits.payers_not_recollected: What teams and end users had spent before the start could not be
                # read yet, so their limits in dollars may allow too much. It is tried again.
                # Do: Make the database reachable. If its answer takes longer than 10 seconds, give it more memory, or
                # keep fewer rows.
                _log.warning("limits.payers_not_recollected", error=str(error))
            else:
                self._of_payers = {**used_by_quota(rows, unix_s, self._teams(), zones=zones), **self._added_payers}
                self._count()
                return
            finally:
                self._payers_tried.set()
            end_if_cancelled()
            await asyncio.sleep(after_s)
            after_s = _PAYERS_AGAIN_S

    def hand_over(self, used: Mapping[str, float]) -> None:
        """Let the quotas of these keys go on from what they had used here, until ``count_added`` knows of more.

        The ledger knows of less where a day of another zone began later: what was used on its date counts on.
        """
        if used:
            self._handed_over = {**self._handed_over, **used}
            self._count()

    async def count_added(self, counted: Collection[str], names: Collection[str], until: datetime) -> None:
        """Let limits that are set or changed at run time go on from what was used before in their windows.

        Calls that run now count at those that were set when they began. ``counted``: the keys of the quotas that count
        since the start, so that nothing is to be added to them. ``names``: the limits of teams and end users, if any
        of these are new. ``until``: when they were set: calls that began later are counted by the limits themselves.
        """
        unix_s, payers_used = self._unix_clock(), list[Used]()
        async with self._adding:  # what is set later counts what this finds
            while True:
                try:
                    zones = self._zones()
                    used = await self._ledger.used(began_s(zones, unix_s), until)
                    if names:
                        payers_used = await self._ledger.used_by_payers(began_s(zones, unix_s, names), until)
                    spent = None if self._is_told else await self._ledger.spent()  # None: there was a limit before
                except LedgerError as error:
                    # Event limits.not_counted_before: A limit was set at run time, and what was used before in its
                    # window could not be read yet, so that it may allow too much. It is tried again.
                    # Do: Make the database reachable.
                    _log.warning("limits.not_counted_before", error=str(error))
                else:
                    teams, payer_of = self._teams(), self._payer_of()
                    found = used_by_quota(used, unix_s, teams, payer_of, zones)
                    if spent is not None and not self._is_told:
                        self._spending.recollect(spent, unix_s, payer_of)
                        self._is_told = True
                    self._by_quota = _with(self._by_quota, found, counted)
                    if names:
                        found = used_by_quota(payers_used, unix_s, teams, zones=zones)
                        self._of_payers = _with(self._of_payers, found, counted)
                    # What the start reads again until the database answers knows less of these.
                    self._added = _kept(self._added, self._by_quota, counted)
                    if names:
                        self._added_payers = _kept(self._added_payers, self._of_payers, counted)
                    self._count()
                    return
                end_if_cancelled()
                await asyncio.sleep(_SPENDING_RETRY_S)

    async def retry_spending(self, after_s: float = _SPENDING_RETRY_S) -> None:
        """Try in ``after_s`` seconds, and again until the database answers."""
        while True:
            await asyncio.sleep(after_s)
            if await self.load_spending():
                return
            end_if_cancelled()
            after_s = _SPENDING_RETRY_S


def _with(before: Mapping[str, float], found: Mapping[str, float], counted: Collection[str]) -> dict[str, float]:
    """Return what was used by the key of the quota: of those that count already as before, of others as found now."""
    return {
        **{key: amount for key, amount in found.items() if key not in counted},
        **{key: amount for key, amount in before.items() if key in counted},
    }


def _kept(before: Mapping[str, float], now: Mapping[str, float], counted: Collection[str]) -> dict[str, float]:
    return {**before, **{key: amount for key, amount in now.items() if key not in counted}}


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
        """Count the attempt as in flight."""
        start = _started(start)
        self._steering.attempt_started(call.how.model, start)
        self._metrics.attempt_started(call.how.model, start)

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


# Finds providers that count tokens unlike others: one that reports twice as many is paid twice as much, and looks
# faster.
#
# What a provider reports of a prompt or an answer is held against our own estimate of the same text. Of each
# deployment's answers a line is kept, by least squares: reported = factor * estimated + surplus, each answer weighed by
# its length. It is compared with those of the model's other deployments: tokenizers differ, languages and code differ
# from words, and both are shared. Without others only an answer's factor far from any known text's is told.

ANSWERS = 20  # of a deployment, between comparisons
LEAST_TEXTS = 10  # of a deployment, to be compared
FAR_OFF_FACTOR = 1.6  # from the others' tokens for the same estimate, up or down; honest tokenizers differ by less
ERRORS = 2.0  # standard errors, by which the factor must be more than that
KNOWN_TEXTS = (0.25, 6.0)  # tokens for four characters: below any text's; above, only few tokenizers' Chinese
UNSEEN = 0.4  # residual from the line, as a share: more is thinking that was not sent, or a cache that was not counted
USUAL = {"answer": 1.0, "prompt": 0.8}  # ratio to our estimate, that of a prompt is of its whole body: of two, the
# deployment farther from it is suspected
SURPLUS_TOKENS = 50  # least constant surplus that is told,
SURPLUS_ERRORS = 5.0  # if it is so many standard errors
SAME_SLOPE = 1.3  # factor between two lines' slopes, up to which the difference is a surplus
NOTED_TOKENS = 500  # a smaller constant surplus of a prompt is mostly a template: it is noted
DOUBTFUL = 0.75  # share of answers whose counts cannot be, at which that is told
CHARS_PER_TOKEN = 4
SHORTEST_TOKENS = 10  # estimated; shorter texts are not used
ANSWERS_KEPT = 1000  # at this number, the weight of earlier ones is halved
LOGGED_EVERY_S = 3600.0
NOTED_EVERY_S = 86_400.0
MODELS_WATCHED = 1000  # clients may name any list of models: of those beyond, the last is watched


class UsageWatch:
    """Compares reported tokens by model; logs a warning, once an hour, for a deployment that is far off.

    ``clock`` is monotonic, seconds. ``on_far_off`` is called with model and deployment for each comparison that finds
    one far off. The view ``provider_errors`` does the same in the ledger for answers, by their tokens per character.
    """

    def __init__(self, clock: Callable[[], float], on_far_off: Callable[[str, str], None] = lambda *_: None) -> None:
        self._clock = clock
        self._on_far_off = on_far_off
        self._stated: dict[str, dict[str, _Stated]] = {}  # by model and deployment
        self._logged_at_s: dict[tuple[str, str, str], float] = {}

    def answered(self, model: str, attempt: AttemptRecord) -> None:
        """Add the attempt that answered a call, with its costs settled."""
        source = attempt.tokens_source
        is_believed = source is TokensSource.REPORTED
        if attempt.outcome is not Outcome.WON or not (is_believed or attempt.reported_tokens is not None):
            return
        chars, prompt = attempt.chars or 0, attempt.asked_tokens or 0
        is_text = chars >= SHORTEST_TOKENS * CHARS_PER_TOKEN and not attempt.reasoning_tokens
        if is_believed and not (is_text or prompt >= SHORTEST_TOKENS):
            return  # reasoning that was not streamed has no characters
        by_deployment = self._stated.get(model)
        if by_deployment is None:
            if len(self._stated) >= MODELS_WATCHED:
                self._stated.popitem()
            by_deployment = self._stated[model] = {}
        stated = by_deployment.get(attempt.deployment) or by_deployment.setdefault(attempt.deployment, _Stated())
        stated.answers += 1
        if not is_believed:
            stated.doubtful += 1
        else:
            if is_text and attempt.completion_tokens:
                stated.answer.add(chars / CHARS_PER_TOKEN, attempt.completion_tokens)
            if prompt >= SHORTEST_TOKENS and attempt.prompt_tokens:
                stated.prompt.add(prompt, attempt.prompt_tokens)
        if stated.answers >= ANSWERS:
            self._compare(model, attempt)
            stated.answers = stated.doubtful = 0

    def _compare(self, model: str, attempt: AttemptRecord) -> None:
        name, by_deployment = attempt.deployment, self._stated[model]
        mine = by_deployment.pop(name)
        try:
            others = list(by_deployment.values())
            found = (
                _judged("answer", mine.answer, [each.answer for each in others if each.answer.n >= LEAST_TEXTS]),
                _judged("prompt", mine.prompt, [each.prompt for each in others if each.prompt.n >= LEAST_TEXTS]),
            )
        finally:
            by_deployment[name] = mine
        if mine.doubtful >= DOUBTFUL * mine.answers:
            counted = max(1, attempt.completion_tokens or 0, attempt.prompt_tokens or 0)
            found = (_Finding("count", (attempt.reported_tokens or 0) / counted), None)
        for finding in found:
            if finding is not None and finding.is_note:
                self._note(model, name, finding)
        far = next((each for each in found if each is not None and not each.is_note), None)
        if far is not None:
            self._warn(model, name, far)

    def _warn(self, model: str, deployment: str, found: "_Finding") -> None:
        self._on_far_off(model, deployment)
        if self._is_due((model, deployment, "far_off"), LOGGED_EVERY_S):
            # Event usage.far_off: A deployment reports `times` as many tokens `of` its prompts or answers as others of
            # the model do for such texts, or as these can have; with `surplus_tokens` so many more for each. `of` is
            # `count` where counts cannot be (none for a text), so that estimates are used. Costs and tok/s come from
            # what providers report.
            # Do: Compare its usage and bill with another provider's for one text.
            _log.warning(
                "usage.far_off",
                model=model,
                deployment=deployment,
                of=found.of,
                times=round(found.times, 2),
                surplus_tokens=None if found.surplus is None else round(found.surplus),
                effect="costs and tok/s are computed from the tokens that the provider reports",
                hint="compare its usage with another provider's for the same text",
            )

    def _note(self, model: str, deployment: str, found: "_Finding") -> None:
        if self._is_due((model, deployment, "surplus"), NOTED_EVERY_S):
            # Event usage.surplus: A deployment reports `surplus_tokens` more for each prompt than others of the model:
            # mostly a chat template, or instructions that its provider adds.
            # Do: Ask the provider what it adds.
            _log.info("usage.surplus", model=model, deployment=deployment, surplus_tokens=round(found.surplus or 0.0))

    def _is_due(self, key: tuple[str, str, str], every_s: float) -> bool:
        now_s = self._clock()
        if now_s - self._logged_at_s.get(key, -inf) < every_s:
            return False
        if len(self._logged_at_s) >= MODELS_WATCHED:
            self._logged_at_s.clear()
        self._logged_at_s[key] = now_s
        return True


class _Finding(NamedTuple):
    """What is odd, ``of`` prompt, answer or all that was reported (count): the factor; tokens more, if constant."""

    of: str
    times: float
    surplus: float | None = None

    @property
    def is_note(self) -> bool:
        """Whether the report is a mere note: it costs little, and is mostly no fault."""
        return self.of == "prompt" and self.surplus is not None and self.surplus < NOTED_TOKENS


class _Stated:
    """The reports of one deployment. ``answers`` are those since it was compared, ``doubtful`` those not believed."""

    __slots__ = ("answer", "answers", "doubtful", "prompt")

    def __init__(self) -> None:
        self.answers = self.doubtful = 0
        self.answer = _Reports()
        self.prompt = _Reports()


class _Line(NamedTuple):
    """The line of some reports: means of estimate and report and of their ratio, with its error; slope and surplus."""

    estimated: float
    reported: float
    ratio: float
    ratio_error: float
    residual: float  # share
    slope: float
    slope_error: float  # inf: texts were as long as each other
    surplus: float
    surplus_error: float


class _Reports:
    """Sums of what was reported, over estimates of the same texts: of 1 / estimate (u) and report / estimate (r)."""

    __slots__ = ("n", "r", "rr", "u", "ur", "uu", "x", "y")

    def __init__(self) -> None:
        self.n = 0
        self.x = self.y = self.u = self.r = self.uu = self.ur = self.rr = 0.0

    def add(self, estimated: float, reported: int) -> None:
        """Add one report."""
        if self.n >= ANSWERS_KEPT:
            self.n //= 2
            for name in ("x", "y", "u", "r", "uu", "ur", "rr"):
                setattr(self, name, getattr(self, name) / 2)
        u, r = 1.0 / estimated, reported / estimated
        self.n += 1
        self.x += estimated
        self.y += reported
        self.u += u
        self.r += r
        self.uu += u * u
        self.ur += u * r
        self.rr += r * r

    def line(self) -> _Line:
        """Return the line of at least two reports."""
        n, u, r = self.n, self.u / self.n, self.r / self.n
        spread = max(0.0, self.uu - n * u * u)
        varied = max(0.0, self.rr - n * r * r)
        slope, slope_error, surplus, surplus_error = r, inf, 0.0, inf
        residual = varied
        if spread > 1e-3 * self.uu and n > 2:  # noqa: PLR2004 - a line has two parameters
            surplus = (self.ur - n * u * r) / spread
            residual = max(0.0, varied - surplus * surplus * spread)
            slope = r - surplus * u
            surplus_error = sqrt(residual / (n - 2) / spread)
            slope_error = sqrt(residual / (n - 2) * (1 / n + u * u / spread))
        return _Line(
            self.x / n,
            self.y / n,
            r,
            sqrt(varied / (n - 1) / n) / r,
            sqrt(residual / (n - 1)) / r,
            slope,
            slope_error,
            surplus,
            surplus_error,
        )


def _judged(of: str, mine: _Reports, others: list[_Reports]) -> _Finding | None:
    """Return what is odd about a deployment's reports beside those of ``others``; None for nothing, or too few."""
    if mine.n < LEAST_TEXTS:
        return None
    if others:
        return _beside(of, mine.line(), sorted((each.line() for each in others), key=lambda each: each.ratio))
    line, (low, high) = mine.line(), KNOWN_TEXTS
    is_odd = of == "answer" and line.residual <= UNSEEN and not low < line.ratio < high
    return _Finding(of, line.ratio) if is_odd else None


def _beside(of: str, line: _Line, others: list[_Line]) -> _Finding | None:
    """Return what is odd about a line beside those of ``others``, which are sorted by their ratio."""
    rival = others[(len(others) - 1) // 2]
    usual = median(each.ratio for each in others)
    upper = others[len(others) // 2]
    if upper.ratio > FAR_OFF_FACTOR * rival.ratio:  # two that do not agree: the one that this one is nearer to
        rival = upper if line.ratio * line.ratio > upper.ratio * rival.ratio else rival
        usual = rival.ratio
    is_the_usual_one = len(others) == 1 and _oddness(of, line.ratio) <= _oddness(of, usual)
    if is_the_usual_one or line.residual > max(UNSEEN, 1.5 * rival.residual):
        return None
    times, surplus = line.ratio / usual, line.surplus - rival.surplus
    least_surplus = max(SURPLUS_TOKENS, SURPLUS_ERRORS * hypot(line.surplus_error, rival.surplus_error))
    least = FAR_OFF_FACTOR * (1 + ERRORS * hypot(line.ratio_error, rival.ratio_error))
    is_parallel = rival.slope / SAME_SLOPE <= line.slope <= rival.slope * SAME_SLOPE
    if surplus >= least_surplus and is_parallel:
        return _Finding(of, times, surplus)
    if 1 / least <= times <= least:
        return None
    is_factor = (
        times < 1 or line.slope_error < (SAME_SLOPE - 1) * line.slope
    )  # else it may be a template: none can tell
    return _Finding(of, times, None if is_factor or of != "prompt" else line.reported - usual * line.estimated)


def _oddness(of: str, ratio: float) -> float:
    from_usual = ratio / USUAL[of]
    return max(from_usual, 1 / from_usual)
