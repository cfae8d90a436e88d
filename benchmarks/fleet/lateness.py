"""How much later than drawn first tokens reached the clients: what this machine adds, with and without a gateway.

A busy machine stalls everybody at once, which no policy can do anything about: with these figures in the tens of
milliseconds, the ratios to the oracle say more of the machine than of the policy.
"""

from collections.abc import Sequence

import msgspec

from benchmarks.fleet.course import Observation, direct_provider
from benchmarks.fleet.installation import AUDITED
from benchmarks.fleet.standings import QUANTILES
from benchmarks.fleet.world import World
from benchmarks.harness.report import known_quantile, milliseconds


class Lateness(msgspec.Struct, frozen=True):
    """The lateness of the calls that went one way."""

    way: str
    calls: int
    late_ms: tuple[float | None, ...]  # p50, p95, p99


def lateness(observations: Sequence[Observation], world: World) -> list[Lateness]:
    """Return the lateness of direct calls over their provider's draw, and of all six raced over the best draw."""
    direct, raced = [], []
    for each in observations:
        provider, ttft_s = direct_provider(each.arm, each.number), each.answer.ttft_s
        if ttft_s is None:
            continue
        if provider is not None:
            direct.append(ttft_s - world.draw(provider, each.number, each.due_s).ttft_s)
        elif each.arm == AUDITED:
            raced.append(ttft_s - (world.best_ttft_s(each.number, each.due_s) or ttft_s))
    return [_of("without a gateway", direct), _of("through a gateway that races all six", raced)]


def _of(way: str, late_s: Sequence[float]) -> Lateness:
    return Lateness(way, len(late_s), tuple(milliseconds(known_quantile(late_s, q)) for q in QUANTILES))
