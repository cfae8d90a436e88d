"""The cost of a call's attempts, as far as it can be known: losers are billed to the operator alone.

- A winner is priced by the usage that its provider reports.
- A loser is cut before its provider reports usage, but was sent the same prompt. The winner's provider says how long
  the prompt is, if that count is near our own estimate. The loser's ``cost_usd`` is the cost of this prompt and of the
  received part of the answer; or, if the vendor is known to bill whole answers, of an answer as long as the winner's.
- ``cost_low_usd`` and ``cost_high_usd`` are the bounds.
- An attempt that failed before its first token is free. The cost of an attempt without a known price is None.
- A sum is None only if all parts are None. The upper bound of a sum is None if the upper bound of one part is None.

For example, two attempts are sent 1,000 tokens at $1 a million, and the winner answers with 100 at $4. The winner costs
$0.0014. The loser is cut after 10 tokens: $0.00104, or $0.0014 at a vendor that bills whole answers.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil, inf
from typing import Any

import msgspec

from gateway.core.attempts import AttemptRecord, Outcome, Role, TokensSource, Unit
from gateway.fleet import Deployment
from gateway.racing.measurement import estimated_tokens
from gateway.racing.plausibility import LONGEST_TOKENS, MOST_TOKENS
from gateway.racing.services import ServedTiers
from gateway.racing.validation import LIMITS, NOTHING_ASKED, RequestParameters
from providers import (
    OFF_PEAK,
    STANDARD,
    Capabilities,
    Cost,
    Price,
    cache_saved_usd,
    cost,
    cost_usd,
    dearest_unasked,
    is_bought,
    is_off_peak,
    kinds,
    least_and_most,
    possible,
    tier_asked_by,
)

# The bounds of a loser that was cut before its provider reported usage.
#
# The lower bound: the prompt at the lowest price (the cache's), and the received part of the answer. A loser that was
# never accepted, or whose answer had not begun, may have cost nothing.
# The upper bound: the prompt at the highest price, and what may have been generated but not received. If the vendor
# stops at a disconnect, that is one chunk; else, or if the model may have thought unseen, an answer as long as request
# or model allow. Limits do not count unseen thoughts.

UNSEEN_TOKENS = 32  # maximum generated before the server notices a disconnect: one large chunk
LONGER = 4  # a loser's answer may be this many times the winner's, if neither request nor model sets a limit
ANSWER_TOKENS = 4096  # the maximum without limit and without winner
MISCOUNT = 2.0  # factor by which our own estimate of tokens may be wrong, either way
NEAR = 1.6  # the winner's count of the prompt is taken if it differs from our estimate by at most this factor
TEMPLATE_TOKENS = 64  # and what a chat template may add
RUNS_ON_S = 3600.0  # the time for which an answer that was cut may be generated and billed at most
FEW_TOKENS = 8  # for short answers the average size of a token is unreliable: this many tokens may be missing
_REFUSED = kinds(lambda facts: not facts.is_billed)  # errors that came before anything was generated


class Bounds(msgspec.Struct, frozen=True):
    """The lower and the upper bound of a cost, US dollars."""

    low_usd: float
    high_usd: float | None  # None: a price is unknown
    counted_usd: float = 0.0  # what limits count: the known part of the upper bound, if nothing was thought unseen


class SentPrompt(msgspec.Struct, frozen=True):
    """The estimated tokens, with bounds, of a prompt that was sent to a provider which reported no count."""

    tokens: int
    low_tokens: float
    high_tokens: float

    def beside(self, delivered: int) -> "SentPrompt":
        """Return the prompt with ``delivered`` tokens more."""
        return SentPrompt(self.tokens + delivered, self.low_tokens + delivered, self.high_tokens + delivered)


class GeneratedTokens(msgspec.Struct, frozen=True):
    """The minimum and maximum number of answer tokens that the provider generated."""

    low_tokens: int
    high_tokens: int


_NOTHING = Bounds(0.0, 0.0)
_NO_TOKENS = GeneratedTokens(0, 0)


def generated(
    record: AttemptRecord, deployment: Deployment, *, winner: AttemptRecord | None, asked: RequestParameters
) -> GeneratedTokens:
    """Return the bounds of the length of one attempt's answer, received or not."""
    if _is_refused(record):
        return _NO_TOKENS
    n_seen = record.completion_tokens or 0
    is_counted = record.tokens_source is TokensSource.REPORTED and n_seen > 0
    if is_counted and _is_whole(record):
        return GeneratedTokens(n_seen, n_seen)
    usual = _most_tokens(record, deployment, winner, asked)
    most = min(_LARGEST, ceil(_most_with_thoughts(usual, record, deployment, asked)))
    return GeneratedTokens(n_seen if is_counted else int(max(0, n_seen - FEW_TOKENS) / MISCOUNT), most)


def bounds(
    record: AttemptRecord,
    deployment: Deployment,
    sent: SentPrompt,
    *,
    price: Price,
    winner: AttemptRecord | None,
    asked: RequestParameters,
) -> Bounds:
    """Return the bounds of one attempt, which was ``sent`` so many tokens."""
    if _is_refused(record):
        return _NOTHING
    least_in, most_in, least_out, most_out = _extremes(price)
    n_seen, again_usd = record.completion_tokens or 0, 0.0
    if record.sends is not None and record.sends > 1:  # the server may have started on an earlier sending
        again_usd = (record.sends - 1) * sent.high_tokens * most_in
    is_counted = record.tokens_source is TokensSource.REPORTED and n_seen > 0
    if is_counted and record.prompt_tokens is not None and _is_whole(record):
        low, is_known = _known(record, price, record.prompt_tokens, n_seen)
        high = low + again_usd
        is_untold = asked.searches_untold or deployment.searches
        if (is_untold or price.request_usd != 0.0) and not any(
            unit.startswith("web_search") for unit in record.other_units or ()
        ):
            high += price.request_usd or 0.0
            is_known = is_known and price.request_usd is not None and not is_untold
        return Bounds(low, high if is_known else None, high)
    is_known = not price.unknown
    if record.cached_tokens is None:
        low, high = sent.low_tokens * least_in, sent.high_tokens * most_in
    else:
        low, has_all = _known(record, price, sent.tokens, 0)
        high, is_known = low, is_known and has_all
    high += again_usd
    if is_counted:
        answer = cost_usd(price, 0, n_seen, reasoning_tokens=record.reasoning_tokens) or 0.0
        if _is_whole(record):
            return Bounds(low + answer, high + answer if is_known else None, high + answer)
        low += answer  # some vendors report usage with every event: this report may not be the final one
    else:
        low += max(0, n_seen - FEW_TOKENS) / MISCOUNT * least_out
    usual = _most_tokens(record, deployment, winner, asked)
    unseen_usd = (_most_with_thoughts(usual, record, deployment, asked) - usual) * most_out
    high += usual * most_out
    is_maybe_free = not n_seen and (record.outcome.is_error or _is_unheard(record))
    is_known = is_known and not (asked.searches or deployment.searches) and price.request_usd is not None
    high += price.request_usd or 0.0
    return Bounds(0.0 if is_maybe_free else low, high + unseen_usd if is_known else None, high)


_extremes = lru_cache(maxsize=256)(least_and_most)


def _is_whole(record: AttemptRecord) -> bool:
    return record.outcome is Outcome.WON or record.finish_reason is not None


def _known(record: AttemptRecord, price: Price, prompt_tokens: int, completion_tokens: int) -> tuple[float, bool]:
    """Return the known part of the cost of a counted attempt, US dollars, and whether it is the whole cost."""
    total = cost(
        price,
        prompt_tokens,
        completion_tokens,
        cached_tokens=record.cached_tokens,
        cache_write_tokens=record.cache_write_tokens,
        reasoning_tokens=record.reasoning_tokens,
        units=record.other_units,
    )
    return total.known_usd, not total.unknown


@lru_cache(maxsize=256)
def per_million(price: Price) -> dict[str, float]:
    """Return ``price`` in the form in which it is stored with a cost: US dollars per million tokens, by kind."""
    each = {
        "input": price.input_usd,
        "output": price.output_usd,
        "cached_input": price.cached_input_usd,
        "cache_write": price.cache_write_usd,
        "reasoning": price.reasoning_usd,
    }
    return {
        kind: round(usd * 1_000_000, 9) for kind, usd in each.items() if usd is not None and kind not in price.unknown
    }


def is_unsent(record: AttemptRecord) -> bool:
    """Whether the request was never written to a connection."""
    return record.sends == 0 and record.headers_ms is None


def _is_refused(record: AttemptRecord) -> bool:
    """Whether nothing was generated, as the request was refused or not sent."""
    return (record.error_kind in _REFUSED and not record.completion_tokens) or is_unsent(record)


def _is_unheard(record: AttemptRecord) -> bool:
    """Whether not even the provider's headers were received."""
    return record.outcome is not Outcome.WON and record.headers_ms is None


def _most_tokens(
    record: AttemptRecord, deployment: Deployment, winner: AttemptRecord | None, asked: RequestParameters
) -> float:
    """Return the maximum of answer tokens that may be billed without a report, if none were thought unseen."""
    n_seen = (record.completion_tokens or 0) * MISCOUNT
    if record.is_begun:
        return most_answer_tokens(asked.max_tokens, deployment.capabilities) * asked.answers
    if record.outcome is Outcome.WON:
        return n_seen
    thought = 0 if winner is None or n_seen else winner.reasoning_tokens or 0  # not streamed, before the first token
    if deployment.bills_after_disconnect is False:
        return n_seen + UNSEEN_TOKENS + thought
    # Some clients send the largest number they know to say that there is no limit.
    longest = min(asked.max_tokens or inf, deployment.capabilities.max_output_tokens or inf)
    if longest <= MOST_TOKENS:
        return max(n_seen, min(MOST_TOKENS, longest * asked.answers))
    answered = 0 if winner is None else answer_tokens(winner)
    return max(n_seen + UNSEEN_TOKENS, LONGER * answered if answered else ANSWER_TOKENS * asked.answers)


def _most_with_thoughts(usual: float, record: AttemptRecord, deployment: Deployment, asked: RequestParameters) -> float:
    """Return the maximum for a model that may have thought unseen: the limit of its answer, if that is more.

    Nothing that was received says how long the model thought: only the limit, or the model itself, ends it.
    """
    is_told = record.tokens_source is TokensSource.REPORTED and _is_whole(record)
    if is_told or deployment.capabilities.reasoning is False or not asked.writes:
        return usual
    own = deployment.extra_body  # the operator's own fields, which are sent in place of the client's
    max_tokens = asked.max_tokens if not own or LIMITS.isdisjoint(own) else None
    return max(usual, most_answer_tokens(max_tokens, deployment.capabilities) * asked.answers)


def tier_wanted(deployment: Deployment, asked: str | None) -> str | None:
    """Return the tier that a request to a deployment names: the deployment's, else the one the client ``asked`` for."""
    own = deployment.extra_body.get("service_tier")
    return asked if own is None else tier_asked_by(msgspec.json.decode(own))


def most_per_token(price: Price, tier: str | None, prompt_tokens: int) -> tuple[float, float]:
    """Return the highest prices of a token of the prompt and of the answer, for about so many ``prompt_tokens``."""
    if price.unknown:
        dearest, (_, most_in, _, most_out) = dict(price.dearest), _extremes(price)
        return max(most_in, dearest.get("input", 0.0)), max(most_out, dearest.get("output", 0.0))
    if not price.cards:
        _, most_in, _, most_out = _extremes(price)
        return most_in, most_out
    tiers = (STANDARD, tier or STANDARD)
    each = [_extremes(one or price.dearest_card) for one in possible(price, tiers, prompt_tokens, prompt_tokens)]
    return max(most_in for _, most_in, _, _ in each), max(most_out for _, _, _, most_out in each)


def answer_tokens(winner: AttemptRecord) -> int:
    """Return how long the winner's answer is, as a measure of a loser's: as reported, unless far more than came.

    An implausible count is replaced by our estimate: 900 tokens for an answer of 40 characters. Few texts have more
    tokens than characters; reasoning may be counted without having come as text.
    """
    stated, chars = winner.completion_tokens or 0, winner.chars
    unseen = winner.reasoning_tokens or 0
    if chars is None or stated - unseen <= chars + TEMPLATE_TOKENS:
        return stated
    return estimated_tokens(chars) + unseen


def most_answer_tokens(max_tokens: int | None, capabilities: Capabilities) -> int:
    """Return how long an answer, its reasoning included, may be for a request with ``max_tokens``.

    Without ``max_tokens``: the model's longest answer.
    """
    longest = capabilities.max_output_tokens or min(LONGEST_TOKENS, capabilities.context_tokens or LONGEST_TOKENS)
    if max_tokens is None:
        return longest
    return min(max_tokens, capabilities.max_output_tokens or MOST_TOKENS)


# The roles of attempts that a call without racing would not have.
BESIDE = frozenset({Role.RACE, Role.HEDGE, Role.FALLBACK, Role.EXPLORE, Role.PROBE})


class Sum(msgspec.Struct, frozen=True):
    """The cost of several attempts: best estimate and bounds. US dollars; None if no price is known."""

    usd: float | None
    low_usd: float | None
    high_usd: float | None


_FREE = Sum(0.0, 0.0, 0.0)  # of no attempts


class Bill(msgspec.Struct, frozen=True):
    """The attempts with their costs, and the sums of those that the operator pays for."""

    attempts: tuple[AttemptRecord, ...]
    total: Sum
    duplicate: Sum  # added by racing
    abandoned: Sum  # cut because the client disconnected
    cache_saved_usd: float | None  # the winner's


def settle(
    attempts: Sequence[AttemptRecord],
    winner: AttemptRecord | None,
    deployments: Mapping[str, Deployment],
    estimated_prompt_tokens: int,
    asked: RequestParameters = NOTHING_ASKED,
    *,
    is_text: bool = True,
    seen: ServedTiers | None = None,
) -> Bill:
    """Return the bill of one call. The estimate is used unless the winner's provider counted the prompt, near it.

    An estimate of 0 means that the input is not text. ``is_text``: all of the prompt is text in the body, else the
    estimate says nothing about the count. ``asked``: what the request says of answers, such as ``max_tokens``;
    ``seen``: the tiers that answers named.
    """
    reported = winner.prompt_tokens if winner is not None else None
    if reported is not None and winner is not None and winner.continues is not None:
        reported = max(0, reported - _given(winner, attempts))
    is_counted = winner is not None and winner.tokens_source is TokensSource.REPORTED
    is_judged = is_text and winner is not None and not deployments[winner.deployment].extra_body
    prompt = _prompt(reported, estimated_prompt_tokens, is_counted=is_counted, is_judged=is_judged)
    winner_id = winner.id if winner is not None else None
    priced: list[AttemptRecord] = []
    own: list[AttemptRecord] = []  # the attempts that the operator pays for
    added: list[AttemptRecord] = []
    abandoned: list[AttemptRecord] = []
    cache_saved_usd: float | None = None
    for one in attempts:  # a loop: each comprehension is a call
        of = deployments[one.deployment]
        plausible_record = one if one.tokens_source is not TokensSource.IMPLAUSIBLE else _possible(one, of, asked)
        record = _priced(plausible_record, of, _sent(one, prompt, attempts), winner, asked, seen)
        if plausible_record is not one:
            record = msgspec.structs.replace(
                record, completion_tokens=one.completion_tokens, reasoning_tokens=one.reasoning_tokens
            )
        if record.stated_usd is not None:
            record = _as_stated(record, of)
        priced.append(record)
        if record.learnt_as is not None:
            continue
        own.append(record)
        if record.id == winner_id:
            cache_saved_usd = record.cache_saved_usd
        elif _is_added(record, winner):
            added.append(record)
        if record.outcome is Outcome.CLIENT_GONE:
            abandoned.append(record)
    return Bill(
        tuple(priced),
        _sum(own),
        _sum(added) if added else _FREE,
        _sum(abandoned) if abandoned else _FREE,
        cache_saved_usd,
    )


def _prompt(reported: int | None, estimate: int, *, is_counted: bool, is_judged: bool) -> SentPrompt | None:
    """Return the tokens of the prompt; None if nothing is known of the prompt.

    ``reported``: by the winner's provider, or taken from the estimate before. A count that is far from the ``estimate``
    says nothing about what other providers count: the estimate is used, and the count only widens the bounds.
    """
    if reported is None:
        return SentPrompt(estimate, estimate / MISCOUNT, estimate * MISCOUNT) if estimate else None
    is_near = estimate / NEAR - TEMPLATE_TOKENS <= reported <= estimate * NEAR + TEMPLATE_TOKENS
    if is_judged and estimate and not is_near:
        return SentPrompt(estimate, min(estimate / MISCOUNT, reported), estimate * MISCOUNT)
    off = 1.0 if is_counted else MISCOUNT
    return SentPrompt(reported, reported / off, reported * off)


def _possible(record: AttemptRecord, deployment: Deployment, asked: RequestParameters) -> AttemptRecord:
    """Return ``record`` with an answer no longer than was reserved for: a wrong count must spend no more."""
    most = most_answer_tokens(asked.max_tokens, deployment.capabilities) * asked.answers
    completion, reasoning = record.completion_tokens, record.reasoning_tokens
    return msgspec.structs.replace(
        record,
        completion_tokens=None if completion is None else min(completion, most),
        reasoning_tokens=None if reasoning is None else min(reasoning, most),
    )


def _sent(record: AttemptRecord, prompt: SentPrompt | None, attempts: Sequence[AttemptRecord]) -> SentPrompt | None:
    """Return the tokens sent to an attempt: its own count, or those of the prompt and of the text to continue."""
    if (own := record.prompt_tokens) is not None:
        off = MISCOUNT if record.tokens_source is TokensSource.IMPLAUSIBLE else 1.0
        return SentPrompt(own, own / off, own * off)
    if prompt is None or record.continues is None:
        return prompt
    return prompt.beside(_given(record, attempts))


def _given(record: AttemptRecord, attempts: Sequence[AttemptRecord]) -> int:
    """Return the tokens of the delivered answer that an attempt was sent to continue."""
    parts, tokens = {one.id: one for one in attempts}, 0
    while record.continues is not None and record.continues in parts:
        record = parts[record.continues]
        tokens += record.completion_tokens or 0
    return tokens


def _is_added(loser: AttemptRecord, winner: AttemptRecord | None) -> bool:
    """Whether racing added ``loser``: an extra attempt, or a primary that an extra attempt overtook."""
    overtaken = loser.outcome.was_cancelled_by_race
    if (loser.counts_as or loser.role) in BESIDE:
        return True
    return overtaken and winner is not None and (winner.counts_as or winner.role) in BESIDE


def _priced(  # noqa: PLR0917 - of each attempt
    record: AttemptRecord,
    deployment: Deployment,
    sent: SentPrompt | None,
    winner: AttemptRecord | None,
    asked: RequestParameters,
    seen: ServedTiers | None,
) -> AttemptRecord:
    cut = record.outcome.was_cut and not _is_fully_reported(record)
    changes: dict[str, Any] = {}
    price = deployment.price or deployment.listed
    sent_tokens = 0 if is_unsent(record) else record.prompt_tokens
    if sent_tokens is None and sent is not None and (record.outcome.was_sent or record.completion_tokens):
        # The same prompt, counted by another tokenizer, or estimated.
        sent_tokens = sent.tokens
        changes = {"prompt_tokens": sent_tokens, "tokens_source": record.tokens_source or TokensSource.ESTIMATED}
    if record.outcome.was_cancelled_by_race:
        wasted = generated(record, deployment, winner=winner, asked=asked)
        changes |= {"wasted_low_tokens": wasted.low_tokens, "wasted_high_tokens": wasted.high_tokens}
    if price is not None and sent is not None:
        if price.cards or record.tier or (seen is not None and (record.learnt_as or record.deployment) in seen.named):
            applied, bound = _by_tier(record, deployment, price, sent, winner, asked, seen)
        else:
            applied, bound = price, bounds(record, deployment, sent, price=price, winner=winner, asked=asked)
        changes |= {"cost_low_usd": bound.low_usd, "cost_high_usd": bound.high_usd, "usual_high_usd": bound.counted_usd}
        if applied is not None and (stated := per_million(applied)):
            changes["price"] = stated
        if sent_tokens is not None and not record.is_begun:
            changes |= _estimate(record, deployment, price, applied, bound, sent_tokens, winner, cut=cut)
        if bound.high_usd is None and (record.is_begun or record.outcome is Outcome.CLIENT_GONE):
            changes["limit_usd"] = max(changes.get("limit_usd", 0.0), bound.counted_usd)
    elif record.other_units or record.error_kind is not None or record.sends == 0:
        changes |= _without_tokens(record, price)
    if record.tier or record.other_units or asked.tier is not None or "service_tier" in deployment.extra_body:
        changes |= _beside(record, deployment, price, sent, asked)
    return msgspec.structs.replace(record, **changes) if changes else record


def _as_stated(record: AttemptRecord, deployment: Deployment) -> AttemptRecord:
    """Return a ``record`` with the cost that the answer states, if the deployment states costs (OpenRouter).

    If the request was sent twice, as the first connection was lost, the upper bound has the first sending, too.
    """
    usd, low_usd, high_usd = record.stated_usd, record.cost_low_usd, record.cost_high_usd
    if usd is None or not deployment.states_cost or not _is_whole(record):
        return record
    if record.sends is None or record.sends <= 1:
        high_usd = usd
    elif high_usd is not None:
        high_usd += usd - (low_usd or 0.0)
    units_usd = record.units_cost_usd
    return msgspec.structs.replace(
        record,
        cost_low_usd=usd,
        cost_usd=usd,
        cost_high_usd=high_usd,
        cost_is_lower_bound=False,
        units_cost_usd=None if units_usd is None else min(units_usd, usd),
        limit_usd=None,
        usual_high_usd=None,
    )


def _without_tokens(record: AttemptRecord, price: Price | None) -> dict[str, Any]:
    """Return the cost of an attempt whose price or tokens are unknown: 0 if refused, else that of its other units."""
    if _is_refused(record):
        return {"cost_low_usd": 0.0, "cost_high_usd": 0.0}
    if price is None or not record.other_units:
        return {}
    if (units_cost := cost(price, 0, 0, units=record.other_units)).unknown:
        return {"cost_low_usd": units_cost.known_usd, "limit_usd": _counted_usd(price, units_cost)}
    return dict.fromkeys(("cost_low_usd", "cost_usd", "cost_high_usd"), units_cost.known_usd)


_LARGEST = 2**31 - 1  # that an integer column can hold


def _beside(
    record: AttemptRecord,
    deployment: Deployment,
    price: Price | None,
    sent: SentPrompt | None,
    asked: RequestParameters,
) -> dict[str, Any]:
    """Return the fields of what ordinary calls do not have: a tier of service, and units besides tokens of text."""
    tier, changes = tier_wanted(deployment, asked.tier), dict[str, Any]()
    if tier is not None:
        changes["tier_asked"] = tier or "standard"
    if record.tier or (record.tier is not None and tier is not None):
        changes["tier_served"] = record.tier or "standard"
    if record.other_units:
        served = record.tier if record.tier is not None else tier or STANDARD
        applied = None if price is None else price.at(served, 0 if sent is None else sent.tokens)
        if price is not None and is_bought(deployment.vendor, served, price):
            applied = None
        units = {
            unit: Unit(
                min(count if applied is None else applied.billed(unit, count), _LARGEST),
                None if applied is None else applied.usd(unit),
            )
            for unit, count in record.other_units.items()
        }
        usd_of_units = [each.n * each.usd for each in units.values() if each.usd is not None]
        changes |= {"units": units, "units_cost_usd": sum(usd_of_units) if usd_of_units else None}
    return changes


def _estimate(  # noqa: PLR0917 - the parts of one sum
    record: AttemptRecord,
    deployment: Deployment,
    price: Price,
    applied: Price | None,
    bound: Bounds,
    sent_tokens: int,
    winner: AttemptRecord | None,
    *,
    cut: bool,
) -> dict[str, Any]:
    """Return the fields of the likeliest cost, at the price that is ``applied``; without it, what a limit counts."""
    runs_on = cut and deployment.bills_after_disconnect is True
    stops = cut and deployment.bills_after_disconnect is False
    answered = winner if runs_on and winner is not None and winner.completion_tokens else record
    likeliest = cost(
        applied or price.dearest_card,
        sent_tokens,
        answer_tokens(answered) if runs_on else answered.completion_tokens or 0,
        cached_tokens=record.cached_tokens,
        cache_write_tokens=record.cache_write_tokens,
        reasoning_tokens=answered.reasoning_tokens,
        units=record.other_units,
    )
    usd = likeliest.known_usd
    if applied is None or likeliest.unknown:
        return {"limit_usd": _counted_usd(price, likeliest)}
    if runs_on and bound.high_usd is not None:
        usd = min(usd, bound.counted_usd)  # the winner's answer may be longer than this attempt's limit
    is_least = usd <= bound.low_usd and (bound.high_usd is None or bound.low_usd < bound.high_usd)
    changes: dict[str, Any] = {
        "cost_usd": usd,
        "cost_is_lower_bound": record.outcome is not Outcome.WON and not stops and is_least,
    }
    if record.cached_tokens is not None:
        changes["cache_saved_usd"] = cache_saved_usd(applied, sent_tokens, record.cached_tokens)
    return changes


def _counted_usd(price: Price, total: Cost) -> float:
    """Return what limits count: what is known, and the rest at the dearest price of its unit: ``Price.dearest``."""
    dearest = dict(price.dearest)
    return total.known_usd + sum(dearest.get(unit, 0.0) * count for unit, count in total.unknown.items())


def _by_tier(  # noqa: PLR0917
    record: AttemptRecord,
    deployment: Deployment,
    price: Price,
    sent: SentPrompt,
    winner: AttemptRecord | None,
    asked: RequestParameters,
    seen: ServedTiers | None,
) -> tuple[Price | None, Bounds]:
    """Return the price that most likely applies (None: unknown), and the bounds of the cost.

    The bounds span the tiers that may have served the attempt, and the sizes that the prompt may have.
    """
    tiers = _tiers(record, deployment, tier_wanted(deployment, asked.tier), price, sent, seen)
    ends_s = (record.last_token_ms or 0.0) / 1000 + 60 if _is_whole(record) else RUNS_ON_S
    if price.off_peak and is_off_peak(price, record.started_at, ends_s):
        tiers = [OFF_PEAK if tier == STANDARD else tier for tier in tiers]
    applied = price.at(tiers[-1], sent.tokens)
    low_usd, high_usd, counted_usd, is_known = inf, 0.0, 0.0, True
    if bought := [tier for tier in tiers if tier and is_bought(deployment.vendor, tier, price)]:
        applied = None if tiers[-1] in bought else applied
        tiers = [tier for tier in tiers if tier not in bought]
        low_usd, is_known = 0.0, _is_refused(record)
    for one in possible(price, tiers, sent.low_tokens, sent.high_tokens):
        if one is None:
            low_usd, is_known = 0.0, is_known and _is_refused(record)
            continue
        bound = bounds(record, deployment, sent, price=one, winner=winner, asked=asked)
        low_usd, counted_usd = min(low_usd, bound.low_usd), max(counted_usd, bound.counted_usd)
        high_usd, is_known = max(high_usd, bound.high_usd or 0.0), is_known and bound.high_usd is not None
    return applied, Bounds(low_usd, high_usd if is_known else None, counted_usd)


def _tiers(  # noqa: PLR0917 - of each attempt
    record: AttemptRecord,
    deployment: Deployment,
    asked: str | None,
    price: Price,
    sent: SentPrompt,
    seen: ServedTiers | None,
) -> Sequence[str]:
    """Return the tiers that may have served an attempt, the likeliest at the end.

    The likeliest is the tier that the answer names; else the ``asked`` tier, or the standard one if the vendor had no
    room in that. If no tier was asked for: the standard one, and the tiers that this deployment's answers to other
    requests without a tier named in the last day; without such answers, the dearest tier that the vendor may choose.
    """
    if record.tier is not None:
        if asked is None and seen is not None:
            seen.saw(record.learnt_as or record.deployment, record.tier)
        return (record.tier,)
    if asked is not None:
        return (STANDARD, asked)
    if seen is not None and (named := seen.of(record.learnt_as or record.deployment)):
        return (STANDARD, *named)
    return (dearest_unasked(deployment.vendor, price, sent.high_tokens), STANDARD)


def _is_fully_reported(record: AttemptRecord) -> bool:
    """Whether the provider reported the usage of the complete answer of an attempt that did not win."""
    is_whole = record.finish_reason is not None and bool(record.completion_tokens)
    return is_whole and record.tokens_source is TokensSource.REPORTED


def _sum(records: Sequence[AttemptRecord]) -> Sum:
    """Return the cost of all ``records`` together; 0 for none."""
    if not records:
        return _FREE
    usd = low_usd = high_usd = None
    is_bounded = True
    for one in records:
        if one.cost_usd is not None:
            usd = one.cost_usd + (usd or 0.0)
        if one.cost_low_usd is not None:
            low_usd = one.cost_low_usd + (low_usd or 0.0)
        if one.cost_high_usd is not None:
            high_usd = one.cost_high_usd + (high_usd or 0.0)
        else:
            is_bounded = False
    return Sum(usd, low_usd, high_usd if is_bounded else None)
