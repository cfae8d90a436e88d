"""Load: how a deployment's time to first token grows with what this replica has in flight there.

Fits ln(ttft) = a + b ln(1 + in flight) over the first tokens of the last minutes, apart for each prompt class, and
believes of the elasticity b only what it is sure of. Where nobody queues, b is nothing, and neither is what follows
from it. Losers cut before their first token are left out: they are cut young whatever is in flight.
"""

from math import exp, exp2, log, log1p, sqrt

from gateway.steering.constants import (
    CROWDING_MAX,
    ELASTICITY_DOUBT,
    ELASTICITY_MAX,
    FIRST_EDGE_S,
    HALF_LIFE_S,
    LOAD_GAIN,
    LOAD_PRIOR,
)

FORGOTTEN = 0.01  # first tokens: as good as none


class _Moments:
    """Decayed sums over one prompt class, of x = ln(1 + in flight) and y = ln(ttft)."""

    __slots__ = ("n", "x", "xx", "xy", "y", "yy")

    def __init__(self) -> None:
        self.n = self.x = self.y = self.xx = self.xy = self.yy = 0.0

    def add(self, x: float, y: float) -> None:
        self.n += 1.0
        self.x += x
        self.y += y
        self.xx += x * x
        self.xy += x * y
        self.yy += y * y

    def decay(self, factor: float) -> None:
        self.n *= factor
        self.x *= factor
        self.y *= factor
        self.xx *= factor
        self.xy *= factor
        self.yy *= factor


class Load:
    """What was learned of one deployment. Instants are seconds of any one monotonic clock."""

    __slots__ = ("_at_s", "_by_class", "_fit")

    def __init__(self) -> None:
        self._by_class: dict[int, _Moments] = {}
        self._at_s = 0.0
        self._fit: tuple[float, float] | None = (
            None  # elasticity and the usual ln(1 + in flight), until the next sample
        )

    def seen(self, prompt_class: int, in_flight: int, ttft_s: float, now_s: float) -> None:
        """Take a first token of an attempt that had ``in_flight`` others beside it when it was launched."""
        factor = exp2((self._at_s - now_s) / HALF_LIFE_S)
        self._at_s = now_s
        for known in self._by_class.values():
            known.decay(factor)
        moments = self._by_class.get(prompt_class)
        if moments is None:
            moments = self._by_class[prompt_class] = _Moments()
        moments.add(log1p(in_flight), log(max(ttft_s, FIRST_EDGE_S)))
        self._fit = None

    def crowding(self, in_flight: int) -> float:
        """Return by what to multiply the predicted time to first token of an attempt launched beside ``in_flight``.

        ((1 + in flight) / (1 + usual))^(gain b), how much slower than usual it will be, times 1 + b: it makes all
        others there slower too, and so must be worth that (Pigou 1920: without the toll everybody crowds into the
        fastest queue until it is no better than the slowest server).
        """
        elasticity, usual = self._fit or self._fitted()
        if elasticity <= 0.0:
            return 1.0
        slower = exp(LOAD_GAIN * elasticity * (log1p(in_flight) - usual))
        return min(CROWDING_MAX, max(1.0 / CROWDING_MAX, slower)) * (1.0 + elasticity)

    def _fitted(self) -> tuple[float, float]:
        n, x, xx, xy, yy = 0.0, 0.0, LOAD_PRIOR, 0.0, 0.0
        for moments in self._by_class.values():
            if moments.n < FORGOTTEN:
                continue
            n += moments.n
            x += moments.x
            xx += moments.xx - moments.x * moments.x / moments.n
            xy += moments.xy - moments.x * moments.y / moments.n
            yy += moments.yy - moments.y * moments.y / moments.n
        slope = xy / xx
        error = sqrt(max(0.0, yy - slope * xy) / max(1.0, n - 2.0) / xx)
        elasticity = min(ELASTICITY_MAX, max(0.0, slope - ELASTICITY_DOUBT * error))
        self._fit = elasticity, x / n if n else 0.0
        return self._fit
