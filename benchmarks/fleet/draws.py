"""The providers' own logs of what they drew."""

import csv
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.fleet.installation import draws_file
from benchmarks.fleet.world import PERSONAS, World

_TOLERANCE_MS = 1e-6


class Draw(msgspec.Struct, frozen=True):
    """One request as its provider logged it."""

    provider: str
    number: int
    age_s: float
    ttft_ms: float
    late_ms: float  # how much later than drawn the first token left; 0 when none did

    def differs(self, world: World) -> bool:
        """Tell whether the benchmark computes another draw."""
        return abs(world.draw(self.provider, self.number, self.age_s).ttft_s * 1000 - self.ttft_ms) > _TOLERANCE_MS


def read_draws(folder: Path) -> Iterator[Draw]:
    """Yield every logged draw."""
    for provider in PERSONAS:
        with draws_file(folder, provider).open(newline="") as lines:
            for row in csv.DictReader(lines):
                yield Draw(
                    provider, int(row["number"]), float(row["age_s"]), float(row["ttft_ms"]), float(row["late_ms"])
                )
