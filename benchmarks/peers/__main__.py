"""Measures the gateway and its peers, one after the other, on the same mock upstream and the same machine.

Peers are installed from their registries, pinned, into folders of their own. --write puts the table into
docs/performance.md. What a peer lacks or answers wrongly is an empty cell.
"""

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import chain
from statistics import median

from benchmarks.harness import report
from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.harness.machine import metered
from benchmarks.harness.report import Grid, quantile
from benchmarks.peers.peers import PEERS, Asked, Peer, plain
from benchmarks.speed.crowd import gathered
from tests.support.measured import load
from tests.support.measured.answers import MESSAGES
from tests.support.measured.gateways import MeasuredServers, measured_servers
from tests.support.measured.load import NOT_IN_TIME, LoadError, Order
from tests.support.measured.nginx import Missing
from tests.support.measured.servers import ROOT
from tools.installing import UnavailableError

PAGE = ROOT / "docs" / "performance.md"
CALLS, CONCURRENCY = 1000, 16
PACED_CALLS, PACED_CONCURRENCY, TOKENS = 200, 50, 100
STREAMS, CALM_STREAMS = 1000, 50
ALONE = 200
HANG_LIMIT_S = 30.0
TIMES, QUICK_TIMES = 5, 2
TURN_S = 8.0  # who needs longer for the calls gets fewer

Course = Callable[[Asked, Asked, int], Sequence[float | str]]  # of a peer and the upstream itself, so many times


def cpu(
    behaviour: str, unit_us: float, calls: int = CALLS, among: int = CONCURRENCY, *, streamed: bool = True
) -> Course:
    """Return a course: the CPU that a call takes, in units of ``unit_us``, of ``calls`` by ``among`` connections."""

    def course(asked: Asked, _: Asked, times: int) -> list[float]:
        question = asked.question(behaviour, streamed=streamed)
        load.run(Order(question=question, calls=among, concurrency=among))
        rehearsal = load.run(Order(question=question, calls=4 * among, concurrency=among))
        made = min(calls, max(4 * among, int(TURN_S / rehearsal.wall_s * 4 * among)))
        taken = []
        for _turn in range(times):
            with metered(asked.server) as spent:
                load.run(Order(question=question, calls=made, concurrency=among))
            taken.append(spent.cpu_s / made * 1e6)
        return [median(taken) / unit_us]

    return course


def crowd(asked: Asked, _: Asked, times: int) -> list[float]:
    """Return cores, memory and the first token's p99 of 1,000 streams that begin at once."""
    del times
    question = asked.question("crowd", streamed=True)
    load.run(Order(question=question, calls=CALM_STREAMS, concurrency=CALM_STREAMS, together=True))
    asked.server.settle()
    cores, peak_mb, outcome = gathered(question, asked.server, STREAMS)
    return [cores, peak_mb, quantile(outcome.latencies_ms, 0.99)]


def added(asked: Asked, upstream: Asked, times: int) -> list[float]:
    """Return what is added to the first token of a call alone, p50 and p99, over the upstream's own at that moment."""
    own: list[float] = []
    through: list[float] = []
    for _ in range(times):
        for each, taken in ((upstream, own), (asked, through)):
            question = each.question("first", streamed=True)
            taken.extend(load.run(Order(question=question, calls=ALONE, concurrency=1)).latencies_ms)
    return [quantile(through, share) - quantile(own, share) for share in (0.5, 0.99)]


def hang(asked: Asked, _: Asked, times: int) -> list[float | str]:
    """Return when the first token comes from the second provider, where the first one hangs: of the first call, and of
    the one after ten, in seconds; or why there is none.
    """
    del times
    order = Order(question=asked.question("hang", streamed=True), calls=1, concurrency=1, limit_s=HANG_LIMIT_S)

    def waited() -> float | str:
        try:
            return load.run(order).latencies_ms[0] / 1000
        except LoadError as error:
            return f"> {HANG_LIMIT_S:.0f}" if NOT_IN_TIME in str(error) else "error"

    waits = [waited() for _turn in range(11)]
    return [waits[0], waits[-1]]


COURSES: dict[tuple[str, ...], Course] = {
    ("hang s", "11th"): hang,  # first: who has seen the provider hang before does not ask it any more
    ("non-streaming ms",): cpu("burst", 1000, streamed=False),
    ("burst ms",): cpu("burst", 1000),
    ("Messages ms",): cpu(MESSAGES, 1000),
    ("token µs",): cpu("paced", TOKENS, PACED_CALLS, PACED_CONCURRENCY),
    ("added ms, p50", "p99"): added,
    ("cores", "MB", "TTFT p99 ms"): crowd,
}
COLUMNS = ("", *chain.from_iterable(COURSES), "note")
CAPTION = """\
Versions of {date}. *Hang* and *11th*: seconds to the first token if the first of two providers never answers, in the
first such call and in the one after ten. Peers are told to wait 2 s. Holeshot has its defaults, 10 s for a provider of
which nothing is known. *Non-streaming*, *burst*, *Messages*: CPU of all processes per call of 100 tokens, as JSON, as a
stream in one burst, and as a stream of Anthropic's API. *Token*: CPU per token, one every 5 ms. *Added*: to the first
token of a call alone. *Cores*, *MB*, *TTFT p99*: 1,000 streams of 20 tok/s that begin at once, where the upstream's
first token comes after 300 ms. {interpreter}."""


def measure(peer: Peer, servers: MeasuredServers, times: int) -> list[str]:
    """Return a peer's row; its note says why it could not be measured."""
    cells: list[str] = []
    notes: list[str] = []
    try:
        with plain("upstream").start(servers, servers.folder) as upstream, peer.start(servers, servers.folder) as asked:
            for columns, course in COURSES.items():
                try:
                    cells += map(_cell, course(asked, upstream, times))
                except (LoadError, KeyError) as error:  # a wrong answer; or it has no such thing
                    print(f"{peer.title}, {columns[0]}: {error}", file=sys.stderr, flush=True)
                    cells += [""] * len(columns)
    except (UnavailableError, Missing) as error:
        notes, cells = [str(error)], [""] * (len(COLUMNS) - 2)
    return [peer.title, *cells, *(notes or [peer.note])]


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return value
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def main() -> None:
    parser = command("peers", __doc__, quick="fewer turns")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="only those with one of these words")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation, if it is whole")
    carry_out(parser, measured)


def measured(run: Run) -> Told:
    chosen = [peer for peer in PEERS if any(word in peer.title for word in run.options.only)]
    rows = []
    with measured_servers() as servers:
        for peer in chosen:
            run.say(f"measuring {peer.title}")
            rows.append(measure(peer, servers, QUICK_TIMES if run.options.quick else TIMES))
    caption = CAPTION.format(date=datetime.now(UTC).date(), interpreter=report.described())
    grid = Grid("Beside its peers", COLUMNS, rows, notes=1, caption=" ".join(caption.splitlines()))
    if run.options.write and len(chosen) == len(PEERS):
        report.write_lines(PAGE, "peers", [*grid.markdown(), "", grid.caption])
    return Told(facts=[dict(zip(COLUMNS, row, strict=True)) for row in rows], grids=[grid])


if __name__ == "__main__":
    main()
