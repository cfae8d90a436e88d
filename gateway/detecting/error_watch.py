"""Watches the errors of one deployment, window by window."""

from math import log

from gateway.detecting.evidence import Evidence
from gateway.detecting.rates import Rate
from gateway.detecting.slowdowns import Change
from gateway.detecting.watch import BACK, SETTLED_S, Watch
from gateway.detecting.windows import WINDOW_S, Metric, Tally

_MANY = 5.0  # errors, without which nothing is said
_MUCH_WORSE = 3.0  # times as many, until a week is known


class ErrorWatch(Watch):
    """Collects evidence that twice as many attempts fail, beyond what its peers' attempts do."""

    def __init__(self, model: str, deployment: str) -> None:
        super().__init__(model, deployment, Metric.ERRORS)
        self._evidence = [Evidence(0.0)]
        self._back = Evidence(0.0, BACK)

    def copy(self) -> "ErrorWatch":
        """Return one that goes on from here by itself."""
        return self._copied(ErrorWatch(*self._key[:2]))

    def add(self, start_s: int, seen: Tally, rate: Rate, beyond: float, *, history_s: float) -> Change | None:
        """Add a window, in which peers failed by ``beyond`` more than usual; return what has happened by it."""
        if seen.n <= 0.0 or not self._counts(start_s):
            return None
        usual, _ = rate.worse(beyond)
        ratio = rate.ratio(seen, beyond)
        expected = seen.n * usual
        if self.open is not None:
            self._back.add_ratio(-ratio, seen.errors / expected, expected, seen.n, start_s)
            return self._is_back(start_s)
        one = self._evidence[0]
        one.add_ratio(ratio, seen.errors / expected, expected, seen.n, start_s)
        errors = one.weighted
        if not one.is_enough or errors < _MANY or (history_s < SETTLED_S and one.mean < _MUCH_WORSE):
            return None
        return self._begin(one, start_s + WINDOW_S, log(one.mean), (rate.dispersion / errors) ** 0.5)
