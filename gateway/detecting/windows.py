"""What the detector reads: counts of attempts in one window of time, and the names of what it watches."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

WINDOW_S = 300
HOUR_S = 3600
DAY_S = 86_400

Counts = Mapping[int, float]  # by bucket


class Metric(StrEnum):
    """What may get worse: times and gaps get longer, speeds smaller, errors more frequent."""

    TTFT = "ttft"
    TPS = "tps"
    ITL = "itl"
    ERRORS = "errors"


SPEEDS = (Metric.TTFT, Metric.TPS, Metric.ITL)
NOTHING: Counts = {}


class Histogram(msgspec.Struct, frozen=True):
    """Values in the ledger's buckets, eight to an octave. ``cut``: by the age at which it was cut, "more than this".

    ``answers``: how many answers the values are of; gaps of one answer are alike, so that they count as one.
    """

    seen: Counts = NOTHING
    cut: Counts = NOTHING
    answers: float | None = None


class Tally(msgspec.Struct, frozen=True):
    """Attempts that ended with a first token or an error (``n``), and the errors among them."""

    n: float = 0.0
    errors: float = 0.0


class Window(msgspec.Struct, frozen=True):
    """Attempts of one deployment that were launched within five minutes, or an hour, from ``start_s`` (unix time)."""

    start_s: int
    histograms: Mapping[Metric, Histogram]
    tally: Tally = Tally()
