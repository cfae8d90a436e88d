"""What somebody who looks at live races costs a gateway: CPU per call at a steady rate, without and with viewers.

    python -m benchmarks.micro.live_viewer [--rate 500] [--viewers 1] [--quick]

A whole gateway on Postgres and Redis, races of two, streamed; calls come by chance at that rate. Rounds without and
with viewers take turns, so that a machine that grows slower grows slower for both. What a viewer was told is counted:
if it was not told of nearly all calls, the figure would mean nothing, and the run fails.
"""

import argparse
import http.client
import socket
import statistics
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from benchmarks.harness.machine import metered
from benchmarks.harness.report import console, described, grid
from tests.support.measured import load
from tests.support.measured.gateways import VIEWER_HEADERS, measured_servers
from tests.support.measured.load import Order, asking
from tests.support.measured.servers import Server

MODEL, LAUNCHED = "burst-race", 2
ROUNDS, QUICK_ROUNDS = 8, 3
CALLS, QUICK_CALLS = 5_000, 2_500  # in a round
CONNECTIONS = 64
AT_MOST = 0.03  # of the CPU without a viewer
NEARLY_ALL = 0.95
_PIECE = 65_536


class Viewer:
    """A client of the live stream, in a thread: counts what it is told, and keeps nothing."""

    def __init__(self, server: Server) -> None:
        self.done = 0
        self.gaps = 0
        self.bytes = 0
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port)
        self._connection.request("GET", "/api/live", headers=dict(VIEWER_HEADERS))
        self._socket = self._connection.sock  # before the response has it to itself
        self._response = self._connection.getresponse()
        if self._response.status != http.HTTPStatus.OK:
            raise RuntimeError(f"no live stream: {self._response.status} {self._response.read()[:200]!r}")
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def _read(self) -> None:
        kept = b""
        with suppress(http.client.HTTPException, OSError):  # it has hung up
            while piece := self._response.read1(_PIECE):
                self.bytes += len(piece)
                *events, kept = (kept + piece).split(b"\n\n")
                self.done += sum(event.startswith(b"event: done\n") for event in events)
                self.gaps += sum(event.startswith(b"event: gap\n") for event in events)


@contextmanager
def looking(server: Server, number: int) -> Iterator[list[Viewer]]:
    """Have so many viewers look until the block ends."""
    with ExitStack() as stack:
        viewers = [Viewer(server) for _ in range(number)]
        for each in viewers:
            stack.callback(each.close)
        yield viewers


def measured(server: Server, order: Order, viewers: int) -> float:
    """Return CPU microseconds of a call.

    Raises:
        RuntimeError: a viewer was not told of nearly all calls.

    """
    with looking(server, viewers) as found:
        with metered(server) as spent:
            load.run(order)
        for each in found:
            if each.done < NEARLY_ALL * order.calls:
                raise RuntimeError(f"a viewer saw {each.done} of {order.calls} calls, with {each.gaps} gaps")
    return spent.cpu_s / order.calls * 1e6


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro.live_viewer", description=__doc__)
    parser.add_argument("--rate", type=float, default=500.0, help="calls per second")
    parser.add_argument("--viewers", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    rounds, calls = (QUICK_ROUNDS, QUICK_CALLS) if arguments.quick else (ROUNDS, CALLS)
    without: list[float] = []
    with_: list[float] = []
    with measured_servers() as servers:
        server = servers["gateway"]
        question = asking(server.port, server.headers, MODEL, launched=LAUNCHED)
        order = Order(question=question, calls=calls, concurrency=CONNECTIONS, rate_per_s=arguments.rate)
        measured(server, order, arguments.viewers)  # to warm up
        for _ in range(rounds):
            without.append(measured(server, order, 0))
            with_.append(measured(server, order, arguments.viewers))
    ratios = [after / before for before, after in zip(without, with_, strict=True)]
    added = statistics.median(ratios) - 1.0
    made = grid(
        f"{arguments.viewers} viewers, {arguments.rate:g} calls/s, races of two",
        ("", "median", "min to max"),
        (
            *(
                (name, f"{statistics.median(values):.0f}", f"{min(values):.0f} to {max(values):.0f}")
                for name, values in (("µs of CPU per call", without), ("the same with viewers", with_))
            ),
            ("added", f"{added:+.1%}", f"{min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%}"),
        ),
        caption=described(),
    )
    console().print(made)
    if added > AT_MOST * arguments.viewers:
        sys.exit(f"a viewer adds more than {AT_MOST:.0%}")


if __name__ == "__main__":
    main()
