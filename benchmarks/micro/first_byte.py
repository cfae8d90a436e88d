"""Milliseconds to the first token, here and in another checkout, call by call: ``--against DIR``.

    python -m benchmarks.micro.first_byte --against ../before [--calls 2000]

Both gateways run at once and are asked in turns of a few calls, so that whatever else the machine does happens to both.
One call at a time, alone and in a race of two, whose upstream sends its first token at once. The upstream itself is
asked in the same turns; its median is taken off. ``fastest tenth`` is the quantile that a busy machine disturbs least.
"""

import argparse
import random
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import uvloop
from rich.table import Table

from benchmarks.edge.edge import edge
from benchmarks.harness.report import console, described, grid, quantile
from tests.support.measured import gateways, servers
from tests.support.measured.load import Order, Question, asking, carry_out
from tests.support.measured.servers import prepare

HERE = Path(__file__).parents[2]
WAYS = {"alone": "first-single", "race of two": "first-race"}
TURN, WARM_UP = 10, 200  # calls
BEFORE, NOW, DIRECT = "before", "now", "upstream"

Latencies = dict[tuple[str, str], list[float]]  # milliseconds, by the way and who was asked


async def measured(against: Path, calls: int) -> Latencies:
    """Ask all in turns, and return what it took."""
    found: Latencies = {}
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holeshot-first-byte-"))
        upstream = stack.enter_context(servers.upstream())
        questions: dict[tuple[str, str], Question] = {}
        for who, checkout in ((BEFORE, against), (NOW, HERE)):
            given = await stack.enter_async_context(edge(checkout, upstream, Path(folder)))
            gateway = await stack.enter_async_context(given.gateway())
            for way, model in WAYS.items():
                questions[way, who] = asking(gateway.port, gateway.headers, model, launched=len(gateways.RACES[model]))
        for way in WAYS:
            asked = msgspec.structs.replace(questions[way, NOW], launched=None, headers={})
            questions[way, DIRECT] = msgspec.structs.replace(asked, port=upstream.port, path=f"/first{gateways.PATH}")
        for question in questions.values():
            await carry_out(Order(question=question, calls=WARM_UP, concurrency=1))
        for _ in range(max(1, calls // TURN)):
            for key in random.sample(list(questions), len(questions)):
                outcome = await carry_out(Order(question=questions[key], calls=TURN, concurrency=1))
                found.setdefault(key, []).extend(outcome.latencies_ms)
    return found


def table(found: Mapping[tuple[str, str], list[float]]) -> Table:
    """Return what each adds to the first token, milliseconds."""
    made = grid("Added to the first token, ms", ("", "", BEFORE, NOW, "difference"), (), caption=described(), words=2)
    for way in WAYS:
        for name, share in (("median", 0.5), ("fastest tenth", 0.1)):
            direct = quantile(found[way, DIRECT], share)
            before, now = (quantile(found[way, who], share) - direct for who in (BEFORE, NOW))
            made.add_row(way, name, f"{before:.3f}", f"{now:.3f}", f"{now - before:+.3f}")
    return made


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro.first_byte", description=__doc__)
    parser.add_argument("--against", type=Path, required=True, metavar="DIR", help="another checkout")
    parser.add_argument("--calls", type=int, default=2000, help="of each way at each gateway (default: %(default)s)")
    options = parser.parse_args()
    prepare(parser)
    console().print(table(uvloop.run(measured(options.against.resolve(), options.calls))))


if __name__ == "__main__":
    main()
