"""The lineup: a model's candidates in order. It is the same for similar calls and reused between them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from gateway.calls import Objective
from gateway.prompt_classes import PromptClass
from gateway.settings.model import RaceSettings
from gateway.steering.affinity import Held
from gateway.steering.candidates import Candidate, Terms, Tier, candidates, expected_tokens, weighed_share
from gateway.steering.constants import (
    HEADROOM_LOW,
    HEADROOM_WEIGHT_MIN,
    LINEUPS_KEPT,
    LINEUPS_WARM_S,
    LINEUPS_WARMED,
    NEAR,
    SPREAD_EXPONENT,
    SUCCESS_FLOOR,
)
from gateway.steering.health import Condition, State
from gateway.steering.sizing import tokens_of
from gateway.steering.standings import Standings

Conditions: TypeAlias = Mapping[str, Condition]  # by deployment
Asked: TypeAlias = tuple[RaceSettings, Terms]


class Racer(msgspec.Struct, frozen=True):
    """A deployment to run beside the primary."""

    candidate: Candidate
    gain_s: float  # what the call should gain by it, in seconds of its loss; negative if it loses


class Lineup(msgspec.Struct, frozen=True):
    """The candidates of a call."""

    candidates: Sequence[Candidate]  # in the given order
    ranked: Sequence[Candidate]  # those that may be used, best first
    near: Sequence[Candidate]  # those of them that may become the primary
    weights_up_to: Sequence[float]  # cumulative weights of ``near`` for the draw
    tripped: Sequence[Candidate]  # broken ones, if there are healthy ones: a last resort
    probe: Candidate | None  # the one of them to be tried now
    canaries: Sequence[Candidate] = ()  # whatever their health; each is the primary for its share,
    reserve: Sequence[Candidate] = ()  # otherwise usable ones come after all others except broken ones
    after_s: Mapping[str, float] = {}  # the part of each one's loss after its first token, if the objective counts it
    flawed: Sequence[Candidate] = ()  # of the ranked, a last resort; sometimes one is the primary
    standings: Standings | None = None  # None if there are none ranked
    _rivals: list[Candidate] = []  # made on demand
    _racers: dict[tuple[str, bool], Sequence[Racer]] = {}  # by primary, and whether they start late: made on demand
    # Shared by all lineups of the same standings: by primary, racer, and whether it starts late, the candidates for
    # which it was computed, and the result.
    _gains: dict[tuple[str, str, bool], tuple[Candidate, Racer]] = {}
    _ranks: dict[str, tuple[str, Candidate, tuple[object, ...]]] = {}  # likewise: the best, the racer, its rank

    @property
    def rivals(self) -> Sequence[Candidate]:
        """Those that may be used, ordered by their value in a race beside the best if first tokens may be held."""
        if not self._rivals and self.standings is not None:
            self._rivals.extend(_rivals(self.ranked, self.standings, self._ranks))
        return self._rivals

    def gain_s(self, primary: Candidate, racer: Candidate, *, late: bool = False) -> float:
        """Return what a call with this primary should gain by ``racer``, in seconds; negative if it loses.

        The first of the two tokens is sent, whoever's answer is the faster. With T the times to first token, and
        after() the loss that follows it:

            (1 - error rate of racer) x (E[T of primary] - E[min(T of primary, T of racer)]
                - P(racer is first) x (after(racer) - after(primary)))
            - scarcity of racer - max(0, crowding of racer - 1) x E[min(T of primary, T of racer)]

        The last term is the toll: until the first token an attempt slows the others there, whether it wins or not.

        ``late``: it starts once 90 % of the primary's first tokens have come, and this one has not.
        """
        assert self.standings is not None
        estimate, condition = racer.estimate, racer.condition
        slow = primary.estimate.scale * primary.condition.crowding
        factor = estimate.scale * condition.crowding / slow
        if late:
            beside, alone_s = self.standings.beside_late(primary.deployment, racer.deployment, factor)
        else:
            beside = self.standings.beside(primary.deployment, racer.deployment, factor)
            alone_s = primary.estimate.mean.at(1.0)
        sooner_s = slow * (alone_s - beside.earlier_s)
        slower_s = beside.first * (racer.raced_after_s - primary.raced_after_s)
        toll_s = max(0.0, condition.crowding - 1.0) * slow * beside.earlier_s
        return (1.0 - estimate.error_rate) * (sooner_s - slower_s) - condition.price_s - toll_s

    def racers(self, primary: Candidate, *, late: bool) -> Sequence[Racer]:
        """Return the others, the most useful beside ``primary`` first."""
        key = primary.deployment, late
        found = self._racers.get(key)
        if found is None:
            found = [
                self._racer(primary, each, late=late) for each in self.ranked if each.deployment != primary.deployment
            ]
            found.sort(key=_usefulness)
            self._racers[key] = found
        return found

    def _racer(self, primary: Candidate, each: Candidate, *, late: bool) -> Racer:
        key = primary.deployment, each.deployment, late
        known = self._gains.get(key)
        if known is not None and known[0] is primary and known[1].candidate is each:
            return known[1]
        racer = Racer(each, self.gain_s(primary, each, late=late))
        self._gains[key] = primary, racer
        return racer

    def made_ready(self, before: "Lineup") -> Iterator[None]:
        """Find the racers that were asked for in the lineup before this one, so that no call has to, in steps."""
        if before._rivals and not self._rivals and self.standings is not None:  # noqa: SLF001 - of its own class
            self._rivals.extend(_rivals(self.ranked, self.standings, self._ranks))
            yield
        for name, late in list(before._racers):  # noqa: SLF001 - of its own class
            primary = next((each for each in self.candidates if each.deployment == name), None)
            if primary is None or not self.ranked:
                continue
            for each in self.ranked:
                if each.deployment != name:
                    self._racer(primary, each, late=late)
                    yield
            self.racers(primary, late=late)

    def eligible(self, held: Held) -> tuple[Sequence[Candidate], Sequence[float]]:
        """Return who may become the primary of a usual call, with cumulative weights for the draw.

        Those near the best; if some of these hold most of the prompt in a warm cache, only these. A deployment close to
        its rate limit is not preferred for its cache.
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
    """Return the lineup of ``candidates``, scored by ``standings``; ``canaries`` are among them.

    ``before`` is one of the same standings: what is known of unchanged candidates is kept.
    """
    found = _ready(candidates)
    if not found:
        return Lineup(candidates, (), (), (), (), None, canaries)
    if standings is None:
        standings = Standings({each.deployment: each.estimate for each in candidates}, found[0].estimate)
    well, reserve = found, []
    if canaries and (usual := [each for each in found if not each.canary]):
        well, reserve = usual, sorted((each for each in found if each.canary), key=preference)
    tripped: list[Candidate] = []
    probe = None
    if len(found) < len(candidates) and well[0].condition.state is State.OK:
        tripped = sorted((each for each in candidates if each.condition.state in _TRIPPED), key=_last_resort)
        probe = next((each for each in candidates if each.condition.probe_due and not each.canary), None)
    ranked = sorted(well, key=preference)
    chosen, weights = _near(ranked)
    after_s = {each.deployment: each.after_s for each in candidates}
    if not any(after_s.values()):
        after_s = {}
    flawed = []
    if ranked[-1].tier >= Tier.FLAWED and ranked[0].tier < Tier.FLAWED:
        flawed = [each for each in ranked if each.tier is Tier.FLAWED]
    return Lineup(
        candidates,
        ranked,
        chosen,
        list(accumulate(weights)),
        tripped,
        probe,
        canaries,
        reserve,
        after_s,
        flawed,
        standings,
        _gains={} if before is None else before._gains,  # noqa: SLF001 - of its own class
        _ranks={} if before is None else before._ranks,  # noqa: SLF001 - of its own class
    )


def _rivals(
    ranked: Sequence[Candidate], standings: Standings, known: dict[str, tuple[str, Candidate, tuple[object, ...]]]
) -> Sequence[Candidate]:
    """Order ``ranked``, best first, by what each is worth in a race against the best if first tokens may be held.

    Then the answer is that of the attempt with the smaller loss, not of the first to start.
    """
    if len(ranked) < 3:  # noqa: PLR2004 - the best and one other
        return ranked
    best = ranked[0].deployment

    def rank(each: Candidate) -> tuple[object, ...]:
        if each.tier is Tier.MISSES:  # ranked by its expected lateness
            return each.tier, each.rank_usd, each.score_s
        estimate = each.estimate
        succeeds = max(SUCCESS_FLOOR, 1.0 - estimate.error_rate)
        earlier_s = standings.beside(best, each.deployment).earlier_s / succeeds
        raced_s = earlier_s * estimate.scale * each.condition.crowding
        return each.tier, each.rank_usd, raced_s + each.condition.price_s + each.after_s

    def known_rank(each: Candidate) -> tuple[object, ...]:
        before = known.get(each.deployment)
        if before is None or before[0] != best or before[1] is not each:
            before = known[each.deployment] = best, each, rank(each)
        return before[2]

    return sorted(ranked, key=known_rank)


def _usefulness(racer: Racer) -> tuple[object, ...]:
    each = racer.candidate
    if each.tier is Tier.MISSES:  # ranked by its expected lateness
        return each.tier, each.rank_usd, each.score_s
    return each.tier, each.rank_usd, -racer.gain_s


def _ready(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the usable ones: the healthy; if there are none, the broken; all, if all are cooling."""
    for states in (_HEALTHY, _TRIPPED):
        if found := [each for each in candidates if each.condition.state in states]:
            return found
    return [] if any(each.condition.state is State.COOLING for each in candidates) else list(candidates)


def _near(ranked: Sequence[Candidate]) -> tuple[list[Candidate], list[float]]:
    """Return those of ``ranked``, best first, that may become the primary, and their weights in the draw.

    They are in the best one's tier, under ``cost`` equally cheap, and near its score. The weight is
    (best/score)^12 times the configured weight, less near a rate limit. If the call is raced, the score is that of a
    raced answer.
    """
    best = ranked[0]
    tier, rank_usd, best_s = best.tier, best.rank_usd, best.score_s
    chosen, raced_s = [], []
    for each in ranked:
        slower = each.score_s / best_s
        if slower > NEAR or each.tier != tier or each.rank_usd != rank_usd:
            break  # and so are the following ones
        chosen.append(each)
        raced_s.append(each.score_s + each.raced_after_s - each.after_s)
    least_s = min(raced_s)
    weights = [
        each.weight * _headroom_weight(each) * (least_s / seconds) ** SPREAD_EXPONENT
        for each, seconds in zip(chosen, raced_s, strict=True)
    ]
    return chosen, weights


class Lineups:
    """The last lineup for each kind of call, kept until a candidate's health or the standings change.

    Without queues, cool-downs and faults that is a second, and saves most of the cost of planning.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], _Known] = {}  # by model, class, objective, length, deployments
        self._older: dict[tuple[object, ...], _Known] = {}  # dropped unless they are used again

    def of(
        self,
        kind: tuple[str, PromptClass, int],
        conditions: Conditions,
        standings: Standings,
        asked: Asked,
        now_s: float = 0.0,
    ) -> Lineup:
        """Return the lineup of the deployments in ``conditions``; ``kind``: model, prompt class, size."""
        race, terms = asked
        if terms.limits:  # it depends on what is in flight
            return _lined_up(candidates(conditions, standings, race, terms), terms, standings)
        if terms.objective is Objective.COST:  # in steps, as the lengths of answers, so that lineups can be kept
            terms = replace(terms, prompt_tokens=round(tokens_of(kind[2])))
            asked = race, terms
        # The key must include what differs between calls: usable deployments, lengths and readers.
        flawed = tuple(terms.flawed or ())
        weighed = weighed_share(race, terms)
        key = (
            *kind,
            terms.objective,
            weighed,
            terms.answer_tokens,
            race.reading_tok_s,
            race.ttft_ms,
            flawed,
            *conditions,
        )
        known = self._known.get(key) or self._older.pop(key, None)
        if known is None or not known.fits(standings, race, terms):
            lineup = _lined_up(candidates(conditions, standings, race, terms), terms, standings)
        elif changed := {name: new for name, new in conditions.items() if known.conditions[name] is not new}:
            if terms.objective is Objective.COST:  # one without a price costs as much as the dearest of all
                changed = dict(conditions)
            others = {each.deployment: each for each in candidates(changed, standings, race, terms)}
            made = [others.get(each.deployment, each) for each in known.lineup.candidates]
            lineup = _lined_up(made, terms, standings, known.lineup)
        else:
            known.used_at_s = now_s
            known.is_used = True
            self._known[key] = known
            return known.lineup
        if len(self._known) >= LINEUPS_KEPT / 2:
            self._known, self._older = {}, self._known
        self._known[key] = _Known(kind, standings, asked, conditions, lineup, now_s, is_used=known is not None)
        return lineup

    def warm(
        self,
        model: str,
        standings_of: Callable[[str, PromptClass, int | None], Standings],
        conditions_of: Callable[[Iterable[str], float], Conditions],
        now_s: float,
    ) -> Iterator[None]:
        """Recompute the recently used lineups of a model from its new standings, one by one; drop the others.

        Those used by a single call are dropped too, for example if all deadlines differ.
        """
        warmed = 0
        for key, known in [(key, known) for key, known in self._known.items() if key[0] == model]:
            if not known.is_used or now_s - known.used_at_s > LINEUPS_WARM_S or warmed >= LINEUPS_WARMED:
                del self._known[key]
                continue
            warmed += 1
            race, terms = known.asked
            standings = standings_of(model, known.kind[1], terms.prompt_tokens)
            conditions = conditions_of(known.conditions, now_s)
            lineup = _lined_up(candidates(conditions, standings, race, terms), terms, standings)
            yield
            for _ in lineup.made_ready(known.lineup):
                yield
            self._known[key] = _Known(
                known.kind, standings, known.asked, conditions, lineup, known.used_at_s, is_used=True
            )

    def keep(self, models: set[str]) -> None:
        """Forget all other models."""
        self._known = {key: known for key, known in self._known.items() if key[0] in models}
        self._older = {key: known for key, known in self._older.items() if key[0] in models}


def _lined_up(
    candidates: Sequence[Candidate], terms: Terms, standings: Standings, before: Lineup | None = None
) -> Lineup:
    canaries = [each for each in candidates if each.canary] if terms.canaries else ()
    return line_up(candidates, canaries, standings, before)


class _Known(msgspec.Struct):
    kind: tuple[str, PromptClass, int]
    standings: Standings
    asked: Asked
    conditions: Conditions
    lineup: Lineup
    used_at_s: float
    is_used: bool = False  # again, after the call it was computed for

    def fits(self, standings: Standings, race: RaceSettings, terms: Terms) -> bool:
        """Whether it is still valid, apart from changed conditions."""
        before_race, before = self.asked
        return (
            self.standings is standings
            and before_race.min_tok_s == race.min_tok_s
            and expected_tokens(standings, before) == expected_tokens(standings, terms)
            and before.weights == terms.weights
            and before.canaries == terms.canaries
            and (before.prices is terms.prices or before.prices == terms.prices)
            and before.flawed == terms.flawed
        )


def _headroom_weight(candidate: Candidate) -> float:
    headroom = candidate.condition.headroom
    return 1.0 if headroom >= HEADROOM_LOW else max(HEADROOM_WEIGHT_MIN, headroom / HEADROOM_LOW)


def _last_resort(candidate: Candidate) -> tuple[object, ...]:
    return candidate.canary > 0, *preference(candidate)


preference = attrgetter("tier", "rank_usd", "score_s")

_HEALTHY = frozenset({State.OK})
_TRIPPED = frozenset({State.OPEN, State.HALF_OPEN})
