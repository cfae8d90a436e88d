"""Candidates: a model's deployments with their scores for one call and its objective."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from math import inf

import msgspec

from gateway.attempt_records import AnswerKind
from gateway.calls import Kind, Mode, Objective
from gateway.settings.model import RaceSettings
from gateway.steering.affinity import Prefix
from gateway.steering.constants import COLD_EVENTS, MEETS_QUANTILE, RACED_WHOLE_SHARE, WHOLE_SHARE
from gateway.steering.health import Condition
from gateway.steering.spent_budget import raced_share
from gateway.steering.standings import Estimate, Standings
from providers.prices import Price


class Terms(msgspec.Struct, frozen=True):
    """The parameters of one call, and its deployments' prices, limits and configured weights.

    ``excluded`` are the deployments that may not run, with reasons. ``weights`` has only those that are not 1.
    """

    objective: Objective  # resolved; never auto
    prompt_tokens: int  # estimated
    max_tokens: int | None = None  # the request's limit for the answer
    prices: Mapping[str, Price] | None = None  # by deployment, where known
    limits: Mapping[str, int] | None = None  # max_in_flight by deployment, where set
    weights: Mapping[str, float] | None = None  # by deployment: its chance against others that are about as fast
    canaries: Mapping[str, float] | None = None  # by deployment: the exact share of calls it gets
    excluded: Mapping[str, str] | None = None  # by deployment: why it may not run for this call
    prefix: Prefix | None = None  # of a prompt that is long enough for prompt caches
    kind: Kind | None = None  # predicts the length of the answer; None: the model's mean
    answer_tokens: float | None = None  # the expected length, if already known
    answer_kind: AnswerKind = AnswerKind.PLAIN
    flawed: Mapping[str, str] | None = None  # by deployment: why it is a last resort for such answers
    is_counted: bool = False  # whether limits count what the call will use
    bills_losers: frozenset[str] = frozenset()  # deployments whose vendors bill the whole answer after a disconnect
    holds: bool = False  # whether a first token may be held back for an attempt that should give the answer sooner


_NONE: Mapping[str, float] = {}
_LEAST_LATE_S = 0.001  # positive, so that scores can be divided by it


class Tier(IntEnum):
    """Precedes the score: a deployment is used only if all earlier tiers are empty."""

    FREE = 0
    MISSES = 1  # below min_tok_s, or too often later than the deadline
    FLAWED = 2  # its answers have flaws more often than its peers'
    FULL = 3  # max_in_flight is reached


class Candidate(msgspec.Struct, frozen=True):
    """A deployment as the planner sees it."""

    deployment: str
    estimate: Estimate
    condition: Condition
    score_s: float  # predicted seconds until the objective is reached, plus the scarcity price; lower is better
    decode_s: float = 0.0  # predicted seconds from the first to the last token
    tier: Tier = Tier.FREE
    rank_usd: float = 0.0  # under ``cost`` the expected cost, by which timely ones are ranked; else 0
    weight: float = 1.0  # its configured chance against others that are about as fast
    canary: float = 0.0  # the share of calls of a canary
    cost_usd: float = 0.0  # under ``cost`` the expected cost of the call
    after_s: float = 0.0  # the part of ``score_s`` after the first token, which decides about holds
    raced_after_s: float = 0.0  # the same where calls are raced and the first token is sent at once

    @property
    def load(self) -> float:
        """The attempts in flight divided by the weight: twice the weight allows twice as many."""
        return self.condition.in_flight / self.weight


def candidates(
    conditions: Mapping[str, Condition], standings: Standings, race: RaceSettings, terms: Terms
) -> list[Candidate]:
    """Return the deployments of ``conditions`` with their scores, in the same order.

    first_token: mean TTFT / (1 - error rate) x crowding + scarcity price + stalls; completion: + answer tokens /
    (tok/s) instead of stalls; reading: + the reader's waits for later tokens (``_after_s``). Under ``cost`` those
    expected to keep ``ttft_ms`` and ``min_tok_s`` are ranked by cost, then by time to first token. If ``ttft_ms`` is a
    deadline or the objective is ``cost``, the others are ranked by how late they should be: a goal that none can meet
    must not make the service worse.
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
    more = (RACED_WHOLE_SHARE - WHOLE_SHARE) * weighed_share(race, terms)
    made = []
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
            rank_usd, score_s = 0.0, _late_s(estimate, race, answer_tokens) * condition.crowding + condition.price_s
        if alike:
            rest = (1.0, 0.0, usd, after_s, raced_s)
        else:
            weight, canary = weights.get(name, 1.0), canaries.get(name, 0.0)
            rest = (weight, canary, usd, after_s, raced_s)
        made.append(Candidate(name, estimate, condition, score_s, decode_s, tier, rank_usd, *rest))
    return made


def weighed_share(race: RaceSettings, terms: Terms) -> float:
    """Return the share of such calls that is raced from the start for a reader whose first token is never held.

    There a slower answer counts more: it is not overtaken.
    """
    if terms.objective is not Objective.READING or terms.holds:
        return 0.0
    if race.mode is Mode.AUTO:
        return round(raced_share(race.budget), 1)  # in steps, so that lineups can be kept
    return 1.0 if race.mode is Mode.RACE else 0.0


def _after_s(
    estimate: Estimate, decode_s: float, answer_tokens: float, race: RaceSettings, objective: Objective
) -> float:
    """Return the wait after the first token for what the objective asks, in seconds.

    A reader at r tok/s is delayed by n * max(0, 1/v - 1/r) = max(0, decode_s - n/r): not at all if decoding is as fast.
    The complete answer also has a small value to readers. A program waits for the complete answer. Stalls delay both;
    they are part of ``decode_s`` already, so the longer of the two counts.
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
    # A deployment with few samples looks like the others: even if those miss the goal, it must be tried.
    if race.ttft_ms is not None and estimate.events >= COLD_EVENTS:
        late = estimate.quantile_s(MEETS_QUANTILE) > race.ttft_ms / 1000
        return Tier.MISSES if late else Tier.FREE
    return Tier.FREE


def _late_s(estimate: Estimate, race: RaceSettings, answer_tokens: float) -> float:
    """Return how much later than ``ttft_ms`` and ``min_tok_s`` ask the answer should be, in seconds; never 0."""
    late_s = _LEAST_LATE_S
    if race.ttft_ms is not None:
        late_s += estimate.late_s(race.ttft_ms / 1000)
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
    known = {
        name: terms.prompt_tokens * price.input_usd + answer_tokens * price.output_usd
        for name in names
        if (price := prices.get(name)) is not None
    }
    dearest = max(known.values(), default=None)
    return {} if dearest is None else {name: known.get(name, dearest) for name in names}
