"""Prices of tokens, and the cost of a call."""

import msgspec


class Price(msgspec.Struct, frozen=True):
    """US dollars per token."""

    input_usd: float
    output_usd: float
    cached_input_usd: float | None = None  # read from the prompt cache; None: unknown, input_usd is used
    cache_write_usd: float | None = None  # written to the prompt cache; None: input_usd
    reasoning_usd: float | None = None  # None: output_usd


def cost_usd(
    price: Price | None,
    prompt_tokens: int | None,
    completion_tokens: int | None,
    *,
    cached_tokens: int | None = None,
    cache_write_tokens: int | None = None,
    reasoning_tokens: int | None = None,
) -> float | None:
    """Return the cost in US dollars; None if the price, the prompt tokens or the completion tokens are unknown.

    ``cached_tokens`` and ``cache_write_tokens`` are parts of ``prompt_tokens``, ``reasoning_tokens`` of
    ``completion_tokens``, as in OpenAI's counts. A part that is larger than the whole is reduced to that.
    """
    if price is None or prompt_tokens is None or completion_tokens is None:
        return None
    usd = prompt_tokens * price.input_usd + completion_tokens * price.output_usd
    cached = 0
    if cached_tokens and price.cached_input_usd is not None:
        cached = min(cached_tokens, prompt_tokens)
        usd += cached * (price.cached_input_usd - price.input_usd)
    if cache_write_tokens and price.cache_write_usd is not None:
        written = min(cache_write_tokens, prompt_tokens - cached)
        usd += written * (price.cache_write_usd - price.input_usd)
    if reasoning_tokens and price.reasoning_usd is not None:
        usd += min(reasoning_tokens, completion_tokens) * (price.reasoning_usd - price.output_usd)
    return usd


def cache_saved_usd(price: Price | None, prompt_tokens: int | None, cached_tokens: int | None) -> float | None:
    """Return how much reading ``cached_tokens`` from the prompt cache saved, in US dollars; None if unknown.

    The cost of writing them to the cache is not subtracted: another call paid it.
    """
    if price is None or price.cached_input_usd is None or cached_tokens is None:
        return None
    cached = cached_tokens if prompt_tokens is None else min(cached_tokens, prompt_tokens)
    return cached * (price.input_usd - price.cached_input_usd)
