"""The planner: decides which attempts are launched for a call, and when. Pure: no I/O, clock or global state."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from operator import attrgetter
from random import Random

import msgspec

from gateway.core.attempts import EXPLORING, Narrowed, Role
from gateway.core.calls import Objective
from gateway.settings import RaceSettings
from gateway.steering.affinity import NOTHING_HELD, CachedBytes
from gateway.steering.budget import hedge_quantile, hedged_at_s
from gateway.steering.candidates import Candidate, Lineup, Terms, Tier
from gateway.steering.constants import (
    BURST_TOKENS,
    COLD_EVENTS,
    EXPLORE_FLAWED_SHARE,
    EXPLORE_HARM_S,
    EXPLORE_NEW_SHARE,
    EXPLORE_SHARE,
    HAIR,
    HEDGE_MIN_S,
    HEDGE_SHARE,
    MEETS_QUANTILE,
    RESCUE_IN_TIME,
    RESCUE_MIN_S,
    RESCUE_SPOKEN_FACTOR,
    RESCUE_SPOKEN_QUANTILE,
    SPOKEN_CLAUSE_TOKENS,
    SPOKEN_HEDGED_PART,
    SPOKEN_LEAD_TOKENS,
    TRIAL_HEDGED_S,
    WORTH_HELD,
)
from gateway.steering.demands import NO_DEMANDS, Demands
from gateway.steering.health import HealthState, probe_limit_s
from gateway.steering.plans import Launch, Offer, Plan, Speaking, Why
from gateway.steering.strategies import STRATEGIES, Start
from gateway.steering.worth import best, floor_s, may_race, offers, worth_s

# Selects deployments to explore.

_A_DAY_S = 86_400.0


def is_to_explore(others: Sequence[Candidate], random: Random, *, prefers_new: bool) -> bool:
    """Draw whether to explore: more often if a deployment is unknown, and the mode ``prefers_new`` deployments."""
    drawn = random.random()
    if drawn >= EXPLORE_NEW_SHARE:  # the usual case: conditions are not checked
        return False
    return drawn < EXPLORE_SHARE or (prefers_new and any(map(is_new, others)))


def stalest_of(primary: Candidate, others: Sequence[Candidate], random: Random, now_s: float) -> Candidate | None:
    """Return, with some randomness, the deployment used longest ago; None if all are more expensive or flawed."""
    usd = primary.cost_usd
    free = [each for each in others if each.cost_usd <= usd and each.tier < Tier.FLAWED]
    return max(free, key=lambda each: _unused_s(each, now_s) * (0.5 + random.random()), default=None)


def _unused_s(candidate: Candidate, now_s: float) -> float:
    return min(_A_DAY_S, now_s - candidate.condition.launched_at_s)


def is_new(candidate: Candidate) -> bool:
    """Whether nothing is known about a usable deployment, neither recently nor in memory."""
    estimate = candidate.estimate
    return not estimate.usual_events and not estimate.events and candidate.tier < Tier.FLAWED


_NOBODY: frozenset[str] = frozenset()


class Means(msgspec.Struct, frozen=True, gc=False):
    """The budget for further attempts of a call now, and the limits that come before the budget."""

    tokens: float  # extra attempts that are saved up
    probes: bool = False  # whether broken deployments are probed though limits have reduced the budget to 0
    kept: float = 1.0  # the share of independent attempts' savings that remains
    full: frozenset[str] = _NOBODY  # deployments whose rate limits have no room for an extra attempt
    unlimited: float | None = None  # the budget before limits reduced it to that of the race; None: nothing did
    limit: Narrowed | None = None  # the limit that reduced the budget
    configured: int = 0  # the number of the model's deployments


# A plan that is being built: adds explorers, hedges, racers and rescues to the primary.


class Draft:
    """The launches of a plan so far: the primary, and the spare deployments launched besides it."""

    def __init__(
        self,
        primary: Candidate,
        others: Sequence[Candidate],
        race: RaceSettings,
        terms: Terms,
        random: Random,
        *,
        lineup: Lineup,
        why: Why,
        now_s: float,
        means: Means,
        apart: frozenset[str] = frozenset(),
    ) -> None:
        """``others``: the deployments for failover, best first; those in ``apart`` may not run beside the primary."""
        self._means, self._full = means, means.full
        self._now_s, self._why = now_s, why
        self.worth_s: tuple[float, float] | None = None  # the gain of the best rival, if it does not reach the floor
        self.withheld_s: float | None = None  # when a hedge would be due if a deployment were left
        self.asked = self.raced = 0  # further attempts at the start: as the settings ask, and as limits allow
        self.offer: Offer | None = None  # the further attempt that is worth its cost
        self.long_prompt = terms.prompt_tokens > race.max_prompt_tokens
        self.explores = why is Why.TRIAL  # an attempt is watched, though it should lose
        watch_s = probe_limit_s(primary.estimate.well_q95_s) if self.explores else None
        self.launches = [Launch(primary.deployment, 0.0, Role.PRIMARY, self.explores, why, watch_s)]
        self.reasons = ["long prompt: hedged"] if self.long_prompt else []
        self._primary = primary
        self._demands = terms.demands
        self._apart = apart
        self._others = [each for each in others if each.deployment not in apart] if apart else others
        self._spare = list(others)  # not launched yet, best first
        self._lineup = lineup
        # Without holds the first token is sent at once, so a race is worth only what its first token is worth.
        self._is_first_sent = bool(lineup.after_s) and not terms.holds
        self.race = race
        self._is_spent = race.budget <= 0  # if so, only probes run beside the primary: no budget pays for them
        self.strategy = STRATEGIES[race.mode]
        self._terms = terms
        self.cost_first = terms.objective is Objective.COST
        self.random = random

    def add_others(self, canary: Candidate | None) -> float | None:
        """Add all further attempts; return the start of the first rescue, None if two may never run at once.

        ``canary`` is the one drawn to be tried.
        """
        lineup, race, demands, means = self._lineup, self.race, self._demands, self._means
        if demands is not NO_DEMANDS and demands.in_turn:
            return self._in_turn()
        # A broken canary is tried only as often as its configured share says.
        probe = canary if canary is not None and canary.condition.probe_due else lineup.probe
        watches = self._terms.watches and not self._terms.stateful
        if self.strategy.in_turn:
            if probe is not None and (race.budget > 0 or means.probes) and watches:
                self._explore(probe, Why.PROBE)
            elif race.budget > 0 and watches and not self.long_prompt and any(map(_SLOWER_LATELY, self._others)):
                self._explore_slower()
            rescue_s = self.add_rescues(()) if race.budget > 0 and demands.rescued else None
            if self._terms.asked is not None:
                self.ask()
            return rescue_s
        if self._why is Why.FLAWED:
            self.add_standby(race.budget)
            self.ask()
        else:
            if watches and (race.budget > 0 or means.probes):
                self.add_second(probe, means.tokens)
            number = max(means.configured, len(lineup.candidates)) - len(lineup.canaries)
            self.add_late_and_raced(alone=not self._others and number <= 1)
        rescue_s = self.add_rescues(lineup.reserve) if demands.rescued else None
        if self._terms.spoken and len(self.launches) > 1:
            self.heed_speakers()
        self.audit(race.audit_share)
        return rescue_s

    def _in_turn(self) -> float | None:
        """Note the attempts that mode and width would add and the call does not want; return the start of a rescue."""
        race, demands = self.race, self._demands
        if not demands.once or self._terms.asked is not None:
            self.ask()
            if self.strategy.hedges and self.withheld_s is None and not self._is_spent:
                self.withheld_s = race.hedge_delay_s or self._late_s(HEDGE_SHARE)
        if demands.once or not demands.rescued or (self.strategy.in_turn and race.budget <= 0):
            return None
        return self._rescue_s()

    def run_beside(self, late: str) -> None:
        """Let the primary run beside the model ``late``, so without the extra attempts that would start at once."""
        first, *others = self.launches
        first = msgspec.structs.replace(first, role=Role.FALLBACK, audited=False, why=Why.FALLBACK)
        self.launches = [first, *[each for each in others if each.delay_s > 0]]
        self.explores = False
        self.reasons.append(f"asked beside model {late!r}, as its answer was late")

    def add_second(self, probe: Candidate | None, tokens: float) -> None:
        """Fill the second slot, from the start of the call, with an attempt that measures its deployment.

        That is a broken deployment, to see whether it has recovered; sometimes the deployment that was used longest
        ago; and any deployment if the primary is new. No user waits for such an attempt. A deployment that is not
        broken is not measured with a long prompt, as every attempt pays for the prompt; nor under ``cost`` if it is
        more expensive than the primary, as the planner would never choose it.
        """
        strategy, random = self.strategy, self.random
        if probe is not None:
            self._explore(probe, Why.PROBE)
            return
        if self._is_spent or self.long_prompt or not self._others or strategy.fills_with(self.race) > len(self._others):
            return
        others = [each for each in self._others if each.deployment not in self._full] if self._full else self._others
        if not others:
            return
        if is_to_explore(others, random, prefers_new=strategy.decides):
            bearable = [each for each in others if self._may_explore(each)]
            if (stalest := stalest_of(self._primary, bearable, random, self._now_s)) is not None:
                self._explore(stalest, Why.EXPLORE)
        elif (
            strategy.decides
            and not self.cost_first
            and self._primary.estimate.events < COLD_EVENTS
            and tokens >= BURST_TOKENS / 2
            and others[0].tier < Tier.FLAWED
            and not self._is_billed_in_full(others[0])
        ):
            self._launch(others[0], 0.0, Role.RACE, Why.COLD_START)
            self.reasons.append(Why.COLD_START)

    def _explore_slower(self) -> None:
        """Draw whether to ask a deployment that is usually clearly quicker than the primary, but was slow lately.

        If calls have one attempt each, no other attempt would find that the deployment is as quick as before.
        """
        usd, enough_s = self._primary.cost_usd, self._primary.estimate.quantile_s(0.5) / HAIR
        quicker = [
            each
            for each in self._others
            if each.estimate.slower_lately
            and each.estimate.usual_p50_s < enough_s
            and each.tier < Tier.FLAWED
            and each.cost_usd <= usd
            and each.deployment not in self._full
        ]
        if quicker and self.random.random() < EXPLORE_SHARE:
            self._explore(min(quicker, key=_USUAL_P50_S), Why.BACK)

    def _may_explore(self, each: Candidate) -> bool:
        """Draw whether ``each`` may be explored: rarely if the call would lose much by a first token of ``each``.

        This applies only if the loss is known: a fast decoder without measurements looks like a slow one.
        """
        if not self._is_first_sent or not each.estimate.speed_known:
            return True
        harm_s = -self._lineup.gain_s(self._primary, each)
        return harm_s <= EXPLORE_HARM_S or self.random.random() < EXPLORE_HARM_S / harm_s

    def add_standby(self, budget: float) -> None:
        """Add a rescue for a primary that was chosen only to test its answers.

        In a race only the winner's answer is judged, so no other attempt runs from the start.
        """
        if budget > 0 and self._others and self._others[0].tier < Tier.FLAWED:
            self._launch(self._others[0], self._late_s(HEDGE_SHARE), Role.HEDGE, Why.LATE)

    def add_late_and_raced(self, *, alone: bool) -> None:
        """Add hedges and racers, as many as the mode or the budget allows.

        ``alone``: the model has one deployment, which races itself only if the mode says so.
        """
        timed = self.cost_first or self.race.ttft_ms is not None
        if timed and not self._is_spent and self.strategy.waits_for_the_deadline(self.race, self.cost_first):
            in_time = [each for each, _ in self._rivals(late=True)]
            if self._add_before_the_deadline(in_time) or self.cost_first:
                return
        self.ask()
        if self._is_spent:
            return
        if self.race.value_usd_per_s and self.strategy.decides and self._is_valued():
            return
        alone = alone and self._primary.condition.state is not HealthState.OUT  # one look a call is enough there
        for delay_s, why in self.strategy.starts(self):
            if alone and self.strategy.races_itself and self._primary.tier < Tier.FULL:
                self._launch(self._primary, delay_s, Role.RACE if why in _RACED else Role.HEDGE, why)
            else:
                self._add_best(delay_s, why)

    def ask(self) -> None:
        """Draw how many further attempts should start with the call."""
        race, strategy = self._terms.asked or self.race, self.strategy
        drawn = (
            self.random.random() if STRATEGIES[race.mode].decides and (race.budget or self._means.unlimited) else 0.0
        )
        self.asked = self.raced = strategy.asks(self.race, drawn)
        if race is not self.race:
            strategy = STRATEGIES[race.mode]
            self.asked = 0 if strategy.waits_for_the_deadline(race, self.cost_first) else strategy.asks(race, drawn)
            if strategy.hedges:
                self.withheld_s = race.hedge_delay_s or self._late_s(HEDGE_SHARE)
        elif self._means.unlimited is not None:
            self.asked = strategy.asks(race.model_copy(update={"budget": self._means.unlimited}), drawn)

    def narrowed(self) -> tuple[int, Narrowed | None]:
        """Return how many attempts should start with the call, and why fewer do; None if enough do.

        There is at most one for each deployment; a probe is for its deployment only.
        """
        launches, primary, candidates = self.launches, self._primary, self._lineup.candidates
        limit, configured = self._means.limit, self._means.configured
        canaries = len(self._lineup.canaries) - (primary.canary > 0)  # each is only for its share of the calls
        most = max(configured, len(candidates)) - canaries
        races_itself = most == 1 and STRATEGIES[(self._terms.asked or self.race).mode].races_itself
        width_asked = 1 + (self.asked if races_itself else min(self.asked, most - 1))
        started = 0
        for each in launches:
            started += each.delay_s == 0 and each.role is not Role.PROBE
        if started >= width_asked and self.withheld_s is None:
            return width_asked, None
        able = [each for each in self._others if may_race(each, primary, self.race) or self._may_speak(each)]
        rivals = [each for each in able if each.deployment not in self._full] if self._full else able
        lacks, demands = len(rivals) < max(1, width_asked - 1), self._demands
        strange = lacks and not demands.strangers.isdisjoint(self._apart)
        billed = Narrowed.USD_PER_CALL if self.race.usd_per_day is None else Narrowed.USD
        holds = {
            Narrowed.STATEFUL: self._terms.stateful,
            Narrowed.LONG_PROMPT: self.long_prompt,
            Narrowed.UNFIT: lacks and (strange or bool(self._terms.excluded) or len(candidates) < configured),
            Narrowed.DIFFERS: lacks and bool(self._apart),
            Narrowed.ORDERED: demands.in_turn,
            Narrowed.COOLING: lacks and any(each.condition.state is not HealthState.OK for each in candidates),
            Narrowed.CAPACITY: lacks and any(each.tier is Tier.FULL for each in candidates),
            Narrowed.RATE_LIMITS: lacks and len(rivals) < len(able),
            billed: any(each.why is Why.BILLED for each in launches),
            Narrowed.BUDGET: self._is_spent and limit is None,
            Narrowed.PROBE: any(each.why in _TRIALS for each in launches),
        }
        if limit is not None and (self.raced < self.asked or self._is_spent or limit is Narrowed.USD):
            holds[limit] = True
        return width_asked, next((each for each in Narrowed if holds.get(each)), Narrowed.NO_RIVAL_WORTH_IT)

    def _is_valued(self) -> bool:
        """Add the attempt with the highest value minus cost, if positive; return False if no price is known."""
        offers_made = offers(
            self._lineup, self._primary, self.race, self._terms, kept=self._means.kept, is_long=self.long_prompt
        )
        if offers_made is None:
            return False
        launched = {launch.deployment for launch in self.launches} | self._full | self._apart
        if len(launched) > 1:
            offers_made = [each for each in offers_made if each.deployment not in launched]
        value = self.race.value_usd_per_s or 0.0
        self.offer = offer = best(offers_made, value, self.race.budget)
        if offer is None:
            self.reasons.append(NOT_WORTH_IT)
        else:
            rival = next(each for each in self._others if each.deployment == offer.deployment)
            self._launch(rival, offer.delay_s, Role.HEDGE if offer.delay_s else Role.RACE, Why.VALUE)
        return True

    def _add_best(self, delay_s: float, why: Why) -> None:
        """Add the best deployment for this start; if the mode decides, only if the call should gain by it."""
        rival, gain_s = next(self._rivals(late=delay_s > 0), (None, 0.0))
        if rival is not None and why is Why.BUDGET and (instead := self._rather_hedged(rival, gain_s)) is not None:
            if instead is Why.WORTH and len(self.launches) > 1 and self.launches[-1].delay_s > 0:
                return  # one hedge is enough
            delay_s, why = self._late_s(HEDGE_SHARE), instead
            rival, gain_s = next(self._rivals(late=True)) if instead in _WORTH_LESS else (rival, inf)
        if rival is None:
            if delay_s > 0 and not self.strategy.decides:
                self.withheld_s = delay_s
            return
        if gain_s <= 0 and self.strategy.decides:
            self.reasons.append(NOT_HEDGED)
        else:
            self._launch(rival, delay_s, Role.RACE if why in _RACED else Role.HEDGE, why)

    def _rivals(self, *, late: bool) -> Iterator[tuple[Candidate, float]]:
        """Yield the deployments that may run beside the primary, best first, and the call's gain in seconds."""
        launched = {*map(_DEPLOYMENT, self.launches), *self._full, *self._apart}  # a comprehension is a call
        if self._is_first_sent:
            gains = [*map(_GAIN, self._lineup.racers(self._primary, late=late))]
        else:
            gains = [(each, inf) for each in self._lineup.rivals]
        for each, gain_s in gains:
            if each.deployment not in launched and (may_race(each, self._primary, self.race) or self._may_speak(each)):
                yield each, gain_s

    def _may_speak(self, racer: Candidate) -> bool:
        """Whether ``racer`` may run beside the primary although it misses the profile's ``min_tok_s``.

        The first clause wins, so a slow writer wins only if the others are slower still. A ``min_tok_s`` that an
        operator or a request has set keeps slow writers out all the same.
        """
        return self._terms.spoken and racer.tier is Tier.MISSES and "min_tok_s" not in self.race.model_fields_set

    def _rather_hedged(self, rival: Candidate, gain_s: float) -> Why | None:
        """Return why ``rival`` should be a hedge instead of a racer, although there is budget; None to race it."""
        if gain_s <= 0:
            return Why.SLOWER
        if self._is_billed_in_full(rival):
            return Why.BILLED
        holds = self._terms.holds
        # A fast decoder without measurements looks like a slow one; if answers are held, any rival may be a fast one.
        # If the primary's speed was never measured either, answers here are too short to measure a speed.
        unsure = self._others if holds else [rival]
        is_measured = self._lineup.after_s and self._primary.estimate.speed_known
        if is_measured and not all(each.estimate.speed_known for each in unsure):
            return None
        saves_s = worth_s(self._lineup, self._primary, rival, kept=self._means.kept, holds=holds)
        least_s = floor_s(self._primary, self.race)
        # The sum of what held answers gain leaves out faults, in which a second one helps.
        if saves_s >= (WORTH_HELD * least_s if holds else least_s):
            return None
        self.worth_s = saves_s, least_s
        return Why.WORTH

    def _is_billed_in_full(self, rival: Candidate) -> bool:
        """Whether the loser would be billed in full while dollars are limited."""
        race, bills_losers = self.race, self._terms.bills_losers
        if not bills_losers or (race.usd_per_day is None and race.extra_usd_per_call is None):
            return False
        return not bills_losers.isdisjoint((rival.deployment, self._primary.deployment))

    def add_rescues(self, reserve: Sequence[Candidate]) -> float:
        """Add two rescues for a primary that hangs; return the start of the first, in seconds.

        A call in such trouble needs another attempt anyway, so rescues are not extra; if no other is left, the
        ``reserve`` is better than waiting.
        """
        rescue_s, soon_s = self._rescue_s(), self._soon_s()
        every_s = rescue_s
        is_extra = self._terms.speaks_unasked and not self._is_spent
        if soon_s is not None and not self._terms.speaks_unasked:
            rescue_s = min(rescue_s, soon_s)
            every_s = rescue_s - self._hedged_s() if rescue_s == soon_s else rescue_s
        spares = self._spare[:_RESCUES]
        if len(spares) < _RESCUES and reserve:
            more = [each for each in reserve if each is not self._primary]
            if self._demands.strangers:
                more = [each for each in more if each.deployment not in self._demands.strangers]
            spares = [*spares, *more][:_RESCUES]
        if not spares and self._terms.spoken and len(self.launches) > 1 and self._primary.tier < Tier.FULL:
            # All deployments run, and are late: a second request to each should answer sooner than the first ones.
            spares = [self._primary, *[each for each in self._others if each not in self._spare]][:_RESCUES]
        if is_extra and soon_s is not None and soon_s < rescue_s and spares:
            first, *spares = spares
            self._launch(first, soon_s, Role.HEDGE, Why.RESCUE)
        for number, spare in enumerate(spares or (self._lineup.tripped and self._last_resort())):
            self._launch(spare, rescue_s + number * every_s, Role.FAILOVER, Why.RESCUE)
        return rescue_s

    def _last_resort(self) -> Sequence[Candidate]:
        """Return the best of the broken deployments if no other is left: it may have recovered."""
        others = any(each is not self._primary for each in (*self._spare, *self._lineup.reserve))
        return () if others or len(self.launches) > 1 else self._lineup.tripped[:1]

    def _rescue_s(self) -> float:
        hangs_s = self._primary.estimate.hangs_s
        if self._why is Why.TRIAL:
            hangs_s = min(TRIAL_HEDGED_S, hangs_s)
        # Else a model that thinks as long as its time-out would end before another is asked beside it.
        if (in_time_s := RESCUE_IN_TIME * self._terms.ttft_s.get(self._primary.deployment, inf)) < hangs_s:
            return min(hangs_s, max(RESCUE_MIN_S, in_time_s))
        return hangs_s

    def _soon_s(self) -> float | None:
        """Return when a listener's call that has several attempts needs one more, in seconds; None for other calls.

        A listener hears the silence, and it is seldom that all attempts are so late. It is rarer still if one of them
        is a hedge, which started because the primary was late.
        """
        if not self._terms.spoken or len(self.launches) == 1 or not self.race.third_request:
            return None
        hedged_s = self._hedged_s()
        usual_s = self._primary.estimate.quantile_s(RESCUE_SPOKEN_QUANTILE)
        return max(RESCUE_MIN_S, usual_s if hedged_s else RESCUE_SPOKEN_FACTOR * usual_s) + hedged_s

    def _hedged_s(self) -> float:
        """Return when the last attempt so far starts if the others are silent, in seconds; 0 if all start at once."""
        return max(map(self._silent_s, self.launches))

    def _silent_s(self, launch: Launch) -> float:
        """Return when a launch starts while the others are silent: not before ``hedge_delay_s``, in seconds."""
        delay_s = launch.delay_s
        if launch.why not in _WHEN_LATE or not delay_s:
            return delay_s
        asked_s = self.race.hedge_delay_s if launch.why is Why.LATE and self.strategy.hedges else None
        return max(delay_s - self._lead_s(delay_s), asked_s or 0.0)

    def _lead_s(self, delay_s: float) -> float:
        """Return how much sooner a listener's call starts an attempt while the others are silent."""
        return min(SPOKEN_LEAD_TOKENS / self._primary.estimate.decode_tps, delay_s / 2)

    def heed_speakers(self) -> None:
        """Start late attempts sooner while the others are silent, and later if one has begun to speak.

        An attempt without its first word will be late with its clause. An attempt that has begun to speak seldom needs
        another beside it.
        """
        after_s = SPOKEN_CLAUSE_TOKENS / self._primary.estimate.decode_tps
        for number, each in enumerate(self.launches):
            if each.why in _WHEN_LATE and (delay_s := each.delay_s) > 0:
                self.launches[number] = msgspec.structs.replace(
                    each, delay_s=self._silent_s(each), speaking=Speaking(delay_s, after_s)
                )

    def audit(self, share: float) -> None:
        """Draw whether attempts that start at once are watched to their first token if they lose.

        The draw must be independent of everything: these calls represent all calls in the savings of racing. Exploring
        races are always watched and are not part of this sample.
        """
        if len(self.launches) > 1 and not self.explores and self.random.random() < share:
            self.launches = [
                msgspec.structs.replace(each, audited=True) if each.delay_s == 0 else each for each in self.launches
            ]

    def _add_before_the_deadline(self, rivals: Iterable[Candidate]) -> bool:
        """Launch the best of ``rivals`` that can still meet ``ttft_ms`` if the primary may miss it.

        The rival starts as late as it can and probably still meet the deadline: if the primary answers before, the
        rival's cost is saved. A budget that is too small for this is used for the longest waits instead, if that saves
        more. Return whether a rival was added.
        """
        if self.race.ttft_ms is None:
            return False
        late_s = self.race.ttft_ms / 1000
        for rival in rivals:
            delay_s = late_s - rival.estimate.quantile_s(MEETS_QUANTILE)
            if delay_s > 0:
                paid_s = self._primary.estimate.quantile_s(max(0.0, 1.0 - self.race.budget))
                if delay_s < paid_s < late_s and self._saved(rival, paid_s) > self._saved(rival, delay_s):
                    delay_s = paid_s
                self._launch(rival, max(HEDGE_MIN_S, delay_s), Role.HEDGE, Why.DEADLINE)
                return True
        return False

    def _saved(self, rival: Candidate, delay_s: float) -> float:
        """Return the share of the primary's late calls that ``rival`` saves if it starts at ``delay_s``, in budget."""
        late_s = (self.race.ttft_ms or 0.0) / 1000
        paid = self.race.budget / max(self.race.budget, self._primary.estimate.later_than(delay_s))
        return paid * (1.0 - rival.estimate.later_than(late_s - delay_s))

    def late(self) -> Start:
        """Return the start of a hedge that the budget pays for; unless the answer is spoken, in a tenth of calls."""
        if self._terms.spoken and self.strategy.hedges:
            # In some of these calls an attempt speaks by then, and no hedge is needed.
            return self._late_s(min(1.0, SPOKEN_HEDGED_PART * self.race.budget)), Why.LATE
        return self._late_s((1.0 - hedge_quantile(self.race.budget)) * self._terms.hedged_part), Why.LATE

    def _late_s(self, share: float) -> float:
        """Return the time after which only a ``share`` of the primary's first tokens comes, in seconds.

        Not later than the rescue: where many hang, the quantile is among first tokens that never came.
        """
        estimate = self._primary.estimate
        return min(hedged_at_s(estimate.quantile_s(1.0 - share)), estimate.hangs_s)

    def _explore(self, candidate: Candidate, why: Why) -> None:
        """Launch ``candidate`` beside the primary, and watch the loser, so that neither figure is censored."""
        self.explores = True
        self.launches[0] = msgspec.structs.replace(self.launches[0], audited=True)
        probes = why is Why.PROBE  # not paid from the budget: no call benefits from it
        watch_s = probe_limit_s(candidate.estimate.well_q95_s) if probes else None
        self._launch(candidate, 0.0, Role.PROBE if probes else Role.EXPLORE, why, watch_s=watch_s)
        self.reasons.append(why)

    def _launch(
        self, candidate: Candidate, delay_s: float, role: Role, why: Why, *, watch_s: float | None = None
    ) -> None:
        weight = 1.0 / EXPLORE_SHARE if why is Why.BACK else 1.0  # this one call stands for the calls in between
        self.launches.append(Launch(candidate.deployment, delay_s, role, role in EXPLORING, why, watch_s, weight))
        if candidate in self._spare:
            self._spare.remove(candidate)


NOT_WORTH_IT = "no extra attempt: none should save time that is worth more than it costs"
NOT_HEDGED = "no hedge: any other, if it were first, would give the answer too late"
_RACED = frozenset({Why.WIDTH, Why.BUDGET})
_WORTH_LESS = frozenset({Why.SLOWER, Why.WORTH})
_WHEN_LATE = frozenset({Why.LATE, Why.RESCUE, *_WORTH_LESS})  # by the primary's quantiles, not by the operator's word
_TRIALS = frozenset({Why.PROBE, Why.FLAWED})  # of deployments that should not be as good


_NOTHING_COSTS: Mapping[str, float] = {}
_NOTHING_AFTER: Mapping[str, float] = {}


def plan(
    lineup: Lineup,
    race: RaceSettings,
    terms: Terms,
    means: Means,
    *,
    random: Random,
    held: CachedBytes = NOTHING_HELD,
    now_s: float = inf,
    home: Candidate | None = None,
    cost_usd: Mapping[str, float] = _NOTHING_COSTS,
    answer_tokens: float = 0.0,
) -> Plan:
    """Plan the launches of one call; ``now_s`` is the time of the conditions.

    ``held``: how much of the prompt each deployment's cache has, if that saves something; ``home``: the prompt's
    rendezvous deployment, if no cache is known to hold it. ``cost_usd`` and ``answer_tokens`` are those of the plan.
    """
    if not lineup.ranked:
        return _with_none(lineup, race)

    demands, canary = terms.demands, _canary(lineup.canaries, random) if lineup.canaries else None
    primary, why = _primary(lineup, terms, random, held=held, home=home, canary=canary)
    is_led = why is Why.MADE
    if primary.condition.trial_in_s == 0.0:
        why = Why.TRIAL
    others = [each for each in lineup.ranked if each is not primary]
    last: Sequence[Candidate] = others
    if lineup.reserve or lineup.tripped:
        last = (*others, *lineup.reserve, *lineup.tripped)
    apart = _NOBODY
    if demands is not NO_DEMANDS:
        others, last, apart = _in_demanded_order(others, last, demands, primary, is_led=is_led)
    draft = Draft(
        primary,
        others,
        race,
        terms,
        random,
        lineup=lineup,
        why=why,
        now_s=now_s,
        means=means,
        apart=apart,
    )
    rescue_s = draft.add_others(canary)
    is_asked = draft.asked or draft.withheld_s is not None
    width_asked, narrowed = draft.narrowed() if is_asked else (1, None)
    if demands.once and terms.asked is None:
        width_asked = 0  # such calls are never raced
    if demands.beside is not None:
        draft.run_beside(demands.beside)
    planned = {*map(_DEPLOYMENT, draft.launches)}
    new_plan = Plan(
        tuple(sorted(draft.launches, key=_delay)),
        tuple([each.deployment for each in last if each.deployment not in planned]) if last else (),
        race.mode,
        rescue_s,  # by position: with more keyword arguments CPython would first make a dict of them
        tripped=frozenset([each.deployment for each in lineup.tripped]) if lineup.tripped else _NOBODY,
        decode_s=lineup.after_s if terms.holds else _NOTHING_AFTER,
        cost_usd=cost_usd,
        cached=terms.cached,
        answer_tokens=answer_tokens,
        reasons=tuple(draft.reasons),
        primary=primary.estimate,
        hanging=primary.condition.hanging,
        explores=draft.explores,
        offer=draft.offer,
        worth_s=draft.worth_s,
        width_asked=width_asked,
        narrowed=narrowed,
    )
    if width_asked > 1 or narrowed is None or draft.withheld_s is None:
        return new_plan
    withheld = Launch(primary.deployment, draft.withheld_s, Role.HEDGE)
    return msgspec.structs.replace(new_plan, narrowed=None, withheld=withheld, withheld_by=narrowed)


def _primary(
    lineup: Lineup, terms: Terms, random: Random, *, held: CachedBytes, home: Candidate | None, canary: Candidate | None
) -> tuple[Candidate, Why]:
    """Return the deployment that is asked first, and the rule behind the choice."""
    if terms.demands is not NO_DEMANDS and (demanded := _demanded(lineup, terms.demands)) is not None:
        return demanded
    if canary is not None and canary.condition.state is HealthState.OK and canary.tier < Tier.FULL:
        return canary, Why.CANARY
    if lineup.flawed and random.random() < EXPLORE_FLAWED_SHARE:
        return random.choice(lineup.flawed), Why.FLAWED
    if home is not None:
        return home, Why.RENDEZVOUS
    chosen, weights_up_to = lineup.eligible(held) if held else (lineup.near, lineup.weights_up_to)
    primary = chosen[0] if len(chosen) == 1 else _draw(chosen, weights_up_to, random)
    if primary.deployment in terms.supposed:
        primary = _an_equal(primary, chosen, terms.supposed)
    return primary, Why.DRAWN if chosen is lineup.near else Why.CACHE_WARM


def _demanded(lineup: Lineup, demands: Demands) -> tuple[Candidate, Why] | None:
    """Return the primary that a call demands, and why; None if the call demands none, or that one may not be used.

    The first deployment of a demanded order is used even if broken, the maker of a conversation only if not broken.
    """
    if demands.order:
        usable = (*lineup.ranked, *lineup.reserve, *lineup.tripped)
        return min(usable, key=lambda each: demands.rank(each.deployment)), Why.ORDERED
    if demands.maker is None:
        return None
    able = [each for each in (*lineup.ranked, *lineup.reserve) if each.deployment not in demands.strangers]
    provider = demands.maker.partition("/")[0]
    by_maker = [each for each in able if each.deployment == demands.maker]
    by_maker += [each for each in able if each.deployment.partition("/")[0] == provider]
    return (by_maker[0], Why.MADE) if by_maker else None


def _in_demanded_order(
    others: list[Candidate], last: Sequence[Candidate], demands: Demands, primary: Candidate, *, is_led: bool
) -> tuple[list[Candidate], Sequence[Candidate], frozenset[str]]:
    """Return ``others`` and the order of failover as demanded, and the deployments not to run beside the primary."""
    strangers = demands.strangers if is_led else _NOBODY
    others = [each for each in others if each.deployment not in strangers]
    unlike = [each.deployment for each in last if demands.unlike(each.deployment, primary.deployment)]
    last = sorted(last, key=lambda each: (demands.rank(each.deployment), each.deployment in strangers))
    return others, last if demands.may_fail_over else (), strangers.union(unlike)


def _with_none(lineup: Lineup, race: RaceSettings) -> Plan:
    """Return the plan where no deployment may be used: with the time when the first may be again."""
    conditions = [each.condition for each in lineup.candidates]
    cooling = [condition.cooling_s for condition in conditions if condition.state is HealthState.COOLING]
    if not cooling:
        return Plan((), (), race.mode)
    stated = [each.cooling_s for each in conditions if each.state is HealthState.COOLING and each.is_stated]
    return Plan(
        (),
        (),
        race.mode,
        retry_after_s=min(cooling),
        free_in_s=min(stated, default=None),
        reasons=("all are cooling down",),
        narrowed=Narrowed.COOLING,
    )


def _draw(chosen: Sequence[Candidate], weights_up_to: Sequence[float], random: Random) -> Candidate:
    """Draw the primary: draw two, and take the one with the lower load for its weight.

    Otherwise all replicas with the same standings would send to the same deployment.
    """
    first, second = random.choices(chosen, cum_weights=weights_up_to, k=2)
    if second.condition.in_flight * first.weight < first.condition.in_flight * second.weight:
        return second
    return first


def _an_equal(primary: Candidate, chosen: Sequence[Candidate], supposed: Collection[str]) -> Candidate:
    """Return the best deployment that takes all that this call asks for and is nearly as good as ``primary``.

    If there is none, the primary: neither a preference nor other clients' refusals may make a call slower.
    """
    most_s = HAIR * primary.score_s
    return next((each for each in chosen if each.deployment not in supposed and each.score_s <= most_s), primary)


def _canary(canaries: Sequence[Candidate], random: Random) -> Candidate | None:
    """Draw whether a canary is the primary, and which: each gets its share of all calls."""
    drawn = random.random()
    for each in canaries:
        drawn -= each.canary
        if drawn < 0:
            return each
    return None


_RESCUES = 2
_DEPLOYMENT, _GAIN = attrgetter("deployment"), attrgetter("candidate", "gain_s")
_delay = attrgetter("delay_s")
_SLOWER_LATELY, _USUAL_P50_S = attrgetter("estimate.slower_lately"), attrgetter("estimate.usual_p50_s")
