"""Slowdowns, and what of them is told: they begin, go on, and end."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

# What the detector reads: counts of attempts in one window of time, and the names of what it watches.

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


class Slowdown(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment is worse than usual by one metric.

    ``ratio``: how many times as long, as slow or as often as expected, with an interval of 95 %; ``n``: of how many
    first tokens, answers or attempts. Times are unix seconds: begin of the first window that was worse, the end of the
    one with which there was enough evidence.
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
    """What has happened to a slowdown."""

    BEGAN = "began"
    ENDED = "ended"


class Ending(StrEnum):
    """Why it is over."""

    AS_USUAL = "as_usual"  # it is as fast as before, or its peers are as slow
    NEW_USUAL = "new_usual"  # it has lasted so long that this is what is usual now
    NO_CALLS = "no_calls"


class Change(msgspec.Struct, frozen=True):
    """The begin, or the end, of a slowdown."""

    happened: Happened
    slowdown: Slowdown
    ended_s: int | None = None
    ending: Ending | None = None
