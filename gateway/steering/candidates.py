"""Candidates: a model's deployments with their scores for one call and its objective."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import accumulate, product
from math import inf
from operator import attrgetter
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from gateway.core.attempts import AnswerKind
from gateway.core.calls import CallKind, Objective
from gateway.core.prompt_classes import PromptClass
from gateway.settings import RaceSettings
from gateway.steering.affinity import CachedBytes, Prefix
from gateway.steering.constants import (
    COLD_EVENTS,
    HEADROOM_LOW,
    HEADROOM_WEIGHT_MIN,
    HEDGE_SHARE,
    LATE_SHARE,
    LINEUPS_KEPT,
    LINEUPS_WARM_S,
    LINEUPS_WARMED,
    MEETS_QUANTILE,
    NEAR,
    RACED_WHOLE_SHARE,
    SPREAD_EXPONENT,
    SUCCESS_FLOOR,
    VALUED_STARTS,
    WHOLE_SHARE,
)
from gateway.steering.demands import NO_DEMANDS, Demands
from gateway.steering.estimates import Estimate, Standings
from gateway.steering.health import Condition, HealthState
from gateway.steering.plans import Offer
from gateway.steering.prediction import tokens_of
from gateway.steering.strategies import STRATEGIES
from providers import Price


class Terms(msgspec.Struct, frozen=True):
    """The parameters of one call; its deployments' prices and limits, and the configured weights other than 1."""

    objective: Objective  # resolved; never auto
    prompt_tokens: int  # estimated
    max_tokens: int | None = None  # the request's limit for the answer
    prices: Mapping[str, Price] | None = None  # by deployment, where known
    limits: Mapping[str, int] | None = None  # by deployment: max_in_flight, or the leased part of the fleet's
    weights: Mapping[str, float] | None = None  # by deployment: the chance against others that are about as fast
    canaries: Mapping[str, float] | None = None  # by deployment: the exact share of calls that a canary gets
    excluded: Mapping[str, str] | None = None  # by deployment: why the deployment may not run for this call
    prefix: Prefix | None = None  # the prefix of a prompt that is long enough for prompt caches
    kind: CallKind | None = None  # predicts the length of the answer; None: the model's mean
    answer_tokens: float | None = None  # the expected length, if already known
    answer_kind: AnswerKind = AnswerKind.PLAIN
    flawed: Mapping[str, str] | None = None  # by deployment: why it comes last for such answers (JSON): flaws
    second: Mapping[str, str] | None = None  # by deployment: why it comes last for this request
    leased: Collection[str] = ()  # deployments whose limit is the leased part of max_in_flight_fleet
    is_counted: bool = False  # whether the call's usage counts against limits
    bills_losers: frozenset[str] = frozenset()  # deployments whose vendors bill the whole answer after a disconnect
    holds: bool = False  # whether a first token may be held back for an attempt that should give the answer sooner
    stateful: bool = False  # the call is never sent twice, so its settings are those of mode single
    watches: bool = True  # whether a loser can be watched to its end; if not, no attempt is launched to measure
    whole: Collection[str] = ()  # deployments that answer this call, but do not stream the answer
    size_tokens: int | None = None  # the size by which times are compared; None: ``prompt_tokens``
    hedged_part: float = 1.0  # the part of the budget that hedges should need, so that few late calls are refused
    asked: RaceSettings | None = None  # the settings that were asked for, if those of the plan have fewer attempts
    cached: Mapping[str, int] | None = None  # by deployment: tokens of the prompt that its cache should have
    # Deployments that ignore a preference of this call, or have refused to other clients a field that this call has.
    supposed: Collection[str] = ()
    learnt_as: Mapping[str, str] | None = None  # by deployment: the name for what its own key teaches
    ttft_s: Mapping[str, float] = {}  # by deployment: the time-out of the first token; a rescue must come before that
    spoken: bool = False  # the answer is spoken to a listener, and its first clause counts
    speaks_unasked: bool = False  # the request asks for that, not the operator: attempts that start sooner are extra
    demands: Demands = NO_DEMANDS


_NONE: Mapping[str, float] = {}
_LEAST_LATE_S = 0.001  # positive, so that scores can be divided by it


class Tier(IntEnum):
    """Comes before the score: a deployment is used only if all earlier tiers are empty."""

    FREE = 0
    MISSES = 1  # below min_tok_s, or too often later than the deadline
    FLAWED = 2  # its answers have flaws more often than its peers'
    SECOND = 3  # a last resort: other deployments do just what the request asks for
    FULL = 4  # max_in_flight is reached


class Candidate(msgspec.Struct, frozen=True):
    """A deployment as the planner sees it."""

    deployment: str
    estimate: Estimate
    condition: Condition
    score_s: float  # predicted seconds until the objective is reached, plus the scarcity price; lower is better
    tier: Tier = Tier.FREE
    rank_usd: float = 0.0  # under ``cost`` the expected cost, by which timely ones are ranked; else 0
    weight: float = 1.0  # the configured chance against others that are about as fast
    canary: float = 0.0  # the share of calls of a canary
    cost_usd: float = 0.0  # under ``cost`` the expected cost of the call
    after_s: float = 0.0  # the part of ``score_s`` after the first token, which decides about holds
    raced_after_s: float = 0.0  # the same where calls are raced and the first token is sent at once


def candidates(
    conditions: Mapping[str, Condition], standings: Standings, race: RaceSettings, terms: Terms
) -> list[Candidate]:
    """Return the deployments of ``conditions`` with their scores, in the same order.

    first_token: mean TTFT / (1 - error rate) x crowding + scarcity price + stalls; completion: + answer tokens /
    (tok/s) instead of stalls; reading: + the reader's waits for later tokens (``_after_s``). Under ``cost`` deployments
    that should keep ``ttft_ms`` and ``min_tok_s`` are ranked by cost, then by time to first token. With a deadline or
    under ``cost`` the others are ranked by how much they should miss these goals: a goal that none meets must do no
    harm.
    """
    objective = terms.objective
    answer_tokens = expected_tokens(standings, terms)
    cost_first = objective is Objective.COST
    costs = costs_usd(conditions, answer_tokens, terms) if cost_first else {}
    timed = cost_first or race.ttft_ms is not None
    choosy = timed or bool(terms.limits) or race.min_tok_s is not None or bool(terms.flawed or terms.second)
    estimates, unseen = standings.estimates, standings.unseen
    weights, canaries = terms.weights or _NONE, terms.canaries or _NONE
    alike = weights is _NONE and canaries is _NONE
    more = (RACED_WHOLE_SHARE - WHOLE_SHARE) * weighed_share(race, terms)
    all_candidates = []
    least = 0.0
    if race.ttft_ms is not None:
        all_of = (estimates.get(name, unseen) for name in conditions)
        missed = [each.later_than(race.ttft_ms / 1000) for each in all_of if _is_late(each, race)]
        least = min(missed, default=0.0)
    for name, condition in conditions.items():
        estimate = estimates.get(name, unseen)
        decode_s = answer_tokens / estimate.decode_tps
        after_s = _after_s(estimate, decode_s, answer_tokens, race, objective)
        raced_s = after_s + more * decode_s
        later_s = condition.price_s + after_s
        score_s = estimate.score_s * condition.crowding + later_s
        tier = _tier(name, estimate, condition, race, terms) if choosy else Tier.FREE
        usd = rank_usd = costs.get(name, 0.0)
        if timed and tier is Tier.MISSES:
            rank_usd, score_s = (
                0.0,
                _late_s(estimate, race, answer_tokens, least) * condition.crowding + condition.price_s,
            )
        weight, canary = (1.0, 0.0) if alike else (weights.get(name, 1.0), canaries.get(name, 0.0))
        candidate = Candidate(name, estimate, condition, score_s, tier, rank_usd, weight, canary, usd, after_s, raced_s)
        all_candidates.append(candidate)
    return all_candidates


def weighed_share(race: RaceSettings, terms: Terms) -> float:
    """Return the share of such calls that is raced from the start, for a reader and without holding first tokens.

    In such calls a slower answer counts more: no other attempt can overtake it later.
    """
    reads = terms.objective is Objective.READING and not terms.holds
    return STRATEGIES[race.mode].raced_share(race) if reads else 0.0


def _after_s(
    estimate: Estimate, decode_s: float, answer_tokens: float, race: RaceSettings, objective: Objective
) -> float:
    """Return the wait after the first token that counts for the objective, in seconds.

    A reader at r tok/s is delayed by n * max(0, 1/v - 1/r) = max(0, decode_s - n/r): not at all if decoding is as fast.
    For example, 300 tokens at 20 tok/s keep a reader at 30 tok/s waiting for 15 - 10 = 5 s. The complete answer also
    has a small value to readers. A program waits for the complete answer. Stalls delay both; ``decode_s`` has them
    already, so the longer of the two counts.
    """
    if objective is Objective.FIRST_TOKEN:
        return estimate.stall_s
    if objective is Objective.COMPLETION:
        return decode_s
    if objective is Objective.READING:
        return max(estimate.stall_s, decode_s - answer_tokens / race.reading_tok_s) + WHOLE_SHARE * decode_s
    return 0.0


def _tier(name: str, estimate: Estimate, condition: Condition, race: RaceSettings, terms: Terms) -> Tier:
    if terms.limits and condition.in_flight >= terms.limits.get(name, inf):
        return Tier.FULL
    if terms.second and name in terms.second:
        return Tier.SECOND
    if terms.flawed and name in terms.flawed:
        return Tier.FLAWED
    if race.min_tok_s is not None and estimate.slower_than(race.min_tok_s):
        return Tier.MISSES
    return Tier.MISSES if _is_late(estimate, race) else Tier.FREE


def _is_late(estimate: Estimate, race: RaceSettings) -> bool:
    """Whether a deployment is too often later than the deadline.

    A deployment with few samples looks like the others: it must be tried, even if the others miss the goal.
    """
    if race.ttft_ms is None or estimate.events < COLD_EVENTS:
        return False
    return estimate.quantile_s(MEETS_QUANTILE) > race.ttft_ms / 1000


def _late_s(estimate: Estimate, race: RaceSettings, answer_tokens: float, least: float) -> float:
    """Return by how much the answer should miss ``ttft_ms`` and ``min_tok_s``, in seconds; never 0.

    A late first token has missed the deadline, by however much. So each late call counts as the whole deadline, except
    for the share ``least`` of calls, in which the best deployment is late too; and the lateness itself counts in part.
    Otherwise a deployment that is always a little late would come before one that is in time in most calls.
    """
    late_s = _LEAST_LATE_S
    if race.ttft_ms is not None:
        goal_s = race.ttft_ms / 1000
        late_s += goal_s * max(0.0, estimate.later_than(goal_s) - least) + LATE_SHARE * estimate.late_s(goal_s)
    if race.min_tok_s is not None:
        late_s += max(0.0, answer_tokens / estimate.decode_tps - answer_tokens / race.min_tok_s)
    return late_s


def expected_tokens(standings: Standings, terms: Terms) -> float:
    """Return the expected number of answer tokens: n_hat, or the request's limit if that is less.

    If the kind of the call is known, ``Lengths`` has predicted it already.
    """
    if terms.answer_tokens is not None:
        return terms.answer_tokens
    if terms.max_tokens is None:
        return standings.answer_tokens
    return min(standings.answer_tokens, max(1, terms.max_tokens))


def costs_usd(names: Iterable[str], answer_tokens: float, terms: Terms) -> dict[str, float]:
    """Return the expected cost of a whole attempt at list price, US dollars.

    A deployment without a price counts as much as the most expensive known one; empty if none is known.
    """
    prices = terms.prices or {}
    known_usd = {
        name: terms.prompt_tokens * price.input_usd + answer_tokens * price.output_usd
        for name in names
        if (price := prices.get(name)) is not None
    }
    dearest = max(known_usd.values(), default=None)
    return {} if dearest is None else {name: known_usd.get(name, dearest) for name in names}


# The lineup: a model's candidates in order. It is the same for similar calls and reused between them.

Conditions: TypeAlias = Mapping[str, Condition]  # by deployment
RaceTerms: TypeAlias = tuple[RaceSettings, Terms]


class RunnerUp(msgspec.Struct, frozen=True):
    """A deployment that may run beside the primary, and its value there."""

    candidate: Candidate
    gain_s: float  # what the call should gain by it, in seconds of its loss; negative if it loses


Ranks: TypeAlias = dict[str, tuple[Candidate, tuple[object, ...]]]  # by deployment


class LineupCache(msgspec.Struct):
    """Gains and orders of one lineup, computed at their first use and kept for all later calls."""

    rivals: list[Candidate] = []
    racers: dict[tuple[str, bool], Sequence[RunnerUp]] = {}  # by primary, and whether they start late
    offers: dict[tuple[object, ...], Sequence[Offer]] = {}  # what ``worth`` has found, by primary and terms
    worths_s: dict[tuple[object, ...], float] = {}  # the same for a racer from the start: seconds gained
    # Shared by all lineups of the same standings. Primary, racer, late start → the racing candidate, and its gain.
    gains: dict[tuple[str, str, bool], tuple[Candidate, RunnerUp]] = {}
    ranks: dict[str, Ranks] = {}  # the best deployment → each racer with its rank beside the best


class Lineup(msgspec.Struct, frozen=True):
    """The candidates of a call."""

    candidates: Sequence[Candidate]  # in the given order
    ranked: Sequence[Candidate]  # those that may be used, best first
    near: Sequence[Candidate]  # those of them that may become the primary
    weights_up_to: Sequence[float]  # cumulative weights of ``near`` for the draw
    tripped: Sequence[Candidate]  # broken deployments, if there are healthy ones: used last
    probe: Candidate | None  # the broken deployment that is due for a probe
    canaries: Sequence[Candidate] = ()  # whatever their health: each is the primary for its share of the calls
    reserve: Sequence[Candidate] = ()  # usable canaries: after all others except broken ones
    after_s: Mapping[str, float] = {}  # by deployment: the loss after its first token, if the objective counts it
    flawed: Sequence[Candidate] = ()  # ranked, but a last resort; sometimes one is the primary, as a test
    standings: Standings | None = None  # None if none is ranked
    cache: LineupCache = msgspec.field(default_factory=LineupCache)

    @property
    def rivals(self) -> Sequence[Candidate]:
        """The usable candidates, ordered by their value in a race beside the best one if first tokens may be held."""
        cache = self.cache
        if not cache.rivals and self.standings is not None:
            cache.rivals.extend(_rivals(self.ranked, self.standings, cache.ranks))
        return cache.rivals

    def gain_s(self, primary: Candidate, racer: Candidate, *, come: float = 0.0, kept: float = 1.0) -> float:
        """Return the seconds that a call with this primary should gain by ``racer``; negative if it loses.

        The first of the two tokens is sent, whichever answer is the faster. With T the times to first token, and
        after() the loss that follows it:

            (1 - error rate of racer) x (E[T of primary] - E[min(T of primary, T of racer)]
                - P(racer is first) x (after(racer) - after(primary)))
            - scarcity of racer

        ``come``: the racer starts when this share of the primary's first tokens would have arrived, and this one has
        not. ``kept``: the share of the saved seconds that remains, as a call's attempts are not independent.
        """
        assert self.standings is not None
        estimate, condition = racer.estimate, racer.condition
        slow = primary.estimate.scale * primary.condition.crowding
        factor = estimate.scale * condition.crowding / slow
        if come:
            beside, alone_s = self.standings.beside_late(primary.deployment, racer.deployment, factor, come)
        else:
            beside = self.standings.beside(primary.deployment, racer.deployment, factor)
            alone_s = primary.estimate.mean.at(1.0)
        sooner_s = kept * slow * (alone_s - beside.earlier_s)
        slower_s = beside.first * (racer.raced_after_s - primary.raced_after_s)
        return (1.0 - estimate.error_rate) * (sooner_s - slower_s) - condition.price_s

    def racers(self, primary: Candidate, *, late: bool) -> Sequence[RunnerUp]:
        """Return the others, the most useful beside ``primary`` first."""
        key = primary.deployment, late
        racers = self.cache.racers.get(key)
        if racers is None:
            racers = [
                self._racer(primary, each, late=late) for each in self.ranked if each.deployment != primary.deployment
            ]
            racers.sort(key=_usefulness)
            self.cache.racers[key] = racers
        return racers

    def _racer(self, primary: Candidate, each: Candidate, *, late: bool) -> RunnerUp:
        key = primary.deployment, each.deployment, late
        gain = self.cache.gains.get(key)
        if gain is not None and gain[0] is primary and gain[1].candidate is each:
            return gain[1]
        racer = RunnerUp(each, self.gain_s(primary, each, come=1.0 - HEDGE_SHARE if late else 0.0))
        self.cache.gains[key] = primary, racer
        return racer

    def prepare(self, before: "Lineup") -> Iterator[None]:
        """Compute, in steps, the racers that were used in the lineup ``before``, so that no call computes them."""
        if (standings := self.standings) is None:
            return
        for best, each in product(before.cache.ranks, self.ranked):
            standings.earlier_s(best, each.deployment)
            yield
        by_name = {each.deployment: each for each in self.candidates}
        for name, late in [key for key in before.cache.racers if key[0] in by_name]:
            for each in self.ranked:
                if each.deployment != name:
                    self._racer(by_name[name], each, late=late)
                    yield
            self.racers(by_name[name], late=late)
        offered = {key[0] for key in before.cache.offers}
        for primary in [each for name, each in by_name.items() if name in offered]:
            for each in self.ranked:
                for come in VALUED_STARTS:  # the starts that ``worth.offers`` considers
                    self.gain_s(primary, each, come=come and primary.estimate.curve.reached_at(come))
                yield

    def eligible(self, held: CachedBytes) -> tuple[Sequence[Candidate], Sequence[float]]:
        """Return the candidates for primary of a usual call, with cumulative weights for the draw.

        The candidates are near the best one. If some have most of the prompt in a warm cache, only these are returned.
        A deployment close to its rate limit is not preferred for its cache.
        """
        sizes = [held.get(each.deployment, 0) if each.condition.headroom >= HEADROOM_LOW else 0 for each in self.near]
        if not (most := max(sizes)):
            return self.near, self.weights_up_to
        below = (0.0, *self.weights_up_to)
        warm = [index for index, size in enumerate(sizes) if size == most]
        weights = [self.weights_up_to[index] - below[index] for index in warm]
        return [self.near[index] for index in warm], list(accumulate(weights))


def line_up(
    candidates: Sequence[Candidate],
    canaries: Sequence[Candidate] = (),
    standings: Standings | None = None,
    before: Lineup | None = None,
) -> Lineup:
    """Return the lineup of ``candidates``, ``canaries`` included; ``before`` is a lineup of the same standings."""
    ready = _ready(candidates)
    if not ready:
        return Lineup(candidates, (), (), (), (), None, canaries)
    if standings is None:
        standings = Standings({each.deployment: each.estimate for each in candidates}, ready[0].estimate)
    well, reserve = ready, []
    if canaries and (usual := [each for each in ready if not each.canary]):
        well, reserve = usual, sorted((each for each in ready if each.canary), key=preference)
    tripped: list[Candidate] = []
    probe = None
    if len(ready) < len(candidates) and well[0].condition.state is HealthState.OK:
        tripped = sorted((each for each in candidates if each.condition.state in _TRIPPED), key=_last_resort)
        probe = next((each for each in candidates if each.condition.probe_due and not each.canary), None)
    ranked = sorted(well, key=preference)
    chosen, weights = _near(ranked)
    after_s = {each.deployment: each.after_s for each in candidates}
    is_mixed = ranked[-1].tier >= Tier.FLAWED > ranked[0].tier
    flawed = [each for each in ranked if each.tier is Tier.FLAWED] if is_mixed else ()
    return Lineup(
        candidates,
        ranked,
        chosen,
        list(accumulate(weights)),
        tripped,
        probe,
        canaries,
        reserve,
        after_s if any(after_s.values()) else {},
        flawed,
        standings,
        LineupCache() if before is None else LineupCache(gains=before.cache.gains, ranks=before.cache.ranks),
    )


def _rivals(ranked: Sequence[Candidate], standings: Standings, known: dict[str, Ranks]) -> Sequence[Candidate]:
    """Order ``ranked``, best first, by each one's value in a race against the best if first tokens may be held.

    With holds the attempt with the smaller loss gives the answer, not the first to start.
    """
    if len(ranked) < 3:  # noqa: PLR2004 - the best and one other
        return ranked
    best = ranked[0].deployment
    ranks = known.setdefault(best, {})

    def rank(each: Candidate) -> tuple[object, ...]:
        if each.tier is Tier.MISSES:  # ranked by its expected lateness
            return each.tier, each.rank_usd, each.score_s
        estimate = each.estimate
        succeeds = max(SUCCESS_FLOOR, 1.0 - estimate.error_rate)
        earlier_s = standings.earlier_s(best, each.deployment) / succeeds
        raced_s = earlier_s * estimate.scale * each.condition.crowding
        return each.tier, each.rank_usd, round(raced_s + each.condition.price_s + each.after_s, 9)  # ties: by rank

    def known_rank(each: Candidate) -> tuple[object, ...]:
        before = ranks.get(each.deployment)
        if before is None or before[0] is not each:
            before = ranks[each.deployment] = each, rank(each)
        return before[1]

    return sorted(ranked, key=known_rank)


def _usefulness(racer: RunnerUp) -> tuple[object, ...]:
    each = racer.candidate
    if each.tier is Tier.MISSES:  # ranked by its expected lateness
        return each.tier, each.rank_usd, each.score_s
    return each.tier, each.rank_usd, -round(racer.gain_s, 9)  # of equal ones the best ranked


def _ready(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the usable deployments: the healthy ones; if there are none, the broken ones; if all are cooling, all."""
    for states in (_HEALTHY, _TRIPPED):
        if ready := [each for each in candidates if each.condition.state in states]:
            return ready
    return [] if any(each.condition.state is HealthState.COOLING for each in candidates) else list(candidates)


def _near(ranked: Sequence[Candidate]) -> tuple[list[Candidate], list[float]]:
    """Return the candidates of ``ranked``, best first, that may become the primary, and their weights in the draw.

    These candidates are in the best one's tier, under ``cost`` equally cheap, and near the best score. The weight is
    (best/score)^12 times the configured weight, less near a rate limit. If the call is raced, the score is that of a
    raced answer.
    """
    best = ranked[0]
    tier, rank_usd, most_s = best.tier, best.rank_usd, best.score_s * NEAR
    chosen = []
    for each in ranked:
        if each.score_s > most_s or each.tier != tier or each.rank_usd != rank_usd:
            break  # the following candidates are no nearer
        chosen.append(each)
    raced_s = [each.score_s + each.raced_after_s - each.after_s for each in chosen]
    least_s = min(raced_s)
    weights = [
        each.weight * _headroom_weight(each) * (least_s / seconds) ** SPREAD_EXPONENT
        for each, seconds in zip(chosen, raced_s, strict=True)
    ]
    return chosen, weights


class Lineups:
    """The last lineup for each kind of call, kept until a candidate's health or the standings change.

    Without queues, cool-downs and faults a lineup is kept for a second, which saves most of the cost of planning.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], _Known] = {}  # by model, class, objective, length, deployments
        self._older: dict[tuple[object, ...], _Known] = {}  # dropped unless they are used again

    def of(
        self,
        kind: tuple[str, PromptClass, int],
        conditions: Conditions,
        standings: Standings,
        race_terms: RaceTerms,
        now_s: float = 0.0,
        *,
        is_own: bool = False,
    ) -> Lineup:
        """Return the lineup of the deployments in ``conditions``; ``kind``: model, prompt class, size.

        ``is_own``: some of the conditions are of one client.
        """
        race, terms = race_terms
        # The lineup depends on attempts in flight, or on a key or faults that few calls have: it is not kept.
        if terms.limits or terms.learnt_as or is_own:
            return _lined_up(candidates(conditions, standings, race, terms), terms, standings)
        if terms.objective is Objective.COST:  # rounded, as answer lengths are, so that lineups can be reused
            terms = replace(terms, prompt_tokens=round(tokens_of(kind[2])))
            race_terms = race, terms
        length = _length(standings, race, terms)
        key = (  # what differs between calls: usable deployments, lengths and readers
            *kind,
            terms.objective,
            weighed_share(race, terms),
            terms.answer_tokens and length,
            race.reading_tok_s,
            race.ttft_ms,
            tuple(terms.flawed or ()),
            tuple(terms.second or ()),
            *conditions,
        )
        cached = self._known.get(key) or self._older.pop(key, None)
        if cached is None or not cached.fits(standings, race, terms, length):
            lineup = _lined_up(candidates(conditions, standings, race, terms), terms, standings)
        elif cached.conditions != conditions:  # by identity
            changed = {name: new for name, new in conditions.items() if cached.conditions[name] is not new}
            if terms.objective is Objective.COST:  # one without a price costs as much as the most expensive one
                changed = dict(conditions)
            others = {each.deployment: each for each in candidates(changed, standings, race, terms)}
            new_candidates = [others.get(each.deployment, each) for each in cached.lineup.candidates]
            lineup = _lined_up(new_candidates, terms, standings, cached.lineup)
        else:
            cached.used_at_s, cached.is_used = now_s, True
            self._known[key] = cached
            return cached.lineup
        if len(self._known) >= LINEUPS_KEPT / 2:
            self._known, self._older = {}, self._known
        used = cached is not None
        self._known[key] = _Known(kind, standings, race_terms, length, conditions, lineup, now_s, is_used=used)
        return lineup

    def warm(
        self,
        model: str,
        standings_of: Callable[[str, PromptClass, int | None], Standings],
        conditions_of: Callable[[Iterable[str], float], Conditions],
        now_s: float,
    ) -> Iterator[None]:
        """Recompute the recently used lineups of a model from its new standings, one by one; drop the others.

        A lineup that only one call has used is dropped too: if each call has another deadline, none is used twice.
        """
        warmed = 0
        for key, cached in [(key, cached) for key, cached in self._known.items() if key[0] == model]:
            if not cached.is_used or now_s - cached.used_at_s > LINEUPS_WARM_S or warmed >= LINEUPS_WARMED:
                self._known.pop(key, None)  # the lineup may have been renewed since
                continue
            warmed += 1
            race, terms = cached.race_terms
            standings = standings_of(model, cached.kind[1], terms.size_tokens or terms.prompt_tokens)
            conditions = conditions_of(cached.conditions, now_s)
            lineup = _lined_up(candidates(conditions, standings, race, terms), terms, standings)
            yield
            for _ in lineup.prepare(cached.lineup):
                yield
            length = _length(standings, race, terms)
            self._known[key] = replace(cached, standings=standings, length=length, conditions=conditions, lineup=lineup)

    def keep(self, models: set[str]) -> None:
        """Forget all other models."""
        self._known = {key: cached for key, cached in self._known.items() if key[0] in models}
        self._older = {key: cached for key, cached in self._older.items() if key[0] in models}


def _lined_up(
    candidates: Sequence[Candidate], terms: Terms, standings: Standings, before: Lineup | None = None
) -> Lineup:
    canaries = [each for each in candidates if each.canary] if terms.canaries else ()
    return line_up(candidates, canaries, standings, before)


class _Known(msgspec.Struct):
    kind: tuple[str, PromptClass, int]
    standings: Standings
    race_terms: RaceTerms
    length: float | None  # of the answers, if it matters
    conditions: Conditions
    lineup: Lineup
    used_at_s: float
    is_used: bool = False  # whether a call used the lineup other than the one that it was computed for

    def fits(self, standings: Standings, race: RaceSettings, terms: Terms, length: float | None) -> bool:
        """Whether the lineup is still valid, apart from changed conditions."""
        before_race, before = self.race_terms
        return (
            self.standings is standings
            and before_race.min_tok_s == race.min_tok_s
            and self.length == length
            and before.weights == terms.weights
            and before.canaries == terms.canaries
            and (before.prices is terms.prices or before.prices == terms.prices)
            and before.flawed == terms.flawed
            and before.second == terms.second
        )


def _length(standings: Standings, race: RaceSettings, terms: Terms) -> float | None:
    """Return the expected length of the answer, if the order of the candidates depends on it."""
    if terms.objective is Objective.FIRST_TOKEN and race.min_tok_s is None:
        return None
    return expected_tokens(standings, terms)


def _headroom_weight(candidate: Candidate) -> float:
    headroom = candidate.condition.headroom
    return 1.0 if headroom >= HEADROOM_LOW else max(HEADROOM_WEIGHT_MIN, headroom / HEADROOM_LOW)


def _last_resort(candidate: Candidate) -> tuple[object, ...]:
    return candidate.canary > 0, *preference(candidate)


preference = attrgetter("tier", "rank_usd", "score_s")

_HEALTHY = frozenset({HealthState.OK})
_TRIPPED = frozenset({HealthState.OPEN, HealthState.HALF_OPEN})
