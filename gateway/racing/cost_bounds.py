"""Lower and upper bounds of an attempt's cost, for attempts whose usage is not reported.

A loser that was cut before its provider reported usage cost at least its prompt, at the lowest price it may have had
(the cache's), and the part of its answer that was received. At most it cost its prompt at the highest price, and what
may have been generated but not received: one chunk if the vendor is known to stop at a disconnect, else an answer as
long as the request or the model allows. An attempt that failed before its first token, or was cut before the provider's
headers, may have cost nothing, as the request may not have been accepted. It cost nothing if it was refused or not
sent.
"""

from functools import lru_cache
from math import ceil

import msgspec

from gateway.attempt_records import AttemptRecord, Outcome, TokensSource
from gateway.fleet.deployment import Deployment
from providers.errors import ErrorKind
from providers.prices import Price, cost_usd

UNSEEN_TOKENS = 32  # maximum generated before the server notices a disconnect: one large chunk
LONGER = 4  # a loser's answer may be this many times the winner's, if neither request nor model sets a limit
ANSWER_TOKENS = 4096  # the maximum without limit and without winner
MISCOUNT = 2.0  # factor by which our own estimate of tokens may be wrong, either way
FEW_TOKENS = 8  # for short answers the average size of a token is unreliable: this many tokens may be missing
_REFUSED = frozenset(  # before anything was generated, if the request arrived at all
    {
        ErrorKind.CONNECT_ERROR,
        ErrorKind.CONNECT_TIMEOUT,
        ErrorKind.LOCAL_RESOURCES,
        ErrorKind.PROVIDER_AUTH,
        ErrorKind.NOT_FOUND,
        ErrorKind.NO_SUCH_API,
        ErrorKind.RATE_LIMITED,
        ErrorKind.BAD_REQUEST,
    }
)
_FAILED = frozenset({Outcome.FAILED, Outcome.TIMEOUT, Outcome.STALLED, Outcome.INTERRUPTED})


class Bounds(msgspec.Struct, frozen=True):
    """The lower and the upper bound of a cost, US dollars."""

    low_usd: float
    high_usd: float


class Generated(msgspec.Struct, frozen=True):
    """How many tokens of an answer its provider has generated, at least and at most."""

    low_tokens: int
    high_tokens: int


_NOTHING = Bounds(0.0, 0.0)
_NO_TOKENS = Generated(0, 0)


def generated(
    record: AttemptRecord, deployment: Deployment, *, winner: AttemptRecord | None, max_tokens: int | None
) -> Generated:
    """Return the bounds of the length of one attempt's answer, received or not."""
    if _is_refused(record):
        return _NO_TOKENS
    seen = record.completion_tokens or 0
    if record.tokens_source is TokensSource.REPORTED and seen:
        is_whole = record.outcome is Outcome.WON or record.finish_reason is not None
        return Generated(seen, seen if is_whole else ceil(_most_tokens(record, deployment, winner, max_tokens)))
    least = int(max(0, seen - FEW_TOKENS) / MISCOUNT)
    return Generated(least, ceil(_most_tokens(record, deployment, winner, max_tokens)))


def bounds(
    record: AttemptRecord,
    deployment: Deployment,
    prompt_tokens: int,
    *,
    price: Price,
    winner: AttemptRecord | None,
    max_tokens: int | None,
) -> Bounds:
    """Return the bounds of one attempt. ``prompt_tokens`` is its own count, another attempt's, or an estimate."""
    if _is_refused(record):
        return _NOTHING
    off = 1.0 if _counted(record) or (winner is not None and _counted(winner)) else MISCOUNT
    if record.cached_tokens is None:
        low = prompt_tokens / off * min(price.input_usd, price.cached_input_usd or price.input_usd)
        high = prompt_tokens * off * max(price.input_usd, price.cache_write_usd or 0.0)
    else:
        cached, written = record.cached_tokens, record.cache_write_tokens
        low = high = cost_usd(price, prompt_tokens, 0, cached_tokens=cached, cache_write_tokens=written) or 0.0
    if record.sends is not None and record.sends > 1:  # the server may have started on an earlier sending
        high += (record.sends - 1) * prompt_tokens * off * max(price.input_usd, price.cache_write_usd or 0.0)
    seen = record.completion_tokens or 0
    if record.tokens_source is TokensSource.REPORTED and seen:
        answer = cost_usd(price, 0, seen, reasoning_tokens=record.reasoning_tokens) or 0.0
        if record.outcome is Outcome.WON or record.finish_reason is not None:
            return Bounds(low + answer, high + answer)
        low += answer  # some report usage with every event: this may not be the final one
    else:
        low += max(0, seen - FEW_TOKENS) / MISCOUNT * min(price.output_usd, price.reasoning_usd or price.output_usd)
    high += _most_tokens(record, deployment, winner, max_tokens) * max(price.output_usd, price.reasoning_usd or 0.0)
    is_maybe_free = not seen and (record.outcome in _FAILED or _is_unheard(record))
    return Bounds(0.0 if is_maybe_free else low, high)


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
    return {kind: round(usd * 1_000_000, 9) for kind, usd in each.items() if usd is not None}


def is_unsent(record: AttemptRecord) -> bool:
    """Whether the request was never written to a connection."""
    return record.sends == 0 and record.headers_ms is None


def _is_refused(record: AttemptRecord) -> bool:
    """Whether nothing was generated, as the request was refused or not sent."""
    return (record.error_kind in _REFUSED and not record.completion_tokens) or is_unsent(record)


def _is_unheard(record: AttemptRecord) -> bool:
    """Whether not even the provider's headers were received."""
    return record.outcome is not Outcome.WON and record.headers_ms is None


def _counted(record: AttemptRecord) -> bool:
    return record.prompt_tokens is not None and record.tokens_source is TokensSource.REPORTED


def _most_tokens(
    record: AttemptRecord, deployment: Deployment, winner: AttemptRecord | None, max_tokens: int | None
) -> float:
    """Return the maximum of answer tokens that may be billed without having been reported."""
    seen = (record.completion_tokens or 0) * MISCOUNT
    if record.outcome is Outcome.WON:
        return seen
    thought = 0 if winner is None or seen else winner.reasoning_tokens or 0  # not streamed, before the first token
    if deployment.bills_after_disconnect is False:
        return seen + UNSEEN_TOKENS + thought
    limits = [limit for limit in (max_tokens, deployment.capabilities.max_output_tokens) if limit]
    if limits:
        return max(seen, min(limits))
    answered = 0 if winner is None else winner.completion_tokens or 0
    return max(seen + UNSEEN_TOKENS, LONGER * answered if answered else ANSWER_TOKENS)
