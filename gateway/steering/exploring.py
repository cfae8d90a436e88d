"""Selects deployments to explore: slow ones that may have recovered, and those not asked for a long time."""

from collections.abc import Sequence
from random import Random

from gateway.calls import Mode
from gateway.settings.model import RaceSettings
from gateway.steering.candidates import Candidate, Tier
from gateway.steering.constants import (
    EXPLORE_NEW_SHARE,
    EXPLORE_SHARE,
    NEAR,
    SUSPECT,
    SUSPECT_EVERY_S,
    SUSPECT_SHARE,
)

_A_DAY_S = 86_400.0


def suspect(primary: Candidate, others: Sequence[Candidate], random: Random, now_s: float) -> Candidate | None:
    """Return a deployment that has been slow lately, is usually among the best, and was not asked for some seconds."""
    best_s, usd = primary.estimate.score_s * NEAR, primary.cost_usd
    for each in others:
        estimate = each.estimate
        if (
            estimate.usual_s <= best_s
            and estimate.score_s > SUSPECT * estimate.usual_s
            and each.cost_usd <= usd
            and each.tier < Tier.FLAWED
            and _unasked_s(each, now_s) >= SUSPECT_EVERY_S
            and random.random() < SUSPECT_SHARE
        ):
            return each
    return None


def is_to_explore(race: RaceSettings, others: Sequence[Candidate], random: Random) -> bool:
    """Draw whether to explore: more often in mode auto if one of the deployments is unknown."""
    drawn = random.random()
    if drawn >= EXPLORE_NEW_SHARE:  # the usual case: conditions are not checked
        return False
    return drawn < EXPLORE_SHARE or (race.mode is Mode.AUTO and any(map(is_new, others)))


def stalest_of(primary: Candidate, others: Sequence[Candidate], random: Random, now_s: float) -> Candidate | None:
    """Return about the one not asked for longest; None if all cost more than the primary or are flawed."""
    usd = primary.cost_usd
    free = [each for each in others if each.cost_usd <= usd and each.tier < Tier.FLAWED]
    return max(free, key=lambda each: _unasked_s(each, now_s) * (0.5 + random.random()), default=None)


def _unasked_s(candidate: Candidate, now_s: float) -> float:
    return min(_A_DAY_S, now_s - candidate.condition.asked_at_s)


def is_new(candidate: Candidate) -> bool:
    """Whether nothing is known about a usable deployment, neither recently nor in memory."""
    estimate = candidate.estimate
    return not estimate.usual_events and not estimate.events and candidate.tier < Tier.FLAWED
