"""Slowdowns, and what of them is told: they begin, go on, and end."""

from enum import StrEnum

import msgspec

from gateway.detecting.windows import Metric


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
