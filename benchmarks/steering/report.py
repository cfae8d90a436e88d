"""The results as tables for a terminal and as JSON for a machine."""

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.steering.contest import AT_ONCE, Standing
from benchmarks.steering.figures import Figures, Spread
from benchmarks.steering.targets import Target
from benchmarks.steering.worlds import WEAKNESSES, WORLDS


def show(console: Console, standings: Sequence[Standing], reached: Sequence[Target]) -> None:
    """Print one table per world, then the targets."""
    for standing in standings:
        console.print(_world(standing))
    console.print(_at_once(standings))
    console.print(_targets(reached))


def as_json(standings: Sequence[Standing], reached: Sequence[Target], *, calls: int, seeds: Sequence[int]) -> bytes:
    """Return everything but the single calls."""
    return msgspec.json.format(
        msgspec.json.encode(
            {
                "calls": calls,
                "seeds": list(seeds),
                "worlds": {standing.world: standing.figures for standing in standings},
                "targets": [{**msgspec.structs.asdict(each), "holds": each.holds} for each in reached],
            }
        )
    )


def _world(standing: Standing) -> Table:
    world = WORLDS[standing.world]
    any_figures = next(iter(standing.figures.values()))
    kind = "held out" if world.held_out else "shows a weakness" if world in WEAKNESSES else "tuned on"
    is_flawed = any(each.flawed_share for each in world.providers)
    table = Table(
        title=f"{world.name} ({kind}; {any_figures.calls:,} calls, {world.calls_per_s:g}/s, {world.replicas} replicas)",
        title_justify="left",
    )
    table.add_column("policy", no_wrap=True)
    for column in ("TTFT p50/p95/p99 s", "mean", "regret", "total p50/p95/p99 s", "mean", "regret"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in (
        "tokens paid",
        "extra",
        "failed",
        *(["$/1,000", "in time"] if world.prices else []),
        *(["back after s"] if world.spell is not None else []),
        *(["flawed"] if is_flawed else []),
    ):
        table.add_column(column, justify="right")
    for label, figures in standing.figures.items():
        style = "bold" if label.startswith("holeshot") else None
        table.add_row(label, *_cells(figures, priced=world.prices, is_flawed=is_flawed), style=style)
    return table


def _at_once(standings: Sequence[Standing]) -> Table:
    """Return what it gives to send the first token at once, in place of a hold; the same calls and draws for both."""
    table = Table(title="first tokens held → sent at once, seconds", title_justify="left")
    table.add_column("world", no_wrap=True)
    table.add_column("policy", no_wrap=True)
    for column in ("TTFT mean", "p95", "reading wait", "", "total mean", "", "p99"):
        table.add_column(column, justify="right", no_wrap=True)
    for standing in standings:
        for at_once, held in AT_ONCE:
            now, before = standing.figures[at_once.label], standing.figures[held.label]
            table.add_row(
                standing.world,
                at_once.label.removeprefix("holeshot "),
                f"{before.ttft.mean:.3f} → {now.ttft.mean:.3f}",
                f"{before.ttft.p95:.2f} → {now.ttft.p95:.2f}",
                f"{before.waited.mean:.3f} → {now.waited.mean:.3f}",
                f"{now.waited.mean / before.waited.mean - 1:+.0%}",
                f"{before.total.mean:.2f} → {now.total.mean:.2f}",
                f"{now.total.mean / before.total.mean - 1:+.0%}",
                f"{before.total.p99:.1f} → {now.total.p99:.1f}",
            )
    return table


def _cells(figures: Figures, *, priced: bool, is_flawed: bool) -> list[str]:
    return [
        _spread(figures.ttft),
        f"{figures.ttft.mean:.2f}",
        f"{figures.regret_ttft_s:+.2f}",
        _spread(figures.total),
        f"{figures.total.mean:.2f}",
        f"{figures.regret_total_s:+.2f}",
        f"{figures.cost:.2f} x",
        f"{figures.duplicates:.3f}",
        f"{figures.failed}",
        *([f"{figures.usd_per_1000:.2f}", f"{figures.met:.1%}"] if priced else []),
        *([] if figures.recovery_s is None else [f"{figures.recovery_s:.0f}"]),
        *([f"{figures.flawed:.1%}"] if is_flawed else []),
    ]


def _spread(spread: Spread) -> str:
    return f"{spread.p50:.2f}/{spread.p95:.2f}/{spread.p99:.2f}"


def _targets(reached: Sequence[Target]) -> Table:
    held = sum(target.holds for target in reached)
    table = Table(title=f"targets: {held} of {len(reached)} hold", title_justify="left")
    for column in ("target", "world"):
        table.add_column(column, no_wrap=True)
    for column in ("at most", "reached", ""):
        table.add_column(column, justify="right")
    for target in reached:
        mark = "" if target.holds else "missed"
        style = None if target.holds else "red"
        table.add_row(target.what, target.world, f"{target.limit:.2f}", f"{target.reached:.2f}", mark, style=style)
    return table
