"""The results as tables, and as facts for a machine."""

from collections.abc import Sequence

import msgspec

from benchmarks.harness.command import Told
from benchmarks.harness.report import Grid, bad
from benchmarks.steering.contest import AT_ONCE, Standing
from benchmarks.steering.figures import Figures, Spread
from benchmarks.steering.targets import Target
from benchmarks.steering.worlds import WEAKNESSES, WORLDS

_COLUMNS = (
    *("policy", "TTFT p50/p95/p99 s", "mean", "regret", "total p50/p95/p99 s", "mean", "regret"),
    *("tokens paid", "extra", "failed"),
)
_HELD = ("world", "policy", "TTFT mean", "p95", "reading wait", "", "total mean", "", "p99")


def told(standings: Sequence[Standing], reached: Sequence[Target], *, calls: int, seeds: Sequence[int]) -> Told:
    """Return a table for each world, what holds give, and the targets; the facts have everything but single calls."""
    facts = {
        "calls": calls,
        "seeds": seeds,
        "worlds": {standing.world: standing.figures for standing in standings},
        "targets": [{**msgspec.structs.asdict(each), "holds": each.holds} for each in reached],
    }
    return Told(facts=facts, grids=[*map(_world, standings), _at_once(standings), _targets(reached)])


def _world(standing: Standing) -> Grid:
    world = WORLDS[standing.world]
    any_figures = next(iter(standing.figures.values()))
    kind = "held out" if world.held_out else "shows a weakness" if world in WEAKNESSES else "tuned on"
    is_flawed = any(each.flawed_share for each in world.providers)
    columns = [*_COLUMNS, *(["$/1,000", "in time"] if world.prices else [])]
    columns += [*(["back after s"] if world.spell is not None else []), *(["flawed"] if is_flawed else [])]
    rows = [
        [label, *_cells(each, priced=world.prices, spells=world.spell is not None, is_flawed=is_flawed)]
        for label, each in standing.figures.items()
    ]
    title = f"{world.name} ({kind}; {any_figures.calls:,} calls, {world.calls_per_s:g}/s, {world.replicas} replicas)"
    return Grid(title, columns, rows)


def _at_once(standings: Sequence[Standing]) -> Grid:
    """Return what it gives to send the first token at once, in place of a hold; the same calls and draws for both."""
    rows = []
    for standing in standings:
        for at_once, held in AT_ONCE:
            now, before = standing.figures[at_once.label], standing.figures[held.label]
            rows.append(
                [
                    *(standing.world, at_once.label.removeprefix("holeshot ")),
                    f"{before.ttft.mean:.3f} → {now.ttft.mean:.3f}",
                    f"{before.ttft.p95:.2f} → {now.ttft.p95:.2f}",
                    f"{before.waited.mean:.3f} → {now.waited.mean:.3f}",
                    f"{now.waited.mean / before.waited.mean - 1:+.0%}",
                    f"{before.total.mean:.2f} → {now.total.mean:.2f}",
                    f"{now.total.mean / before.total.mean - 1:+.0%}",
                    f"{before.total.p99:.1f} → {now.total.p99:.1f}",
                ]
            )
    return Grid("first tokens held → sent at once, seconds", _HELD, rows, words=2)


def _cells(figures: Figures, *, priced: bool, spells: bool, is_flawed: bool) -> list[str]:
    back = "" if figures.recovery_s is None else f"{figures.recovery_s:.0f}"
    return [
        *(_spread(figures.ttft), f"{figures.ttft.mean:.2f}", f"{figures.regret_ttft_s:+.2f}"),
        *(_spread(figures.total), f"{figures.total.mean:.2f}", f"{figures.regret_total_s:+.2f}"),
        *(f"{figures.cost:.2f} x", f"{figures.duplicates:.3f}", f"{figures.failed}"),
        *([f"{figures.usd_per_1000:.2f}", f"{figures.met:.1%}"] if priced else []),
        *([back] if spells else []),
        *([f"{figures.flawed:.1%}"] if is_flawed else []),
    ]


def _spread(spread: Spread) -> str:
    return f"{spread.p50:.2f}/{spread.p95:.2f}/{spread.p99:.2f}"


def _targets(reached: Sequence[Target]) -> Grid:
    rows = [
        [each.what, each.world, f"{each.limit:.2f}", bad(f"{each.reached:.2f}", not each.holds)] for each in reached
    ]
    title = f"targets: {sum(target.holds for target in reached)} of {len(reached)} hold"
    return Grid(title, ("target", "world", "at most", "reached"), rows, words=2)
