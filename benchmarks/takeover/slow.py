"""A stream that nearly stops: how often a healthy one is found, how soon a slow one, and what its rescue saves.

    python -m benchmarks.takeover.slow [--streams 8000] [--calls 640] [--seed 1] [--json]

*Healthy* and *slow* streams are gaps between tokens, given to the gateway's detector every half second; another
deployment is known to write 100 tok/s. What false rescues cost is what is sent once more as input, and the rest of the
answer. *Worlds* are whole gateways in virtual time: each call is answered twice by the same draws, with and without
``takeover.slow``, and the total times of those that were rescued are compared.
"""

import argparse
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.harness.report import console, grid, print_json
from gateway.racing.rescue import TICK_S, Slowness, slow_speed
from gateway.settings.sections import SlowSettings
from tests.schedules.scenario import PROVIDERS, Ask, Behaviour, Client, Scenario
from tests.schedules.simulation import run

FASTEST_TPS = 100.0
BELOW_TPS = SlowSettings().below_tps
PROMPT = 1_000  # tokens
FLEETS = 8  # of each world: other speeds
MOST_RATIO = 1.1
Gaps = list[tuple[int, float]]  # tokens, and the seconds since those before them

# Gaps of streams, and what the detector says of them.


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
SLOW_TPS = (0.5, 0.8, 1.0, 1.5, 2.0)


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


def slow(streams: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield how soon slow streams are found, in seconds since they became slow."""
    for tps in SLOW_TPS:
        for name, before in (("from the start", 0), ("after 200 tokens at 40 tok/s", 200)):
            dice, after_s = random.Random(f"{seed} {tps} {name}"), []
            for _ in range(streams):
                fast = [(1, jitter(dice, 0.8) / 40.0) for _ in range(before)]
                began_s = sum(gap_s for _, gap_s in fast)
                alarm = found_at(
                    [*fast, *((1, jitter(dice, 0.3) / tps) for _ in range(100))],
                    slow_speed(BELOW_TPS, FASTEST_TPS, 40.0),
                )
                if alarm is not None:
                    after_s.append(alarm - began_s)
            ordered = sorted(after_s)
            row = {"p50_s": median(ordered), "p95_s": ordered[int(0.95 * len(ordered))], "max_s": ordered[-1]}
            yield {"tok/s": tps, "slow": name, "n": streams, "found": len(ordered), **row}


# Worlds of whole gateways.

EVENTS_PER_TOKEN = 4 / 6.5  # a token is taken for 4 characters, an event has 6.5


def events_of(tokens: float) -> int:
    """Return how many of its events a simulated answer of so many tokens has."""
    return max(2, round(tokens * EVENTS_PER_TOKEN))


def gap_s(tps: float) -> float:
    """Return the time between two events."""
    return 1.0 / (tps * EVENTS_PER_TOKEN)


def dribble(dice: random.Random) -> dict[str, Any]:
    """Return one of 5 streams that is slow from some token on."""
    if dice.random() > 0.2:
        return {}
    return {"slow_at": events_of(dice.uniform(5.0, 150.0)), "slow_gap_s": gap_s(dice.uniform(0.8, 2.0))}


def brown_out(dice: random.Random) -> dict[str, Any]:
    """Return a third of the streams, which are slow for 10 to 120 s."""
    if dice.random() > 1 / 3:
        return {}
    tps, first = dice.uniform(0.8, 2.0), events_of(dice.uniform(2.0, 100.0))
    last = first + max(1, round(dice.uniform(10.0, 120.0) / gap_s(tps)))
    return {"slow_at": first, "fast_at": last, "slow_gap_s": gap_s(tps)}


def slow_replica(dice: random.Random) -> dict[str, Any]:
    """Return one of 8 streams that is slow from its first token."""
    return {"slow_at": 2, "slow_gap_s": gap_s(dice.uniform(0.8, 2.0))} if dice.random() < 1 / 8 else {}


WORLDS: Mapping[str, Callable[[random.Random], dict[str, Any]]] = {
    "dribble": dribble,
    "brown-out": brown_out,
    "one slow replica": slow_replica,
}


def world(name: str, calls: int, seed: str, *, rescues: bool) -> Scenario:
    """Return a world whose first provider is the troubled one."""
    dice = random.Random(f"{seed} {name}")
    usual = {each: dice.uniform(20.0, 100.0) for each in PROVIDERS}

    def answer(provider: str, trouble: dict[str, Any]) -> Behaviour:
        return Behaviour(
            prose=True,
            opens_s=dice.uniform(0.1, 0.4),
            first_s=min(4.0, 0.4 * jitter(dice, 0.8)),
            gap_s=gap_s(usual[provider] * jitter(dice, 0.2)),
            tokens=dice.randint(20, 300),
            **trouble,
        )

    first, *others = PROVIDERS
    behaviours = {first: tuple(answer(first, WORLDS[name](dice)) for _ in range(calls))}
    behaviours |= {each: tuple(answer(each, {}) for _ in range(50)) for each in others}
    ask = Ask(order=PROVIDERS)
    return Scenario(
        seed=1,
        race={"mode": "single", "budget": 0.0, "audit_share": 0.0},
        takeover={"when": "always", **({"slow": {"budget": 1.0}} if rescues else {})},
        usual_tps=usual,
        stall_s=30.0,
        total_s=3_600.0,
        behaviours=behaviours,
        clients=tuple(Client(at_s=2.0 * number, asks=(ask,)) for number in range(calls)),
    )


def saved(calls: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield what rescues save in each world, of several fleets: the total of a rescued call, of what it would be."""
    for name in WORLDS:
        ratios, saved_s = [], 0.0
        for fleet in range(FLEETS):
            scenarios = [world(name, calls // FLEETS, f"{seed} {fleet}", rescues=each) for each in (True, False)]
            rescued, alone = (run(each).store.calls.values() for each in scenarios)
            alone_ms = {each.request_id: each.total_ms for each in alone}
            for each in rescued:
                if each.takeover == "rescued":
                    ratios.append(each.total_ms / alone_ms[each.request_id])
                    saved_s += (alone_ms[each.request_id] - each.total_ms) / 1000
        ratios.sort()
        yield {
            "world": name,
            "calls": calls // FLEETS * FLEETS,
            "rescued": len(ratios),
            "median": median(ratios),
            "p95": ratios[int(0.95 * len(ratios))],
            "worst": ratios[-1],
            "<= 1.0": sum(each <= 1.0 for each in ratios) / len(ratios),
            "<= 1.1": sum(each <= MOST_RATIO for each in ratios) / len(ratios),
            "saved_s": saved_s / len(ratios),
        }


def main() -> None:
    """Measure, and print the tables."""
    words = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.takeover.slow", description=__doc__, formatter_class=words
    )
    parser.add_argument("--streams", type=int, default=8_000, help="of each kind (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=640, help="of each world (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tables: dict[str, Sequence[dict[str, Any]]] = {
        "healthy streams that are found": list(healthy(options.streams, options.seed)),
        "slow streams": list(slow(max(20, options.streams // 20), options.seed)),
        "rescued calls, of what they would have taken": list(saved(options.calls, options.seed)),
    }
    if options.json:
        print_json(tables)
        return
    for title, rows in tables.items():
        console().print(grid(title, list(rows[0]), [[_figure(each) for each in row.values()] for row in rows]))


def _figure(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
