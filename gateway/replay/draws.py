"""One draw of all unobserved attempts: the calls of a sample replayed under all settings, and their figures."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import inf
from random import Random
from statistics import fmean

from msgspec import Struct

from gateway.replay.rows import ReplayedCall
from gateway.replay.sample import Sample
from gateway.replay.variants import QUANTILES, Figure, ReplaySetting, SortedValues, figure, hedge_delay_ms
from gateway.replay.world import LEAST_PAIRS, Completed, World, play

# The cost of attempts, from the prices and the bounds that the ledger has. US dollars at list price.


class DeploymentCost(Struct, frozen=True):
    """The prices of one deployment, and the cost of a losing attempt there."""

    prompt_usd: float  # of a token
    answer_usd: float
    caches: float  # the cost of answers, over the cost that they would have without a prompt cache
    loser_low_usd: float
    loser_high_usd: float


def costs(calls: Sequence[ReplayedCall]) -> dict[str, DeploymentCost]:
    """Return the costs by deployment, without deployments whose price is unknown."""
    prices: dict[str, tuple[float, float]] = {}
    answers: dict[str, list[tuple[float, float]]] = {}
    losers: dict[str, list[tuple[float, float]]] = {}
    for call in calls:
        for each in call.tries:
            if each.price is None:
                continue
            prices[each.deployment] = each.price
            if each.won and each.cost_usd is not None and call.prompt_tokens:
                formula = (call.prompt_tokens * each.price[0] + (call.answer_tokens or 0) * each.price[1]) / 1e6
                answers.setdefault(each.deployment, []).append((each.cost_usd, formula))
            elif not each.won and not each.audited and each.cost_low_usd is not None and each.cost_high_usd is not None:
                losers.setdefault(each.deployment, []).append((each.cost_low_usd, each.cost_high_usd))
    everywhere = [pair for pairs in losers.values() for pair in pairs]
    found = {}
    for deployment, (prompt, answer) in prices.items():
        known = answers.get(deployment, [])
        whole = sum(formula for _, formula in known)
        cut = losers.get(deployment) or everywhere
        most = fmean(formula for _, formula in known) if known else 0.0
        found[deployment] = DeploymentCost(
            prompt / 1e6,
            answer / 1e6,
            sum(cost for cost, _ in known) / whole if whole else 1.0,
            fmean(low for low, _ in cut) if cut else 0.0,
            fmean(high for _, high in cut) if cut else most,
        )
    return found


def cost_of(
    call: ReplayedCall, winner: str | None, losers: Sequence[str], known: Mapping[str, DeploymentCost]
) -> tuple[float, float] | None:
    """Return the lower and the upper bound of a call's cost; None without a known price."""
    names = losers if winner is None else (winner, *losers)
    if not all(name in known for name in names):
        return None
    low = sum(known[name].loser_low_usd for name in losers)
    high = sum(known[name].loser_high_usd for name in losers)
    if winner is not None:
        price = known[winner]
        answer = (call.prompt_tokens or 0) * price.prompt_usd + (call.answer_tokens or 0) * price.answer_usd
        low, high = low + answer * price.caches, high + answer * price.caches
    return low, high


_MEDIAN = 0.5
LEAST_BEYOND = 5  # calls beyond a quantile: 100 in all for p95, 500 for p99. With fewer, resampling hides the error
_MOST_OFF = 1.2  # the largest factor by which the copula is corrected,
_CORRECTED = 0.95  # up to this quantile: beyond it, the correction is less exact than the copula
_P95 = QUANTILES.index(0.95)
_NAMES = tuple(f"p{share * 100:.0f}" for share in QUANTILES)
_Delays = Mapping[tuple[str, float], float]  # delay of a hedge, by the first attempt's deployment and quantile


class SettingOutcome(Struct, frozen=True):
    """The figures of one setting. Milliseconds, and US dollars and tokens per call."""

    setting: str
    race: dict[str, object]
    ttft: dict[str, Figure]  # by "p50", "p95", "p99"
    total: dict[str, Figure]
    attempts: float
    prompt_tokens: float  # of all attempts
    answer_tokens: float  # of the answer
    cost_low_usd: float | None
    cost_high_usd: float | None
    failed_share: float
    saved_p95_ms: Figure  # compared with single


class Pairs:
    """Observed races of two, and the same with the second attempt drawn from the first by the copula.

    The error of the drawn second attempts estimates that of third attempts, which are drawn in the same way.
    """

    def __init__(self) -> None:
        self._places: list[int] = []
        self._seen: list[float] = []
        self._drawn: list[float] = []
        self._ordered: tuple[SortedValues, SortedValues] | None = None

    def add(self, place: int, seen_ms: float, drawn_ms: float) -> None:
        """Count the call at ``place``."""
        self._places.append(place)
        self._seen.append(seen_ms)
        self._drawn.append(drawn_ms)

    def ratios(self, weights: Sequence[float]) -> list[float]:
        """Return the ratio of observed to drawn times for each quantile; 1 if too few calls were raced."""
        if len(self._places) < LEAST_PAIRS:
            return [1.0] * len(QUANTILES)
        if self._ordered is None:
            self._ordered = SortedValues(self._seen), SortedValues(self._drawn)
        mine = [weights[place] for place in self._places]
        seen, drawn = (each.quantiles(mine) for each in self._ordered)
        return [
            min(_MOST_OFF, max(1 / _MOST_OFF, ms / of)) if share <= _CORRECTED else 1.0
            for share, ms, of in zip(QUANTILES, seen, drawn, strict=True)
        ]


class Draw:
    """All calls of a sample, replayed under all settings with one draw of the unobserved attempts."""

    def __init__(
        self, sample: Sample, asked: Sequence[ReplaySetting], without: Collection[str], random: Random
    ) -> None:
        """``without``: providers that are left out."""
        self._sample = sample
        self._asked = asked
        self._without = without
        self._random = random
        self.ordered: list[tuple[SortedValues, SortedValues]] = []  # first tokens and whole answers, by setting
        self.ttft: list[list[float]] = [[] for _ in asked]
        self.launched: list[list[int]] = [[] for _ in asked]
        self.cost: list[list[tuple[float, float] | None]] = [[] for _ in asked]
        self._pairs = Pairs()

    def play(self, world: World, prices: Mapping[str, DeploymentCost]) -> "Draw":
        """Replay all calls in ``world``."""
        random = self._random
        total: list[list[float]] = [[] for _ in self._asked]
        delays = {
            (name, setting.hedged_from): hedge_delay_ms(margin.quantile_ms(setting.hedged_from))
            for name, margin in world.margins.items()
            for setting in self._asked
            if setting.hedged_from is not None
        }
        pairs = Pairs()
        for number, (call, lead) in enumerate(zip(self._sample.calls, self._sample.leads, strict=True)):
            completed = Completed(call, lead, world, self._without, random)
            order, luck = completed.order, (random.random(), random.random())
            if (pair := completed.pair_ms()) is not None:
                pairs.add(number, *pair)
            for at, setting in enumerate(self._asked):
                result = play(_starts(setting, order, delays, luck), completed.draw)
                winner = order[result.winner] if result.winner >= 0 else None
                self.ttft[at].append(result.ttft_ms)
                total[at].append(result.ttft_ms + (0.0 if winner is None else completed.decode_ms(winner) or 0.0))
                self.launched[at].append(len(result.launched))
                losers = [order[place] for place in result.launched if place != result.winner]
                self.cost[at].append(cost_of(call, winner, losers, prices))
        self.ordered = [(SortedValues(ttft), SortedValues(whole)) for ttft, whole in zip(self.ttft, total, strict=True)]
        self._pairs = pairs
        return self

    def quantiles(self, weights: Sequence[float]) -> list[list[float]]:
        """Return a list for each setting: the quantiles of first tokens, then those of whole answers."""
        ratios = self._pairs.ratios(weights)
        return [
            [
                *(
                    ms * (ratio if setting.widest > 2 else 1.0)  # noqa: PLR2004 - races of two are observed, so they need no correction
                    for ms, ratio in zip(ttft.quantiles(weights), ratios, strict=True)
                ),
                *total.quantiles(weights),
            ]
            for setting, (ttft, total) in zip(self._asked, self.ordered, strict=True)
        ]


def _starts(setting: ReplaySetting, order: Sequence[str], delays: _Delays, luck: tuple[float, float]) -> list[float]:
    if setting.budget is None:
        return [0.0] * setting.width
    if luck[0] >= setting.raced:
        late = None
        if order and setting.hedged_from is not None:
            late = delays.get((order[0], setting.hedged_from))
        return [0.0] if late is None else [0.0, late]
    beyond = max(0.0, setting.budget - 1.0)
    return [0.0] * (2 + int(beyond) + (luck[1] < beyond - int(beyond)))


class Resampled(Struct, frozen=True):
    """Quantiles by setting: one list for each draw, and one for each resample of the calls."""

    points: Sequence[Sequence[Sequence[float]]]
    resamples: Sequence[Sequence[Sequence[float]]]

    def of(self, at: int, n: int) -> Figure:
        """Return quantile ``n`` of a setting."""
        return figure([each[at][n] for each in self.points], [each[at][n] for each in self.resamples])

    def saved(self, at: int) -> Figure:
        """Return by how much a setting's p95 is below that of the first setting."""
        points, resamples = (
            [each[0][_P95] - each[at][_P95] for each in those] for those in (self.points, self.resamples)
        )
        return figure(points, resamples)


def outcomes(
    asked: Sequence[ReplaySetting], found: Resampled, first: Draw, sample: Sample, known: tuple[int, Collection[str]]
) -> Iterator[SettingOutcome]:
    """Yield the figures of each setting. ``known``: the number of deployments left, and the settings with known tails.

    Counts and costs are those of the ``first`` draw.
    """
    left, tails = known
    weights = sample.weights()
    whole = sum(weights)
    answers = sum(weight * (call.answer_tokens or 0) for weight, call in zip(weights, sample.calls, strict=True))
    beyond = [len(sample.calls) * (1 - share) for share in (*QUANTILES, *QUANTILES)]
    reached = {n for n, calls in enumerate(beyond) if calls >= LEAST_BEYOND - 1e-9}
    for at, setting in enumerate(asked):
        is_possible = setting.widest <= left
        figures = [
            found.of(at, n)
            if is_possible and n in reached and (setting.name in tails or share <= _MEDIAN)
            else Figure(None)
            for n, share in enumerate((*QUANTILES, *QUANTILES))
        ]
        tries = [weight * n for weight, n in zip(weights, first.launched[at], strict=True)]
        prompts = sum(n * (call.prompt_tokens or 0) for n, call in zip(tries, sample.calls, strict=True))
        failed = sum(weight for weight, ms in zip(weights, first.ttft[at], strict=True) if ms == inf)
        low, high = _mean_cost(weights, first.cost[at])
        yield SettingOutcome(
            setting.name,
            setting.race,
            dict(zip(_NAMES, figures[: len(QUANTILES)], strict=True)),
            dict(zip(_NAMES, figures[len(QUANTILES) :], strict=True)),
            sum(tries) / whole,
            prompts / whole,
            answers / whole,
            low,
            high,
            failed / whole,
            found.saved(at)
            if is_possible and _P95 in reached and {setting.name, asked[0].name} <= set(tails)
            else Figure(None),
        )


def _mean_cost(
    weights: Sequence[float], cost: Sequence[tuple[float, float] | None]
) -> tuple[float | None, float | None]:
    known = [(weight, each) for weight, each in zip(weights, cost, strict=True) if each is not None]
    whole = sum(weight for weight, _ in known)
    if not known or whole < sum(weights) / 2:
        return None, None
    return sum(w * low for w, (low, _) in known) / whole, sum(w * high for w, (_, high) in known) / whole
