"""The world of the fleet: six providers, the calls made to them, and what each provider draws for each call.

A draw is a function of the seed, the provider, the number of the call and the time: so for every call the benchmark
knows what the providers that were never asked would have done, and what the best of them is worth.
"""

from collections.abc import Mapping
from math import exp, sqrt
from random import Random
from types import MappingProxyType

import msgspec

from providers.simulator import Fate, Persona, RequestDraws

SHARED_SIGMA = 0.10  # of a call's TTFT, the same at all providers
_DRIFT_STEP_S = 1.0
_DRIFT_STEPS = 1800  # half an hour: no run is longer
_PROMPT_SIGMA = 0.5

# Medians, spreads, tails, prefill, decode and errors as in the worlds the policy's constants were tuned on.
FLEET = tuple(
    Persona(
        name=name,
        ttft_median_s=median_s,
        ttft_sigma=sigma,
        tail_share=tail_share,
        prefill_s_per_1k_tokens=prefill_s,
        decode_tps=tps,
        error_share=error_share,
    )
    for name, median_s, sigma, tail_share, prefill_s, tps, error_share in (
        ("alpha", 0.25, 0.35, 0.02, 0.030, 90, 0.003),
        ("bravo", 0.33, 0.18, 0.004, 0.045, 70, 0.001),
        ("charlie", 0.28, 0.40, 0.03, 0.012, 500, 0.006),
        ("delta", 0.36, 0.30, 0.01, 0.020, 1500, 0.004),
        ("echo", 0.60, 0.60, 0.06, 0.100, 40, 0.010),
        ("foxtrot", 0.45, 0.40, 0.03, 0.060, 60, 0.003),
    )
)
PERSONAS: Mapping[str, Persona] = MappingProxyType({persona.name: persona for persona in FLEET})

# Median prompt tokens and share of the calls: chat, extraction, long writing.
_WORKLOADS = ((700, 0.55), (2500, 0.25), (900, 0.20))


class Climate(msgspec.Struct, frozen=True):
    """How providers change: an Ornstein-Uhlenbeck process in ln(TTFT) with this deviation and time constant."""

    sigma: float
    time_constant_s: float


CLIMATES: Mapping[str, Climate] = MappingProxyType({"calm": Climate(0.0, 240.0), "drift": Climate(0.45, 240.0)})


class World:
    """One world: everything that will happen in it is decided by its climate and its seed."""

    def __init__(self, climate: str, seed: int) -> None:
        self.climate = climate
        self.seed = seed
        self._known: dict[tuple[str, int], RequestDraws] = {}
        self._drifts = {
            persona.name: _walk(CLIMATES[climate], self._random("drift", persona.name)) for persona in FLEET
        }

    def prompt_tokens(self, number: int) -> int:
        """Return how long the prompt of a call is."""
        random = self._random("prompt", number)
        ((median, _),) = random.choices(_WORKLOADS, [share for _, share in _WORKLOADS])
        return max(1, round(median * exp(random.gauss(0.0, _PROMPT_SIGMA))))

    def draw(self, provider: str, number: int, age_s: float) -> RequestDraws:
        """Return what ``provider`` does with a call that reaches it ``age_s`` seconds after the world began."""
        run = self._without_drift(provider, number)
        drifts = self._drifts[provider]
        drift = drifts[min(len(drifts) - 1, max(0, int(age_s / _DRIFT_STEP_S)))]
        return msgspec.structs.replace(run, ttft_s=run.ttft_s * exp(drift))

    def best_ttft_s(self, number: int, age_s: float, without: frozenset[str] = frozenset()) -> float | None:
        """Return the least time to first token that anyone would have drawn; None when all would have failed.

        ``without`` are providers that answer nobody at that time, whatever they would draw.
        """
        runs = [self.draw(name, number, age_s) for name in PERSONAS if name not in without]
        return min((run.ttft_s for run in runs if delivers(run)), default=None)

    def may_break(self, number: int, age_s: float) -> bool:
        """Tell whether anyone would break off in the middle of this call's answer."""
        return any(self.draw(name, number, age_s).fate is Fate.BREAKS for name in PERSONAS)

    def _without_drift(self, provider: str, number: int) -> RequestDraws:
        key = (provider, number)
        if key not in self._known:  # it is asked for by every table
            run = PERSONAS[provider].draw(self._random(provider, number), self.prompt_tokens(number))
            shared = self._random("shared", number).gauss(0.0, SHARED_SIGMA)
            self._known[key] = msgspec.structs.replace(run, ttft_s=run.ttft_s * exp(shared))
        return self._known[key]

    def _random(self, *words: object) -> Random:
        return Random("/".join(map(str, (self.seed, *words))))


def delivers(run: RequestDraws) -> bool:
    """Tell whether a first token comes at all."""
    return run.fate in {Fate.ANSWER, Fate.BREAKS}


def _walk(climate: Climate, random: Random) -> list[float]:
    if climate.sigma == 0:
        return [0.0]
    keep = exp(-_DRIFT_STEP_S / climate.time_constant_s)
    spread = climate.sigma * sqrt(1 - keep * keep)
    at, path = random.gauss(0.0, climate.sigma), []
    for _ in range(_DRIFT_STEPS):
        path.append(at)
        at = keep * at + random.gauss(0.0, spread)
    return path
