"""Plays one call under a setting: who starts when, who is first, and what is paid for."""

from collections.abc import Callable, Sequence
from math import inf

from msgspec import Struct

from gateway.replay.rows import CAP_MS


class Drawn(Struct, gc=False):
    """One attempt as it was, or would have been: its first token, or when it failed."""

    deployment: str
    ms: float
    failed: bool = False


class Played(Struct, gc=False):
    """What became of a call."""

    ttft_ms: float  # inf: all have failed
    winner: int  # whose place among the candidates; -1: nobody
    launched: Sequence[int]  # the places of all that were started


def play(starts_ms: Sequence[float], draw: Callable[[int], Drawn | None]) -> Played:
    """Play a call whose attempts start at ``starts_ms``, in order; ``draw`` returns the attempt at a place, or None.

    One that fails is replaced at once by the next launch; after the last of them by further candidates.
    """
    waiting = list(starts_ms)
    first_ms, winner, place = inf, -1, 0
    launched = []
    failures: list[float] = []
    while waiting or failures:
        if failures and (not waiting or min(failures) < waiting[0]):
            start = min(failures)
            failures.remove(start)
            if waiting:
                waiting.pop(0)
        else:
            start = waiting.pop(0)
        if start >= first_ms or start >= CAP_MS:
            break
        drawn = draw(place)
        if drawn is None:
            break
        launched.append(place)
        if drawn.failed:
            failures.append(start + drawn.ms)
        elif start + drawn.ms < first_ms:
            first_ms, winner = start + drawn.ms, place
        place += 1
    return Played(first_ms, winner, launched)
