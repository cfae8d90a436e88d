"""``make bench-truth``: a real gateway before a fleet that knows what it drew, and the ledger's figures beside that.

Ends with 1 when a figure is farther from the truth than it may be. ``--bend COLUMN`` makes the numbers of that column
20 % larger as they are read, to see that it would be noticed: saved_ms_per_call, alone_mean_ms, ttft_ok_share,
decode_tps, cost_usd, prompt_tokens, ttft_p50_ms, ...
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.gateways import environment, gateway_command
from benchmarks.servers import free_port, running, wait_until_listening
from benchmarks.truth.course import course, drive, write_config
from benchmarks.truth.figures import Figure, Ledger, figures
from benchmarks.truth.fleet import Fleet, Persona, serving

CALLS, QUICK_CALLS = 6_000, 800
RACING = ["steady", "swift", "chunky", "caching"]
PERSONAS = [
    Persona("steady", 0.060),
    Persona("swift", 0.050, per_chunk=2, bills_on=True),
    Persona("chunky", 0.055, per_chunk=8),
    Persona("caching", 0.065, cached_usd=1e-7),
    Persona("large", 0.050, per_chunk=32),
    Persona("liar", 0.050, overstates=2.0),
    Persona("slow", 0.500, sigma=0.4, bills_on=True),
]


def main() -> None:
    """Run, and say how true it is."""
    parser = argparse.ArgumentParser(prog="make bench-truth", description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, help=f"raced calls (default {CALLS})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_CALLS} raced calls")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shared", type=float, default=0.3, help="share of the log-variance that is the call's")
    parser.add_argument("--bend", metavar="COLUMN", help="make this column's numbers 20 %% larger: it must fail")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    options = parser.parse_args()
    found = asyncio.run(_run(options))
    if options.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    else:
        _show(found)
    sys.exit(not all(figure.holds for figure in found))


async def _run(options: argparse.Namespace) -> list[Figure]:
    calls = options.calls or (QUICK_CALLS if options.quick else CALLS)
    fleet = Fleet({persona.name: persona for persona in PERSONAS}, options.seed, options.shared)
    todo = course(calls, fleet)
    with tempfile.TemporaryDirectory() as name, Progress(console=Console(stderr=True)) as progress:
        folder = Path(name)
        task = progress.add_task("calls", total=todo.slow.stop)
        port, fleet_port = free_port(), free_port()
        config = write_config(folder, fleet, RACING, port, f"http://127.0.0.1:{fleet_port}")
        async with serving(fleet, fleet_port):
            quiet = {**environment(), "HOLESHOT_LAME_DUCK_S": "0"}
            with running(gateway_command(config), quiet) as process:
                await asyncio.to_thread(wait_until_listening, process, port)
                await drive(port, todo, lambda: progress.advance(task))
                await asyncio.sleep(3)  # audited losers outlive their calls, and rows follow a second later
        return list(figures(Ledger(folder / "ledger.db", options.bend), fleet, todo))


def _show(found: Sequence[Figure]) -> None:
    table = Table(title="The ledger against the truth", title_justify="left")
    for column in ("figure", "truth", "ledger", "goal", ""):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for each in found:
        mark = "ok" if each.holds else "[red]OFF[/red]"
        table.add_row(each.name, f"{each.truth:.5g}", f"{each.measured:.5g}", each.goal, mark)
    console = Console(width=120)
    console.print(table)
    off = [each.name for each in found if not each.holds]
    console.print(f"{len(found) - len(off)} of {len(found)} figures hold" + (f"; off: {', '.join(off)}" if off else ""))


if __name__ == "__main__":
    main()
