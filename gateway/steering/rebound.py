"""Rebound: detects when a slow deployment answers as usual again, so that the slow time can be forgotten.

A cumulative sum of log likelihood ratios (Page 1954): how much likelier each first token is at the usual speed than at
the recent one. If both are the same it stays near zero, whatever the samples.
"""

from math import log

from gateway.steering.constants import REBOUND_AT, REBOUND_FROM, REBOUND_STEP
from gateway.steering.histogram import bucket
from gateway.steering.standings import Estimate
from gateway.steering.survival import Curve

_NEIGHBOURS = 3  # buckets on each side
_LEAST_SHARE = 0.005  # of first tokens in any bucket: no value is impossible


class Rebounds:
    """The sums of all deployments of all models."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], float] = {}

    def add(self, model: str, deployment: str, estimate: Estimate, ttft_s: float) -> bool:
        """Add a first token, scaled to the reference size; return whether the deployment is back at its usual speed."""
        if estimate.usual is None or estimate.score_s < REBOUND_FROM * estimate.usual_s:
            self._sums.pop((model, deployment), None)
            return False
        at = bucket(ttft_s)
        ratio = log(_share(estimate.usual, at) / _share(estimate.curve, at))
        before = self._sums.get((model, deployment), 0.0)
        now = max(0.0, before + min(REBOUND_STEP, max(-REBOUND_STEP, ratio)))
        back = now >= REBOUND_AT
        if back or now == 0.0:
            self._sums.pop((model, deployment), None)
        else:
            self._sums[model, deployment] = now
        return back

    def keep(self, models: set[str]) -> None:
        """Forget all other models."""
        self._sums = {key: value for key, value in self._sums.items() if key[0] in models}


def _share(curve: Curve, index: int) -> float:
    """Return the share of first tokens within about 30 % of a bucket: a few samples must not fit themselves."""
    low, high = index - _NEIGHBOURS - 1, min(index + _NEIGHBOURS, len(curve.reached) - 1)
    return _LEAST_SHARE + curve.reached[high] - (curve.reached[low] if low >= 0 else 0.0)
