"""The lineup: a model's candidates in the order in which they are asked; what is the same for one call and the next."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import TypeAlias

import msgspec

from gateway.calls import Objective
from gateway.settings.model import RaceSettings
from gateway.steering.candidates import Candidate, Terms, candidates, expected_tokens
from gateway.steering.constants import HEADROOM_LOW, HEADROOM_WEIGHT_MIN, NEAR, SPREAD_EXPONENT
from gateway.steering.health import Condition, State
from gateway.steering.standings import Standings

Conditions: TypeAlias = Mapping[str, Condition]  # by deployment
Asked: TypeAlias = tuple[RaceSettings, Terms]


class Lineup(msgspec.Struct, frozen=True):
    """The candidates of a call, each once."""

    candidates: Sequence[Candidate]  # as they were given
    ranked: Sequence[Candidate]  # those that may be asked, best first
    near: Sequence[Candidate]  # of these, who may become the primary,
    weights_up_to: Sequence[float]  # and their weights in the draw, each with those before it
    tripped: Sequence[Candidate]  # the broken, when there are healthy ones: a last resort
    probe: Candidate | None  # who of them is to be tried now


def line_up(candidates: Sequence[Candidate]) -> Lineup:
    """Put ``candidates`` in their order."""
    well = ready(candidates)
    if not well:
        return Lineup(candidates, (), (), (), (), None)
    tripped: list[Candidate] = []
    probe = None
    if len(well) < len(candidates) and well[0].condition.state is State.OK:
        tripped = sorted((each for each in candidates if each.condition.state in _TRIPPED), key=preference)
        probe = next((each for each in candidates if each.condition.probe_due), None)
    ranked = sorted(well, key=preference)
    chosen, weights = near(ranked)
    return Lineup(candidates, ranked, chosen, list(accumulate(weights)), tripped, probe)


def ready(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return those that may be asked: the healthy; if there are none, the broken; all, if none of them only cools."""
    for states in (_HEALTHY, _TRIPPED):
        if found := [each for each in candidates if each.condition.state in states]:
            return found
    return [] if any(each.condition.state is State.COOLING for each in candidates) else list(candidates)


def near(ranked: Sequence[Candidate]) -> tuple[list[Candidate], list[float]]:
    """Return those of ``ranked``, best first, that may become the primary, and their weights in the draw.

    They are of the best one's tier, under ``cost`` as cheap as it, and near its score: (best/score)^12, less for whom a
    rate limit leaves little.
    """
    best = ranked[0]
    tier, rank_usd, best_s = best.tier, best.rank_usd, best.score_s
    chosen, weights = [], []
    for each in ranked:
        slower = each.score_s / best_s
        if slower > NEAR or each.tier != tier or each.rank_usd != rank_usd:
            break  # and so are all that follow
        chosen.append(each)
        weights.append(_headroom_weight(each) / slower**SPREAD_EXPONENT)
    return chosen, weights


class Lineups:
    """The last lineup for each kind of call, kept until something happens to a candidate or there are new standings.

    Where nobody queues, cools down or is broken that is a second, and most of what planning a call costs.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, Objective], _Known] = {}

    def of(self, kind: tuple[str, int], conditions: Conditions, standings: Standings, asked: Asked) -> Lineup:
        """Return the lineup of the deployments whose ``conditions`` are given. A ``kind``: model and prompt class."""
        race, terms = asked
        if terms.limits or terms.objective is Objective.COST:  # it depends on what is in flight, or on the request
            return line_up(candidates(conditions, standings, race, terms))
        key = (*kind, terms.objective)
        known = self._known.get(key)
        answer_tokens = expected_tokens(standings, terms)
        if (
            known is None
            or known.standings is not standings
            or known.min_tok_s != race.min_tok_s
            or known.answer_tokens != answer_tokens
            or known.conditions.keys() != conditions.keys()
        ):
            lineup = line_up(candidates(conditions, standings, race, terms))
        elif changed := {name: new for name, new in conditions.items() if known.conditions[name] is not new}:
            others = {each.deployment: each for each in candidates(changed, standings, race, terms)}
            lineup = line_up([others.get(each.deployment, each) for each in known.lineup.candidates])
        else:
            return known.lineup
        self._known[key] = _Known(standings, race.min_tok_s, answer_tokens, conditions, lineup)
        return lineup

    def keep(self, models: set[str]) -> None:
        """Forget all models but these."""
        self._known = {key: known for key, known in self._known.items() if key[0] in models}


class _Known(msgspec.Struct, frozen=True):
    standings: Standings
    min_tok_s: float | None
    answer_tokens: float
    conditions: Conditions
    lineup: Lineup


def _headroom_weight(candidate: Candidate) -> float:
    headroom = candidate.condition.headroom
    return 1.0 if headroom >= HEADROOM_LOW else max(HEADROOM_WEIGHT_MIN, headroom / HEADROOM_LOW)


preference = attrgetter("tier", "rank_usd", "score_s")

_HEALTHY = frozenset({State.OK})
_TRIPPED = frozenset({State.OPEN, State.HALF_OPEN})
