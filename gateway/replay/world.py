"""The distributions of a model's deployments, from which attempts that did not run, or were cut, are drawn."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from math import inf, log, sqrt
from random import Random
from statistics import NormalDist

from msgspec import Struct

from gateway.replay.rows import CAP_MS, ReplayedCall, Try
from gateway.replay.sample import Margin, audits, margins

# The correlation of the attempts of one call: a slow prompt, or a slow hour, is slow everywhere. It is a Gaussian
# copula with one factor. A call has a normal difficulty c, and its attempt at deployment d the score z = a_d c +
# sqrt(1 - a_d^2) e, which is the normal quantile of its rank among d's own first tokens. So the margins may have any
# form, such as a slow tail or two modes. The loadings a_d are fitted to races of two by maximum likelihood: an audited
# race has both scores; in any other, the loser's score is above the one of the winner's time.

_NORMAL = NormalDist()
LEAST_PAIRS = 100  # of attempts in one call, of which one at least is seen
_STEP = 0.25  # width of the cells in which scores are counted for the fit
_MOST = 0.97  # the highest correlation: higher ones cannot be distinguished
_PRIOR = 50.0  # races: a pair's own correlation counts as much as that of all pairs
# Whether a hedge runs depends only on the primary, whose time is known, so its pairs are as good as those of races.
_RAN = frozenset({"primary", "race", "hedge", "explore"})
_TRIALS = 30  # draws, one of which is almost always accepted
_GOLDEN = (sqrt(5) - 1) / 2


class Cells(Struct):
    """Races of one pair by the scores of both, in steps of ``_STEP``."""

    both: dict[tuple[int, int], float]  # both scores
    beyond: dict[tuple[int, int], float]  # the winner's score, and the one that the loser's exceeds
    n: float = 0.0

    def likelihood(self, rho: float) -> float:
        """Return the logarithm of the likelihood of this correlation, without its constant."""
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


def loadings(calls: Sequence[ReplayedCall], times: Sequence[float], known: Mapping[str, Margin]) -> dict[str, float]:
    """Return the loading of each deployment on the call's difficulty, between 0 and 1; {} with too few pairs."""
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
    calls: Sequence[ReplayedCall], times: Sequence[float], known: Mapping[str, Margin]
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
    """The distribution of one call's difficulty, given observed scores and scores that were exceeded."""

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
    """Draw an attempt's rank, as a share, given the call's difficulty; ``least``: a score that it exceeds."""
    if not loading:
        below = 0.0 if least is None else _NORMAL.cdf(least)
        return below + (1 - below) * random.random()
    spread = sqrt(1 - loading * loading)
    if least is None:
        return _NORMAL.cdf(random.gauss(loading * difficulty, spread))
    below = _NORMAL.cdf((least - loading * difficulty) / spread)
    share = min(1 - 1e-12, max(1e-12, below + (1 - below) * random.random()))
    return _NORMAL.cdf(loading * difficulty + spread * _NORMAL.inv_cdf(share))


# Plays one call under a setting: its launches, its winner, and all attempts that are paid for.


class DrawnAttempt(Struct, gc=False):
    """One attempt, observed or drawn: the time of its first token, or of its failure."""

    deployment: str
    ms: float
    failed: bool = False


class CallResult(Struct, gc=False):
    """The result of a call."""

    ttft_ms: float  # inf: all have failed
    winner: int  # its place among the candidates; -1: none
    launched: Sequence[int]  # the places of all launched candidates


def play(starts_ms: Sequence[float], draw: Callable[[int], DrawnAttempt | None]) -> CallResult:
    """Play a call whose attempts start at ``starts_ms``, in order; ``draw`` returns the attempt at a place, or None.

    One that fails is replaced at once by the next launch; after the last of them by further candidates.
    """
    waiting = list(starts_ms)
    first_ms, winner, place = inf, -1, 0
    launched = []
    failures: list[float] = []
    while waiting or failures:
        if failures and (not waiting or min(failures) < waiting[0]):
            start = min(failures)
            failures.remove(start)
            if waiting:
                waiting.pop(0)
        else:
            start = waiting.pop(0)
        if start >= first_ms or start >= CAP_MS:
            break
        drawn = draw(place)
        if drawn is None:
            break
        launched.append(place)
        if drawn.failed:
            failures.append(start + drawn.ms)
        elif start + drawn.ms < first_ms:
            first_ms, winner = start + drawn.ms, place
        place += 1
    return CallResult(first_ms, winner, launched)


_MOST_SPEEDS = 2000  # kept of a deployment


class World(Struct):
    """The deployments of one model, as estimated from one resample of the calls."""

    margins: Mapping[str, Margin]
    loadings: Mapping[str, float]
    ranked: Sequence[str]  # those with enough data, the fastest first
    speeds: Mapping[str, Sequence[float]]  # decode tokens per second of answers
    providers: Mapping[str, str]


def learned(calls: Sequence[ReplayedCall], times: Sequence[float]) -> World:
    """Return the world estimated from ``calls``; call n counts ``times[n]`` times its weight."""
    often = [call.weight * each for call, each in zip(calls, times, strict=True)]
    known = margins(calls, often, audits(calls, often))
    speeds: dict[str, list[float]] = {}
    providers: dict[str, str] = {}
    for call in calls:
        for each in call.tries:
            providers[each.deployment] = each.provider
            if each.won and each.decode_tps and len(of := speeds.setdefault(each.deployment, [])) < _MOST_SPEEDS:
                of.append(each.decode_tps)
    ranked = sorted(known, key=lambda name: known[name].mean_ms)
    return World(known, loadings(calls, often, known), ranked, speeds, providers)


class Completed:
    """One call with all its possible attempts. Those that were not observed are drawn once, when needed."""

    def __init__(
        self, call: ReplayedCall, lead: Try | None, world: World, without: Collection[str], random: Random
    ) -> None:
        """``without``: providers that are left out."""
        self.call = call
        self._world = world
        self._random = random
        tries = [each for each in call.tries if each.provider not in without and not each.is_learning]
        tries.sort(key=lambda each: (each is not lead, not each.starts_with_call, each.offset_ms))
        allowed = [name for name in world.ranked if world.providers[name] not in without]
        self.order = tuple(dict.fromkeys([*[each.deployment for each in tries], *allowed]))
        self._drawn: dict[int, DrawnAttempt | None] = {}
        self._difficulty: float | None = None

    def draw(self, place: int) -> DrawnAttempt | None:
        """Return the attempt at the deployment that is candidate number ``place``; None if there is none."""
        if place not in self._drawn:
            self._drawn[place] = self._draw(self.order[place]) if place < len(self.order) else None
        return self._drawn[place]

    def pair_ms(self) -> tuple[float, float] | None:
        """Return the winner's time in a race of two: the observed one, and with the second drawn from the first.

        None if the call was no race of two, or one of them failed.
        """
        second = next((each for each in self.call.tries if each.deployment in self.order[1:2]), None)
        first, other = self.draw(0), self.draw(1)
        known = self._world.margins
        if second is None or not second.starts_with_call or first is None or other is None:
            return None
        if first.failed or other.failed or first.deployment not in known or other.deployment not in known:
            return None
        loadings, alone = self._world.loadings, Difficulty()
        alone.see(score(known[first.deployment].share(first.ms)), loadings.get(first.deployment, 0.0))
        share = draw_share(alone.draw((), self._random), loadings.get(other.deployment, 0.0), None, self._random)
        return min(first.ms, other.ms), min(first.ms, known[other.deployment].quantile_ms(share))

    def decode_ms(self, deployment: str) -> float | None:
        """Return the time from the answer's first token to its end, if it comes from ``deployment``."""
        call = self.call
        seen = None if call.total_ms is None or call.ttft_ms is None else max(0.0, call.total_ms - call.ttft_ms)
        won = next((each for each in call.tries if each.won), None)
        if seen is None or won is None or won.deployment == deployment:
            return seen
        speeds = self._world.speeds.get(deployment)
        if not speeds or not call.answer_tokens:
            return seen
        return 1000 * (call.answer_tokens - 1) / self._random.choice(speeds)

    def _draw(self, deployment: str) -> DrawnAttempt | None:
        least_ms = None
        for each in self.call.tries:
            if each.deployment != deployment:
                continue
            if (ms := each.seen_ms) is not None:
                return DrawnAttempt(deployment, ms)
            if each.failed:
                return DrawnAttempt(deployment, each.failed_ms or 0.0, failed=True)
            least_ms = each.overtaken_ms if each.overtaken_ms is not None else each.cut_ms
        margin = self._world.margins.get(deployment)
        if margin is None:
            return None
        if least_ms is None and self._random.random() < margin.failure_rate:
            return DrawnAttempt(deployment, self._random.choice(margin.failed_ms), failed=True)
        if self._difficulty is None:
            self._difficulty = self._drawn_difficulty()
        loading = self._world.loadings.get(deployment, 0.0)
        least = None if least_ms is None else score(margin.share(least_ms))
        ms = margin.quantile_ms(draw_share(self._difficulty, loading, least, self._random))
        return DrawnAttempt(deployment, ms if least_ms is None else max(ms, least_ms))

    def _drawn_difficulty(self) -> float:
        known, beyond = Difficulty(), []
        for each in self.call.tries:
            margin = self._world.margins.get(each.deployment)
            loading = self._world.loadings.get(each.deployment, 0.0)
            if margin is None or not loading:
                continue
            if (ms := each.seen_ms) is not None:
                known.see(score(margin.share(ms)), loading)
            elif not each.failed and (least_ms := each.overtaken_ms or each.cut_ms):
                beyond.append((score(margin.share(least_ms)), loading))
        return known.draw(beyond, self._random)
