"""Learning: updates the board's counts and the deployments' health as attempts start, answer and end."""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from gateway.core.attempts import AttemptRecord, AttemptStart, Outcome, Role
from gateway.core.calls import CallRecord
from gateway.core.log import get_logger
from gateway.core.prompt_classes import PromptClass, decoded_class
from gateway.core.race_failures import CAUSES
from gateway.core.rules import STEPS
from gateway.steering.board import Board
from gateway.steering.constants import HAIR, KNOWN_EVENTS, LATE_QUANTILE
from gateway.steering.counts import OUTPUT_TOKENS, REQUESTS, Counts, cut, event, of_api
from gateway.steering.health import Health, HealthState, OwnHealths, Trouble, late_s
from gateway.steering.outages import Outages, Shortage, Strikes
from gateway.steering.own_delay import OwnDelay
from gateway.steering.prediction import Lengths, size_of
from gateway.steering.quality import Quality
from gateway.steering.samples import NOT_COUNTED, SuspectSamples, of_end, of_token
from gateway.steering.snapshots import Snapshots
from gateway.steering.worth import ConfirmedShare
from providers import About, Clock, ErrorKind, kinds

OPERATORS = kinds(lambda facts: facts.about is About.OPERATOR)
TIMEOUTS = kinds(lambda facts: facts.clock in {Clock.CONNECT, Clock.TTFT})
UNAUTHORIZED = 401
_CERTAIN = kinds(lambda facts: not facts.is_sent and facts.about is About.DEPLOYMENT)


class _Launched(msgspec.Struct, frozen=True):
    unix_s: float  # a sample counts in the slot of its attempt's launch
    in_flight: float  # other attempts there at the launch: of this replica, and of others that report them
    in_minute: int  # launches there in the minute before
    deployment: str
    delayed_s: float  # the loop's total delay until then
    is_primary: bool = False
    is_overtaken: bool = False  # another model has overtaken the attempt, which was late and may just be slow


class Learning:
    """This replica's knowledge of all deployments, besides the board's counts."""

    def __init__(
        self,
        board: Board,
        snapshots: Snapshots,
        strikes: Strikes,
        outages: Outages,
        *,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
        own_delay: OwnDelay,
        is_made_up: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """``is_made_up`` returns whether a deployment is not in the file: its model's name is a client's."""
        self._is_made_up = is_made_up
        self.healths: dict[str, Health] = {}  # by deployment: a cool-down applies to every model it serves
        self.own = OwnHealths()  # what clients have met that does not hold for the others
        self.held: set[str] = set()  # deployments that may be out for one client alone
        self.limited: set[str] = set()  # deployments that have answered 429, or reported a limit
        self.lengths = Lengths()
        self._kept: dict[str, ConfirmedShare] = {}  # by model
        self.quality = Quality()
        self._board = board
        self._snapshots = snapshots
        self._strikes = strikes
        self.outages = outages
        self._strikes.listen(self._fails_elsewhere)
        self._clock = clock
        self._unix_clock = unix_clock
        self._own_delay = own_delay
        self._launched: dict[str, _Launched] = {}  # running attempts, by id
        self._hanging: set[str] = set()  # of these the primaries that another model has overtaken, still silent
        self._slow: set[str] = set()  # running attempts whose first token came far too late
        self._recovered_at_s: dict[str, float] = {}  # Unix time, by deployment
        self._suspects = SuspectSamples(self._count)
        self._shortage = Shortage(clock)

    def health_of(self, deployment: str) -> Health:
        """Return the health of a deployment, a new one if nothing has happened there yet."""
        health = self.healths.get(deployment)
        if health is None:
            health = self.healths[deployment] = Health()
        return health

    def healths_of(self, client: str | None) -> Mapping[str, Health]:
        """Return the health of deployments as it holds for ``client``: what the client has met itself comes first."""
        if client is None:
            return self.healths
        met = self.own.by_client.get(client, {})
        return {name: each for name, each in self.healths.items() if each.is_for(client)} | met

    def attempt_started(self, start: AttemptStart) -> None:
        """Count the attempt as in flight."""
        health, now_s = self.healths.get(start.deployment) or self.health_of(start.deployment), self._clock()
        others, health.is_probed = health.launched(now_s), not start.number
        in_minute = health.launches.in_minute(now_s)
        delayed_s = self._own_delay.lateness.total_s
        is_primary = (start.counts_as or start.role) is Role.PRIMARY
        self._launched[start.id] = _Launched(
            self._unix_clock(), others, in_minute, start.deployment, delayed_s, is_primary
        )

    def overtaken(self, attempts: Iterable[str]) -> None:
        """Note which running attempts, by id, another model has overtaken."""
        for each in attempts:
            launched = self._launched.get(each)
            if launched is not None and not launched.is_overtaken:
                self._launched[each] = msgspec.structs.replace(launched, is_overtaken=True)
                if launched.is_primary:
                    self._hanging.add(each)
                    self.health_of(launched.deployment).hangs(1)

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """Count a first token, ``ago_s`` seconds ago; the deployment is healthy unless it came far too late."""
        deployment, launched, now_s = start.deployment, self._launched.get(start.id), self._clock() - ago_s
        health, measured = self.healths.get(deployment) or self.health_of(deployment), prompt_class.measured
        if start.id in self._hanging:
            self._hangs_no_more(start.id, health)
        size = size_of(start.asked_tokens, prompt_class.size)
        estimate = self._snapshots.at(model, measured, size).of(deployment)
        sizing = self._snapshots.sizing(model, measured, deployment)
        counts = of_token(start, prompt_class, ttft_s)
        reference_s = ttft_s / sizing.factor(size)
        unix_s = self._unix_clock() - ago_s if launched is None else launched.unix_s
        limit_s = late_s(estimate.well_q95_s)
        corrected_s = ttft_s if ttft_s <= limit_s else self._own_delay.without_own_delay(ttft_s, launched, now_s)
        # An overtaken attempt that answers shows that its deployment is slow, not broken.
        runs_on = launched is not None and launched.is_overtaken
        late = not health.tripped and not runs_on and corrected_s > limit_s
        if late and estimate.usual_events >= KNOWN_EVENTS:
            self._suspects.hold_back(model, deployment, event(deployment, measured, reference_s), unix_s)
            self._slow.add(start.id)
            self._strike(model, start, "slow", ago_s)
        else:
            if health.delivered(corrected_s, estimate.well_q95_s, now_s):
                self.outages.recovered(model, deployment, ago_s)
                self._recovered_at_s[deployment] = self._unix_clock() - ago_s
            if not health.tripped:
                sizing.seen(size, ttft_s)
                self._strikes.answered(deployment, start.provider, ago_s)
                self._suspects.confirm(deployment)
            if prompt_class.is_sampled:
                # Also for a broken one: being slow for hours becomes usual.
                is_back = start.weight > 1.0 and estimate.slower_lately and ttft_s < HAIR * estimate.usual_p50_s
                counts[event(deployment, measured, reference_s)] = start.weight if is_back else 1.0
        self._count(model, counts, unix_s)
        if launched is not None:
            health.answered(prompt_class, launched.in_flight, ttft_s, now_s)

    def attempt_ended(  # noqa: C901 - each line is a case of its own, and a call for it costs each attempt
        self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float
    ) -> None:
        """Count the attempt's end, ``ago_s`` seconds ago: with a first token, censored, or an error."""
        health = self.healths.get(attempt.deployment) or self.health_of(attempt.deployment)
        # A client's call is one, however many keys and forms it took.
        health.ended(None if attempt.error_kind in STEPS else attempt.client)
        launched = self._launched.pop(attempt.id, None)
        if self.own.by_client and attempt.client in self.own.by_client:
            self._has_met(attempt, ago_s)
        if self._slow:
            self._slow.discard(attempt.id)
        if attempt.id in self._hanging:
            self._hangs_no_more(attempt.id, health)
        # The gateway's own probes have no number, and are sent to no broken deployment.
        if attempt.role is Role.PROBE and attempt.number:
            health.probe_ended()
        if attempt.headroom is not None:
            self._note_headroom(attempt.deployment, attempt.headroom, health, launched, ago_s)
        unix_s = self._unix_clock() - ago_s if launched is None else launched.unix_s
        counts = of_end(attempt, prompt_class)
        if attempt.outcome.failed or not prompt_class.is_answer:
            fault_is_known = attempt.outcome.failed and not health.is_in_use
            counts |= of_api(attempt.deployment, prompt_class.api, counts, while_down=fault_is_known)
        self._count(model, counts, unix_s)
        if attempt.audited and attempt.predicted_ms is not None:
            self.kept_of(model).learn(attempt)
        if attempt.judged_as is not None and not attempt.is_restricted:
            self._judged(model, attempt)
        if attempt.outcome.failed:
            self._broken(model, prompt_class, attempt, launched, ago_s)
        elif attempt.censored_at_ms is not None and attempt.outcome.was_cut:
            self._cut(model, prompt_class, attempt, launched, ago_s)
        elif attempt.error_kind is not None and attempt.error_kind == ErrorKind.LOCAL_RESOURCES:
            self._shortage.hit(attempt)

    def call_finished(self, record: CallRecord) -> None:
        """Learn the lengths of answers."""
        model = record.answered_model or record.model
        tokens = record.completion_tokens if decoded_class(record.prompt_class).is_answer else None
        if record.status_code < 400 and tokens is not None:  # noqa: PLR2004 - HTTP's first error
            self._count(model, {REQUESTS: 1.0, OUTPUT_TOKENS: float(tokens)})
            if record.kind is not None:
                self.lengths.learn(model, record.kind, tokens)

    def kept_of(self, model: str) -> ConfirmedShare:
        """Return the share of the predicted savings that audits have confirmed for a model."""
        return self._kept.get(model) or self._kept.setdefault(model, ConfirmedShare())

    def under_way(self, deployment: str) -> tuple[str, ...]:
        """Return the ids of the running attempts at ``deployment``, of all models."""
        return tuple(each for each, launched in self._launched.items() if launched.deployment == deployment)

    def silence(self, deployments: Collection[str], least_s: float) -> tuple[int, float]:
        """Return how many running attempts began after the last first token there, and the age of the oldest.

        In seconds; none if there was a first token within ``least_s``. ``deployments`` are those of one model.
        """
        now_s, unix_s = self._clock(), self._unix_clock()
        healths = [self.healths[name] for name in deployments if name in self.healths]
        if not any(each.in_flight for each in healths):
            return 0, 0.0
        answered_s = now_s - max(each.load.at_s for each in healths)
        if answered_s < least_s:
            return 0, 0.0
        ages_s = [unix_s - each.unix_s for each in self._launched.values() if each.deployment in deployments]
        waiting_s = [age_s for age_s in ages_s if age_s < answered_s]
        return len(waiting_s), max(waiting_s, default=0.0)

    def keep(self, models: set[str], deployments: set[str]) -> None:
        """Forget all other models and deployments, except those with running attempts."""
        now_s = self._clock()
        self.limited = {name for name in self.limited & deployments if self.health_of(name).is_limited(now_s)}
        self.quality.keep(models, deployments)
        self._kept = {model: samples for model, samples in self._kept.items() if model in models}
        self._recovered_at_s = {name: at for name, at in self._recovered_at_s.items() if name in deployments}
        self._suspects.forget_others(deployments)
        self._strikes.keep(deployments)
        self.outages.keep(deployments)
        self.healths = {name: each for name, each in self.healths.items() if name in deployments or each.in_flight}
        self.own.keep(deployments)
        now_s = self._clock()
        self.held = {
            name
            for name in self.held & deployments
            if self.own.has(name) or self.health_of(name).condition(now_s).state is not HealthState.OK
        }

    def _note_headroom(
        self, deployment: str, headroom: float, health: Health, launched: _Launched | None, ago_s: float
    ) -> None:
        """Learn what an answer's headers say is left of the deployment's rate limits."""
        health.limit_left(headroom, self._clock() - ago_s, 0 if launched is None else launched.in_minute)
        if headroom < 1.0:
            self.limited.add(deployment)

    def _hangs_no_more(self, attempt: str, health: Health) -> None:
        self._hanging.discard(attempt)
        health.hangs(-1)

    def _broken(
        self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, launched: _Launched | None, ago_s: float
    ) -> None:
        name, kind, now_s = attempt.deployment, attempt.error_kind, self._clock() - ago_s
        health = self.health_of(name)
        if kind is None or kind in NOT_COUNTED:
            return
        # 403 and 404 may mean that a model has no embeddings or images: its answers are not affected.
        is_answer = prompt_class.is_answer or prompt_class.is_whole
        if kind in OPERATORS and not is_answer and attempt.status_code != UNAUTHORIZED:
            return
        trouble = Trouble(kind, attempt.status_code, attempt.error_message)
        client = self._met_by(attempt)
        if client is not None:
            self._meet(client, attempt, trouble, now_s, is_alone=health.clients.share() < 1.0)
        if kind == ErrorKind.RATE_LIMITED:
            if health.counts_limit(client, now_s):
                health.trouble = trouble
                self._limited(model, attempt, health, now_s)
            return
        health.trouble = trouble
        if kind in OPERATORS:
            is_news = health.refuse(now_s, client)
            if is_news and not (kind == ErrorKind.NOT_FOUND and self._is_made_up(name)):
                # Event steering.out: A deployment refuses the key or does not know the model (`kind`). It gets no
                # calls, but one try a minute.
                # Do: Correct the key, the model's name or `base_url`, and reload.
                get_logger().warning("steering.out", model=model, deployment=name, kind=kind, hint=_HINTS[kind])
                self.outages.begin(name, kind, model, ago_s)
            return
        if attempt.retry_after_s is not None and health.counts_limit(client, now_s):
            health.cool(attempt.retry_after_s, now_s)  # a 503 with retry-after
        is_complete = attempt.ttft_ms is not None or kind == ErrorKind.INVALID_ANSWER  # but empty or refused
        if not is_complete and not (
            kind in TIMEOUTS and self._own_delay.explains(launched, self._unix_clock() - ago_s, now_s)
        ):
            self._strike(model, attempt, kind, ago_s)

    def _limited(self, model: str, attempt: AttemptRecord, health: Health, now_s: float) -> None:
        name = attempt.deployment
        self.limited.add(name)
        if health.rate_limited(attempt.retry_after_s, now_s):
            # Event steering.limited: A deployment answered 429, for the first time in minutes, and pauses for
            # `pause_s` seconds, as it asks (1 to 60).
            # Do: If it goes on, ask the provider for a higher limit, or add a deployment.
            pause_s = round(health.cooling_s(now_s), 3)
            get_logger().warning("steering.limited", model=model, deployment=name, pause_s=pause_s)

    def _cut(
        self, model: str, prompt_class: PromptClass, loser: AttemptRecord, launched: _Launched | None, ago_s: float
    ) -> None:
        """Handle an attempt that was cancelled without a first token, at a claim or because its client left.

        A primary that is cancelled at the claim at a normal age is not at fault. A primary beyond its q95 gets a
        strike, unless it may just be slow. At a broken deployment nothing is counted: a known fault must not count
        again later.
        """
        deployment, measured = loser.deployment, prompt_class.measured
        now_s, health, age_s = self._clock() - ago_s, self.health_of(deployment), (loser.censored_at_ms or 0.0) / 1000
        corrected_s = self._own_delay.without_own_delay(age_s, launched, now_s)
        size = size_of(loser.asked_tokens, prompt_class.size)
        is_lost = loser.outcome is Outcome.LOST
        estimate = self._snapshots.at(model, measured, size).of(deployment)
        if health.tripped:
            if is_lost and health.cut(corrected_s, estimate.well_q95_s, now_s):
                self._strikes.struck(deployment, loser.provider, opened=True, ago_s=ago_s)
            return
        unix_s = self._unix_clock() - ago_s if launched is None else launched.unix_s
        if not prompt_class.is_sampled or unix_s < self._recovered_at_s.get(deployment, 0.0):
            return  # the attempt began during a fault that is over
        factor = self._snapshots.sizing(model, measured, deployment).factor(size)
        field = cut(deployment, measured, age_s / factor)
        is_overtaken = launched is not None and launched.is_overtaken
        usual_s = estimate.answered_s(LATE_QUANTILE) if is_overtaken else estimate.q95_s
        is_late = corrected_s >= (usual_s if estimate.is_known else estimate.hangs_s)
        is_late = is_late and is_lost and (loser.counts_as or loser.role) is Role.PRIMARY
        reason = None
        if is_late and (is_overtaken or not estimate.is_known):  # it may just be slow: others are preferred at once
            self._count(model, {field: 1.0}, unix_s)
            reason = "hangs" if self._suspects.hangs(deployment, loser.client) else None
        else:
            self._suspects.hold_back(model, deployment, field, unix_s)
            if not is_lost:
                reason = self._suspects.left(deployment, estimate, loser.client, corrected_s)
            elif is_late:
                self._strike(model, loser, "hangs", ago_s)
            elif self._suspects.is_silent(deployment, estimate, loser.client, corrected_s / factor):
                reason = "silent"
        if reason is not None:
            self._is_silent(model, loser, reason, ago_s)

    def _is_silent(self, model: str, loser: AttemptRecord, reason: str, ago_s: float) -> None:
        """Open the breaker of a deployment that stays silent, for the clients that have met it."""
        deployment, now_s = loser.deployment, self._clock() - ago_s
        met = self._suspects.met(deployment)
        if loser.client is not None:
            own = self.own.of(loser.client, deployment)
            own.trouble = Trouble(reason)
            own.open_breaker(now_s)
            self.held.add(deployment)
        if self.health_of(deployment).open_breaker(now_s, met):
            self._strikes.struck(deployment, loser.provider, opened=True, ago_s=ago_s)
            self._opened(deployment, reason, model, ago_s)

    def _judged(self, model: str, attempt: AttemptRecord) -> None:
        assert attempt.judged_as is not None
        change = self.quality.judged(model, attempt.judged_as, attempt.deployment, attempt.flaw, attempt.client)
        if change is not None:
            tell = get_logger().warning if change.is_demoted else get_logger().info
            event = "steering.demoted" if change.is_demoted else "steering.restored"
            tell(event, model=model, deployment=attempt.deployment, answers=attempt.judged_as, reason=change.reason)

    def _strike(self, model: str, attempt: AttemptStart | AttemptRecord, cause: str | None, ago_s: float) -> None:
        health, now_s = self.health_of(attempt.deployment), self._clock() - ago_s
        client = self._met_by(attempt)
        if client is not None:
            if self.own.of(client, attempt.deployment).strike(now_s) and health.clients.share() < 1.0:
                _tell_held(client, attempt.deployment, cause)
            self.held.add(attempt.deployment)
        opened = health.strike(now_s, client)
        if opened or not health.is_of_one:  # else other replicas must not count what may be one client's doing
            strikes = int(health.strikes)
            self._strikes.struck(attempt.deployment, attempt.provider, opened=opened, ago_s=ago_s, strikes=strikes)
        if opened:
            self._opened(attempt.deployment, cause, model, ago_s)

    def _opened(self, deployment: str, cause: str | None, model: str | None = None, ago_s: float = 0.0) -> None:
        """Record that the breaker opened, with the model and client that observed it; drop the samples of the fault."""
        self._suspects.drop(deployment)
        if cause is not None and cause not in CAUSES:  # else the trouble is the error
            self.health_of(deployment).trouble = Trouble(cause)
        self.outages.opened(deployment, cause, model, ago_s)

    def _fails_elsewhere(self, deployment: str) -> None:
        """Open the breaker of a deployment that other replicas report as broken; probes go on as usual."""
        health = self.healths.get(deployment)
        if health is not None and health.open_breaker(self._clock()):
            self._opened(deployment, "other replicas")

    @staticmethod
    def _met_by(attempt: AttemptStart | AttemptRecord) -> str | None:
        """Return the client whose request may have caused a failure; None: no request can have."""
        if not attempt.number:
            return None  # the gateway's own
        if not isinstance(attempt, AttemptRecord):
            return attempt.sent_by
        return None if attempt.is_certain or attempt.error_kind in _CERTAIN else attempt.client

    def _has_met(self, attempt: AttemptRecord, ago_s: float) -> None:
        """Note the end of an attempt of a client that has met failures there: an answer ends what it has met."""
        client = attempt.client
        own = self.own.known(client, attempt.deployment)
        if client is None or own is None:
            return
        if attempt.role is Role.PROBE:
            own.probe_ended()
        if attempt.ttft_ms is not None and not attempt.outcome.failed and attempt.id not in self._slow:
            now_s = self._clock() - ago_s
            own.delivered(0.0, 0.0, now_s)
            self.own.forget(client, attempt.deployment, now_s)

    def _meet(self, client: str, attempt: AttemptRecord, trouble: Trouble, now_s: float, *, is_alone: bool) -> None:
        """Hold a failure against the deployment for the client that met it; ``is_alone``: of several."""
        own, is_new = self.own.of(client, attempt.deployment), False
        own.trouble = trouble
        self.held.add(attempt.deployment)
        if attempt.error_kind == ErrorKind.RATE_LIMITED:
            is_new = own.rate_limited(attempt.retry_after_s, now_s)
        elif attempt.error_kind in OPERATORS:
            is_new = own.refuse(now_s)
        elif attempt.retry_after_s is not None:
            is_new = not own.cooling_s(now_s)
            own.cool(attempt.retry_after_s, now_s)
        if is_new and is_alone:
            _tell_held(client, attempt.deployment, attempt.error_kind)

    def _count(self, model: str, counts: Counts, unix_s: float | None = None) -> None:
        if counts:
            self._board.add(model, counts, self._unix_clock() if unix_s is None else unix_s)


def _tell_held(client: str, deployment: str, kind: str | None) -> None:
    # Event steering.held: A deployment failed for one client (`client`, `kind`), which may be the doing of its
    # requests. Only its own calls avoid the deployment, until others have met the like.
    # Do: Nothing. If others meet it, another event follows.
    get_logger().info("steering.held", deployment=deployment, client=client, kind=kind)


_HINTS: Mapping[str, str] = {
    ErrorKind.PROVIDER_AUTH: "the provider refuses the key, or wants to be paid: set a valid key, or pay"
    " (a key of the environment needs a restart, one of a file nothing)",
    ErrorKind.NOT_FOUND: "the provider does not know this model or the path: correct its name or base_url and reload",
}
