"""What racing saves, estimated as the view ``race_value`` does, against the truth: fleets that know their draws."""

from bisect import bisect_right
from collections.abc import Sequence
from enum import StrEnum
from math import erfc, exp, log, sqrt
from random import Random
from statistics import fmean

from msgspec import Struct, structs

from gateway.core.prompt_classes import MeasuredApi
from gateway.steering.counts import Evidence, bucket
from gateway.steering.estimates import Standings, standings

LEAST_CALLS = 30  # below, no interval is published
LEAST_AUDITS = 6  # below, the ratio and its interval are published only if half of the overtaken were audited
LEAST_AUDITS_OF_QUANTILES = 30
CAP_MS = 30_000.0  # audits end then
TAIL_SHARES = (0.002, 0.01, 0.03, 0.06)  # of attempts, some six times slower
QUANTILES = (0.5, 0.95, 0.99)
WARM_UP = 2_000  # calls that only teach the curves
LONG_RUN = 6_000  # calls of which a fleet's installations are samples
DIFFICULTIES = (0.0, 0.3, 0.6)


class Overtaken(Struct, frozen=True):
    """A call whose primary was overtaken. Milliseconds from its receipt."""

    ttft_ms: float
    alone_ms: float  # the truth, which is seen only of audited ones
    predicted_ms: float
    audited: bool


class Saved(Struct, frozen=True):
    """What racing saved all of some calls together, with its 95 % interval, in milliseconds."""

    ms: float
    low_ms: float | None  # None: too few audits
    high_ms: float | None


def saved(calls: Sequence[Overtaken], others_ms: Sequence[float] = ()) -> Saved:
    """Estimate the time saved; ``others_ms``: first tokens of the calls nobody overtook, which saved nothing.

    saved = y / x * X: y what audits saw after the cut, x what was predicted for them, X what was predicted for all. The
    interval is that of what racing saves such calls: a gamma distribution, of the variance of a sum of so many and of
    what audits leave open. Its upper end allows for one more call, half as large as large ones, and for a dozen more
    audits that see what was predicted: few audits mostly see too little of a long tail.
    """
    number = len(calls) + len(others_ms)
    ttft_ms = (sum(call.ttft_ms for call in calls) + sum(others_ms)) / number
    total_ms = sum(call.predicted_ms - call.ttft_ms for call in calls)
    each_ms = total_ms / len(calls) if calls else 0.0
    pairs = [(call.alone_ms - call.ttft_ms, call.predicted_ms - call.ttft_ms) for call in calls if call.audited]
    n, x = len(pairs), sum(predicted for _, predicted in pairs)
    is_audited = not calls or (x > 0 and (n >= LEAST_AUDITS or (number >= LEAST_CALLS and 2 * n >= len(calls))))
    ratio = sum(seen for seen, _ in pairs) / x if x > 0 and is_audited else 1.0
    ms, open_to_audits = ratio * total_ms, 0.0
    if pairs and is_audited:
        squared = fmean(seen**2 for seen, _ in pairs) * len(calls)
        cubed = fmean(seen**3 for seen, _ in pairs) * len(calls)
        more_ms = max(0.0, 12 * each_ms * (1 - ratio) / (x + 12 * each_ms) * total_ms)
        if n > 1:
            residual = sum((seen - ratio * predicted) ** 2 for seen, predicted in pairs) / (n - 1)
            open_to_audits = (len(calls) - n) / len(calls) * n * residual * (total_ms / x) ** 2
    else:
        squared, cubed, more_ms = 2 * total_ms * each_ms, 0.0, 2 * total_ms + 4 * each_ms
    variance = squared + open_to_audits
    one_ms = cubed / squared * variance / squared / 2 if squared else each_ms if calls else min(ttft_ms / 2, 250.0)
    if squared and n < LEAST_AUDITS:
        one_ms = max(one_ms, each_ms)
    mean_ms = ms + more_ms + one_ms
    high_ms = _gamma(mean_ms, variance * (1 + more_ms / ms if ms else 1) ** 2 + one_ms**2, 1.96)
    if number < LEAST_CALLS or not (is_audited or high_ms <= number * max(5.0, 0.05 * ttft_ms)):
        return Saved(ms, None, None)
    return Saved(ms, _gamma(ms, variance, -1.96) if is_audited else 0.0, high_ms)


def _gamma(mean: float, variance: float, z: float) -> float:
    """Return a quantile of a gamma distribution, by Wilson and Hilferty."""
    relative = variance / mean**2 if mean else 0.0
    return mean * max(0.0, 1 - relative / 9 + z * sqrt(relative) / 3) ** 3


def saved_at(q: float, calls: Sequence[Overtaken], seen_ms: Sequence[float]) -> Saved:
    """Estimate what racing took off the quantile ``q`` of all calls; ``seen_ms``: first tokens nobody overtook.

    The share of calls below a value is known but for the overtaken ones, of which n of N were audited; its interval is
    that of Agresti and Coull with the correction for a finite population. A value is in the interval of the quantile
    when the interval of its share has q in it (Woodruff). None: it is beyond all that audits have seen.
    """
    audited = sorted(call.alone_ms for call in calls if call.audited)
    n, total = len(audited), len(calls) + len(seen_ms)
    racing_ms = quantile(q, [(call.ttft_ms, 1.0) for call in calls] + [(ms, 1.0) for ms in seen_ms])
    if n < LEAST_AUDITS_OF_QUANTILES:
        return Saved(0.0, None, None)
    known = [(ms, 1.0) for ms in seen_ms] + [(ms, len(calls) / n) for ms in audited]
    low_ms = high_ms = None
    reached = 0.0
    for ms, weight in sorted(known):
        reached += weight / total
        share = (bisect_right(audited, ms) + 2) / (n + 4)
        doubt = (1 - n / len(calls)) * (len(calls) / total) ** 2 * share * (1 - share) / (n + 4)
        is_off = (reached - q) ** 2 > 1.96**2 * doubt
        if low_ms is None and (reached >= q or not is_off):
            low_ms = ms - racing_ms
        if high_ms is None and reached > q and is_off:
            high_ms = ms - racing_ms
    return Saved(quantile(q, known) - racing_ms, low_ms, high_ms)


def quantile(q: float, weighted: Sequence[tuple[float, float]]) -> float:
    """Return the least value which, with those below it, has the share ``q`` of the weight."""
    least = q * sum(weight for _, weight in weighted) - 1e-9
    reached = 0.0
    for value, weight in sorted(weighted):
        reached += weight
        if reached >= least:
            return value
    raise ValueError("no values")


class World(StrEnum):
    """How the times to first token of a provider are distributed."""

    LOGNORMAL = "lognormal"  # with a few attempts that are some six times slower
    BIMODAL = "bimodal"  # 5 to 23 % of attempts are five times slower
    PARETO = "pareto"  # with the exponent 1.5: it has no variance but for the timeout


class Rivals(StrEnum):
    """How often another one overtakes the primary."""

    NEVER = "never"
    SOMETIMES = "sometimes"
    OFTEN = "often"


SLOWER = {Rivals.NEVER: 1e9, Rivals.SOMETIMES: 2.0, Rivals.OFTEN: 1.0}  # than the same provider as a primary


class Fleet:
    """Four providers, any two of which race each call; all of it from ``seed``. Attempts are cut at ``CAP_MS``.

    Of the variance of ln(TTFT) (of a Pareto distribution: of the normal score of its quantile) the share ``difficulty``
    is the call's own, the same at both: a long prompt is slow everywhere.
    """

    def __init__(
        self, seed: int, difficulty: float, world: World = World.LOGNORMAL, rivals: Rivals = Rivals.OFTEN
    ) -> None:
        self._random = Random(seed)
        self._world = world
        self._slower = SLOWER[rivals]
        self._shared, self._own = sqrt(difficulty), sqrt(1 - difficulty)
        self.providers = [
            (
                self._random.uniform(200, 600),
                self._random.uniform(0.2, 0.6),
                self._random.choice(TAIL_SHARES),
            )
            for _ in range(4)
        ]

    def draw(self) -> tuple[int, int, float, float]:
        """Return who is the primary, who races it, and their times to first token in milliseconds."""
        random = self._random
        primary, rival = random.sample(range(len(self.providers)), 2)
        call = self._shared * random.gauss(0, 1)
        return primary, rival, self._ttft_ms(primary, call), self._slower * self._ttft_ms(rival, call)

    def draw_of(self, provider: int) -> float:
        """Return how long ``provider`` takes for another call, in milliseconds."""
        return self._ttft_ms(provider, self._shared * self._random.gauss(0, 1))

    def _ttft_ms(self, provider: int, call: float) -> float:
        median_ms, sigma, tail_share = self.providers[provider]
        random = self._random
        score = call + self._own * random.gauss(0, 1)
        if self._world is World.PARETO:
            return min(median_ms / exp(log(max(1e-12, erfc(score / sqrt(2)))) / 1.5), CAP_MS)
        if self._world is World.BIMODAL:
            return median_ms * exp(0.25 * score) * (5 if random.random() < 0.05 + 3 * tail_share else 1)
        ttft_ms = median_ms * exp(sigma * score)
        if random.random() < tail_share:
            ttft_ms *= 6 * exp(0.5 * random.gauss(0, 1))
        return min(ttft_ms, CAP_MS)


def overtaken(seed: int, difficulty: float, calls: int, audit_share: float) -> list[Overtaken]:
    """Race ``calls`` calls, audit a share of them, and return those whose primary was overtaken."""
    return raced(seed, difficulty, calls, audit_share)[0]


def raced(  # noqa: PLR0917 - a fleet's, and how it is raced
    seed: int,
    difficulty: float,
    calls: int,
    audit_share: float,
    world: World = World.LOGNORMAL,
    rivals: Rivals = Rivals.OFTEN,
) -> tuple[list[Overtaken], list[float]]:
    """Race ``calls`` calls; return those whose primary was overtaken, and the first tokens (ms) of the others.

    Predictions are those of the gateway's own curves, as it would have learned them from the calls before.
    """
    fleet, random = Fleet(seed, difficulty, world, rivals), Random(-seed)
    known = _taught(fleet, random, audit_share)
    found, seen_ms = [], []
    for _ in range(calls):
        primary, _, alone_ms, rival_ms = fleet.draw()
        audited = random.random() < audit_share
        if rival_ms < alone_ms:
            predicted_ms = 1000 * known.of(str(primary)).expected_s(rival_ms / 1000)
            found.append(Overtaken(rival_ms, alone_ms, predicted_ms, audited))
        else:
            seen_ms.append(alone_ms)
    return found, seen_ms


def _taught(fleet: Fleet, random: Random, audit_share: float) -> Standings:
    """Return what the gateway knows of the fleet after the first calls: losers are cut, but for audited ones."""
    known: dict[str, Evidence] = {}
    api = MeasuredApi.ANSWERS
    for _ in range(WARM_UP):
        *racers, first_ms, second_ms = fleet.draw()
        audited = random.random() < audit_share
        for name, own_ms, other_ms in ((racers[0], first_ms, second_ms), (racers[1], second_ms, first_ms)):
            evidence = known.setdefault(str(name), Evidence(events={api: {}}, censored={api: {}}))
            seen = audited or own_ms <= other_ms
            histogram = (evidence.events if seen else evidence.censored)[api]
            index = bucket((own_ms if seen else other_ms) / 1000)
            histogram[index] = histogram.get(index, 0.0) + 1.0
    return standings(known)


def measured(difficulty: float, calls: int, audit_share: float, fleets: int) -> dict[str, float]:
    """Return how the estimate does over seeded fleets, as shares: of the truth, and of the fleets."""
    errors = []
    covered = 0
    for seed in range(1, fleets + 1):
        found, seen_ms = raced(seed, difficulty, calls, audit_share)
        truth_ms = sum(call.alone_ms - call.ttft_ms for call in found)
        estimate = saved(found, seen_ms)
        errors.append(estimate.ms / truth_ms - 1)
        if estimate.low_ms is not None and estimate.high_ms is not None:
            covered += estimate.low_ms <= truth_ms <= estimate.high_ms
    return {"bias": fmean(errors), "covered": covered / fleets}


class Held(Struct, frozen=True):
    """How intervals do over installations. Half-widths are in parts of the truth; zero where that is."""

    covered: float  # share of those with an interval that hold what racing saves a call, in the long run
    told: float  # share that has one
    width_ms: float  # the widest, a call
    half_width: float  # the mean
    best: float  # 1.96 x the error (rms) of the best estimator of the same audits


def held(
    rivals: Rivals, calls: int, audit_share: float, *, world: World = World.LOGNORMAL, fleets: int = 6, each: int = 20
) -> Held:
    """Return how intervals do over ``each`` installations of each of ``fleets``, of ``calls`` calls.

    The long run is ``LONG_RUN`` calls, from which those of an installation are drawn.
    """
    told: list[tuple[float, float, float]] = []  # low, truth and high, a call
    errors: tuple[list[float], list[float]] = ([], [])
    for seed in range(1, fleets + 1):
        found, seen_ms = raced(seed, DIFFICULTIES[seed % 3], LONG_RUN, audit_share, world, rivals)
        truth_ms = sum(call.alone_ms - call.ttft_ms for call in found) / LONG_RUN
        random = Random(f"installations {seed}")
        for _ in range(each):
            drawn = random.choices([*found, *seen_ms], k=calls)
            lost = [
                structs.replace(one, audited=random.random() < audit_share)
                for one in drawn
                if isinstance(one, Overtaken)
            ]
            estimate = saved(lost, [one for one in drawn if isinstance(one, float)])
            if estimate.low_ms is None or estimate.high_ms is None:
                continue
            told.append((estimate.low_ms / calls, truth_ms, estimate.high_ms / calls))
            if truth_ms:
                waits = [call.alone_ms - call.ttft_ms for call in lost if call.audited]
                expanded_ms = fmean(waits) * len(lost) if waits else 0.0
                for off, ms in zip(errors, (estimate.ms, expanded_ms), strict=True):
                    off.append(ms / calls / truth_ms - 1)
    return Held(
        covered=fmean(low <= truth <= high for low, truth, high in told),
        told=len(told) / (fleets * each),
        width_ms=max(high - low for low, _, high in told),
        half_width=fmean([(high - low) / 2 / truth for low, truth, high in told if truth] or [0.0]),
        best=1.96 * min(sqrt(fmean([error * error for error in off] or [0.0])) for off in errors),
    )
