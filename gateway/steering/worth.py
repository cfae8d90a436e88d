"""The value of further attempts: seconds saved and dollars spent, for each deployment and start time.

A file of its own, as the planner, the router and the explainer use it.
"""

from collections.abc import Iterator, Sequence
from math import inf

from gateway.core.attempts import AnswerKind, AttemptRecord, WinOn
from gateway.settings import RaceSettings
from gateway.steering.budget import hedged_at_s
from gateway.steering.candidates import Candidate, Lineup, Terms, Tier, expected_tokens
from gateway.steering.constants import (
    HEDGE_SHARE,
    KEPT_MEMORY,
    KEPT_PRIOR,
    KEPT_STEP,
    LEAST_AUDITS,
    MEAN_CAP_S,
    VALUED_STARTS,
    WORTH_SHARE,
)
from gateway.steering.counts import bucket, edge_s
from gateway.steering.estimates import LEAST_REMAINDER
from gateway.steering.plans import Offer
from gateway.steering.prediction import size_of, tokens_of
from providers import Price


def offers(
    lineup: Lineup, primary: Candidate, race: RaceSettings, terms: Terms, *, kept: float, is_long: bool
) -> Sequence[Offer] | None:
    """Return the attempts beside ``primary`` that would save time; None if no price is known.

    ``kept`` is the share of independent attempts' savings that remains
    (``ConfirmedShare.share``). A prompt that ``is_long`` is only hedged. Lineups are reused, so all prompts of a size
    have the same offers.
    """
    size = size_of(terms.prompt_tokens)
    losers = race.win_on, race.keep_rival, terms.answer_kind, terms.bills_losers
    assert lineup.standings is not None
    caches = _cached_parts(terms) if terms.cached else _NO_CACHES
    key = primary.deployment, kept, is_long, size, terms.holds, losers, expected_tokens(lineup.standings, terms), caches
    cached = lineup.cache.offers.get(key)
    if cached is None:
        prices = _prices((*lineup.ranked, primary), terms)  # a canary is not among the ranked
        if prices is None:
            return None
        new_offers = _Offers(
            lineup, primary, race, terms, kept=kept, prompt_tokens=tokens_of(size), prices=prices, caches=caches
        )
        curve = primary.estimate.curve
        starts = {come and curve.reached_at(come) for come in VALUED_STARTS if not is_long or come >= 1.0 - HEDGE_SHARE}
        cached = lineup.cache.offers[key] = tuple(new_offers.at(sorted(starts)))
    return cached


def may_race(racer: Candidate, primary: Candidate, race: RaceSettings) -> bool:
    """Whether ``racer`` may run beside ``primary``.

    Of a later tier only a deployment that is often late for a deadline may: it may still be first. A deployment below
    ``min_tok_s`` may not: its first token would win.
    """
    is_later = racer.tier > primary.tier
    if is_later and racer.tier is Tier.MISSES:
        return race.min_tok_s is None or not racer.estimate.slower_than(race.min_tok_s)
    return not is_later and racer.tier < Tier.FULL


def worth_s(lineup: Lineup, primary: Candidate, racer: Candidate, *, kept: float, holds: bool) -> float:
    """Return the seconds that a call should gain by ``racer`` from the start; kept with the lineup."""
    key = primary.deployment, racer.deployment, kept, holds
    cached_s = lineup.cache.worths_s.get(key)
    if cached_s is None:
        if holds:
            cached_s, _, _ = _saved_s(lineup, primary, racer, 0.0, kept=kept, holds=True)
        else:
            cached_s = kept * lineup.gain_s(primary, racer)
        lineup.cache.worths_s[key] = cached_s
    return cached_s


def floor_s(primary: Candidate, race: RaceSettings) -> float:
    """Return the seconds that an attempt from the start must gain: ``worth_ms``, or 1 % of the TTFT if that is more."""
    estimate = primary.estimate
    return max(race.worth_ms / 1000, WORTH_SHARE * estimate.mean.at(estimate.scale)) if race.worth_ms else -inf


def best(offers: Sequence[Offer], value_usd_per_s: float, budget: float) -> Offer | None:
    """Return the offer with the highest value minus cost; None if none is positive.

    So an attempt starts at once only if that is better than starting later, in fewer calls; the higher the value of a
    second, the earlier the start. The attempt starts in no more calls than the ``budget`` has attempts for: below one
    attempt per call a late start may be worth more, as the attempts go to the calls that need them.
    """
    chosen, most_usd = None, 0.0
    for each in offers:
        net_usd = min(each.starts, budget) * (value_usd_per_s * each.saved_s - each.usd)
        if net_usd > most_usd:
            chosen, most_usd = each, net_usd
    return chosen


class _Offers:
    """Finds the offers beside one primary."""

    def __init__(
        self,
        lineup: Lineup,
        primary: Candidate,
        race: RaceSettings,
        terms: Terms,
        *,
        kept: float,
        prompt_tokens: float,
        prices: dict[str, Price],
        caches: tuple[tuple[str, int], ...],
    ) -> None:
        assert lineup.standings is not None
        self._lineup, self._primary, self._race, self._terms, self._kept = lineup, primary, race, terms, kept
        self._prompt_tokens, self._prices, self._caches = prompt_tokens, prices, dict(caches)
        self._answer_tokens = expected_tokens(lineup.standings, terms)
        # With ``valid`` all attempts run until one answer is valid, and a held rival runs to its end.
        is_judged = race.win_on is WinOn.VALID and terms.answer_kind is not AnswerKind.PLAIN
        self._run_on = is_judged or (race.keep_rival and terms.holds)

    def at(self, starts: Sequence[float]) -> Iterator[Offer]:
        primary = self._primary
        for each in self._lineup.ranked:
            if each is primary or not may_race(each, primary, self._race):
                continue
            for come in starts:
                delay_s = hedged_at_s(primary.estimate.quantile_s(come)) if come else 0.0
                if delay_s == inf:
                    continue
                share = 1.0 - come
                saved_s, first, held_s = _saved_s(
                    self._lineup, primary, each, come, kept=self._kept, holds=self._terms.holds
                )
                if saved_s > 0 and share > _ROUNDING:
                    yield Offer(each.deployment, delay_s, share, saved_s, self._usd(each, first, held_s))

    def _usd(self, racer: Candidate, first: float, held_s: float) -> float:
        """Return the attempt's additional cost until one of the two is cut, in US dollars.

        The cost is the prompt's and, where the attempt wins, the difference of the two answers. The answer of the loser
        costs nothing, as it has no token yet, unless the vendor bills whole answers, or the loser was held back.
        """
        primary = self._primary
        mine, its = self._prices[racer.deployment], self._prices[primary.deployment]
        mine_usd, its_usd = (self._answer_tokens * price.output_usd for price in (mine, its))
        usd = self._prompt_usd(racer, mine)
        if self._run_on:
            return usd + mine_usd
        return (
            usd
            + first * (mine_usd - its_usd)
            + mine_usd * self._lost(racer, primary, 1.0 - first, held_s)
            + its_usd * self._lost(primary, racer, first, held_s)
        )

    def _prompt_usd(self, racer: Candidate, price: Price) -> float:
        """Return the cost of the prompt at ``racer``, including the write of a conversation that its cache lacks."""
        if not self._caches:
            return self._prompt_tokens * price.input_usd
        has = self._caches.get(racer.deployment, 0) / _CACHE_STEPS
        lacking_usd = max(price.input_usd, price.cache_write_usd or 0.0)
        cached_usd = price.input_usd if price.cached_input_usd is None else price.cached_input_usd
        return self._prompt_tokens * (has * cached_usd + (1.0 - has) * lacking_usd)

    def _lost(self, loser: Candidate, winner: Candidate, share: float, held_s: float) -> float:
        """Return the mean billed part of an answer of ``loser``, which loses this ``share`` of calls; 1: all of it."""
        if loser.deployment in self._terms.bills_losers:
            return share
        if held_s <= 0 or loser.after_s <= winner.after_s:
            return 0.0  # the loser is not held
        return min(share, held_s / max(held_s, self._answer_tokens / loser.estimate.decode_tps))


def _saved_s(
    lineup: Lineup, primary: Candidate, racer: Candidate, come: float, *, kept: float, holds: bool
) -> tuple[float, float, float]:
    """Return the seconds saved, the share of calls that ``racer`` wins, and how long a loser's answer is held.

    For a streamed answer the savings are those of the first token, minus the reader's loss by a slower answer; else
    of the whole answer, as a first token is then held back for an answer that ends sooner. With F and S the first
    tokens of the faster and the slower answer, and D the difference of the times after them, S is held for
    E[F - S; 0 < F - S < D] = E[min(F, S + D)] - E[min(F, S)] - D x P(S + D < F), and then lost. ``kept`` applies to
    first tokens only: further savings by a racer's faster answer are as certain as its speed.
    """
    estimate, condition, standings = racer.estimate, racer.condition, lineup.standings
    assert standings is not None
    slow = primary.estimate.scale * primary.condition.crowding
    factor = estimate.scale * condition.crowding / slow
    more_s = _in_steps((racer.after_s - primary.after_s) / slow) if holds else 0.0
    ended, alone_s = standings.beside_late(primary.deployment, racer.deployment, factor, come, more_s)
    if not holds:
        return lineup.gain_s(primary, racer, come=come, kept=kept), ended.first, 0.0
    sooner_s, sure_s, held_s = alone_s - ended.earlier_s, 0.0, 0.0
    if more_s:
        begun, token_s = standings.beside_late(primary.deployment, racer.deployment, factor, come)
        if more_s < 0:
            sure_s = sooner_s - (token_s - begun.earlier_s)
        slower_wins = ended.first if more_s > 0 else 1.0 - ended.first
        held_s = slow * max(0.0, ended.earlier_s - begun.earlier_s - abs(more_s) * slower_wins)
    saved_s = slow * (kept * (sooner_s - sure_s) + sure_s)
    return (1.0 - estimate.error_rate) * saved_s - condition.price_s, ended.first, held_s


def _cached_parts(terms: Terms) -> tuple[tuple[str, int], ...]:
    """Return the parts of the prompt that caches should have, in coarse steps, so that few offers are computed."""
    whole = max(1, terms.prompt_tokens)
    return tuple((name, round(_CACHE_STEPS * tokens / whole)) for name, tokens in sorted((terms.cached or {}).items()))


_NO_CACHES: tuple[tuple[str, int], ...] = ()
_CACHE_STEPS = 8


def _prices(ranked: Sequence[Candidate], terms: Terms) -> dict[str, Price] | None:
    """Return each deployment's price; without one, the most expensive known. None if none is known."""
    prices = terms.prices or {}
    dearest = max(prices.values(), key=_total_price, default=None)
    return None if dearest is None else {each.deployment: prices.get(each.deployment, dearest) for each in ranked}


def _total_price(price: Price) -> float:
    return price.input_usd + price.output_usd


def _in_steps(seconds: float) -> float:
    """Return ``seconds`` rounded to coarse steps, so that few different values are computed."""
    if abs(seconds) < _LEAST_S:
        return 0.0
    return edge_s(bucket(abs(seconds))) * (1.0 if seconds > 0 else -1.0)


# Dependence: a call that is slow at the primary is often slow everywhere, so that a second attempt saves less than an
# independent one would. Audited primaries show how much less: each was overtaken, and watched to its first token.


class ConfirmedShare:
    """The share of the predicted savings that audits have confirmed, for one model."""

    __slots__ = ("_audits", "_predicted_s", "_seen_s")

    def __init__(self) -> None:
        self._audits = 0
        self._seen_s = self._predicted_s = 0.0

    def learn(self, audited: AttemptRecord) -> None:
        """Learn from an audited primary that was overtaken; one that failed afterwards counts as nothing saved."""
        if audited.predicted_ms is None or audited.overtaken_at_ms is None:
            return
        since_ms = audited.overtaken_at_ms
        if audited.predicted_ms <= _PREDICTED * since_ms:
            return  # too little was known for a prediction
        seen_ms = since_ms if audited.outcome.failed else audited.token_ms or audited.censored_at_ms or since_ms
        self._audits += 1
        self._seen_s += max(0.0, min(MEAN_CAP_S, seen_ms / 1000) - since_ms / 1000)
        self._predicted_s += max(0.0, min(MEAN_CAP_S, audited.predicted_ms / 1000) - since_ms / 1000)
        if self._audits >= KEPT_MEMORY:
            self._audits //= 2
            self._seen_s, self._predicted_s = self._seen_s / 2, self._predicted_s / 2

    @property
    def share(self) -> float:
        """The ratio of both sums, shrunk to KEPT_PRIOR by 30 audits; in steps, and at most 1 (independent)."""
        share = self._seen_s / self._predicted_s if self._predicted_s > 0 else KEPT_PRIOR
        shrunk = (self._audits * share + LEAST_AUDITS * KEPT_PRIOR) / (self._audits + LEAST_AUDITS)
        return min(1.0, max(KEPT_STEP, round(shrunk / KEPT_STEP) * KEPT_STEP))


_PREDICTED = LEAST_REMAINDER + 1e-3  # times are rounded
_ROUNDING = 1e-3
_LEAST_S = 0.01
