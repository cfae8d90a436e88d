"""The behaviour of simulated providers: latencies, speeds and failures; and the demo fleet of ``make run``."""

from enum import StrEnum
from math import exp
from random import Random

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


class Run(msgspec.Struct, frozen=True):
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

    def draw(self, random: Random, prompt_tokens: int) -> Run:
        """Draw the outcome of a request with a prompt of this length."""
        ttft_s = self.ttft_median_s * _spread(random, self.ttft_sigma)
        ttft_s += self.prefill_s_per_1k_tokens * prompt_tokens / 1000
        if random.random() < self.tail_share:
            ttft_s *= self.tail_factor * _spread(random, self.tail_sigma)
        fate = Fate.ANSWER
        if random.random() < self.error_share:
            (fate,) = random.choices(list(_FAILURES), list(_FAILURES.values()))
        return Run(fate, ttft_s, self.decode_tps * _spread(random, self.decode_sigma))

    def gap_s(self, random: Random, decode_tps: float) -> float:
        """Draw the time between two tokens; its mean is ``1 / decode_tps``."""
        return _spread(random, self.gap_sigma) * exp(-(self.gap_sigma**2) / 2) / decode_tps


def _spread(random: Random, sigma: float) -> float:
    """Draw a lognormal factor with median 1."""
    return exp(random.gauss(0.0, sigma))


DEMO_FLEET = (
    Persona(
        name="sim-swift",  # a fast first token, then an average speed
        ttft_median_s=0.16,
        ttft_sigma=0.35,
        tail_share=0.04,
        decode_tps=90,
        error_share=0.01,
        input_usd_per_mtok=0.59,
        output_usd_per_mtok=0.79,
    ),
    Persona(
        name="sim-steady",  # average, and hardly ever late
        ttft_median_s=0.28,
        ttft_sigma=0.12,
        tail_share=0.004,
        decode_tps=70,
        error_share=0.01,
        comment_every_s=0.1,
        input_usd_per_mtok=0.40,
        output_usd_per_mtok=0.60,
    ),
    Persona(
        name="sim-bursty",  # very fast decoding after an unpredictable first token
        ttft_median_s=0.24,
        ttft_sigma=0.55,
        tail_share=0.06,
        decode_tps=500,
        error_share=0.03,
        role_first=False,
        input_usd_per_mtok=0.85,
        output_usd_per_mtok=1.20,
    ),
    Persona(
        name="sim-slow",  # cheap and slow
        ttft_median_s=0.60,
        ttft_sigma=0.40,
        tail_share=0.03,
        decode_tps=40,
        prefill_s_per_1k_tokens=0.10,
        error_share=0.02,
        input_usd_per_mtok=0.10,
        output_usd_per_mtok=0.20,
    ),
    Persona(
        name="sim-capped",  # good, but with a small rate limit
        ttft_median_s=0.20,
        ttft_sigma=0.25,
        tail_share=0.02,
        decode_tps=160,
        error_share=0.01,
        requests_per_window=12,
        input_usd_per_mtok=0.50,
        output_usd_per_mtok=0.70,
    ),
)
