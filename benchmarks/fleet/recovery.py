"""What each fault did to the time to first token, and how long it took until all was well again."""

from collections.abc import Sequence
from math import inf

import msgspec

from benchmarks.fleet.course import Observation
from benchmarks.fleet.faults import Fault, silent
from benchmarks.fleet.installation import POLICIES
from benchmarks.fleet.standings import Standing, ttfts
from benchmarks.fleet.world import World
from benchmarks.harness.report import known_quantile, milliseconds

WINDOW_S = 5
BAD_FACTOR = 1.5  # times the steady p95: the window is not as it should be


class Recovery(msgspec.Struct, frozen=True):
    """What a fault did to one policy."""

    fault: str
    arm: str
    calls: int  # until the next fault
    failed: int
    retried: int
    worst_p95_ms: float | None  # of any five seconds
    oracle_p95_ms: float | None  # of the fleet that was left, while the fault lasted or five seconds
    p50_at_end_ms: float | None  # of the last ten seconds before the next fault
    usual_p50_ms: float | None
    recovered_s: float  # from its beginning to the last five seconds whose p95 was half again as high as usual


def recoveries(
    observations: Sequence[Observation], faults: tuple[Fault, ...], standing: Sequence[Standing], world: World
) -> list[Recovery]:
    """Tell what each fault did, and for how long."""
    ends_s = [*(fault.begin_s for fault in faults[1:]), inf]
    usual = {each.arm: each.ttft_ms for each in standing}
    found = []
    for fault, end_s in zip(faults, ends_s, strict=True):
        for arm in POLICIES:
            seen = [each for each in observations if each.arm == arm and fault.begin_s <= each.due_s < end_s]
            lasted_s = max((each.due_s for each in seen), default=fault.begin_s) - fault.begin_s
            windows = {
                at: milliseconds(
                    known_quantile(
                        ttfts(each for each in seen if 0 <= each.due_s - fault.begin_s - at < WINDOW_S), 0.95
                    )
                )
                for at in range(max(1, int(lasted_s) - WINDOW_S + 1))
            }
            usual_p50_ms, usual_p95_ms, _ = usual.get(arm, (None, None, None))
            limit_ms = BAD_FACTOR * (usual_p95_ms or 0.0)
            last = [each for each in seen if each.due_s >= fault.begin_s + lasted_s - 2 * WINDOW_S]
            hit = [each for each in seen if each.due_s < max(fault.end_s, fault.begin_s + WINDOW_S)]
            best = [world.best_ttft_s(each.number, each.due_s, silent(faults, each.due_s)) for each in hit]
            found.append(
                Recovery(
                    fault=fault.name,
                    arm=arm,
                    calls=len(seen),
                    failed=sum(not each.answer.whole for each in seen),
                    retried=sum(each.answer.tries > 1 for each in seen),
                    worst_p95_ms=max((ms for ms in windows.values() if ms is not None), default=None),
                    oracle_p95_ms=milliseconds(known_quantile((ttft_s for ttft_s in best if ttft_s is not None), 0.95)),
                    p50_at_end_ms=milliseconds(known_quantile(ttfts(last), 0.50)),
                    usual_p50_ms=usual_p50_ms,
                    recovered_s=max((at + WINDOW_S for at, ms in windows.items() if ms and ms > limit_ms), default=0),
                )
            )
    return found
