"""How often attempts fail: the base rate of a deployment, how much it varies, and what a window says against it."""

from collections.abc import Sequence
from math import log

import msgspec

from gateway.detecting.windows import Tally

WORSE = 2.0  # times as many errors
LEAST = 0.02  # and at least so many more, as a share of attempts
MOST = 0.95
_FEW = 20.0  # attempts in all, below which no rate is known
_BOUND = 400.0  # an hour that is 20 standard deviations off says no more than that


class Rate(msgspec.Struct, frozen=True):
    """The share of attempts that fail, and by how much more it varies than by chance (1: not at all)."""

    share: float
    dispersion: float

    @classmethod
    def of(cls, hours: Sequence[Tally]) -> "Rate | None":
        """Return the rate of past hours; None if they are too few."""
        n, errors = sum(one.n for one in hours), sum(one.errors for one in hours)
        if n < _FEW:
            return None
        share = min(MOST, (errors + 0.5) / (n + 1.0))
        known = [one for one in hours if one.n > 0]
        squares = [min(_BOUND, (one.errors - one.n * share) ** 2 / (one.n * share * (1 - share))) for one in known]
        return cls(share, max(1.0, sum(squares) / len(squares) * (1.0 + 2.0 * (2.0 / len(squares)) ** 0.5)))

    def worse(self, beyond: float) -> tuple[float, float]:
        """Return the usual share, and the one that is worse, while peers fail by ``beyond`` more than usual."""
        usual = min(MOST, self.share + max(0.0, beyond))
        return usual, min((1.0 + usual) / 2, max(WORSE * usual, usual + LEAST))

    def ratio(self, seen: Tally, beyond: float) -> float:
        """Return the logarithm of the likelihood ratio: worse against usual."""
        usual, worse = self.worse(beyond)
        gained = seen.errors * log(worse / usual) + (seen.n - seen.errors) * log((1 - worse) / (1 - usual))
        return gained / self.dispersion
