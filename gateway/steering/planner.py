"""The planner: who is launched for a call, and when. Pure: a lineup, settings, randomness in, launches out."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from math import inf
from operator import attrgetter
from random import Random

import msgspec

from gateway.attempt_records import EXPLORING, Role
from gateway.calls import Mode, Objective
from gateway.settings.model import RaceSettings
from gateway.steering.affinity import NOTHING_HELD, Held
from gateway.steering.candidates import Candidate, Terms, Tier
from gateway.steering.constants import (
    BURST_TOKENS,
    COLD_EVENTS,
    CROWDED,
    EXPLORE_FLAWED_SHARE,
    EXPLORE_NEW_SHARE,
    EXPLORE_SHARE,
    HEDGE_MAX_S,
    HEDGE_MIN_S,
    HEDGE_SHARE,
    MEETS_QUANTILE,
    NEAR,
    NEXT_AT_LATEST_S,
    RESCUE_FACTOR,
    RESCUE_MAX_S,
    RESCUE_MIN_S,
    SUSPECT,
    SUSPECT_EVERY_S,
    SUSPECT_SHARE,
)
from gateway.steering.explanation import Explanation, Why
from gateway.steering.health import State, probe_limit_s
from gateway.steering.lineup import Lineup
from gateway.steering.standings import Estimate


class Launch(msgspec.Struct, frozen=True):
    """An attempt to start, ``delay_s`` after the call began, unless the call is over by then."""

    deployment: str
    delay_s: float
    role: Role
    audited: bool = False  # a loser is watched a little longer, so that its figures are not censored
    why: Why | None = None  # the rule behind it
    watch_s: float | None = None  # since its launch, a loser that is audited; None: as long as any


class Plan(msgspec.Struct, frozen=True):
    """What a race carries out.

    Launches are in the order of their delays. When one fails with nothing else running, the next comes forward at once;
    after them the ``rest`` follow, best first, as failovers. ``rescue_s`` says when a call without a token needs
    another attempt although the budget refused one: the race then starts its next candidate, refused launches first, as
    a failover; None when two may never run at once. Without launches ``retry_after_s`` says when the first of the
    deployments may be asked again.
    """

    launches: tuple[Launch, ...]
    rest: tuple[str, ...]
    mode: Mode  # as asked for
    retry_after_s: float | None = None
    rescue_s: float | None = None
    tripped: frozenset[str] = frozenset()  # of ``rest``, the broken: asked last, after waiting for who is only full
    # What each should cost its reader after its first token, seconds: under ``completion`` all of its decoding, under
    # ``reading`` what of it one has to wait for, under ``first_token`` its stalls; empty where all of that is nothing.
    decode_s: Mapping[str, float] = {}
    cost_usd: Mapping[str, float] = {}  # what a whole attempt should cost at list price; only where dollars are limited
    reasons: tuple[str, ...] = ()  # what was unusual about this plan, for people
    primary: Estimate | None = None  # of the first launch: what it would take alone
    explores: bool = False  # somebody is launched to learn of them
    explanation: Explanation | None = None  # on request


def plan(
    lineup: Lineup,
    race: RaceSettings,
    terms: Terms,
    *,
    tokens: float,
    random: Random,
    held: Held = NOTHING_HELD,
    now_s: float = inf,
    home: Candidate | None = None,
) -> Plan:
    """Choose the launches of one call; ``tokens`` is what the budget holds now, ``now_s`` the clock of the conditions.

    ``held`` tells who should have how much of the prompt in a cache, where that saves something; ``home`` where its
    beginning goes while nothing is known of it.
    """
    if not lineup.ranked:
        conditions = [each.condition for each in lineup.candidates]
        cooling = [condition.cooling_s for condition in conditions if condition.state is State.COOLING]
        if not cooling:
            return Plan((), (), race.mode)
        return Plan((), (), race.mode, retry_after_s=min(cooling), reasons=("all are cooling down",))

    canary = _canary(lineup.canaries, random) if lineup.canaries else None
    if canary is not None and canary.condition.state is State.OK and canary.tier < Tier.FULL:
        primary, why = canary, Why.CANARY
    elif lineup.flawed and random.random() < EXPLORE_FLAWED_SHARE:
        primary, why = random.choice(lineup.flawed), Why.FLAWED
    elif home is not None:
        primary, why = home, Why.RENDEZVOUS
    else:
        chosen, weights_up_to = lineup.eligible(held) if held else (lineup.near, lineup.weights_up_to)
        primary = _draw(chosen, weights_up_to, random)
        why = Why.DRAWN if chosen is lineup.near else Why.CACHE_WARM
    others = [each for each in lineup.ranked if each is not primary]
    draft = _Draft(primary, others, race, terms, random, rivals=lineup.rivals, why=why, now_s=now_s)
    rescue_s = None
    if race.mode is not Mode.SINGLE:
        if why is Why.FLAWED:
            draft.add_standby(race.budget)
        elif race.budget > 0:
            # A broken canary is tried when it is its turn: that is how often its operator wants it tried.
            draft.add_second(canary if canary is not None and canary.condition.probe_due else lineup.probe, tokens)
            draft.add_late_and_raced(alone=not others and len(lineup.candidates) - len(lineup.canaries) <= 1)
        rescue_s = draft.add_rescues(lineup.reserve)
        draft.audit(race.audit_share)
    elif race.budget > 0:
        draft.add_rescue_of_one()
    planned = {launch.deployment for launch in draft.launches}
    last = (*others, *lineup.reserve, *lineup.tripped) if lineup.reserve or lineup.tripped else others
    return Plan(
        tuple(sorted(draft.launches, key=_delay)),
        tuple([each.deployment for each in last if each.deployment not in planned]),
        race.mode,
        rescue_s=rescue_s,
        tripped=frozenset([each.deployment for each in lineup.tripped]) if lineup.tripped else _NOBODY,
        decode_s=lineup.after_s,
        reasons=tuple(draft.reasons),
        primary=primary.estimate,
        explores=draft.explores,
    )


def _draw(chosen: Sequence[Candidate], weights_up_to: Sequence[float], random: Random) -> Candidate:
    """Draw the primary: twice, and take the one with less in flight for its weight.

    Replicas that see the same standings would otherwise all send to the same winner.
    """
    if len(chosen) == 1:
        return chosen[0]
    first, second = random.choices(chosen, cum_weights=weights_up_to, k=2)
    if second.condition.in_flight * first.weight < first.condition.in_flight * second.weight:
        return second
    return first


def _canary(canaries: Sequence[Candidate], random: Random) -> Candidate | None:
    """Draw whose turn it is: of all calls each canary is given its share."""
    drawn = random.random()
    for each in canaries:
        drawn -= each.canary
        if drawn < 0:
            return each
    return None


class _Draft:
    """A plan in the making: the primary, and who of the spare deployments is launched beside it."""

    def __init__(
        self,
        primary: Candidate,
        others: Sequence[Candidate],
        race: RaceSettings,
        terms: Terms,
        random: Random,
        *,
        rivals: Sequence[Candidate],
        why: Why,
        now_s: float,
    ) -> None:
        self._now_s = now_s
        self._long_prompt = terms.prompt_tokens > race.max_prompt_tokens
        self.launches = [Launch(primary.deployment, 0.0, Role.PRIMARY, why=why)]
        self.reasons = ["long prompt: hedged"] if self._long_prompt else []
        self._primary = primary
        self._others = others
        self._spare = list(others)  # not launched yet, best first
        self._rivals = rivals
        self._race = race
        self._bills_losers = terms.bills_losers
        self._thrifty = terms.objective is Objective.COST
        self._random = random
        self.explores = False

    def add_second(self, probe: Candidate | None, tokens: float) -> None:
        """Fill the second slot, beside the primary from the start, with whom something is to be learned of.

        That is a broken deployment that may have recovered, one that is slower than usual and may be so no more, now
        and then whoever was not asked for longest, or anyone when the primary is new. No user waits for them. All but
        the first stay away from long prompts: every attempt pays its prefill; and under ``cost`` from more expensive
        ones, which would not be chosen even if fast.
        """
        race, random = self._race, self._random
        if probe is not None:
            self._explore(probe, Why.PROBE)
            return
        if self._long_prompt or not self._others or (race.mode is Mode.RACE and race.width > len(self._others)):
            return
        if (suspect := self._suspect()) is not None:
            self._explore(suspect, Why.SUSPECT)
        elif self._is_to_explore():
            usd = self._primary.cost_usd
            if free := [each for each in self._others if each.cost_usd <= usd and each.tier < Tier.FLAWED]:
                stalest = max(free, key=lambda each: self._unasked_s(each) * (0.5 + random.random()))
                self._explore(stalest, Why.EXPLORE)
        elif (
            race.mode is Mode.AUTO
            and not self._thrifty
            and self._primary.estimate.events < COLD_EVENTS
            and tokens >= BURST_TOKENS / 2
            and self._others[0].tier < Tier.FLAWED
            and not self._is_dear(self._others[0])
        ):
            self._launch(self._others[0], 0.0, Role.RACE, Why.COLD_START)
            self.reasons.append(Why.COLD_START)

    def _suspect(self) -> Candidate | None:
        """Return who has been slow lately, but usually is among the best, and was not asked for some seconds."""
        best_s, usd = self._primary.estimate.score_s * NEAR, self._primary.cost_usd
        for each in self._others:
            estimate = each.estimate
            if (
                estimate.usual_s <= best_s
                and estimate.score_s > SUSPECT * estimate.usual_s
                and each.cost_usd <= usd
                and each.tier < Tier.FLAWED
                and self._unasked_s(each) >= SUSPECT_EVERY_S
                and self._random.random() < SUSPECT_SHARE
            ):
                return each
        return None

    def _is_to_explore(self) -> bool:
        """Draw whether to explore: more often where the policy may choose, and knows nothing of somebody."""
        drawn = self._random.random()
        if drawn >= EXPLORE_NEW_SHARE:  # as it is nearly always: nobody is looked at
            return False
        return drawn < EXPLORE_SHARE or (self._race.mode is Mode.AUTO and any(map(_is_new, self._others)))

    def _unasked_s(self, candidate: Candidate) -> float:
        return min(_A_DAY_S, self._now_s - candidate.condition.asked_at_s)

    def add_standby(self, budget: float) -> None:
        """Let the best one stand by for a primary that is only to show whether its answers are good again.

        As in a race only the winner's answer is judged, nobody runs beside it from the start.
        """
        if budget > 0 and self._spare[0].tier < Tier.FLAWED:
            self._launch(self._spare[0], self._late_s(HEDGE_SHARE), Role.HEDGE, Why.LATE)

    def add_late_and_raced(self, *, alone: bool) -> None:
        """Add hedges and racers, as many as the mode or the budget wants.

        A deployment ``alone`` at its model races itself only when asked to by mode: that cuts a slow tail too.
        """
        launched = {launch.deployment for launch in self.launches}
        rivals = list(takewhile(self._is_rival, [each for each in self._rivals if each.deployment not in launched]))
        if self._waits_for_the_deadline() and (self._add_before_the_deadline(rivals) or self._thrifty):
            return
        starts = self._starts()
        if alone and self._race.mode is not Mode.AUTO and self._primary.tier < Tier.FULL:
            rivals = [self._primary] * len(starts)
        for (delay_s, why), rival in zip(starts, rivals, strict=False):
            if why is Why.BUDGET and (instead := self._rather_hedged(rival)) is not None:
                self._launch(rival, self._late_s(HEDGE_SHARE), Role.HEDGE, instead)
            else:
                self._launch(rival, delay_s, Role.RACE if why in _RACED else Role.HEDGE, why)

    def _rather_hedged(self, rival: Candidate) -> Why | None:
        """Return why ``rival``, for which there is budget, is not worth racing from the start; None if it is."""
        if rival.condition.crowding > CROWDED:
            return Why.CROWDED
        return Why.BILLED if self._is_dear(rival) else None

    def _is_dear(self, rival: Candidate) -> bool:
        """Tell whether whoever loses against the other would be billed in full, where dollars are limited."""
        race = self._race
        if not self._bills_losers or (race.usd_per_day is None and race.extra_usd_per_call is None):
            return False
        return not self._bills_losers.isdisjoint((rival.deployment, self._primary.deployment))

    def add_rescues(self, reserve: Sequence[Candidate]) -> float:
        """Let two spare ones stand by for a primary that hangs; return when the first of them starts, in seconds.

        A call in such trouble needs another attempt anyway, so they are not extra; and where nobody else is left, the
        ``reserve`` is better than waiting.
        """
        rescue_s = self._rescue_s()
        spares = [*self._spare, *[each for each in reserve if each is not self._primary]] if reserve else self._spare
        for number, spare in enumerate(spares[:2], start=1):
            self._launch(spare, min(NEXT_AT_LATEST_S, number * rescue_s), Role.FAILOVER, Why.RESCUE)
        return rescue_s

    def add_rescue_of_one(self) -> None:
        """Let one stand by for a primary that runs alone and hangs, if the budget allows it then."""
        if self._spare and self._spare[0].tier < Tier.FULL:
            self._launch(self._spare[0], self._rescue_s(), Role.HEDGE, Why.RESCUE)

    def _rescue_s(self) -> float:
        return min(RESCUE_MAX_S, max(RESCUE_MIN_S, RESCUE_FACTOR * self._primary.estimate.q95_s))

    def audit(self, share: float) -> None:
        """Draw whether those who start at once are watched to their first token if they lose.

        It must not depend on anything: from these calls it is told what racing saves in all of them. Exploring races,
        which are watched anyway, are no such sample.
        """
        if len(self.launches) > 1 and not self.explores and self._random.random() < share:
            self.launches = [
                msgspec.structs.replace(each, audited=True) if each.delay_s == 0 else each for each in self.launches
            ]

    def _is_rival(self, spare: Candidate) -> bool:
        """Tell whether ``spare`` is worth racing the primary. They come by tier: after one who is not, nobody is."""
        return spare.tier <= self._primary.tier and spare.tier < Tier.FULL

    def _waits_for_the_deadline(self) -> bool:
        """Tell whether extra attempts are kept for primaries that look like missing ``ttft_ms``."""
        if self._race.mode is Mode.AUTO:
            return self._thrifty or self._race.ttft_ms is not None
        return self._race.mode is Mode.HEDGE and self._race.hedge_delay_s is None and self._race.ttft_ms is not None

    def _add_before_the_deadline(self, rivals: Iterable[Candidate]) -> bool:
        """Start the best of ``rivals`` that can still keep ``ttft_ms`` when the primary looks like missing it.

        It starts at the last instant at which it probably can: until then the primary may yet save its price. A budget
        too small for that pays for all who wait longer instead, where that saves more. Return whether one can.
        """
        if self._race.ttft_ms is None:
            return False
        late_s = self._race.ttft_ms / 1000
        for rival in rivals:
            delay_s = late_s - rival.estimate.quantile_s(MEETS_QUANTILE)
            if delay_s > 0:
                paid_s = self._primary.estimate.quantile_s(max(0.0, 1.0 - self._race.budget))
                if delay_s < paid_s < late_s and self._saved(rival, paid_s) > self._saved(rival, delay_s):
                    delay_s = paid_s
                self._launch(rival, max(HEDGE_MIN_S, delay_s), Role.HEDGE, Why.DEADLINE)
                return True
        return False

    def _saved(self, rival: Candidate, delay_s: float) -> float:
        """Return which share of the primary's late calls ``rival`` saves if it starts then, as often as it is paid."""
        late_s = (self._race.ttft_ms or 0.0) / 1000
        paid = self._race.budget / max(self._race.budget, self._primary.estimate.later_than(delay_s))
        return paid * (1.0 - rival.estimate.later_than(late_s - delay_s))

    def _starts(self) -> list[tuple[float, Why]]:
        """Return when each further attempt starts, and why then."""
        race = self._race
        if race.mode is Mode.HEDGE and race.hedge_delay_s is not None:
            asked = (race.hedge_delay_s, Why.ASKED_DELAY)
            return [max(asked, self._late()) if self._long_prompt else asked]
        if race.mode is Mode.HEDGE or self._long_prompt:
            return [self._late()]
        if race.mode is Mode.RACE:
            return [(0.0, Why.WIDTH)] * (race.width - len(self.launches))
        # A tenth of an attempt per call pays for hedges; what the budget holds above that buys races at t = 0. Above
        # one attempt per call they get wider.
        raced = (0.0, Why.BUDGET)
        is_raced = self._random.random() < (race.budget - HEDGE_SHARE) / (1.0 - HEDGE_SHARE)
        starts = [raced if is_raced else self._late()]
        beyond = race.budget - 1.0
        while beyond > 0:
            if beyond >= 1 or self._random.random() < beyond:
                starts.append(raced)
            beyond -= 1.0
        return starts

    def _late(self) -> tuple[float, Why]:
        """Return when a hedge starts that the budget pays for."""
        return self._late_s(min(self._race.budget, HEDGE_SHARE)), Why.LATE

    def _late_s(self, share: float) -> float:
        """Return when only a ``share`` of the primary's first tokens is still to come."""
        return min(HEDGE_MAX_S, max(HEDGE_MIN_S, self._primary.estimate.quantile_s(1.0 - share)))

    def _explore(self, candidate: Candidate, why: Why) -> None:
        """Try ``candidate`` beside the primary, and watch whoever of the two loses: both figures are whole then."""
        self.explores = True
        self.launches[0] = msgspec.structs.replace(self.launches[0], audited=True)
        probes = why is Why.PROBE  # which is not paid from the budget: no call would have what it saves
        watch_s = probe_limit_s(candidate.estimate.well_q95_s) if probes else None
        self._launch(candidate, 0.0, Role.PROBE if probes else Role.EXPLORE, why, watch_s=watch_s)
        self.reasons.append(why)

    def _launch(
        self, candidate: Candidate, delay_s: float, role: Role, why: Why, *, watch_s: float | None = None
    ) -> None:
        self.launches.append(Launch(candidate.deployment, delay_s, role, role in EXPLORING, why, watch_s))
        if candidate in self._spare:
            self._spare.remove(candidate)


def _is_new(candidate: Candidate) -> bool:
    """Tell whether nothing is known of a deployment that may be asked, neither of now nor of the hours before."""
    estimate = candidate.estimate
    return not estimate.usual_events and not estimate.events and candidate.tier < Tier.FLAWED


_A_DAY_S = 86_400.0

_delay = attrgetter("delay_s")

_RACED = frozenset({Why.WIDTH, Why.BUDGET})
_NOBODY: frozenset[str] = frozenset()
