"""The weather of one run: how slow, broken or silent each provider is in each second."""

from enum import IntEnum
from math import exp, pi, sin, sqrt
from random import Random

from benchmarks.steering.worlds import Spell, World


class Fault(IntEnum):
    """What is wrong with a provider."""

    NONE = 0
    HANGS = 1
    ERRS = 2
    REFUSES = 3


class Weather:
    """``slow[p][s]`` multiplies the time to first token of provider p in second s; ``fault[p][s]`` is what is wrong."""

    def __init__(self, world: World, seconds: int, seed: int) -> None:
        random = Random(f"{seed}:{world.name}:weather")
        shared = _drift(random, world.shared_sd, world.drift_tau_s, seconds)
        self.slow: list[list[float]] = []
        self.fault: list[list[Fault]] = []
        for _ in world.providers:
            own = _drift(random, world.drift_sd, world.drift_tau_s, seconds)
            phase = random.random()
            self.slow.append(
                [
                    exp(a + b + world.day * sin(2 * pi * (phase + second / seconds)))
                    for second, (a, b) in enumerate(zip(shared, own, strict=True))
                ]
            )
            self.fault.append([Fault.NONE] * seconds)
        self.error_share = world.outages.error_share if world.outages else 0.0  # of a provider that errs
        self._break(world, seconds, random)
        for spell in (*([world.spell] if world.spell else []), *world.spells):
            self._spell(world, spell, seconds)
        self._slow_regions(world, seconds, random)

    def _break(self, world: World, seconds: int, random: Random) -> None:
        if world.outages is None:
            return
        every_s, lasts_s = int(world.outages.every_s), int(world.outages.lasts_s)
        kinds: list[Fault] = []
        for begin in range(every_s - lasts_s, seconds, every_s):
            if not kinds:
                kinds = [Fault.HANGS, Fault.ERRS, Fault.NONE]
                random.shuffle(kinds)
            victim, kind = random.randrange(len(world.providers)), kinds.pop()
            for second in range(begin, min(seconds, begin + lasts_s)):
                self.fault[victim][second] = kind
                if kind is Fault.NONE:
                    self.slow[victim][second] *= world.outages.slow

    def _spell(self, world: World, spell: Spell, seconds: int) -> None:
        victim = next(number for number, each in enumerate(world.providers) if each.name == spell.provider)
        for second in range(int(spell.begins_s), seconds):
            if (second - spell.begins_s) % spell.every_s >= spell.lasts_s:
                continue
            if spell.refuses:
                self.fault[victim][second] = Fault.REFUSES
            elif spell.slow is None:
                self.fault[victim][second] = Fault.HANGS
            else:
                self.slow[victim][second] *= spell.slow

    def _slow_regions(self, world: World, seconds: int, random: Random) -> None:
        if world.region_slow == 1.0:
            return
        middle = len(world.providers) // 2
        for region in (range(middle), range(middle, len(world.providers))):
            second = int(random.expovariate(1 / 180))
            while second < seconds:
                end = min(seconds, second + 60)
                for provider in region:
                    for each in range(second, end):
                        self.slow[provider][each] *= world.region_slow
                second = end + int(random.expovariate(1 / 180))


def _drift(random: Random, sd: float, tau_s: float, seconds: int) -> list[float]:
    """Return an Ornstein-Uhlenbeck process, second by second, in its steady state."""
    if sd == 0:
        return [0.0] * seconds
    keep = exp(-1 / tau_s)
    kick = sd * sqrt(1 - keep * keep)
    value = random.gauss(0.0, sd)
    values = []
    for _ in range(seconds):
        values.append(value)
        value = keep * value + random.gauss(0.0, kick)
    return values
