"""How much the attempts of one call are alike: a slow prompt, or a slow hour, is slow everywhere.

A Gaussian copula with one factor: of a call's difficulty c, normal, an attempt at deployment d has the score
z = a_d c + sqrt(1 - a_d^2) e, and z is the normal quantile of its rank among d's own first tokens. So any margin will
do: lognormal, with a slow tail, of two humps. The loadings are fitted to races of two (maximum likelihood): an audited
race has both scores, of another one it is known that the loser's is higher than it was at the winner's time.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import log, sqrt
from random import Random
from statistics import NormalDist

from msgspec import Struct

from gateway.replay.margins import Margin
from gateway.replay.rows import Call

_NORMAL = NormalDist()
LEAST_PAIRS = 100  # of attempts in one call, of which one at least is seen
_STEP = 0.25  # width of the cells in which scores are counted for the fit
_MOST = 0.97  # correlation; beyond that nothing can be told apart
_PRIOR = 50.0  # races: a pair's own correlation counts as much as that of all pairs
# That a hedge ran depends on the primary alone, of which it is known: so its pairs are as good as those of races.
_RAN = frozenset({"primary", "race", "hedge", "explore"})
_TRIALS = 30  # draws, of which one is accepted, almost always
_GOLDEN = (sqrt(5) - 1) / 2


class Cells(Struct):
    """Races of one pair by the scores of both, in steps of ``_STEP``."""

    both: dict[tuple[int, int], float]  # both scores
    beyond: dict[tuple[int, int], float]  # the winner's score, and the one that the loser's exceeds
    n: float = 0.0

    def likelihood(self, rho: float) -> float:
        """Return the logarithm of the likelihood of this correlation, but for a constant."""
        rest = 1 - rho * rho
        spread = sqrt(rest)
        total = 0.0
        for (first, second), n in self.both.items():
            x, y = first * _STEP, second * _STEP
            total += n * (-0.5 * log(rest) - (rho * rho * (x * x + y * y) - 2 * rho * x * y) / (2 * rest))
        for (winner, least), n in self.beyond.items():
            total += n * log(max(1e-12, 1 - _NORMAL.cdf((least * _STEP - rho * winner * _STEP) / spread)))
        return total


def score(share: float) -> float:
    """Return the normal quantile of a share."""
    return _NORMAL.inv_cdf(share)


def loadings(calls: Sequence[Call], times: Sequence[float], known: Mapping[str, Margin]) -> dict[str, float]:
    """Return the loading of each deployment on the call's difficulty, between 0 and 1; {} if too few calls tell."""
    cells = _counted(calls, times, known)
    if sum(each.n for each in cells.values()) < LEAST_PAIRS:
        return {}
    pooled = Cells({}, {})
    for each in cells.values():
        for found, into in ((each.both, pooled.both), (each.beyond, pooled.beyond)):
            for cell, n in found.items():
                into[cell] = into.get(cell, 0.0) + n
    common = _best(pooled.likelihood)
    pairs = {}
    for pair, each in cells.items():
        own = _best(each.likelihood)
        pairs[pair] = (own * each.n + common * _PRIOR) / (each.n + _PRIOR), each.n
    return _factored(pairs, common, sorted(known))


def _counted(
    calls: Sequence[Call], times: Sequence[float], known: Mapping[str, Margin]
) -> dict[tuple[str, str], Cells]:
    found: dict[tuple[str, str], Cells] = {}
    scores: dict[tuple[str, int], int] = {}

    def place(deployment: str, ms: float) -> int:
        at = (deployment, round(100 * log(max(ms, 0.01))))  # to 1 %: the quantile of a rank is slow
        if (cell := scores.get(at)) is None:
            cell = scores[at] = round(score(known[deployment].share(ms)) / _STEP)
        return cell

    for call, often in zip(calls, times, strict=True):
        ran = [each for each in call.tries if each.deployment in known and each.role in _RAN] if often else []
        for one, other in combinations(ran, 2):
            first, second = (one, other) if one.deployment < other.deployment else (other, one)
            if first.deployment == second.deployment or first.failed or second.failed:
                continue
            here = found.setdefault((first.deployment, second.deployment), Cells({}, {}))
            if first.seen_ms is not None and second.seen_ms is not None:
                cell = place(first.deployment, first.seen_ms), place(second.deployment, second.seen_ms)
                here.both[cell] = here.both.get(cell, 0.0) + often
            else:
                seen, cut = (first, second) if first.seen_ms is not None else (second, first)
                if seen.seen_ms is None or cut.overtaken_ms is None:
                    continue
                cell = place(seen.deployment, seen.seen_ms), place(cut.deployment, cut.overtaken_ms)
                here.beyond[cell] = here.beyond.get(cell, 0.0) + often
            here.n += often
    return found


def _best(likelihood: Callable[[float], float]) -> float:
    """Return the correlation of the highest likelihood, by golden sections."""
    low, high = 0.0, _MOST
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = likelihood(left), likelihood(right)
    for _ in range(14):
        if at_left < at_right:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = likelihood(right)
        else:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = likelihood(left)
    return (low + high) / 2


def _factored(
    pairs: Mapping[tuple[str, str], tuple[float, float]], common: float, names: Sequence[str]
) -> dict[str, float]:
    """Return loadings whose products come nearest to the pairs' correlations (least squares, by turns)."""
    found = dict.fromkeys(names, sqrt(common))
    for _ in range(30):
        for name in names:
            top, bottom = _PRIOR * common * sqrt(common), _PRIOR * common  # one more partner, of the common loading
            for (first, second), (rho, n) in pairs.items():
                if name in {first, second}:
                    other = found[second if name == first else first]
                    top += n * rho * other
                    bottom += n * other * other
            found[name] = min(sqrt(_MOST), top / bottom) if bottom > 0 else 0.0
    return found


class Difficulty(Struct):
    """What is known of one call's difficulty: from scores that were seen, and from those that were exceeded."""

    mean: float = 0.0
    precision: float = 1.0

    def see(self, score: float, loading: float) -> None:
        """Count the score of an attempt."""
        own = 1 - loading * loading
        precision = loading * loading / own
        self.mean = (self.mean * self.precision + loading * score / own) / (self.precision + precision)
        self.precision += precision

    def draw(self, beyond: Sequence[tuple[float, float]], random: Random) -> float:
        """Draw the difficulty; ``beyond``: scores that were exceeded, with the loadings of their deployments."""
        sd = 1 / sqrt(self.precision)
        drawn = self.mean
        for _ in range(_TRIALS):
            drawn = random.gauss(self.mean, sd)
            likely = 1.0
            for least, loading in beyond:
                likely *= 1 - _NORMAL.cdf((least - loading * drawn) / sqrt(1 - loading * loading))
            if not beyond or random.random() < likely:
                return drawn
        return drawn


def draw_share(difficulty: float, loading: float, least: float | None, random: Random) -> float:
    """Draw the rank, as a share, of an attempt of a call of this difficulty; ``least``: a score that it exceeds."""
    if not loading:
        below = 0.0 if least is None else _NORMAL.cdf(least)
        return below + (1 - below) * random.random()
    spread = sqrt(1 - loading * loading)
    if least is None:
        return _NORMAL.cdf(random.gauss(loading * difficulty, spread))
    below = _NORMAL.cdf((least - loading * difficulty) / spread)
    share = min(1 - 1e-12, max(1e-12, below + (1 - below) * random.random()))
    return _NORMAL.cdf(loading * difficulty + spread * _NORMAL.inv_cdf(share))
