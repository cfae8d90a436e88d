"""Measures the gateway and its peers, one after the other, on the same mock upstream and the same machine.

python -m benchmarks.peers [--quick] [--only NAME] [--markdown]
"""

import argparse
import sys
from collections.abc import Sequence
from statistics import median

import msgspec
from rich.table import Table

from benchmarks.harness import machine, report
from benchmarks.harness.machine import metered
from benchmarks.harness.report import quantile
from benchmarks.peers.peers import LITELLM, PORTKEY, TENSORZERO, Asked, Peer, holeshot, plain
from benchmarks.speed.crowd import STREAM_S
from tests.support.measured import load
from tests.support.measured.gateways import MeasuredServers, measured_servers
from tests.support.measured.load import LoadError, Order
from tests.support.measured.nginx import Missing
from tests.support.measured.servers import prepare
from tools.installing import UnavailableError

PEERS = (
    plain("nginx"),
    plain("pass-through"),
    holeshot("Holeshot, single", "gateway", "single"),
    holeshot("Holeshot, race of two", "crowded", "race"),
    TENSORZERO,
    PORTKEY,
    LITELLM,
)
CALLS, CONCURRENCY = 1000, 16
PACED_CALLS, PACED_CONCURRENCY, TOKENS = 200, 50, 100
STREAMS, CALM_STREAMS = 1000, 50
TIMES, QUICK_TIMES = 5, 2
TURN_S = 8.0  # who needs longer for the calls gets fewer


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A peer's row. The last three figures are of 1,000 streams; None: not measured, and ``note`` says why."""

    title: str
    json_ms: float | None = None
    burst_ms: float | None = None
    token_us: float | None = None
    cores: float | None = None
    peak_mb: float | None = None
    ttft_p99_ms: float | None = None
    note: str = ""


def measure(peer: Peer, servers: MeasuredServers, times: int) -> Standing:
    """Return what one peer takes, or why it is not known."""
    try:
        with peer.start(servers, servers.folder) as asked:
            json_us, json_calls = _cpu_us(asked, "burst", CALLS, CONCURRENCY, times, streamed=False)
            burst_us, burst_calls = _cpu_us(asked, "burst", CALLS, CONCURRENCY, times, streamed=True)
            paced_us, paced_calls = _cpu_us(asked, "paced", PACED_CALLS, PACED_CONCURRENCY, times, streamed=True)
            crowd = _crowd(asked)
    except (UnavailableError, Missing, LoadError) as error:
        return Standing(title=peer.title, note=str(error))
    fewer = (json_calls, burst_calls, paced_calls)
    return msgspec.structs.replace(
        crowd,
        title=peer.title,
        json_ms=json_us / 1000,
        burst_ms=burst_us / 1000,
        token_us=paced_us / TOKENS,
        note="" if fewer == (CALLS, CALLS, PACED_CALLS) else f"slow: {', '.join(map(str, fewer))} calls",
    )


def _cpu_us(
    asked: Asked, behaviour: str, calls: int, concurrency: int, times: int, *, streamed: bool
) -> tuple[float, int]:
    """Return the CPU of a call, and how many there were in each of the turns."""
    question = asked.question(behaviour, streamed=streamed)
    load.run(Order(question=question, calls=concurrency, concurrency=concurrency))
    rehearsal = load.run(Order(question=question, calls=4 * concurrency, concurrency=concurrency))
    calls = min(calls, max(4 * concurrency, int(TURN_S / rehearsal.wall_s * 4 * concurrency)))
    taken = []
    for _ in range(times):
        with metered(asked.server) as spent:
            load.run(Order(question=question, calls=calls, concurrency=concurrency))
        taken.append(spent.cpu_s / calls * 1e6)
    return median(taken), calls


def _crowd(asked: Asked) -> Standing:
    question = asked.question("crowd", streamed=True)
    load.run(Order(question=question, calls=CALM_STREAMS, concurrency=CALM_STREAMS, together=True))
    asked.server.settle()
    machine.forget_peak(asked.server.pid)
    with metered(asked.server) as spent:
        outcome = load.run(Order(question=question, calls=STREAMS, concurrency=STREAMS, together=True))
    return Standing(
        title="",
        cores=spent.cpu_s / STREAM_S,
        peak_mb=machine.peak_mb(asked.server.pid),
        ttft_p99_ms=quantile(outcome.latencies_ms, 0.99),
    )


def main() -> None:
    """Run from the command line."""
    titles = [peer.title for peer in PEERS]
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--markdown", action="store_true", help="print Markdown instead of a table")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help=f"any of: {', '.join(titles)}")
    arguments = parser.parse_args()
    chosen = [peer for peer in PEERS if not arguments.only or any(map(peer.title.startswith, arguments.only))]
    prepare(parser)
    standings = []
    with measured_servers() as servers:
        for peer in chosen:
            print(f"measuring {peer.title}", file=sys.stderr, flush=True)
            standings.append(measure(peer, servers, QUICK_TIMES if arguments.quick else TIMES))
    if arguments.markdown:
        print(as_markdown(standings))
    else:
        report.console().print(as_table(standings))


COLUMNS = ("", "non-streaming ms", "burst ms", "token µs", "cores", "MB", "TTFT p99 ms", "note")
_CAPTION = (
    "CPU of the whole process tree: per non-streaming call, per streamed call of 100 tokens in one burst, and per "
    "token when one comes every 5 ms. Cores, memory and TTFT: 1,000 streams that begin at once, 20 tok/s each, the "
    "upstream's first token after 300 ms; cores are CPU seconds per second the streams should take, so that more than "
    "one worker's worth shows as that."
)


def _caption() -> str:
    return f"{_CAPTION} {report.described()}, for what is written in Python."


def as_table(standings: Sequence[Standing]) -> Table:
    """Return it for a terminal."""
    made = report.grid("Beside its peers", COLUMNS, map(_cells, standings), caption=_caption())
    made.columns[-1].justify = "left"
    return made


def as_markdown(standings: Sequence[Standing]) -> str:
    """Return it for a document."""
    return "\n".join([*report.markdown(COLUMNS, map(_cells, standings)), "", _caption()])


def _cells(standing: Standing) -> list[str]:
    title, *figures, note = msgspec.structs.astuple(standing)
    return [title, *map(_number, figures), note]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


if __name__ == "__main__":
    main()
