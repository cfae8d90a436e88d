"""How far a replay is from the truth: ``python -m benchmarks.replay`` prints the table of docs/measuring.md."""

import argparse
import json
import sys
from math import inf, sqrt
from random import Random
from statistics import fmean

from gateway.replay.replay import replay
from gateway.replay.settings import QUANTILES, settings
from tests.support.replayed import RATE_S, WORLDS, Drawing, World, ledger, truth

BUDGETS = (0.1, 0.5)


def measured(world: World, calls: int, audit_share: float, seeds: range) -> list[dict[str, object]]:
    """Return how far figures are off, by setting and quantile: as shares of the truth, and of the fleets."""
    asked = settings(BUDGETS)
    errors: dict[tuple[str, str], list[float]] = {}
    covered: dict[tuple[str, str], list[bool]] = {}
    unknown: dict[tuple[str, str], int] = {}
    audits = []
    for seed in seeds:
        drawn = Drawing(world, seed).calls(calls)
        random = Random(-seed)
        rows = ledger(drawn, audit_share, random)
        answer = replay(rows, asked, Random(seed), window_s=calls * RATE_S)
        audits.append(fmean(each.audits for each in answer.needs))
        for setting, outcome in zip(asked, answer.outcomes, strict=False):
            true_ms = truth(drawn, setting, random)
            for share in QUANTILES:
                at = setting.name, f"p{share * 100:.0f}"
                told, real = outcome.ttft[at[1]], true_ms[int(share * len(true_ms))]
                if told.value is None:
                    unknown[at] = unknown.get(at, 0) + 1
                    continue
                errors.setdefault(at, []).append(told.value / real - 1)
                high = inf if told.high is None else told.high
                covered.setdefault(at, []).append((told.low or 0.0) <= real <= high)
    return [
        {
            "world": world.name,
            "audits": round(fmean(audits)),
            "setting": setting,
            "quantile": quantile,
            "n": len(found),
            "bias": fmean(found),
            "rms": sqrt(fmean(error * error for error in found)),
            "covered": fmean(covered[setting, quantile]),
            "unanswered": unknown.get((setting, quantile), 0),
        }
        for (setting, quantile), found in errors.items()
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=20)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--audit-share", type=float, default=0.15)
    parser.add_argument("--worlds", nargs="+", choices=[each.name for each in WORLDS], metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="two fleets of 8,000 calls, 30 %% audited")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.fleets, options.calls, options.audit_share = 2, 8_000, 0.4
    rows = []
    if not options.json:
        print("world            audits  setting      quantile    bias     rms  covered  unanswered")
    for world in WORLDS:
        if options.worlds and world.name not in options.worlds:
            continue
        found = measured(world, options.calls, options.audit_share, range(1, options.fleets + 1))
        rows += found
        if not options.json:
            for row in found:
                print(
                    f"{row['world']:15}  {row['audits']:6}  {row['setting']:11}  {row['quantile']:8}"
                    f"  {row['bias']:+6.1%}  {row['rms']:6.1%}  {row['covered']:7.0%}  {row['unanswered']:10}"
                )
            sys.stdout.flush()
    if options.json:
        json.dump(rows, sys.stdout, indent=2)


if __name__ == "__main__":
    main()
