"""Growth: the last quarter of a run beside its second one. The first, in which caches fill, says nothing."""

from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from benchmarks.soak.samples import Sample

LEAST_SAMPLES = 5  # in a quarter, or nothing is said


class Growth(msgspec.Struct, frozen=True):
    """Medians of what was sampled in the second quarter and in the last."""

    second: float
    last: float

    @property
    def share(self) -> float:
        """Return by what share of the second quarter's it grew; less than 0 where it shrank."""
        return self.last / self.second - 1 if self.second else 0.0


def growth(samples: Sequence[Sample], read: Callable[[Sample], float]) -> Growth | None:
    """Return how what ``read`` reads grew over a run, quarters being of its time; None where it was too short."""
    if not samples:
        return None
    first_s, last_s = samples[0].at_s, samples[-1].at_s
    quarters: list[list[float]] = [[], [], [], []]
    for sample in samples:
        share = (sample.at_s - first_s) / (last_s - first_s) if last_s > first_s else 0.0
        quarters[min(3, int(4 * share))].append(read(sample))
    if min(len(quarters[1]), len(quarters[3])) < LEAST_SAMPLES:
        return None
    return Growth(median(quarters[1]), median(quarters[3]))
