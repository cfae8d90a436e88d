"""How busy a deployment is: its launches in the last minute, and what load does to the times of its first tokens."""

from math import exp, exp2, log, log1p, sqrt

from gateway.core.prompt_classes import PromptClass
from gateway.steering.constants import (
    CROWDING_MAX,
    DEMAND_S,
    ELASTICITY_DOUBT,
    ELASTICITY_MAX,
    FIRST_EDGE_S,
    LOAD_GAIN,
    LOAD_HALF_LIFE_S,
    LOAD_PRIOR,
    SURPRISE_HALF_LIFE_S,
    SURPRISE_MAX,
    SURPRISE_PRIOR,
)

_SECONDS = 60  # rate limits are per minute
_NONE = 0.01  # first tokens, decayed: counts as none


class Launches:
    """A count over the last minute, by the second. Times are seconds of any one monotonic clock."""

    __slots__ = ("_at", "_counts", "_total")

    def __init__(self) -> None:
        self._counts = [0] * _SECONDS
        self._at = 0  # the second of the last change
        self._total = 0

    def add(self, now_s: float, amount: int = 1) -> None:
        """Count ``amount`` now; a negative one corrects an earlier count."""
        second = int(now_s)
        if second != self._at:
            self._advance(second)
        self._counts[self._at % _SECONDS] += amount
        self._total += amount

    def in_minute(self, now_s: float) -> int:
        """Return the count of the last minute."""
        second = int(now_s)
        if second != self._at:
            self._advance(second)
        return self._total

    def in_seconds(self, seconds: int, now_s: float) -> int:
        """Return the count of the last ``seconds``, including the current, incomplete one."""
        self._advance(int(now_s))
        return sum(self._counts[(self._at - ago) % _SECONDS] for ago in range(seconds))

    def expected(self, now_s: float) -> float:
        """Return the expected count in a minute: that of the last minute, or of its last seconds if these go on."""
        rates = [self.in_seconds(seconds, now_s) * (_SECONDS / seconds) for seconds in DEMAND_S]
        return max(self.in_minute(now_s), *rates)

    def _advance(self, second: int) -> None:
        if self._at < second < self._at + _SECONDS:
            for each in range(self._at + 1, second + 1):
                self._total -= self._counts[each % _SECONDS]
                self._counts[each % _SECONDS] = 0
        elif second > self._at:
            self._counts, self._total = [0] * _SECONDS, 0
        self._at = max(self._at, second)


# How a deployment's time to first token grows with this replica's attempts in flight there. Fits ln(ttft) = a + b
# ln(1 + in flight) over the first tokens of the last minutes, with an ``a`` for each prompt class, and uses a cautious
# estimate of the elasticity b (1: twice as many in flight, twice the time). Without queueing b is 0 and nothing
# changes. Losers cut before their first token are left out: they are cut early whatever is in flight.


class Load:
    """The fit of one deployment. Times are seconds of any one monotonic clock."""

    __slots__ = ("_by_class", "_fit", "_surprise", "_surprised", "at_s")

    def __init__(self) -> None:
        self._by_class: dict[PromptClass, _Moments] = {}
        self.at_s = 0.0  # of the last first token
        self._fit: tuple[float, float] | None = (0.0, 0.0)  # b and the usual ln(1 + in flight); None: to be computed
        self._surprise = 0.0  # sum of the fit's errors, in ln(ttft), over the first tokens of the last seconds
        self._surprised = 0.0  # the number of these first tokens

    @property
    def elastic(self) -> bool:
        """Whether the number in flight matters at all."""
        return (self._fit or self._fitted())[0] > 0.0

    def seen(self, prompt_class: PromptClass, in_flight: float, ttft_s: float, now_s: float) -> None:
        """Learn from a first token whose attempt was launched beside ``in_flight`` others."""
        x, y = log1p(in_flight), log(max(ttft_s, FIRST_EDGE_S))
        elasticity, _ = self._fit or self._fitted()
        passed_s, self.at_s = now_s - self.at_s, now_s
        moments = self._by_class.get(prompt_class)
        if moments is None:
            moments = self._by_class[prompt_class] = _Moments()
        if moments.n > _NONE:
            faded = exp2(-passed_s / SURPRISE_HALF_LIFE_S)
            missed = y - moments.y / moments.n - elasticity * (x - moments.x / moments.n)
            self._surprise = self._surprise * faded + min(SURPRISE_MAX, max(-SURPRISE_MAX, missed))
            self._surprised = self._surprised * faded + 1.0
        faded = exp2(-passed_s / LOAD_HALF_LIFE_S)
        for load in self._by_class.values():
            load.decay(faded)
        moments.add(x, y)
        self._fit = None

    def crowding(self, in_flight: float, now_s: float) -> float:
        """Return the factor for the predicted time to first token of an attempt launched besides ``in_flight``.

        ((1 + in flight) / (1 + usual))^(gain b) x e^surprise: how much slower than usual the attempt will be, because
        of the known attempts in flight and, by the first tokens of the last seconds, of unknown ones. This is
        multiplied by 1 + b, as the attempt also slows down all others there. Without this toll all calls go to the
        fastest queue until that queue is no better than the slowest server (Pigou 1920).
        """
        elasticity, usual = self._fit or self._fitted()
        if elasticity <= 0.0:
            return 1.0
        faded = exp2((self.at_s - now_s) / SURPRISE_HALF_LIFE_S)
        surprise = self._surprise * faded / (self._surprised * faded + SURPRISE_PRIOR)
        slower = exp(LOAD_GAIN * elasticity * (log1p(in_flight) - usual) + surprise)
        return min(CROWDING_MAX, max(1.0 / CROWDING_MAX, slower)) * (1.0 + elasticity)

    def _fitted(self) -> tuple[float, float]:
        """Fit by least squares within the classes, shrunk by a prior, minus the uncertainty of the slope."""
        n, x, xx, xy, yy = 0.0, 0.0, LOAD_PRIOR, 0.0, 0.0
        for moments in self._by_class.values():
            if moments.n > _NONE:
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


class _Moments:
    """Decayed sums for one prompt class, of x = ln(1 + in flight) and y = ln(ttft)."""

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
