"""The explainer: describes a plan in words and numbers. It runs on request only, and decides nothing."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from math import inf, isfinite
from typing import cast

import msgspec

from gateway.core.attempts import AnswerKind, WinOn
from gateway.core.calls import Objective
from gateway.core.prompt_classes import Effort
from gateway.settings import RaceSettings
from gateway.steering.affinity import CachedBytes
from gateway.steering.budget import Budget
from gateway.steering.candidates import Candidate, Lineup, Terms, Tier, costs_usd, preference
from gateway.steering.constants import (
    COLD_EVENTS,
    EXPLORE_FLAWED_SHARE,
    EXPLORE_SHARE,
    HEDGE_SHARE,
    MEETS_QUANTILE,
    RESCUE_FACTOR,
    RESCUE_IN_TIME,
    RESCUE_SPOKEN_QUANTILE,
    RESCUED_OF,
    RESCUED_SHARE,
    SPOKEN_HEDGED_PART,
)
from gateway.steering.estimates import Estimate
from gateway.steering.health import Condition, HealthState
from gateway.steering.plans import Explanation, Launch, Plan, Prospect, Start, Why
from gateway.steering.strategies import STRATEGIES


def explained(
    plan: Plan,
    lineup: Lineup,
    race: RaceSettings,
    terms: Terms,
    *,
    held: CachedBytes,
    home: Candidate | None = None,
    answer_tokens: float,
    effort: Effort | None = None,
    budget: Budget,
    probes: bool = False,
) -> Explanation:
    """Explain ``plan``, made from ``lineup`` with this ``budget`` and ``held`` of the prompt in caches.

    ``probes``: whether such calls probe.

    ``home`` is the prompt's rendezvous deployment, if no cache is known to hold it.
    """
    tokens, by_name = budget.tokens, {each.deployment: each for each in lineup.candidates}
    context = _Known(
        _chances(lineup, held, home),
        frozenset(each.deployment for each in lineup.near),
        held,
        costs_usd(by_name, answer_tokens, terms),
        answer_tokens,
        probes and terms.watches and not terms.stateful,
    )
    facts = _facts(plan, by_name, race, terms, context, tokens) if plan.launches else {}
    ranked = sorted(
        lineup.candidates,
        key=lambda each: (each.condition.state is not HealthState.OK, each.canary > 0, *preference(each)),
    )
    return Explanation(
        objective=terms.objective,
        mode=plan.mode,
        prompt_tokens=terms.prompt_tokens,
        answer_tokens=round(answer_tokens, 1),
        effort=effort,
        hold=terms.holds,
        spoken=terms.spoken,
        reading_tok_s=race.reading_tok_s if terms.objective is Objective.READING else None,
        ttft_ms=race.ttft_ms,
        min_tok_s=race.min_tok_s,
        budget=race.budget,
        budget_tokens=round(tokens, 2),
        value_usd_per_s=race.value_usd_per_s or None,
        extra_usd_per_call=race.extra_usd_per_call,
        budget_usd=None if race.extra_usd_per_call is None else budget.usd,
        **_bill(plan, by_name, context.costs),
        deployments=tuple(_prospect(each, race, terms, context) for each in ranked),
        excluded=terms.excluded or {},
        launches=tuple(
            _start(
                launch, facts, by_name[launch.deployment], context, is_extra=number > 0 or launch.why is Why.FALLBACK
            )
            for number, launch in enumerate(plan.launches)
        ),
        rest=plan.rest,
        retry_after_s=plan.retry_after_s,
        notes=(
            *plan.reasons,
            *_too_little(plan),
            *_full(lineup, terms),
            *_waiting(race, terms),
            *_rescues(budget),
            *_effort(plan),
        ),
        width_asked=plan.width_asked,
        narrowed=plan.narrowed,
        late_s=round(plan.late_s, 3),
        fallback=None,  # the planner does not know of other models
    )


_WAITING = (
    "win_on valid: all attempts run until one is known to be valid, so each extra one costs a whole answer;"
    " after one that is not, the next is asked at once if the budget allows"
)


def _too_little(plan: Plan) -> tuple[str, ...]:
    if plan.worth_s is None:
        return ()
    saves_ms, floor_ms = (1000 * max(0.0, seconds) for seconds in plan.worth_s)
    saves = f"the best should save {saves_ms:.0f} ms, below the floor of {floor_ms:.0f} ms (race.worth_ms)"
    return (f"no extra attempt at the start: {saves}",)


def _rescues(budget: Budget) -> tuple[str, ...]:
    if not budget.rescues:
        return ()
    most = RESCUED_SHARE * RESCUED_OF
    return (f"{budget.rescues} rescues in the last {RESCUED_OF} calls; the budget pays for those beyond {most:g}",)


def _effort(plan: Plan) -> tuple[str, ...]:
    if plan.primary is None or not plan.primary.is_borrowed:
        return ()
    return (_BORROWED,)


def _waiting(race: RaceSettings, terms: Terms) -> tuple[str, ...]:
    if race.win_on is not WinOn.VALID or terms.answer_kind is AnswerKind.PLAIN:
        return ()
    return (_WAITING,)


_BORROWED = (
    "fewer than ten first tokens of calls that ask for this effort to think are known: the figures are of others,"
    " and no first token is late by them"
)


class _Known(msgspec.Struct, frozen=True):
    """What is known about the deployments besides the candidates' fields, by name."""

    chances: Mapping[str, float]
    near: frozenset[str]
    held: CachedBytes
    costs: Mapping[str, float]
    answer_tokens: float
    probes: bool


def _prospect(candidate: Candidate, race: RaceSettings, terms: Terms, context: _Known) -> Prospect:
    name, estimate, condition = candidate.deployment, candidate.estimate, candidate.condition
    price = (terms.prices or {}).get(name)
    return Prospect(
        deployment=name,
        state=condition.told,
        events=round(estimate.events, 2),
        ttft_mean_s=round(estimate.mean.at(estimate.scale), 4),
        ttft_p50_s=_reached(estimate.quantile_s(0.5)),
        ttft_p95_s=_reached(estimate.q95_s),
        error_rate=round(estimate.error_rate, 4),
        decode_tps=round(estimate.decode_tps, 1),
        decode_s=round(context.answer_tokens / estimate.decode_tps, 4),
        stall_s=round(estimate.stall_s, 4),
        after_s=round(candidate.after_s, 4),
        input_usd_per_mtok=None if price is None else round(price.input_usd * 1e6, 6),
        output_usd_per_mtok=None if price is None else round(price.output_usd * 1e6, 6),
        cost_usd=None if price is None else context.costs[name],
        scarcity_s=round(condition.price_s, 4),
        headroom=round(condition.headroom, 4),
        crowding=round(condition.crowding, 3),
        in_flight=condition.in_flight,
        max_in_flight=(terms.limits or {}).get(name),
        weight=None if candidate.weight == 1.0 else candidate.weight,
        canary=candidate.canary or None,
        held_bytes=context.held.get(name),
        score_s=round(candidate.score_s, 4),
        passed_over=passed_over(candidate, race, terms, probes=context.probes),
        near=name in context.near,
        draw=round(context.chances.get(name, 0.0), 4),
    )


_NO_SLOT = "no slot of max_in_flight_fleet is leased here and free"


def passed_over(candidate: Candidate, race: RaceSettings, terms: Terms, *, probes: bool) -> str | None:
    """Return why a deployment comes after others, whatever its score; None if it does not."""
    if candidate.condition.state is not HealthState.OK:
        return f"{candidate.condition.state}{_asked_again(candidate.condition, probes=probes)}"
    if candidate.canary and candidate.tier < Tier.FLAWED:
        return "canary: primary for its share of the calls, otherwise a last resort"
    words = _OF_TIER.get(candidate.tier)
    return candidate.tier.name.lower() if words is None else words(candidate, race, terms)


def _missed(candidate: Candidate, race: RaceSettings, _: Terms) -> str:
    if race.min_tok_s is not None and candidate.estimate.slower_than(race.min_tok_s):
        return f"decodes below min_tok_s {race.min_tok_s:g}"
    return f"too often later than ttft_ms {race.ttft_ms:g}"


def _no_room(candidate: Candidate, _: RaceSettings, terms: Terms) -> str:
    return _NO_SLOT if candidate.deployment in terms.leased else "max_in_flight requests are in flight"


# Why a tier comes after the others, in words.
_OF_TIER: Mapping[Tier, Callable[[Candidate, RaceSettings, Terms], str | None]] = {
    Tier.FREE: lambda *_: None,
    Tier.MISSES: _missed,
    Tier.FLAWED: lambda each, _, terms: (terms.flawed or {})[each.deployment],
    Tier.SECOND: lambda each, _, terms: (terms.second or {})[each.deployment],
    Tier.FULL: _no_room,
}


def _asked_again(condition: Condition, *, probes: bool) -> str:
    """Return when a deployment that is left out is asked again."""
    if condition.state is HealthState.COOLING or condition.probe_in_s is None:
        return ""
    if probes:
        return (
            f": the next probe is due in {condition.probe_in_s:.0f} s" if condition.probe_in_s else ": a probe is due"
        )
    if condition.trial_in_s is None:
        return ": with a budget of 0 no call probes it"
    return f": with a budget of 0 no call probes it, and one uses it again on trial in {condition.trial_in_s:.0f} s"


def _full(lineup: Lineup, terms: Terms) -> Iterator[str]:
    limits = terms.limits or {}
    for each in lineup.candidates:
        if each.tier is Tier.FULL:
            name = each.deployment
            most = f"{limits[name]} leased slots" if name in terms.leased else f"max_in_flight {limits[name]}"
            yield f"full: {name} has {each.condition.in_flight} of {most} in flight"


def _start(launch: Launch, facts: Mapping[str, object], itself: Candidate, context: _Known, *, is_extra: bool) -> Start:
    why = _WORDS[launch.why].format(
        events=itself.estimate.events,
        meets_s=itself.estimate.quantile_s(MEETS_QUANTILE),
        canary=itself.canary,
        held_kb=context.held.get(launch.deployment, 0) // 1024,
        **facts,
    )
    if (speaking := launch.speaking) is not None:  # the answer is spoken to a listener
        if launch.why is Why.RESCUE and speaking.at_s < cast("float", facts["hangs_s"]):
            why = _LISTENING.format(**facts)
        why += f"; not before {speaking.at_s:.2f} s if one has begun to speak"
    elif launch.why is Why.RESCUE and launch.delay_s > cast("float", facts["rescue_s"]):
        why += "; the second rescue at twice that"
    return Start(launch.deployment, round(launch.delay_s, 4), launch.role, launch.audited, is_extra, why)


def _load(candidate: Candidate) -> float:
    """Return the attempts in flight divided by the weight: twice the weight allows twice as many."""
    return candidate.condition.in_flight / candidate.weight


def _chances(lineup: Lineup, held: CachedBytes, home: Candidate | None) -> dict[str, float]:
    """Return each deployment's probability of becoming the primary.

    Canaries have their shares. Any other deployment is drawn first of two, or second with a lower load for its weight.
    """
    if not lineup.ranked:
        return {}
    chances: dict[str, float] = {}
    left = 1.0  # share of calls left for the next canaries
    for each in lineup.canaries:
        share, left = min(left, each.canary), max(0.0, left - each.canary)
        if each.condition.state is HealthState.OK and each.tier < Tier.FULL:
            chances[each.deployment] = share
    usual = 1.0 - sum(chances.values())
    if lineup.flawed:
        share = usual * EXPLORE_FLAWED_SHARE
        usual -= share
        chances |= {each.deployment: share / len(lineup.flawed) for each in lineup.flawed}
    if home is not None:
        return {**chances, home.deployment: usual + chances.get(home.deployment, 0.0)}
    chosen, weights_up_to = lineup.eligible(held)
    weights = [upper - lower for lower, upper in pairwise((0.0, *weights_up_to))]
    total = sum(weights)
    for one, weight in zip(chosen, weights, strict=True):
        # drawn first, a deployment stays unless the second has a lower load; drawn second, it needs the lower load
        stays = sum(w for other, w in zip(chosen, weights, strict=True) if _load(other) >= _load(one))
        takes = sum(w for other, w in zip(chosen, weights, strict=True) if _load(other) > _load(one))
        chance = usual * weight * (stays + takes) / total**2
        chances[one.deployment] = chances.get(one.deployment, 0.0) + chance
    return chances


def _facts(  # noqa: PLR0917 - what is known of a plan
    plan: Plan, by_name: Mapping[str, Candidate], race: RaceSettings, terms: Terms, context: _Known, tokens: float
) -> dict[str, object]:
    """Return the values for the sentences about launches."""
    primary = plan.launches[0].deployment
    estimate = by_name[primary].estimate
    return {
        "race": race,
        "tokens": tokens,
        "primary": estimate,
        "chosen": _chosen(context.chances[primary], len(context.near)),
        "near": len(context.near),
        "share": 1.0 - _hedged_share(race, terms),
        "hangs": _hangs(estimate, terms.ttft_s.get(primary, inf)),
        "hangs_s": estimate.hangs_s,
        "usual_s": estimate.quantile_s(RESCUE_SPOKEN_QUANTILE),
        "offer": _offered(plan, race),
        "rescue_s": min((each.delay_s for each in plan.launches if each.why is Why.RESCUE), default=0.0),
    }


def _hedged_share(race: RaceSettings, terms: Terms) -> float:
    """Return in how many calls the primary is late for a hedge."""
    if terms.spoken and STRATEGIES[race.mode].hedges:
        return min(1.0, SPOKEN_HEDGED_PART * race.budget)
    return min(race.budget, HEDGE_SHARE)


def _offered(plan: Plan, race: RaceSettings) -> str:
    """Return what the further attempt should save and cost in the calls in which it starts."""
    offer, value = plan.offer, race.value_usd_per_s
    if offer is None or value is None:
        return ""
    worth = f"{offer.saved_s:.2g} s saved x {value:g} = ${value * offer.saved_s:.2g} > ${offer.usd:.2g}"
    if not offer.delay_s:
        return f"raced: expected {worth}"
    return f"hedge: {1.0 - offer.starts:.0%} of the primary's first tokens come sooner; then expected {worth}"


def _chosen(share: float, near: int) -> str:
    """Return how often the primary is chosen, and with how many others it shares such calls."""
    if near > 1:
        return f"chosen for {share:.0%} of such calls; {near} deployments are about equally good and share them"
    return "chosen for its score" if share >= _ALL else f"chosen for its score, for {share:.0%} of such calls"


def _hangs(estimate: Estimate, ttft_timeout_s: float) -> str:
    """Return when the primary counts as hanging, with the figures behind that time."""
    after_s, q95_s = estimate.hangs_s, estimate.q95_s
    within = f", but within {RESCUE_IN_TIME:.0%} of its time-out" if RESCUE_IN_TIME * ttft_timeout_s < after_s else ""
    if after_s < RESCUE_FACTOR * q95_s:
        return (
            f"most of the primary's first tokens come much sooner; it counts as hanging after {after_s:.2f} s{within}"
        )
    least = f", but {after_s:g} s at least" if after_s > RESCUE_FACTOR * q95_s else ""
    usual = f"95% of the primary's first tokens come within {q95_s:.2f} s"
    return f"{usual}; it counts as hanging after {RESCUE_FACTOR:g} times that{least}{within}"


def _bill(plan: Plan, by_name: Mapping[str, Candidate], costs: Mapping[str, float]) -> dict[str, float]:
    """Return the plan's expected cost: the primary alone, and with each extra launch times its probability.

    Each attempt counts as a whole answer, which is the maximum if vendors stop billing losers. A later launch
    starts if the primary has no token by then.
    """
    if not plan.launches or not costs:
        return {}
    primary, *others = plan.launches
    alone_usd = costs[primary.deployment]
    late = by_name[primary.deployment].estimate.later_than
    extra_usd = sum(costs[each.deployment] * late(each.delay_s) for each in others)
    return {"cost_alone_usd": alone_usd, "cost_expected_usd": alone_usd + extra_usd}


def _reached(seconds: float) -> float | None:
    return round(seconds, 4) if isfinite(seconds) else None


_LISTENING = (
    f"rescue: somebody listens, and all may be late: {RESCUE_SPOKEN_QUANTILE:.0%} of the primary's first clauses come"
    " within {usual_s:.2f} s"
)
_ALL = 0.995  # of the calls: told as all of them

_WORDS = {
    Why.DRAWN: "{chosen}",
    Why.CANARY: "canary: gets a share of {canary:g} of the calls, whatever its score",
    Why.CACHE_WARM: "cache warm: of {near} that are about equally good its provider should hold most of the prompt, the"
    " first {held_kb} KB",
    Why.RENDEZVOUS: "rendezvous: no cache is known to hold this prompt; of {near} that are about equally good, every"
    " replica sends prompts that begin with the same 4 KB to this one",
    Why.ORDERED: "in the requested order",
    Why.MADE: "it made what the conversation goes on from",
    Why.FALLBACK: "fallback",
    Why.FLAWED: f"flawed: a last resort for such calls, but {EXPLORE_FLAWED_SHARE:.0%} of them see if it has recovered",
    Why.TRIAL: "trial: it was broken, nothing has probed it for a minute, and one call has to show if it has recovered",
    Why.PROBE: "probe: it was broken and may have recovered",
    Why.EXPLORE: "explore: it was not asked for the longest time, and had {events:.1f} first tokens lately;"
    f" {EXPLORE_SHARE:.0%} of the calls ask such a one",
    Why.BACK: "back: it is usually quicker than the primary, and was slower than usual lately;"
    f" {EXPLORE_SHARE:.0%} of the calls ask if that is over",
    Why.COLD_START: "cold start: the primary has {primary.events:.1f} of the"
    f" {COLD_EVENTS} first tokens that make it known",
    Why.WIDTH: "mode race, width {race.width}; {tokens:.1f} extra attempts saved up",
    Why.BUDGET: "raced: its budget of extra attempts is {race.budget:g} a call, {tokens:.1f} saved up",
    Why.VALUE: "{offer}",
    Why.LATE: "hedge: {share:.0%} of the primary's first tokens come sooner; {tokens:.1f} extra attempts saved up",
    Why.SLOWER: "hedge: {share:.0%} of the primary's first tokens come sooner; not raced from the start, because its"
    " slower answer would cost more than its first token gains",
    Why.WORTH: "hedge: {share:.0%} of the primary's first tokens come sooner; not raced from the start, because that"
    " should save too little",
    Why.BILLED: "hedge: {share:.0%} of the primary's first tokens come sooner; not raced, because dollars are"
    " limited and a vendor bills losers in full",
    Why.ASKED_DELAY: "hedge: hedge_delay_s as set",
    Why.DEADLINE: "hedge: the latest start that can meet ttft_ms {race.ttft_ms:g} if it takes {meets_s:.3f} s",
    Why.RESCUE: "rescue: {hangs}",
    None: "",
}
