"""Steering: plans calls from what earlier ones taught, and learns from each attempt as it ends.

It is the one object the other rooms know here: the race asks it for a plan and for permits, and it hears of everything
through the ``Recorder`` protocol. Nothing in it waits; the clocks and the randomness are handed in, so a simulator can
drive it through a day in seconds.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from random import Random

import msgspec
import structlog

from gateway.calls import EXPLORING, AttemptRecord, AttemptStart, CallRecord, CallStart, Outcome, Role, size_class
from gateway.errors import NotAsked
from gateway.settings.model import RaceSettings
from gateway.steering import planner
from gateway.steering.affinity import NOTHING_HELD, Affinity, Prefix
from gateway.steering.board import Board, slot_of
from gateway.steering.budget import Budget, within
from gateway.steering.candidates import Terms, costs_usd, expected_tokens
from gateway.steering.constants import KNOWN_EVENTS, LATE_FACTOR, OTHER_CLASSES_FROM
from gateway.steering.evidence import cut, event, kind_of
from gateway.steering.explainer import explained
from gateway.steering.explanation import Explanation
from gateway.steering.health import Health, State, Trouble
from gateway.steering.leaderboard import WINDOW_S, Leaderboard, rank, read_window, row, state_of
from gateway.steering.lengths import Lengths
from gateway.steering.lineup import Lineups
from gateway.steering.planner import Launch, Plan
from gateway.steering.quality import Quality
from gateway.steering.rebound import Rebounds
from gateway.steering.rendezvous import home_of
from gateway.steering.samples import BROKEN, CUT, of_end, of_token
from gateway.steering.sizing import size_of
from gateway.steering.snapshots import Snapshots
from gateway.steering.spending import Spending
from gateway.steering.strikes import Strikes
from gateway.steering.tally import OUTPUT_TOKENS, REQUESTS, Counts
from providers.errors import ErrorKind

_log = structlog.get_logger(__name__)

# The client's own fault counts against nobody, nor does lacking one of the dialects count in the others.
_NOBODYS = frozenset({ErrorKind.BAD_REQUEST, ErrorKind.NO_SUCH_API})
_OPERATORS = frozenset({ErrorKind.PROVIDER_AUTH, ErrorKind.NOT_FOUND})
_UNAUTHORIZED = 401

LACK_TOLD_EVERY_S = 10.0  # that this machine is short of descriptors: a line for each attempt would be a flood


class _Launched(msgspec.Struct, frozen=True):
    unix_s: float  # a sample counts in the slot its attempt began in
    in_flight: int  # others there at its deployment, of this replica
    deployment: str
    epoch: int  # in which it counts


_NOTHING_COSTS: Mapping[str, float] = {}


class Steering:
    """The policy at work in one replica, for all models."""

    def __init__(
        self,
        board: Board,
        *,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
        random: Random,
        spending: Spending | None = None,
        on_refused: Callable[[str, str], None] | None = None,
        strikes: Strikes | None = None,
    ) -> None:
        """Steer by ``board``. ``on_refused`` hears of each extra attempt refused: its model, and by which limit."""
        self._board = board
        self._spending = spending or Spending(unix_clock)
        self._on_refused = on_refused
        self._strikes = strikes or Strikes(unix_clock)
        self._strikes.listen(self._fails_elsewhere)
        self._clock = clock  # monotonic seconds
        self._unix_clock = unix_clock  # seconds since 1970, for slots that replicas agree on
        self._random = random
        self._snapshots = Snapshots(board, clock, unix_clock)
        self._lineups = Lineups()
        self._rebounds = Rebounds()
        self._health: dict[str, Health] = {}  # by deployment: a cool-down holds for every model it serves
        self._affinity = Affinity()
        self._lengths = Lengths()
        self._quality = Quality()
        self._budgets: dict[str, Budget] = {}
        self._configured: dict[str, tuple[str, ...]] = {}  # deployments by model
        self._planned: dict[str, tuple[str, ...]] = {}  # by model as last planned: clients may name their own
        self._launched: dict[str, _Launched] = {}  # attempts under way, by id
        self._slot = 0
        self._lacking = 0  # attempts since it was last said that this machine was short of something
        self._lack_told_s = -inf

    def plan(
        self,
        model: str,
        deployments: Sequence[str],
        race: RaceSettings,
        terms: Terms,
        prompt_class: int,
        *,
        explain: bool = False,
    ) -> Plan:
        """Choose who runs a call, when. Counts the call towards the model's budget.

        ``explain`` fills ``Plan.explanation``.
        """
        budget = self._budget(model)
        budget.accrue(race.budget)
        if race.extra_usd_per_call is not None:
            budget.earn(race.extra_usd_per_call)
        plan = self._planned_for(model, deployments, race, terms, prompt_class, explain=explain)
        now_s = self._clock()
        for launch in plan.launches:
            if launch.role in EXPLORING:
                self._health[launch.deployment].probed(now_s, launch.watch_s)
        self._forget()
        return plan

    def explain(
        self,
        model: str,
        deployments: Sequence[str],
        race: RaceSettings,
        terms: Terms,
        prompt_class: int,
    ) -> Explanation:
        """Explain what would be planned for the next call like this, without counting it."""
        plan = self._planned_for(model, deployments, race, terms, prompt_class, explain=True)
        assert plan.explanation is not None
        return plan.explanation

    def served(self, model: str, prefix: Prefix, deployment: str, cached_tokens: int | None) -> None:
        """Take that ``deployment`` answered a prompt with this beginning, and what of it came from its prompt cache.

        ``cached_tokens`` is None where the provider does not say.
        """
        self._affinity.served(model, prefix, deployment, cached_tokens, self._clock())

    def permit(
        self, model: str, launch: Launch, race: RaceSettings, *, cost_usd: float | None, payer: str | None = None
    ) -> bool:
        """Return whether an attempt may start now, and charge it if it is extra; its cost to ``payer``, if given.

        Asked at the instant the attempt would start. ``cost_usd`` is what it may cost at list price
        (``Plan.cost_usd``), None when no price of the model is known.
        """
        payer, budget = payer or model, self._budget(model)
        limit = self._too_dear(payer, race, cost_usd, budget)
        if limit is not None or not budget.draw(launch.role, race.budget):
            if self._on_refused is not None:
                self._on_refused(model, limit or "budget")
            return False
        if cost_usd is not None and race.usd_per_day is not None:
            self._spending.charge(payer, cost_usd)
        if cost_usd is not None and race.extra_usd_per_call is not None:
            budget.pay(cost_usd)
        return True

    def refused_by(self, payer: str, race: RaceSettings, *, cost_usd: float | None, model: str | None = None) -> str:
        """Return which limit stands in the way of an extra attempt refused just now.

        That is budget, usd_per_day or extra_usd_per_call.
        """
        return self._too_dear(payer, race, cost_usd, self._budget(model or payer)) or "budget"

    def call_started(self, start: CallStart) -> None:
        """Nothing to learn yet."""

    def attempt_started(self, model: str, start: AttemptStart) -> None:
        """Count it in flight."""
        others = self._health_of(start.deployment).launched(self._clock())
        epoch = self._snapshots.epoch(model, start.deployment)
        self._launched[start.id] = _Launched(self._unix_clock(), others, start.deployment, epoch)

    def first_token(self, model: str, prompt_class: int, start: AttemptStart, ttft_s: float) -> None:
        """Count an event, and believe that the deployment is well."""
        deployment, launched, now_s = start.deployment, self._launched.get(start.id), self._clock()
        health, kind = self._health_of(deployment), kind_of(prompt_class)
        size = size_of(start.asked_tokens, size_class(prompt_class))
        estimate = self._snapshots.of(model, prompt_class, start.asked_tokens).of(deployment)
        sizing = self._snapshots.sizing(model, kind, deployment)
        reference_s = ttft_s / sizing.factor(size)
        sizing.seen(size, ttft_s)
        late = not health.tripped and ttft_s > LATE_FACTOR * estimate.well_q95_s
        if late and estimate.usual_events >= KNOWN_EVENTS:
            self._strike(model, start, "slow")
        else:
            if health.delivered(ttft_s, estimate.well_q95_s, now_s):
                _log.info("steering.recovered", model=model, deployment=deployment)
                back = ttft_s <= estimate.usual_q95_s
            else:
                back = self._rebounds.heard(model, deployment, estimate, reference_s)
            if back:
                self._snapshots.begin_epoch(model, deployment)
            if not health.tripped:
                self._strikes.answered(deployment, start.provider)
        counts = of_token(start, prompt_class, ttft_s)
        if counts and not health.tripped:
            counts[event(deployment, kind, self._snapshots.epoch(model, deployment), reference_s)] = 1.0
        self._count(model, counts, None if launched is None else launched.unix_s)
        if launched is not None:
            health.answered(prompt_class, launched.in_flight, ttft_s, now_s)

    def attempt_ended(self, model: str, prompt_class: int, attempt: AttemptRecord) -> None:
        """Count what became of it: an event's attempt, a censored age, or an error."""
        health = self._health_of(attempt.deployment)
        health.ended()
        if attempt.role is Role.PROBE:
            health.probe_ended()
        if attempt.headroom is not None:
            health.limit_left(attempt.headroom, self._clock())
        launched = self._launched.pop(attempt.id, None)
        counts = of_end(attempt, prompt_class)
        if counts and attempt.censored_at_ms is not None and attempt.outcome in CUT and not health.tripped:
            counts |= self._cut(model, prompt_class, attempt, None if launched is None else launched.epoch)
        self._count(model, counts, None if launched is None else launched.unix_s)
        if attempt.judged_as is not None:
            self._judged(model, attempt)
        if attempt.outcome in BROKEN:
            self._broken(model, prompt_class, attempt, health)
        elif attempt.censored_at_ms is not None and attempt.outcome is Outcome.LOST:
            self._overtaken(model, prompt_class, attempt, health)
        elif attempt.error_kind is not None and attempt.error_kind == ErrorKind.LOCAL_RESOURCES:
            self._lack(attempt)

    def call_finished(self, record: CallRecord) -> None:
        """Learn how long answers are."""
        model = record.answered_model or record.model
        tokens = record.completion_tokens if record.prompt_class < OTHER_CLASSES_FROM else None
        if record.status_code < 400 and tokens is not None:  # noqa: PLR2004 - HTTP's first error
            self._count(model, {REQUESTS: 1.0, OUTPUT_TOKENS: float(tokens)})
            if record.kind is not None:
                self._lengths.learn(model, record.kind, tokens)

    def under_way(self, deployment: str) -> tuple[str, ...]:
        """Return the ids of the attempts that are under way at ``deployment``, for whichever model."""
        return tuple(each for each, launched in self._launched.items() if launched.deployment == deployment)

    def not_asked(self, deployments: Iterable[str], asked: Collection[str]) -> tuple[NotAsked, ...]:
        """Return who of ``deployments``, beside the ``asked``, is out, cooling down or broken, and why."""
        now_s, found = self._clock(), []
        for name in deployments:
            health = self._health.get(name)
            if health is None or name in asked:
                continue
            condition = health.condition(now_s)
            if condition.state is State.OK:
                continue
            reason = state_of(condition)
            if health.trouble is not None:
                reason += f": {health.trouble.for_others}"
            found.append(NotAsked(name, reason, for_good=condition.state is State.OUT))
        return tuple(found)

    def leaderboard(self, model: str) -> Leaderboard:
        """Return what is published of one model, up to this instant."""
        now_s = self._clock()
        window = read_window(self._board.slots(model, self._unix_clock()))
        prompt_class = window.busiest_class
        standings = self._snapshots.fresh(model, prompt_class)
        rows = []
        for name in self._configured.get(model) or self._planned.get(model) or tuple(window.tallies):
            health = self._health.get(name) or Health()
            condition = health.condition(now_s)
            score_s = standings.of(name).score_s + condition.price_s
            rows.append(row(name, window, score_s=score_s, condition=condition, trouble=health.trouble))
        return Leaderboard(model, WINDOW_S, prompt_class, rank(rows))

    def leaderboards(self) -> tuple[Leaderboard, ...]:
        """Return what is published of every model known, by name."""
        return tuple(
            self.leaderboard(model) for model in sorted({*self._configured, *self._planned, *self._board.models()})
        )

    def reset(self, models: Mapping[str, Sequence[str]]) -> None:
        """Take a configuration, the deployments of each model: at the start and when it is reloaded.

        What was learned is kept; deployments that were out are given another chance.
        """
        self._configured = {model: tuple(names) for model, names in models.items()}
        for health in self._health.values():
            health.reload()
        for model in models:
            self._board.version(model, self._unix_clock())

    def _planned_for(
        self,
        model: str,
        deployments: Sequence[str],
        race: RaceSettings,
        terms: Terms,
        prompt_class: int,
        *,
        explain: bool,
    ) -> Plan:
        now_s = self._clock()
        standings = self._snapshots.of(model, prompt_class, terms.prompt_tokens)
        if terms.kind is not None:
            answer_tokens = self._lengths.expected(model, terms.kind, standings.answer_tokens)
            terms = msgspec.structs.replace(terms, answer_tokens=answer_tokens)
        names: Sequence[str] = self._names(model, deployments)
        if (flawed := self._quality.demoted(model, terms.answer_kind)) is not None:
            terms = msgspec.structs.replace(terms, flawed=flawed)
        if terms.excluded:
            names = [name for name in names if name not in terms.excluded]
        conditions = {}
        for name in names:
            health = self._health.get(name) or self._health_of(name)
            conditions[name] = health.calm or health.condition(now_s)  # of most, nothing has happened since
        kind = (model, prompt_class, size_of(terms.prompt_tokens))
        lineup = self._lineups.of(kind, conditions, standings, (race, terms))
        held, home = NOTHING_HELD, None
        if terms.prefix is not None and race.cache_affinity:
            held = self._affinity.held(model, terms.prefix, terms.prices, now_s)
            home = home_of(model, terms, lineup, self._affinity, held=held, now_s=now_s)
        budget, costs = self._budget(model), _NOTHING_COSTS
        if race.usd_per_day is not None or race.extra_usd_per_call is not None:
            costs = costs_usd(conditions, expected_tokens(standings, terms), terms)
            race = within(race, costs)
        tokens = budget.tokens
        plan = planner.plan(lineup, race, terms, tokens=tokens, random=self._random, held=held, home=home, now_s=now_s)
        if costs:
            plan = msgspec.structs.replace(plan, cost_usd=costs)
        if explain:
            answer = expected_tokens(standings, terms)
            told = explained(
                plan, lineup, race, terms, held=held, home=home, answer_tokens=answer, tokens=tokens, usd=budget.usd
            )
            plan = msgspec.structs.replace(plan, explanation=told)
        return plan

    def _names(self, model: str, deployments: Sequence[str]) -> tuple[str, ...]:
        names = self._planned.get(model)
        if names != tuple(deployments):
            names = self._planned[model] = tuple(dict.fromkeys(deployments))
        return names

    def _broken(self, model: str, prompt_class: int, attempt: AttemptRecord, health: Health) -> None:
        name, kind, now_s = attempt.deployment, attempt.error_kind, self._clock()
        if kind is None or kind in _NOBODYS:
            return
        trouble = Trouble(kind, attempt.status_code, attempt.error_message)
        if kind == ErrorKind.RATE_LIMITED:
            health.trouble = trouble
            health.rate_limited(attempt.retry_after_s, now_s)
            return
        if kind in _OPERATORS:
            # That a model makes no vectors or pictures, as 403 and 404 may say, keeps nobody from its answers.
            if prompt_class >= OTHER_CLASSES_FROM and attempt.status_code != _UNAUTHORIZED:
                return
            health.trouble = trouble
            if health.refuse(now_s):
                _log.warning("steering.out", model=model, deployment=name, kind=kind, hint=_HINTS[ErrorKind(kind)])
            return
        health.trouble = trouble
        if attempt.retry_after_s is not None:
            health.cool(attempt.retry_after_s, now_s)  # a 503 that says when to come back
        if attempt.ttft_ms is None:
            self._strike(model, attempt, kind)

    def _overtaken(self, model: str, prompt_class: int, loser: AttemptRecord, health: Health) -> None:
        """Handle an attempt that was cancelled at the claim, without a first token; the winner may stream for minutes.

        A primary cancelled at an age that is normal for it did nothing wrong; only one past its q95 gets a strike.
        """
        if not health.tripped and loser.role is not Role.PRIMARY:
            return  # as for most losers: no need to look up its q95
        age_s = (loser.censored_at_ms or 0.0) / 1000
        estimate = self._snapshots.of(model, prompt_class, loser.asked_tokens).of(loser.deployment)
        if health.tripped:
            if health.cut(age_s, estimate.well_q95_s, self._clock()):
                self._strikes.struck(loser.deployment, loser.provider, opened=True)
        elif age_s >= estimate.q95_s:
            self._strike(model, loser, "hangs")

    def _cut(self, model: str, prompt_class: int, attempt: AttemptRecord, epoch: int | None) -> Counts:
        """Return what an attempt cut without a first token adds for the policy.

        Of a broken deployment nothing: that it hangs is known, and soon to be forgotten.
        """
        deployment, kind = attempt.deployment, kind_of(prompt_class)
        factor = self._snapshots.sizing(model, kind, deployment).factor(
            size_of(attempt.asked_tokens, size_class(prompt_class))
        )
        age_s = (attempt.censored_at_ms or 0.0) / 1000 / factor
        if epoch is None:
            epoch = self._snapshots.epoch(model, deployment)
        return {cut(deployment, kind, epoch, age_s): 1.0}

    def _judged(self, model: str, attempt: AttemptRecord) -> None:
        assert attempt.judged_as is not None
        change = self._quality.judged(model, attempt.judged_as, attempt.deployment, attempt.flaw)
        if change is not None:
            tell = _log.warning if change.is_demoted else _log.info
            event = "steering.demoted" if change.is_demoted else "steering.restored"
            tell(event, model=model, deployment=attempt.deployment, answers=attempt.judged_as, reason=change.reason)

    def _lack(self, attempt: AttemptRecord) -> None:
        """Say, now and then, that this machine lacks what attempts take: nobody else would be blamed for it."""
        self._lacking += 1
        now_s = self._clock()
        if now_s < self._lack_told_s + LACK_TOLD_EVERY_S:
            return
        _log.error(
            "gateway.out_of_resources",
            error=attempt.error_message,
            attempts=self._lacking,
            hint="raise the limit on open files (ulimit -n, LimitNOFILE=), or send this machine fewer calls",
        )
        self._lack_told_s, self._lacking = now_s, 0

    def _strike(self, model: str, attempt: AttemptStart | AttemptRecord, cause: str | None) -> None:
        opened = self._health_of(attempt.deployment).strike(self._clock())
        self._strikes.struck(attempt.deployment, attempt.provider, opened=opened)
        if opened:
            _log.warning("steering.opened", model=model, deployment=attempt.deployment, cause=cause)

    def _fails_elsewhere(self, deployment: str) -> None:
        """Open the breaker of a deployment that is broken by what other replicas report; it is probed as usual."""
        known = deployment in self._health or any(deployment in names for names in self._configured.values())
        if known and self._health_of(deployment).fails_elsewhere(self._clock()):
            _log.warning("steering.opened", deployment=deployment, cause="other replicas")

    def _count(self, model: str, counts: Counts, unix_s: float | None = None) -> None:
        if counts:
            self._board.add(model, counts, self._unix_clock() if unix_s is None else unix_s)

    def _too_dear(self, payer: str, race: RaceSettings, cost_usd: float | None, budget: Budget) -> str | None:
        """Return which limit on dollars an attempt would pass, None for none."""
        if cost_usd is None:
            return None
        if race.usd_per_day is not None and not self._spending.may_spend(payer, cost_usd, race.usd_per_day):
            return "usd_per_day"
        per_call = race.extra_usd_per_call
        return None if per_call is None or budget.affords(cost_usd, per_call) else "extra_usd_per_call"

    def _health_of(self, deployment: str) -> Health:
        health = self._health.get(deployment)
        if health is None:
            health = self._health[deployment] = Health()
        return health

    def _budget(self, model: str) -> Budget:
        budget = self._budgets.get(model)
        if budget is None:
            budget = self._budgets[model] = Budget()
        return budget

    def _forget(self) -> None:
        """Once per slot, let go of models nobody calls any more: clients may name their own."""
        slot = slot_of(self._unix_clock())
        if slot == self._slot:
            return
        self._slot = slot
        models = self._snapshots.forget()
        self._lineups.keep(models)
        self._rebounds.keep(models)
        self._planned = {model: names for model, names in self._planned.items() if model in models}
        self._budgets = {model: budget for model, budget in self._budgets.items() if model in models}
        used = {name for names in (*self._configured.values(), *self._planned.values()) for name in names}
        self._health = {name: health for name, health in self._health.items() if name in used or health.in_flight}
        self._affinity.keep(used)
        self._strikes.keep(used)
        self._quality.keep({*models, *self._configured})


_HINTS = {
    ErrorKind.PROVIDER_AUTH: "the provider refuses the key: set a valid one and reload",
    ErrorKind.NOT_FOUND: "the provider does not know this model or the path: correct its name or base_url and reload",
}
