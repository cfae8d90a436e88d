"""What is known of a model's deployments, and how an attempt that did not run, or was cut, is drawn from that."""

from collections.abc import Collection, Mapping, Sequence
from random import Random

from msgspec import Struct

from gateway.replay.dependence import Difficulty, draw_share, loadings, score
from gateway.replay.margins import Margin, audits, margins
from gateway.replay.playing import Drawn
from gateway.replay.rows import Call, Try

_MOST_SPEEDS = 2000  # kept of a deployment


class World(Struct):
    """The deployments of one model, as one resample of the calls shows them."""

    margins: Mapping[str, Margin]
    loadings: Mapping[str, float]
    ranked: Sequence[str]  # of which enough is known, the fastest first
    speeds: Mapping[str, Sequence[float]]  # decode tokens per second of answers
    providers: Mapping[str, str]


def learned(calls: Sequence[Call], times: Sequence[float]) -> World:
    """Return what calls show, if call n counts ``times[n]`` times its weight."""
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
    """One call with what its attempts would have done, had all run. Each is drawn once, and only if it is needed."""

    def __init__(self, call: Call, lead: Try | None, world: World, without: Collection[str], random: Random) -> None:
        """``without``: providers that are not asked."""
        self.call = call
        self._world = world
        self._random = random
        tries = [each for each in call.tries if each.provider not in without and not each.is_learning]
        tries.sort(key=lambda each: (each is not lead, not each.starts_with_call, each.offset_ms))
        allowed = [name for name in world.ranked if world.providers[name] not in without]
        self.order = tuple(dict.fromkeys([*[each.deployment for each in tries], *allowed]))
        self._drawn: dict[int, Drawn | None] = {}
        self._difficulty: float | None = None

    def draw(self, place: int) -> Drawn | None:
        """Return the attempt at the deployment that is candidate number ``place``; None if there is none."""
        if place not in self._drawn:
            self._drawn[place] = self._draw(self.order[place]) if place < len(self.order) else None
        return self._drawn[place]

    def pair_ms(self) -> tuple[float, float] | None:
        """Return when the earlier of two raced attempts came: as it was, and with the second drawn from the first.

        None if the call was not raced by two, or one of them failed.
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
        """Return how long the answer takes from its first token to its end, if ``deployment`` gives it."""
        call = self.call
        seen = None if call.total_ms is None or call.ttft_ms is None else max(0.0, call.total_ms - call.ttft_ms)
        won = next((each for each in call.tries if each.won), None)
        if seen is None or won is None or won.deployment == deployment:
            return seen
        speeds = self._world.speeds.get(deployment)
        if not speeds or not call.answer_tokens:
            return seen
        return 1000 * (call.answer_tokens - 1) / self._random.choice(speeds)

    def _draw(self, deployment: str) -> Drawn | None:
        least_ms = None
        for each in self.call.tries:
            if each.deployment != deployment:
                continue
            if (ms := each.seen_ms) is not None:
                return Drawn(deployment, ms)
            if each.failed:
                return Drawn(deployment, each.failed_ms or 0.0, failed=True)
            least_ms = each.overtaken_ms if each.overtaken_ms is not None else each.cut_ms
        margin = self._world.margins.get(deployment)
        if margin is None:
            return None
        if least_ms is None and self._random.random() < margin.failure_rate:
            return Drawn(deployment, self._random.choice(margin.failed_ms), failed=True)
        if self._difficulty is None:
            self._difficulty = self._drawn_difficulty()
        loading = self._world.loadings.get(deployment, 0.0)
        least = None if least_ms is None else score(margin.share(least_ms))
        ms = margin.quantile_ms(draw_share(self._difficulty, loading, least, self._random))
        return Drawn(deployment, ms if least_ms is None else max(ms, least_ms))

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
