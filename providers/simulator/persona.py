"""The behaviour of simulated providers: latencies, speeds and failures; and the demo fleet of ``make run``."""

from collections.abc import Iterable
from enum import StrEnum
from math import exp, log
from random import Random
from typing import Any

import msgspec

CHAT_MODEL = "demo-chat"
EMBEDDING_MODEL = "demo-embed"


class Fate(StrEnum):
    """The outcome of a request."""

    ANSWER = "answer"
    REFUSED = "refused"  # a 503 before any header
    ERROR_FIRST = "error_first"  # 200, then an error as the first event
    BREAKS = "breaks"  # the connection drops in the middle of the answer


# Most failures come before the first byte; few in the middle of an answer, when no other provider can take over.
_FAILURES = {Fate.REFUSED: 0.65, Fate.ERROR_FIRST: 0.25, Fate.BREAKS: 0.10}


class RequestDraws(msgspec.Struct, frozen=True):
    """The random draws for one request."""

    fate: Fate
    ttft_s: float
    decode_tps: float


class Persona(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated provider. Spreads are sigmas of lognormal distributions; shares are of all requests.

    TTFT = (median x lognormal(sigma) + prefill) x, in the slow tail, lognormal(median ``tail_factor``, 0.5): the same
    model as in the simulations that tuned the steering policy (docs/policy.md#constants).
    """

    name: str
    ttft_median_s: float
    ttft_sigma: float = 0.3
    ttft_sigma_below: float | None = None  # of the half below the median; None: the same as above it
    tail_share: float = 0.0
    tail_factor: float = 6.0
    tail_sigma: float = 0.5
    prefill_s_per_1k_tokens: float = 0.03
    decode_tps: float = 100.0
    decode_sigma: float = 0.15  # from request to request
    gap_sigma: float = 0.25  # from token to token
    error_share: float = 0.0
    requests_per_window: int | None = None  # further ones get a 429
    window_s: float = 10.0
    role_first: bool = True  # headers and a chunk with the role alone precede the first token
    comment_every_s: float | None = None  # keep-alive comments until the first token
    input_usd_per_mtok: float = 0.0
    output_usd_per_mtok: float = 0.0

    def draw(self, random: Random, prompt_tokens: int) -> RequestDraws:
        """Draw the outcome of a request with a prompt of this length."""
        z = random.gauss(0.0, 1.0)
        below = self.ttft_sigma if self.ttft_sigma_below is None else self.ttft_sigma_below
        ttft_s = self.ttft_median_s * exp(z * (below if z < 0 else self.ttft_sigma))
        ttft_s += self.prefill_s_per_1k_tokens * prompt_tokens / 1000
        if random.random() < self.tail_share:
            ttft_s *= self.tail_factor * _spread(random, self.tail_sigma)
        fate = Fate.ANSWER
        if random.random() < self.error_share:
            (fate,) = random.choices(list(_FAILURES), list(_FAILURES.values()))
        return RequestDraws(fate, ttft_s, self.decode_tps * _spread(random, self.decode_sigma))

    def gap_s(self, random: Random, decode_tps: float) -> float:
        """Draw the time between two tokens; its mean is ``1 / decode_tps``."""
        return _spread(random, self.gap_sigma) * exp(-(self.gap_sigma**2) / 2) / decode_tps


def _spread(random: Random, sigma: float) -> float:
    """Draw a lognormal factor with median 1."""
    return exp(random.gauss(0.0, sigma))


_Z95 = 1.6449  # of a normal distribution, 95 % is below
_BELOW = 0.2  # see the demo fleet


def _demo(name: str, ttft_p50_ms: float, ttft_p95_ms: float, tok_s: float, **more: Any) -> Persona:
    """Return a persona of which these figures are published."""
    return Persona(
        name=name,
        ttft_median_s=ttft_p50_ms / 1000,
        ttft_sigma=log(ttft_p95_ms / ttft_p50_ms) / _Z95,
        ttft_sigma_below=_BELOW,
        decode_tps=tok_s,
        error_share=0.01,
        **more,
    )


# Published: p50 and p95 of TTFT, and tok/s, of five hosted models over seven days, some 10,080 requests each, once a
# minute, through OpenRouter. J. Wrede, "I monitored 6 LLM APIs for 7 days",
# https://jonathanwrede.de/en/blog/i-monitored-6-llm-apis-for-7-days/ (the sixth, Mistral Small, had a p50 of 2.7 s).
# Published elsewhere: how narrow the half below the median is. In the LLMPerf Leaderboard of December 2023
# (https://github.com/ray-project/llmperf-leaderboard, TTFT of Llama 2 70B) the P25 of eight providers is 4 to 24 %
# below their median, as with sigmas of 0.08 to 0.4; 0.2 is in the middle. So a fast draw is not faster than a real one.
# Assumed: the lognormal shape, also beyond p95; that requests are independent of each other; the spread of decoding;
# prefill; failures (six of these 50,400 requests failed; one in a hundred does here, so that some are seen); the rate
# limit; prices; and which of them sends comments or no role.
DEMO_FLEET = (
    # As Gemini 2.0 Flash: the fastest usual first token, and a long tail.
    _demo("sim-swift", 556, 2313, 136.8, input_usd_per_mtok=0.59, output_usd_per_mtok=0.79),
    # As GPT-4o mini: average, and seldom late.
    _demo("sim-steady", 645, 1094, 105.3, comment_every_s=0.1, input_usd_per_mtok=0.40, output_usd_per_mtok=0.60),
    # As Llama 3.3 70B: its first token is unpredictable.
    _demo("sim-bursty", 761, 2221, 48.3, role_first=False, input_usd_per_mtok=0.85, output_usd_per_mtok=1.20),
    # As DeepSeek Chat: cheap and slow.
    _demo("sim-slow", 1068, 3017, 26.0, input_usd_per_mtok=0.10, output_usd_per_mtok=0.20),
    # As Claude 3.5 Haiku, with a small rate limit.
    _demo("sim-capped", 731, 1106, 58.1, requests_per_window=12, input_usd_per_mtok=0.50, output_usd_per_mtok=0.70),
)


def are_demo(names: Iterable[str]) -> bool:
    """Whether the providers of these names are the demo fleet."""
    return set(names) == {persona.name for persona in DEMO_FLEET}
