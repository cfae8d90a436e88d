"""What may belong to a fault: samples that count only if there is none, and how unlikely a silence is."""

from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from math import log

from gateway.steering.constants import DOUBTED_KEPT, KNOWN_EVENTS, SILENCE
from gateway.steering.histogram import bucket
from gateway.steering.standings import Estimate
from gateway.steering.tally import Counts

_LEAST_SHARE = 0.01  # of attempts that take longer than any age: a single one proves nothing


class Doubts:
    """Of each deployment since its last first token in time. ``count`` takes a model, counts and their Unix time."""

    __slots__ = ("_count", "_doubted", "_silence")

    def __init__(self, count: Callable[[str, Counts, float], None]) -> None:
        self._count = count
        self._doubted: dict[str, deque[tuple[str, str, float]]] = {}  # by deployment: model, field, time
        self._silence: dict[str, float] = {}  # by deployment: -ln p of its silence

    def keep(self, model: str, deployment: str, field: str, unix_s: float) -> None:
        """Keep a sample; the oldest of too many counts after all."""
        doubted = self._doubted.setdefault(deployment, deque())
        doubted.append((model, field, unix_s))
        if len(doubted) > DOUBTED_KEPT:
            model, field, unix_s = doubted.popleft()
            self._count(model, {field: 1.0}, unix_s)

    def is_silent(self, deployment: str, estimate: Estimate, age_s: float) -> bool:
        """Whether so many attempts without a first token, cut at such ages, are very unlikely.

        An attempt that loses is usually cut early, so each adds only a little.
        """
        if estimate.usual is None or estimate.usual_events < KNOWN_EVENTS:
            return False
        below = bucket(age_s) - 1
        without = 1.0 - estimate.usual.reached[below] if below >= 0 else 1.0
        silence = self._silence.get(deployment, 0.0) - log(max(_LEAST_SHARE, without))
        self._silence[deployment] = silence
        return silence >= SILENCE

    def believe(self, deployment: str) -> None:
        """Count the samples that were kept: the deployment is healthy."""
        self._silence.pop(deployment, None)
        for model, field, unix_s in self._doubted.pop(deployment, ()):
            self._count(model, {field: 1.0}, unix_s)

    def drop(self, deployment: str) -> None:
        """Forget the samples that were kept: they are a fault's."""
        self._doubted.pop(deployment, None)
        self._silence.pop(deployment, None)

    def forget_others(self, deployments: AbstractSet[str]) -> None:
        """Forget all but ``deployments``."""
        self._silence = {name: each for name, each in self._silence.items() if name in deployments}
        self._doubted = {name: each for name, each in self._doubted.items() if name in deployments}
