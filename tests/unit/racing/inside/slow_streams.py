"""Healthy streams, as gaps between their tokens, and how many of them the detector of slow ones finds."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gateway.racing.rescue import TICK_S, Slowness, slow_speed
from gateway.settings import SlowSettings

FASTEST_TPS = 100.0
BELOW_TPS = SlowSettings().below_tps
PROMPT = 1_000  # tokens
Gaps = list[tuple[int, float]]  # tokens, and the seconds since those before them


def jitter(dice: random.Random, sigma: float) -> float:
    """Return a factor whose mean is 1."""
    return dice.lognormvariate(-sigma * sigma / 2, sigma)


def steady(dice: random.Random, tps: float) -> Gaps:
    """Return natural jitter, and a pause of 1 to 3 s in one of 500 gaps."""
    return [(1, _gap(dice, tps, 0.8, 0.002)) for _ in range(dice.randint(20, 1_500))]


def rough(dice: random.Random, tps: float) -> Gaps:
    """Return heavy jitter (half of the time goes into a sixth of the gaps), and a pause in one of 300 gaps."""
    return [(1, _gap(dice, tps, 1.0, 0.003)) for _ in range(dice.randint(20, 1_500))]


def bursts(dice: random.Random, tps: float) -> Gaps:
    """Return 4 to 20 tokens at a time."""
    together = dice.randint(4, 20)
    return [(together, together * jitter(dice, 0.6) / tps) for _ in range(dice.randint(5, 150))]


def phases(dice: random.Random, tps: float) -> Gaps:
    """Return a stream that writes half as fast for 5 to 20 s, now and then."""
    found: Gaps = []
    for _ in range(dice.randint(1, 6)):
        for share, seconds in ((1.0, dice.uniform(5.0, 40.0)), (0.5, dice.uniform(5.0, 20.0))):
            found += [(1, _gap(dice, share * tps, 0.8, 0.002)) for _ in range(int(seconds * share * tps))]
    return found


def _gap(dice: random.Random, tps: float, sigma: float, pauses: float) -> float:
    return dice.uniform(1.0, 3.0) if dice.random() < pauses else jitter(dice, sigma) / tps


HEALTHY: Mapping[str, tuple[float, float, Callable[[random.Random, float], Gaps]]] = {
    "15 to 120 tok/s": (15.0, 120.0, steady),
    "5 to 15 tok/s, heavy jitter": (5.0, 15.0, rough),
    "5 to 15 tok/s in bursts": (5.0, 15.0, bursts),
    "10 to 60 tok/s, half as fast at times": (10.0, 60.0, phases),
}


def found_at(gaps: Gaps, tps: float) -> float | None:
    """Return when the detector finds a stream slow, in seconds since its first token; None: never."""
    slowness = Slowness(tps, 1, 0.0, 0.0)
    at_s, tokens, tick_s = 0.0, 1, TICK_S
    for number, gap_s in gaps:
        while tick_s < at_s + gap_s:
            if slowness.look(tokens, at_s, tick_s, 0.0):
                return tick_s
            tick_s += TICK_S
        at_s, tokens = at_s + gap_s, tokens + number
    return None


def healthy(streams: int, seed: int, kinds: Iterable[str] = HEALTHY) -> Iterator[dict[str, Any]]:
    """Yield the false rescues of each kind of healthy stream, and what they cost as a share of all tokens."""
    for name in kinds:
        least, most, draw = HEALTHY[name]
        dice, found, tokens, again = random.Random(f"{seed} {name}"), 0, 0, 0
        for _ in range(streams):
            own_tps = dice.uniform(least, most)
            gaps = draw(dice, own_tps * jitter(dice, 0.2))
            whole = sum(number for number, _ in gaps)
            tokens += PROMPT + whole
            if found_at(gaps, slow_speed(BELOW_TPS, FASTEST_TPS, own_tps)) is not None:
                found, again = found + 1, again + PROMPT + whole
        yield {"streams": name, "n": streams, "found": found, "share": found / streams, "tokens": again / tokens}
