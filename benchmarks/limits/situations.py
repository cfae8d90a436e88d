"""What happens while the calls are made: the situations, and when each begins and ends."""

import msgspec

HALF_WAY = 1 / 2  # of a phase: before the limits are reached, at two thirds
AT_THE_LIMIT = 3 / 4  # after it


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What happens, and at which shares of a phase. ``is_brief``: also part of a quick run."""

    name: str
    fault: str | None = None  # "kill", "hang" or "flush"
    begin: float = HALF_WAY
    end: float = HALF_WAY
    is_brief: bool = True


SITUATIONS = (
    Situation(name="calm"),
    Situation(name="killed", fault="kill"),
    Situation(name="hung", fault="hang", end=0.78),
    Situation(name="flushed", fault="flush"),
    Situation(name="hung before", fault="hang", begin=0.35, end=0.55, is_brief=False),
    Situation(name="flushed after", fault="flush", begin=AT_THE_LIMIT, end=AT_THE_LIMIT, is_brief=False),
)
