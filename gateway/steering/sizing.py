"""Sizing: how a deployment's time to first token grows with the prompt, so that all prompts share one histogram.

The prompt is read before the first token is made: ttft = base x (1 + tokens / knee). The knee is the size at which
reading takes as long as everything else. It is fitted to the first tokens of the last hour, by half octaves of size.
"""

from math import exp2, log, log2

import msgspec

from gateway.steering.constants import (
    FIRST_EDGE_S,
    KNEE_DOUBT,
    KNEE_HALF_LIFE_S,
    KNEE_PRIOR_TOKENS,
    SIZE_NOISE,
    SIZE_REFERENCE_TOKENS,
)

_LEAST_TOKENS, _SIZES = 64, 28  # half octaves, to a million tokens
_KNEES = tuple(125.0 * 2.0**octave for octave in range(14))  # to a million tokens: there the size has no effect
_CLASS_TOKENS = (500, 3_000, 16_000)  # the typical size of each class


def size_of(tokens: int | None, size_class: int = 0) -> int:
    """Return the half octave of a prompt with ``tokens``; the typical one of its class if unknown."""
    if tokens is None:
        tokens = _CLASS_TOKENS[min(size_class, len(_CLASS_TOKENS) - 1)]
    if tokens <= _LEAST_TOKENS:
        return 0
    return min(_SIZES - 1, round(2 * log2(tokens / _LEAST_TOKENS)))


def tokens_of(size: int) -> float:
    """Return the number of tokens in the middle of a half octave."""
    return float(_LEAST_TOKENS * exp2(size / 2))


class Sizing:
    """What was learnt about one deployment."""

    __slots__ = ("_at_s", "_by_size", "_stale", "knee_tokens")

    def __init__(self) -> None:
        self.knee_tokens = KNEE_PRIOR_TOKENS
        self._by_size: dict[int, _Mean] = {}
        self._at_s = 0.0
        self._stale = False

    def factor(self, size: int) -> float:
        """Return the factor of this prompt size on the time to first token, relative to the reference size."""
        return (1 + tokens_of(size) / self.knee_tokens) / (1 + SIZE_REFERENCE_TOKENS / self.knee_tokens)

    def seen(self, size: int, ttft_s: float) -> None:
        """Add a first token."""
        mean = self._by_size.get(size)
        if mean is None:
            mean = self._by_size[size] = _Mean()
        mean.n += 1.0
        mean.sum += log(max(ttft_s, FIRST_EDGE_S))
        self._stale = True

    def fit(self, now_s: float) -> None:
        """Fit the knee: least squares of ln(ttft), with a penalty for its distance from the usual one."""
        if not self._stale:
            return
        self._stale = False
        keep = exp2((self._at_s - now_s) / KNEE_HALF_LIFE_S) if self._at_s else 1.0
        self._at_s = now_s
        for mean in self._by_size.values():
            mean.n *= keep
            mean.sum *= keep
        losses = [self._loss(knee) for knee in _KNEES]
        best = losses.index(min(losses))
        self.knee_tokens = _KNEES[best] * exp2(_vertex(losses, best))

    def _loss(self, knee_tokens: float) -> float:
        n = xs = xx = 0.0
        for size, mean in self._by_size.items():
            missed = mean.sum / mean.n - log(1 + tokens_of(size) / knee_tokens) if mean.n else 0.0
            n += mean.n
            xs += mean.n * missed
            xx += mean.n * missed * missed
        unusual = log(knee_tokens / KNEE_PRIOR_TOKENS) / KNEE_DOUBT
        return (xx - xs * xs / n) / SIZE_NOISE**2 + unusual * unusual if n else unusual * unusual


def _vertex(losses: list[float], best: int) -> float:
    """Return the minimum of the parabola through the least loss and its neighbours, in steps from the least."""
    if not 0 < best < len(losses) - 1:
        return 0.0
    below, here, above = losses[best - 1 : best + 2]
    bend = below - 2 * here + above
    return 0.5 * (below - above) / bend if bend > 0 else 0.0


class _Mean(msgspec.Struct):
    n: float = 0.0
    sum: float = 0.0  # of ln(seconds)
