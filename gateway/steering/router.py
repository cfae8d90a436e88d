"""Steering: plans calls from the results of earlier ones, and learns from each attempt as it ends.

The other rooms use only ``Steering``. A call asks ``Steering`` for a plan, and to charge extra attempts to a budget;
events come through the ``Recorder`` protocol. Nothing here blocks. Clocks and randomness are arguments, so a simulator
can run a day in seconds.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from math import inf, log
from random import Random
from time import perf_counter

import msgspec

from gateway.core.attempts import EXPLORING, AttemptRecord, AttemptStart, Narrowed, Role
from gateway.core.calls import CallRecord, CallStart, HourlySum, Mode
from gateway.core.prompt_classes import PromptClass
from gateway.core.race_failures import SkippedDeployment
from gateway.settings import RaceSettings
from gateway.steering import planner
from gateway.steering.affinity import NOTHING_HELD, Affinity, CachedBytes, Prefix
from gateway.steering.board import Board
from gateway.steering.budget import Budget, Budgets, Spending, of_keys, within
from gateway.steering.candidates import Candidate, Lineup, Lineups, Terms, costs_usd, expected_tokens
from gateway.steering.clients import MOST_NAMES_A_CLIENT, ClientsNames, TenantLearning
from gateway.steering.constants import (
    HEADROOM_LOW,
    HOME_LOAD,
    HOME_SLACK,
    LATE_QUANTILE,
    PREFIX_BYTES,
    REFRESH_MOST_S,
    RUN_ON_EVERY,
    SILENT_ATTEMPTS,
    SILENT_SHARE,
    SLOT_S,
    TURN_S,
    TURNS_S,
)
from gateway.steering.explainer import explained
from gateway.steering.health import Condition, Health, HealthState
from gateway.steering.leaderboard import Leaderboard, not_asked, of_gateway, read_window
from gateway.steering.learning import Learning
from gateway.steering.narrowing import Narrowings
from gateway.steering.outages import Outages, Strikes
from gateway.steering.own_delay import Lateness, NeverLate, OwnDelay
from gateway.steering.plans import Launch, Plan, Why
from gateway.steering.prediction import size_of
from gateway.steering.snapshots import Snapshots, recall, recollect
from gateway.steering.strategies import STRATEGIES

_NOTHING_COSTS: Mapping[str, float] = {}
_LIMITED = "rate limits leave room for {:.2f} extra attempts a call"
_NONE_FULL: frozenset[str] = frozenset()
_FULL = "no extra attempt at {}: rate limits leave no room there"


class Steering:
    """The policy of one replica, for all models."""

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
        lateness: Lateness | None = None,
        outages: Outages | None = None,
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Plan by ``board``. ``on_refused`` is called for each refused extra attempt with its model and the limit.

        ``catch_up`` is called before each plan or report: it must deliver the events that still wait.
        """
        self._board = board
        self._on_refused = on_refused
        self._clock = clock  # monotonic seconds
        self._unix_clock = unix_clock  # Unix time, for slots that are the same in all replicas
        self._random = random
        self._catch_up = catch_up
        self._snapshots = Snapshots(board, clock, unix_clock)
        self._lineups = Lineups()
        own, strikes = OwnDelay(lateness or NeverLate()), strikes or Strikes(unix_clock)
        self._learning = Learning(
            board,
            self._snapshots,
            strikes,
            outages or Outages.unrecorded(),
            clock=clock,
            unix_clock=unix_clock,
            own_delay=own,
            is_made_up=lambda name: bool(self._configured) and name not in self._in_file,
        )
        self._tenants = TenantLearning(board.add, self._snapshots, own, clock=clock, unix_clock=unix_clock)
        self._affinity = Affinity()
        self._narrowings = Narrowings(self._due_to, clock=clock, unix_clock=unix_clock)
        self._budgets = Budgets(spending or Spending(unix_clock))
        self._configured: dict[str, tuple[str, ...]] = {}  # deployments by model
        self._in_file: set[str] = set()  # all of these deployments
        self._planned: dict[str, tuple[str, ...]] = {}  # by model, of the last plan: clients may list deployments
        self._payers: dict[str, str] = {}  # by model: the model whose budget applies instead of its own
        self._turns: dict[str, float] = {}  # by model: when the last call that waits for limits asks again
        self._overtaken: dict[str, int] = {}  # by model: known primaries that another model overtook
        self._slot = 0
        self._clients_names = ClientsNames()
        self._dropped = 0  # names of clients, since what is known of them was forgotten
        board.share(self._is_shared)
        self._round = self._refreshed()

    def plan(
        self,
        model: str,
        deployments: Sequence[str],
        race: RaceSettings,
        terms: Terms,
        prompt_class: PromptClass,
        *,
        explain: bool = False,
        payer: str | None = None,
        client: str | None = None,
    ) -> Plan:
        """Plan a call's launches. Counts the call for the model's budget, or that of ``payer``, if given.

        ``explain`` fills ``Plan.explanation``. ``client``: the call's; if another model pays, the client made up the
        name of this one.
        """
        self._catch_up()
        if not payer:
            payer = model
        elif payer != model:
            self._payers[model] = payer
            for name in self._clients_names.asked(model, client):
                self._drop(name)
        budget, now_s = self._budgets.of(payer if terms.learnt_as is None else of_keys(payer)), self._clock()
        if (
            terms.learnt_as is None or race.usd_per_day is not None
        ):  # calls with a client's own key use none of the operator's rate limits
            self._budgets.call(model, race, now_s, payer, client)
        budget.accrue(race.budget, client, now_s)
        if race.extra_usd_per_call is not None:
            budget.earn(race.extra_usd_per_call, client, now_s)
        plan = self._planned_for(
            model, deployments, race, terms, prompt_class, budget=budget, explain=explain, client=client
        )
        if plan.explores:
            for launch in plan.launches:
                if launch.role in EXPLORING or launch.why is Why.TRIAL:
                    self._health_of(launch.deployment, terms.learnt_as).probed(now_s, launch.watch_s)
                    own = self._learning.own.known(client, launch.deployment) if self._learning.held else None
                    if own is not None:
                        own.probed(now_s, launch.watch_s)
        self._forget()
        return plan

    def refresh(self, most_s: float = REFRESH_MOST_S) -> None:
        """Recompute changed standings and lineups for at most ``most_s``; call it every ``REFRESH_EVERY_S``.

        Unfinished work continues at the next call. Without such calls each plan recomputes standings that are a second
        old.
        """
        self._snapshots.refreshing()
        until_s = perf_counter() + most_s
        for _ in self._round:
            if perf_counter() > until_s:
                return
        self._forget()  # also while nobody calls
        self._round = self._refreshed()

    def _refreshed(self) -> Iterator[None]:
        for model in self._snapshots.refreshed():
            yield
            if model is not None:
                yield from self._lineups.warm(model, self._snapshots.of, self._conditions, self._clock())

    def recollect(self, sums: Sequence[HourlySum]) -> int:
        """Load the ledger's sums from before the start, in any order; return the number of models."""
        self._budgets.recollect(sums)
        return recollect(self._snapshots, sums)

    def recall(self, lately: Mapping[str, Mapping[int, Mapping[str, float]]]) -> int:
        """Add the ledger's counts of the last minutes before the start to the board, by model and slot.

        A board that replicas share has these attempts already: there nothing is read. Return the number of attempts.
        """
        return round(recall(self._board, lately))

    def explain(
        self,
        model: str,
        deployments: Sequence[str],
        race: RaceSettings,
        terms: Terms,
        prompt_class: PromptClass,
        *,
        client: str | None = None,
    ) -> Plan:
        """Return the plan of the next such call of ``client`` with its explanation, without counting it."""
        self._catch_up()
        budget = self._budgets.of(model if terms.learnt_as is None else of_keys(model))
        return self._planned_for(
            model, deployments, race, terms, prompt_class, budget=budget, explain=True, client=client
        )

    def first_token_s(
        self, model: str, deployments: Iterable[str], prompt_class: PromptClass, prompt_tokens: int
    ) -> float | None:
        """Return within how many seconds nine of ten first tokens of the fastest deployment come; None: unknown."""
        standings = self._snapshots.of(model, prompt_class, prompt_tokens)
        estimates = [each for each in map(standings.of, deployments) if each.is_known]
        return min((each.answered_s(LATE_QUANTILE) for each in estimates), default=None)

    def runs_on(self, model: str, plan: Plan, attempts: Iterable[str]) -> bool:
        """Whether the primary of ``plan``, whose ``attempts`` another model has overtaken, runs on to its first token.

        Each such primary runs on until its deployment's times are known: if all were cut, these would stay unknown.
        After that every tenth runs on, so that a change is learnt. If several attempts raced from the start, the plan
        has already drawn its audits.
        """
        self._learning.overtaken(attempts)
        if not plan.is_known:
            return True
        if len(plan.launches) > 1 and not STRATEGIES[plan.mode].in_turn:
            return False
        overtaken = self._overtaken[model] = self._overtaken.get(model, 0) + 1
        return overtaken % RUN_ON_EVERY == 0

    def served(
        self,
        model: str,
        prefix: Prefix,
        deployment: str,
        cached_tokens: int | None,
        prompt_tokens: int | None = None,
    ) -> None:
        """Record that ``deployment`` answered a prompt with this prefix, and how much of the prompt was cached.

        ``cached_tokens`` is None if the provider does not report it; ``prompt_tokens`` is the whole prompt.
        """
        self._affinity.served(model, prefix, deployment, cached_tokens, self._clock(), prompt_tokens=prompt_tokens)

    def asked(self, model: str, prefix: Prefix, deployments: Iterable[str]) -> None:
        """Note the deployments that were asked a prompt with this prefix, for ``lasting_bytes``."""
        self._affinity.asked(model, prefix, deployments, self._clock())

    def lasting_bytes(self, model: str, prefix: Prefix) -> Mapping[str, float]:
        """Return below how many bytes each deployment was asked a prompt's beginning within the life of a cache.

        Beginnings are known by lengths that double, and for a length between two the shorter one counts: 6 KB count as
        4 KB.
        """
        bytes_by_name = self._affinity.known_bytes(model, prefix, self._clock())
        return {name: inf if size == PREFIX_BYTES[-1] else 2.0 * size for name, size in bytes_by_name.items()}

    def draw_extra(
        self,
        model: str,
        launch: Launch,
        race: RaceSettings,
        *,
        cost_usd: float | None,
        payer: str | None = None,
        is_needed: bool = False,
        learnt_as: Mapping[str, str] | None = None,
        client: str | None = None,
    ) -> Narrowed | None:
        """Charge an attempt that is extra to the model, or to ``payer``, if given; return the limit that refuses it.

        Called when the attempt would start; None: the attempt may start. ``cost_usd`` is its maximum cost at list price
        (``Plan.cost_usd``), None if no price of the model is known. ``is_needed``: the call's first rescue, which no
        limit in dollars refuses. ``learnt_as`` as in ``Terms``. ``client``: the call's; all clients share what a model
        may start.
        """
        now_s = self._clock()
        is_clients = learnt_as is not None and launch.deployment in learnt_as
        if learnt_as is not None and is_clients:
            room = 0.0 if launch.deployment in self._tenants.full(learnt_as, now_s) else inf
        else:
            room = inf
            if self._learning.limited:  # seldom
                room, _ = self._room(model, self._planned.get(model, ()), now_s)
                room = 0.0 if self._full((launch.deployment,), now_s) else room
        limit = self._budgets.draw(
            model,
            launch.role,
            race,
            cost_usd=cost_usd,
            payer=payer or model,
            room=room,
            is_needed=is_needed,
            now_s=now_s,
            budget=None if learnt_as is None else of_keys(payer or model),
            is_clients=is_clients,
            client=client,
        )
        if limit is not None and self._on_refused is not None:
            self._on_refused(model, limit)
        return limit

    def turn_s(self, model: str, free_in_s: float) -> float:
        """Return in how many seconds a call asks again that waits for the first deployment to be free, ``free_in_s``.

        Such calls take turns, ``TURN_S`` apart for ``TURNS_S`` at most: if the first is refused, the others see that.
        """
        now_s = self._clock()
        free_at_s = now_s + free_in_s
        before_s = self._turns.get(model, -inf)
        turn_at_s = before_s + TURN_S if free_at_s - TURN_S < before_s < free_at_s + TURNS_S else free_at_s
        self._turns[model] = turn_at_s
        return turn_at_s - now_s

    def left_out(self, model: str, plan: Plan) -> None:
        """Count the attempts that a narrowed ``plan`` does not start with, as ``draw_extra`` does for refused ones."""
        reason = plan.narrowed or plan.withheld_by
        if reason is not None and self._on_refused is not None:
            begun = sum(launch.delay_s <= 0 and launch.role is not Role.PROBE for launch in plan.launches)
            for _ in range(max(1, plan.width_asked - begun)):
                self._on_refused(model, reason)

    def extra_attempts_left(self, model: str) -> float:
        """Return the number of extra attempts that the budget of ``model`` permits now; below 0 it is overdrawn."""
        return self._budgets.of(model).tokens

    def call_started(self, start: CallStart) -> None:
        """Do nothing."""

    def attempt_started(self, model: str, start: AttemptStart) -> None:
        """Count the attempt as in flight."""
        del model
        if start.learnt_as is not None:
            self._tenants.attempt_started(start.learnt_as, start)
        else:
            self._learning.attempt_started(start)

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float = 0.0
    ) -> None:
        """Count a first token, ``ago_s`` seconds ago; the deployment is healthy."""
        if start.learnt_as is not None:
            self._tenants.first_token(start.learnt_as, model, prompt_class, start, ttft_s, ago_s)
        else:
            self._learning.first_token(model, prompt_class, start, ttft_s, ago_s)

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float = 0.0) -> None:
        """Count the attempt's end, ``ago_s`` seconds ago: with a first token, censored, or an error."""
        if attempt.learnt_as is not None:
            self._tenants.attempt_ended(attempt.learnt_as, model, prompt_class, attempt, ago_s)
        else:
            self._learning.attempt_ended(model, prompt_class, attempt, ago_s)

    def call_finished(self, record: CallRecord) -> None:
        """Learn the lengths of answers, and whether racing is narrowed."""
        self._learning.call_finished(record)
        if record.narrowed is None and not self._narrowings.models:  # the usual case
            return
        if all(
            attempt.learnt_as is None for attempt in record.attempts
        ):  # calls with a client's own key say nothing of the operator's deployments
            self._narrowings.call_finished(record)

    def health_of(self, deployment: str) -> Health:
        """Return the health of a deployment as this replica sees it."""
        self._catch_up()
        return self._learning.health_of(deployment)

    def running_elsewhere(self, deployment: str, attempts: float) -> None:
        """Note how many attempts the other processes have in flight at ``deployment``, for the load there."""
        self._learning.health_of(deployment).elsewhere = attempts

    def under_way(self, deployment: str) -> tuple[str, ...]:
        """Return the ids of the running attempts at ``deployment``, of all models."""
        self._catch_up()
        return self._learning.under_way(deployment) + self._tenants.under_way(deployment)

    def not_asked(
        self,
        deployments: Iterable[str],
        asked: Collection[str],
        learnt_as: Mapping[str, str] | None = None,
        *,
        on_trial: bool = False,
        client: str | None = None,
    ) -> tuple[SkippedDeployment, ...]:
        """Return which of ``deployments``, without those ``asked``, are out, cooling down or broken, and why.

        ``learnt_as`` as in ``Terms``. ``on_trial``: also those that a call may use again, but that have not answered.
        ``client``: with what that client alone has met.
        """
        self._catch_up()
        now_s = self._clock()
        healths = self._learning.healths_of(client) if self._learning.held else self._learning.healths
        if learnt_as is None:
            return not_asked(healths, deployments, asked, now_s, on_trial=on_trial)
        names = list(deployments)
        out = self._tenants.not_asked(learnt_as, names, asked, now_s)
        return out + not_asked(healths, [name for name in names if name not in learnt_as], asked, now_s)

    def silent(self, model: str, ttft_s: Mapping[str, float]) -> tuple[SkippedDeployment, ...]:
        """Return all deployments of a model, if attempts wait there and none has begun to answer for long; else none.

        ``ttft_s``: the time-outs of a first token, by deployment.
        """
        if not ttft_s:
            return ()
        self._catch_up()
        least_s = SILENT_SHARE * max(ttft_s.values())
        waiting, age_s = self._learning.silence(ttft_s, least_s)
        if waiting < SILENT_ATTEMPTS or age_s < least_s:
            return ()
        window = read_window(self._board.slots(model, self._unix_clock()))
        standings = self._snapshots.fresh(model, window.busiest_class)
        if age_s < max(standings.of(name).overdue_s for name in ttft_s):
            return ()
        cause = f"no first token for {age_s:.0f} s"
        return tuple(SkippedDeployment(name, "silent", for_good=False, cause=cause) for name in ttft_s)

    def leaderboard(self, model: str) -> Leaderboard:
        """Return the published leaderboard of one model, up to now."""
        self._catch_up()
        window = read_window(self._board.slots(model, self._unix_clock()))
        names = self._configured.get(model) or self._planned.get(model) or tuple(window.tallies)
        standings = self._snapshots.fresh(model, window.busiest_class)
        return of_gateway(
            model,
            names,
            window,
            standings=standings,
            healths=self._learning.healths,
            now_s=self._clock(),
            narrowed=self._narrowings.of(model),
            own=self._learning.own,
        )

    def healths(self) -> Mapping[str, Health]:
        """Return the health of each configured deployment."""
        self._catch_up()
        return {name: self._learning.health_of(name) for names in self._configured.values() for name in names}

    def reset(self, models: Mapping[str, Sequence[str]]) -> None:
        """Apply a configuration, the deployments of each model: at the start and after each reload.

        Measurements are kept; deployments that were out are tried again.
        """
        self._catch_up()
        self._configured = {model: tuple(names) for model, names in models.items()}
        for name, health in self._learning.healths.items():
            health.reload()
            if not health.tripped:
                self._learning.outages.end(name)
        self._learning.own.clear()
        self._in_file = {name for names in models.values() for name in names}
        for name in self._in_file:
            self._learning.health_of(name)  # creates it, so that other replicas' reports apply before its first call
        for model in models:
            self._board.version(model, self._unix_clock())

    def _planned_for(
        self,
        model: str,
        deployments: Sequence[str],
        race: RaceSettings,
        terms: Terms,
        prompt_class: PromptClass,
        *,
        budget: Budget,
        explain: bool,
        client: str | None = None,
    ) -> Plan:
        now_s = self._clock()
        size_tokens = terms.size_tokens or terms.prompt_tokens
        standings = self._snapshots.of(model, prompt_class, size_tokens, terms.whole)
        if terms.kind is not None:
            answer_tokens = self._learning.lengths.expected(model, terms.kind, standings.answer_tokens)
            terms = msgspec.structs.replace(terms, answer_tokens=answer_tokens)
        learnt_as = terms.learnt_as
        earlier_plans = self._planned.get(model, ())
        is_known = earlier_plans == deployments and learnt_as is None  # as nearly always
        names: Sequence[str] = earlier_plans if is_known else self._names(model, deployments, learnt_as)
        if (flawed := self._learning.quality.demoted(model, terms.answer_kind)) is not None:
            terms = msgspec.structs.replace(terms, flawed=flawed)
        if terms.excluded:
            names = [name for name in names if name not in terms.excluded]
        conditions = self._conditions(names, now_s) if learnt_as is None else self._of_keys(names, learnt_as, now_s)
        is_own = self._learning.held != _NONE_FULL and learnt_as is None and self._are_own(conditions, client, now_s)
        kind = (model, prompt_class, size_of(size_tokens))
        lineup = self._lineups.of(kind, conditions, standings, (race, terms), now_s, is_own=is_own)
        held, home = NOTHING_HELD, None
        if terms.prefix is not None and race.cache_affinity:
            held = self._affinity.held(model, terms.prefix, terms.prices, now_s)
            home = _home_of(model, terms, lineup, self._affinity, held=held, now_s=now_s)
            terms, held = _with_caches(model, terms, self._affinity, held, lineup) if held else (terms, held)
        costs, expected = _NOTHING_COSTS, 0.0
        budgeted, limit = race.budget, None  # of several limits the first of ``Narrowed`` is told
        if terms.is_counted or race.usd_per_day is not None or race.extra_usd_per_call is not None:
            expected = expected_tokens(standings, terms)
            costs = costs_usd(conditions, expected, terms)
            race = within(race, costs, learnt_as)
            limit = Narrowed.USD_PER_CALL if race.budget < budgeted else None
        race, unusual = (race, ()) if race.usd_per_day is None else self._budgets.paced(model, race)
        limit = Narrowed.USD if unusual else limit
        probes = race.budget > 0
        own = names if learnt_as is None else [name for name in names if name not in learnt_as]
        room, demand = self._room(model, own, now_s) if self._learning.limited else (inf, 1.0)
        full = self._full(own, now_s) if self._learning.limited else _NONE_FULL
        full = full if learnt_as is None else full | self._tenants.full(learnt_as, now_s)
        if room < race.budget * demand:  # extra attempts must not take the rate limit that other calls need
            race = race.model_copy(update={"budget": room / demand})
            unusual, limit = (*unusual, _LIMITED.format(room / demand)), Narrowed.RATE_LIMITS
        elif full:
            unusual = (*unusual, _FULL.format(", ".join(sorted(full))))
        means = planner.Means(
            budget.tokens,
            probes,
            self._learning.kept_of(model).share if race.mode is Mode.AUTO else 1.0,
            full,
            None if race.budget == budgeted else budgeted,
            limit,
            max(len(self._configured.get(model, ())), len(names) + len(terms.excluded or ())),
        )
        plan = planner.plan(
            lineup,
            race,
            terms,
            means,
            random=self._random,
            held=held,
            home=home,
            now_s=now_s,
            cost_usd=costs,
            answer_tokens=expected,
        )
        if unusual and plan.launches:
            plan = msgspec.structs.replace(plan, reasons=(*plan.reasons, *unusual))
        if explain:
            answer = expected_tokens(standings, terms)
            explanation = explained(
                plan,
                lineup,
                race,
                terms,
                held=held,
                home=home,
                answer_tokens=answer,
                effort=prompt_class.effort,
                budget=budget,
                probes=probes or race.budget > 0,
            )
            plan = msgspec.structs.replace(plan, explanation=explanation)
        return plan

    def _conditions(self, names: Iterable[str], now_s: float) -> dict[str, Condition]:
        conditions, healths = {}, self._learning.healths
        for name in names:
            health = healths.get(name) or self._learning.health_of(name)
            # Mostly the cached one: nothing has happened there since.
            conditions[name] = health.cached_condition or health.condition(now_s)
        return conditions

    def _are_own(self, conditions: dict[str, Condition], client: str | None, now_s: float) -> bool:
        """Replace common conditions by those that ``client`` has met; return whether any differs."""
        differs, learning = False, self._learning
        for name in learning.held.intersection(conditions if client is not None else ()):
            common = conditions[name]
            own = learning.own.known(client, name)
            if not learning.health_of(name).is_for(client):
                common = common.without_faults()
            met = None if own is None else own.condition(now_s)
            if met is not None and common.state is HealthState.OK and common.trial_in_s is None:
                common = common.with_faults(met)
            differs = differs or common is not conditions[name]
            conditions[name] = common
        return differs

    def _health_of(self, deployment: str, learnt_as: Mapping[str, str] | None) -> Health:
        """Return the health of a deployment; with a key of the client's own, as that key has shown it."""
        if learnt_as is None or deployment not in learnt_as:
            return self._learning.health_of(deployment)
        return self._tenants.health_of(learnt_as[deployment])

    def _of_keys(self, names: Iterable[str], learnt_as: Mapping[str, str], now_s: float) -> dict[str, Condition]:
        health_of, keys = self._learning.health_of, self._tenants
        return {
            name: (keys.known(learnt_as[name]) if name in learnt_as else health_of(name)).condition(now_s)
            for name in dict.fromkeys(names)
        }

    def _room(self, model: str, names: Iterable[str], now_s: float) -> tuple[float, float]:
        limited = self._learning.limited
        if limited.isdisjoint(names):
            return inf, 1.0
        return self._budgets.room(model, [self._learning.health_of(name) for name in names], now_s)

    def _full(self, names: Iterable[str], now_s: float) -> frozenset[str]:
        """Return the deployments whose rate limits have no room for an extra attempt."""
        learning = self._learning
        return frozenset(
            [name for name in names if name in learning.limited and not learning.health_of(name).has_room(now_s)]
        )

    def _names(self, model: str, deployments: Sequence[str], learnt_as: Mapping[str, str] | None) -> Sequence[str]:
        if learnt_as is not None:
            return deployments
        names = self._planned.get(model)
        if names != tuple(deployments):
            names = self._planned[model] = tuple(dict.fromkeys(deployments))
        return names

    def _due_to(self, model: str, reason: Narrowed) -> Sequence[str]:
        """Return the deployments that cause calls of ``model`` to be narrowed, if the reason is about deployments."""
        names = self._configured.get(model) or self._planned.get(model, ())
        if reason is Narrowed.COOLING:
            return [each.deployment for each in not_asked(self._learning.healths, names, (), self._clock())]
        if reason is not Narrowed.RATE_LIMITS:
            return ()
        full = self._full(names, self._clock()) or self._learning.limited  # else only all together have no room
        return [name for name in names if name in full]

    def _is_shared(self, model: str) -> bool:
        """Whether other replicas should know of a model: not of a name that a client made up for one call."""
        made_up = ("/" in model or "," in model or model in self._payers) and model not in self._configured
        return not made_up or self._clients_names.is_known(model)

    def _drop(self, model: str) -> None:
        """Forget a model at once."""
        self._snapshots.drop(model)
        self._board.forget(model)
        self._planned.pop(model, None)
        self._payers.pop(model, None)
        self._dropped += 1

    def _forget(self) -> None:
        """Once per slot, and for each hundred dropped models, forget everything about models no longer called.

        Clients may list deployments as a model, and make up names for them as fast as they can.
        """
        slot = int(self._unix_clock() // SLOT_S)  # as ``slot_of``, without its call
        if slot == self._slot and self._dropped < MOST_NAMES_A_CLIENT:
            return
        self._slot, self._dropped = slot, 0
        models = self._snapshots.forget()
        self._lineups.keep(models)
        self._planned = {model: names for model, names in self._planned.items() if model in models}
        self._payers = {model: payer for model, payer in self._payers.items() if model in models}
        self._turns = {model: turn_at_s for model, turn_at_s in self._turns.items() if model in models}
        self._overtaken = {model: count for model, count in self._overtaken.items() if model in models}
        # A new budget is full: one that is seldom used must be kept.
        self._budgets.keep({*models, *self._configured, *self._payers.values()})
        used = {name for names in (*self._configured.values(), *self._planned.values()) for name in names}
        self._learning.keep({*models, *self._configured}, used)
        self._affinity.keep(used)
        self._narrowings.keep({*models, *self._configured})
        self._tenants.forget()


# Rendezvous hashing: the deployment for a prompt that is in no known cache, the same in every replica. So the next
# turn of a conversation finds its warm cache from any replica, without shared state.


def _home_of(
    model: str, terms: Terms, lineup: Lineup, affinity: Affinity, *, held: CachedBytes, now_s: float
) -> Candidate | None:
    """Return the deployment, of those near the best, to which every replica sends prompts with this prefix; or None.

    The deployment's cache must save something, and must not just have missed this prefix (it may keep none at all).
    None if a cache near the best is known to hold the prompt. Weighted rendezvous hashing: the maximum of
    ln(u) / weight, with u uniform in (0, 1) by prompt and deployment. Each deployment gets prompts by its weight in
    the draw, and if one drops out only its own prompts move. Deployments close to their rate limits are left out.
    """
    near, prefix = lineup.near, terms.prefix
    if prefix is None or prefix.shared is None or len(near) <= 1 or any(each.deployment in held for each in near):
        return None
    missing = affinity.misses(model, prefix, now_s)
    most, home, weight, below = -inf, None, 0.0, 0.0
    for each, up_to in zip(near, lineup.weights_up_to, strict=True):
        own, below = up_to - below, up_to
        name = each.deployment
        if own <= 0.0:
            continue  # a weight lost to rounding in the sum
        if each.condition.headroom < HEADROOM_LOW or name in missing or not affinity.saves(name, terms.prices):
            continue
        drawn = log(_uniform(prefix.shared, name)) / own
        if drawn > most:
            most, home, weight = drawn, each, own
    return home if home is not None and not _is_crowded(home, weight / below, lineup) else None


def _of_session(last: str | None, lineup: Lineup, held: CachedBytes) -> CachedBytes:
    """Return ``held`` with only the deployment that answered a session's ``last`` call, if others hold no more.

    The others hold what sessions share, such as an agent's instructions; this one should also hold the conversation.
    """
    if last is None or not any(each.deployment == last for each in lineup.eligible(held)[0]):
        return held
    return {last: held[last]} if last in held else held


def _with_caches(
    model: str, terms: Terms, affinity: Affinity, held: CachedBytes, lineup: Lineup
) -> tuple[Terms, CachedBytes]:
    """Return the ``terms`` with the ``held`` parts of the prompt, and the held parts that decide where it goes."""
    assert terms.prefix is not None
    cached = affinity.cached_tokens(model, terms.prefix, held, terms.prompt_tokens)
    if len(held) > 1 and terms.prefix.session is not None:
        held = _of_session(affinity.last_of(model, terms.prefix), lineup, held)
    return msgspec.structs.replace(terms, cached=cached), held


def _is_crowded(home: Candidate, share: float, lineup: Lineup) -> bool:
    """Whether clearly more than its share is in flight at ``home``.

    So many are there if many prompts have the same beginning, or if few of the deployments save anything.
    """
    in_flight = home.condition.in_flight
    if in_flight <= HOME_SLACK:
        return False
    return in_flight > HOME_SLACK + HOME_LOAD * share * sum(each.condition.in_flight for each in lineup.near)


def _uniform(digest: bytes, deployment: str) -> float:
    """Return a number in (0, 1) that depends only on both arguments."""
    drawn = blake2b(deployment.encode(), digest_size=8, salt=digest).digest()
    return (int.from_bytes(drawn, "big") + 0.5) / 2**64
