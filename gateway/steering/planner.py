"""The planner: decides which attempts are launched for a call, and when. Pure: no I/O, clock or global state."""

from collections.abc import Mapping, Sequence
from math import inf
from operator import attrgetter
from random import Random

from gateway.calls import Mode
from gateway.settings.model import RaceSettings
from gateway.steering.affinity import NOTHING_HELD, Held
from gateway.steering.candidates import Candidate, Terms, Tier
from gateway.steering.constants import EXPLORE_FLAWED_SHARE
from gateway.steering.draft import Draft
from gateway.steering.explanation import Why
from gateway.steering.health import State
from gateway.steering.lineup import Lineup
from gateway.steering.plans import Plan

_NOTHING_COSTS: Mapping[str, float] = {}
_NOTHING_AFTER: Mapping[str, float] = {}


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
    cost_usd: Mapping[str, float] = _NOTHING_COSTS,
    answer_tokens: float = 0.0,
) -> Plan:
    """Plan the launches of one call; ``tokens`` is the current budget, ``now_s`` the time of the conditions.

    ``held``: how much of the prompt is in each deployment's cache, if that saves something; ``home``: the prompt's
    rendezvous deployment, if no cache is known to hold it. ``cost_usd`` and ``answer_tokens`` are those of the plan.
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
    draft = Draft(primary, others, race, terms, random, lineup=lineup, why=why, now_s=now_s)
    rescue_s = None
    if race.mode is not Mode.SINGLE:
        if why is Why.FLAWED:
            draft.add_standby(race.budget)
        elif race.budget > 0:
            # A broken canary is tried in its turn: its configured share says how often.
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
        decode_s=lineup.after_s if terms.holds else _NOTHING_AFTER,
        cost_usd=cost_usd,
        answer_tokens=answer_tokens,
        reasons=tuple(draft.reasons),
        primary=primary.estimate,
        explores=draft.explores,
    )


def _draw(chosen: Sequence[Candidate], weights_up_to: Sequence[float], random: Random) -> Candidate:
    """Draw the primary: draw two, and take the one with the lower load for its weight.

    Otherwise all replicas with the same standings would send to the same deployment.
    """
    if len(chosen) == 1:
        return chosen[0]
    first, second = random.choices(chosen, cum_weights=weights_up_to, k=2)
    if second.condition.in_flight * first.weight < first.condition.in_flight * second.weight:
        return second
    return first


def _canary(canaries: Sequence[Candidate], random: Random) -> Candidate | None:
    """Draw whether a canary is the primary, and which: each gets its share of all calls."""
    drawn = random.random()
    for each in canaries:
        drawn -= each.canary
        if drawn < 0:
            return each
    return None


_delay = attrgetter("delay_s")

_NOBODY: frozenset[str] = frozenset()
