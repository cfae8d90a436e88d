"""Candidates: a model's deployments as one call sees them, scored by what the call is to be good at."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from math import inf

import msgspec

from gateway.attempt_records import AnswerKind
from gateway.calls import Kind, Objective
from gateway.settings.model import RaceSettings
from gateway.steering.affinity import Prefix
from gateway.steering.constants import COLD_EVENTS, MEETS_QUANTILE, WHOLE_SHARE
from gateway.steering.health import Condition
from gateway.steering.standings import Estimate, Standings
from providers.prices import Price


class Terms(msgspec.Struct, frozen=True):
    """What one call asks for, and what its model's deployments cost, can take and are meant for.

    ``excluded`` are not among those the call is planned for; it tells why. ``weights`` has those that are not 1.
    """

    objective: Objective  # resolved, never auto
    prompt_tokens: int  # estimated
    max_tokens: int | None = None  # what the request allows the answer
    prices: Mapping[str, Price] | None = None  # by deployment, where known
    limits: Mapping[str, int] | None = None  # max_in_flight by deployment, where set
    weights: Mapping[str, float] | None = None  # by deployment: its chances against others about as fast
    canaries: Mapping[str, float] | None = None  # by deployment: the share of calls it is given, and only those
    excluded: Mapping[str, str] | None = None  # by deployment: why it may not run for this call
    prefix: Prefix | None = None  # of the prompt, where it is long enough for prompt caches
    kind: Kind | None = None  # tells how long the answer may be; None: as long as any of the model's
    answer_tokens: float | None = None  # the expected length, where it is known already
    answer_kind: AnswerKind = AnswerKind.PLAIN
    flawed: Mapping[str, str] | None = None  # by deployment: why it is a last resort for such answers
    bills_losers: frozenset[str] = frozenset()  # deployments whose vendor bills a whole answer although one hung up


_NONE: Mapping[str, float] = {}
_LEAST_LATE_S = 0.001  # so that scores can be divided


class Tier(IntEnum):
    """Who is asked first, whatever the score: those of a later tier only when an earlier one is empty."""

    FREE = 0
    MISSES = 1  # below the floor on tok/s, or too often later than the deadline
    FLAWED = 2  # its answers fail more often than its peers'
    FULL = 3  # as many in flight as it may have


class Candidate(msgspec.Struct, frozen=True):
    """A deployment as the planner sees it."""

    deployment: str
    estimate: Estimate
    condition: Condition
    score_s: float  # predicted seconds to what the objective wants, the price of scarcity included; lower is better
    decode_s: float = 0.0  # predicted seconds from the first to the last token
    tier: Tier = Tier.FREE
    rank_usd: float = 0.0  # under ``cost`` what the call should cost if it is in time: the cheapest is asked; else 0
    weight: float = 1.0  # its chances against others about as fast, as configured
    canary: float = 0.0  # the share of calls it is given if it is a canary
    cost_usd: float = 0.0  # under ``cost`` what the call should cost, in time or not
    after_s: float = 0.0  # of ``score_s``, what comes after the first token: a hold is decided by it

    @property
    def load(self) -> float:
        """What is in flight there, for its weight: who is meant to be given twice as much may have twice as much."""
        return self.condition.in_flight / self.weight


def candidates(
    conditions: Mapping[str, Condition], standings: Standings, race: RaceSettings, terms: Terms
) -> list[Candidate]:
    """Score the deployments whose ``conditions`` are given, in their order.

    first_token: mean TTFT / (1 - error rate) x crowding + price of scarcity + stalls; completion: + answer tokens /
    (tok/s) instead of stalls; reading: + what the reader waits for later tokens (``_after_s``). Under ``cost`` those
    who keep ``ttft_ms`` and ``min_tok_s`` by the estimates compete on dollars, and on the time to first token when they
    cost the same. Where ``ttft_ms`` is a deadline, or the objective is ``cost``, those who do not keep them compete on
    how late they should be: a tighter goal that nobody meets must not give worse service.
    """
    objective = terms.objective
    answer_tokens = expected_tokens(standings, terms)
    thrifty = objective is Objective.COST
    costs = costs_usd(conditions, answer_tokens, terms) if thrifty else {}
    timed = thrifty or race.ttft_ms is not None
    choosy = timed or bool(terms.limits) or race.min_tok_s is not None or bool(terms.flawed)
    estimates, unseen = standings.estimates, standings.unseen
    weights, canaries = terms.weights or _NONE, terms.canaries or _NONE
    alike = weights is _NONE and canaries is _NONE
    made = []
    for name, condition in conditions.items():
        estimate = estimates.get(name, unseen)
        decode_s = answer_tokens / estimate.decode_tps
        after_s = _after_s(estimate, decode_s, answer_tokens, race, objective)
        later_s = condition.price_s + after_s
        score_s = estimate.score_s * condition.crowding + later_s
        tier = _tier(name, estimate, condition, race, terms) if choosy else Tier.FREE
        usd = rank_usd = costs.get(name, 0.0)
        if timed and tier is Tier.MISSES:
            rank_usd, score_s = 0.0, _late_s(estimate, race, answer_tokens) * condition.crowding + condition.price_s
        if alike:
            made.append(Candidate(name, estimate, condition, score_s, decode_s, tier, rank_usd, 1.0, 0.0, usd, after_s))
        else:
            weight, canary = weights.get(name, 1.0), canaries.get(name, 0.0)
            rest = (weight, canary, usd, after_s)
            made.append(Candidate(name, estimate, condition, score_s, decode_s, tier, rank_usd, *rest))
    return made


def _after_s(
    estimate: Estimate, decode_s: float, answer_tokens: float, race: RaceSettings, objective: Objective
) -> float:
    """Return how long one waits after the first token for what one wants, seconds.

    Who reads at r tok/s, from the first token on, is held up by n * max(0, 1/v - 1/r) = max(0, decode_s - n/r): nothing
    by a decoder that is as fast. The whole answer is worth a little to readers too. A program waits for the whole.
    A stall holds everybody up; it is part of ``decode_s`` already, so of the two the longer one counts.
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
    if terms.flawed and name in terms.flawed:
        return Tier.FLAWED
    if race.min_tok_s is not None and estimate.slower_than(race.min_tok_s):
        return Tier.MISSES
    # Whoever is hardly known looks like the others: if those miss, it must be tried to be known.
    if race.ttft_ms is not None and estimate.events >= COLD_EVENTS:
        late = estimate.quantile_s(MEETS_QUANTILE) > race.ttft_ms / 1000
        return Tier.MISSES if late else Tier.FREE
    return Tier.FREE


def _late_s(estimate: Estimate, race: RaceSettings, answer_tokens: float) -> float:
    """Return by how much the answer should be later than ``ttft_ms`` and ``min_tok_s`` ask, seconds; never 0."""
    late_s = _LEAST_LATE_S
    if race.ttft_ms is not None:
        late_s += estimate.late_s(race.ttft_ms / 1000)
    if race.min_tok_s is not None:
        late_s += max(0.0, answer_tokens / estimate.decode_tps - answer_tokens / race.min_tok_s)
    return late_s


def expected_tokens(standings: Standings, terms: Terms) -> float:
    """Return how many tokens the answer should have: n_hat, or what the request allows if that is less.

    Where the kind of the call is known, ``Lengths`` has said it already.
    """
    if terms.answer_tokens is not None:
        return terms.answer_tokens
    if terms.max_tokens is None:
        return standings.answer_tokens
    return min(standings.answer_tokens, max(1, terms.max_tokens))


def costs_usd(names: Iterable[str], answer_tokens: float, terms: Terms) -> dict[str, float]:
    """Return what a whole attempt should cost at list price, US dollars.

    A deployment without a price counts as the dearest known one; empty when none is known.
    """
    prices = terms.prices or {}
    known = {
        name: terms.prompt_tokens * price.input_usd + answer_tokens * price.output_usd
        for name in names
        if (price := prices.get(name)) is not None
    }
    dearest = max(known.values(), default=None)
    return {} if dearest is None else {name: known.get(name, dearest) for name in names}
