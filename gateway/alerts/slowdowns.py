"""Slowdowns, their begins and ends, and the counts from which they are detected."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

# The input of the detector: counts of attempts in a window of time, by metric.

WINDOW_S = 300
HOUR_S = 3600
DAY_S = 86_400

Counts = Mapping[int, float]  # by bucket


class Metric(StrEnum):
    """The watched metrics: times and gaps may get longer, speeds lower, errors more frequent."""

    TTFT = "ttft"
    TPS = "tps"
    ITL = "itl"
    ERRORS = "errors"


SPEEDS = (Metric.TTFT, Metric.TPS, Metric.ITL)
NOTHING: Counts = {}


class Histogram(msgspec.Struct, frozen=True):
    """Values in the ledger's buckets, eight per octave. ``cut``: censored values, by the age at which they were cut.

    ``answers``: the number of answers behind the values; the gaps within one answer are alike, and count as one.
    """

    seen: Counts = NOTHING
    cut: Counts = NOTHING
    answers: float | None = None


class AttemptTally(msgspec.Struct, frozen=True):
    """Attempts that ended with a first token or an error (``n``), and the errors among them."""

    n: float = 0.0
    errors: float = 0.0


class AttemptWindow(msgspec.Struct, frozen=True):
    """Attempts of one deployment launched in the five minutes, or the hour, that began at ``start_s`` (unix time)."""

    start_s: int
    histograms: Mapping[Metric, Histogram]
    tally: AttemptTally = AttemptTally()


Windows = Mapping[int, Mapping[str, Mapping[str, AttemptWindow]]]  # by begin, model and deployment


class DetectedSlowdown(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment is worse than usual by one metric.

    ``ratio``: how many times as long, slow or frequent as expected, with an interval of 95 %; ``n``: the number of
    first tokens, answers or attempts behind the ratio. Times are unix seconds: ``began_s`` is the start of the first
    window that was worse, ``noticed_s`` the end of the window that made the evidence sufficient.
    """

    model: str
    deployment: str
    metric: Metric
    began_s: int
    noticed_s: int
    ratio: float
    low: float
    high: float
    n: int


class Happened(StrEnum):
    """Whether a slowdown began or ended."""

    BEGAN = "began"
    ENDED = "ended"


class SlowdownEnd(StrEnum):
    """Why a slowdown is over."""

    AS_USUAL = "as_usual"  # the deployment is as fast as before, or its peers are as slow
    NEW_USUAL = "new_usual"  # a slowdown that has lasted for so long is usual now
    NO_CALLS = "no_calls"


class SlowdownChange(msgspec.Struct, frozen=True):
    """The begin or the end of a slowdown."""

    happened: Happened
    slowdown: DetectedSlowdown
    ended_s: int | None = None
    ending: SlowdownEnd | None = None


class PastSlowdown(msgspec.Struct, frozen=True):
    """A slowdown that was stored; ``ended_s`` is None while it lasts."""

    slowdown: DetectedSlowdown
    ended_s: int | None
