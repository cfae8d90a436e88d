"""Always the same deployment: the one that would have been best over the whole run, which nobody can know before."""

from collections.abc import Sequence
from random import Random

from benchmarks.steering.baselines import Baseline
from benchmarks.steering.timeline import Timeline
from benchmarks.steering.traffic import Request
from benchmarks.steering.weather import Fault, Weather
from benchmarks.steering.worlds import TIMEOUT_S
from gateway.core.calls import Objective


class AlwaysBest(Baseline):
    """Sends everything to one deployment; the others only take over when it fails."""

    def __init__(self, timeline: Timeline, random: Random, objective: Objective, order: Sequence[str]) -> None:
        super().__init__(timeline, random, objective, {})
        self._order = order

    def order(self, names: list[str]) -> list[str]:
        """Keep to the order of the whole run."""
        return [name for name in self._order if name in names]


def best_first(
    names: Sequence[str], requests: Sequence[Request], weather: Weather, objective: Objective
) -> tuple[str, ...]:
    """Return ``names``, one for each provider, by what the mean over all requests would be; queues are left out."""
    whole = objective is Objective.COMPLETION

    def total_s(number: int) -> float:
        seconds = 0.0
        for request in requests:
            second, drawn = int(request.at_s), request.luck[number]
            if weather.fault[number][second] is Fault.HANGS:
                seconds += TIMEOUT_S
                continue
            seconds += min(TIMEOUT_S, drawn.ttft_s * weather.slow[number][second])
            if whole:
                seconds += request.answer_tokens / drawn.tok_s
        return seconds

    return tuple(names[number] for number in sorted(range(len(names)), key=total_s))
