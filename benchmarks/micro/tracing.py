"""What traces cost a gateway: CPU per call at a steady rate with traces off, on, sampled, and on without a collector.

    python -m benchmarks.micro.tracing [--rate 300] [--quick]

Four whole gateways on Postgres and Redis, races of two, streamed; calls come by chance at that rate. Rounds take
turns, so that a machine that grows slower grows slower for all. The collector is of this process, and decodes what it
gets with the official protobufs: it must have got a span of nearly each call and attempt, or the run fails.
"""

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from rich.table import Table

from benchmarks.harness.machine import metered
from benchmarks.harness.report import console, described, grid
from tests.support.measured import gateways, load
from tests.support.measured.gateways import measured_servers
from tests.support.measured.load import Order, asking
from tests.support.measured.servers import Server
from tests.support.servers import free_port

MODEL, LAUNCHED = "burst-race", 2
ROUNDS, QUICK_ROUNDS = 8, 3
CALLS, QUICK_CALLS = 5_000, 2_500  # in a round
CONNECTIONS = 64
NEARLY_ALL = 0.95
PATIENCE_S = 5.0  # for spans that are on their way


class Collector:
    """Counts spans, requests and bytes."""

    def __init__(self) -> None:
        self.spans = self.requests = self.bytes = 0
        self._lock = threading.Lock()

    def take(self, body: bytes) -> None:
        """Count an export."""
        request = ExportTraceServiceRequest.FromString(body)
        spans = sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans)
        with self._lock:
            self.spans += spans
            self.requests += 1
            self.bytes += len(body)

    def wait_for(self, spans: int) -> None:
        """Wait until there are so many, or for a few seconds."""
        until = time.monotonic() + PATIENCE_S
        while self.spans < spans and time.monotonic() < until:
            time.sleep(0.05)


@contextmanager
def collecting(collector: Collector) -> Iterator[int]:
    """Serve the collector until the block ends; yield its port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - http.server's name
            """Write no line for each request."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def measured(server: Server, order: Order, collector: Collector | None) -> tuple[float, list[float]]:
    """Return CPU microseconds of a call, and the latencies of all.

    Raises:
        RuntimeError: the collector was not told of nearly all spans.

    """
    before = 0 if collector is None else collector.spans
    wanted = order.calls * (1 + LAUNCHED)
    with metered(server) as spent:
        outcome = load.run(order)
        if collector is not None:
            collector.wait_for(before + wanted)
    if collector is not None and collector.spans - before < NEARLY_ALL * wanted:
        raise RuntimeError(f"the collector got {collector.spans - before} of {wanted} spans")
    return spent.cpu_s / order.calls * 1e6, outcome.latencies_ms


def tracing(port: int, sample_ratio: float = 1.0) -> dict[str, Any]:
    """Return the section that exports to ``port``."""
    endpoint = f"http://127.0.0.1:{port}"
    return {"tracing": {"enabled": True, "endpoint": endpoint, "sample_ratio": sample_ratio}}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro.tracing", description=__doc__)
    parser.add_argument("--rate", type=float, default=300.0, help="calls per second")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    rounds, calls = (QUICK_ROUNDS, QUICK_CALLS) if arguments.quick else (ROUNDS, CALLS)
    collector, other = Collector(), Collector()
    with ExitStack() as stack:
        servers = stack.enter_context(measured_servers())
        port = stack.enter_context(collecting(collector))
        sections = {
            "off": {},
            "on": tracing(port),
            "on, one call in ten": tracing(stack.enter_context(collecting(other)), 0.1),
            "on, collector away": tracing(free_port()),
        }
        subjects = {
            name: stack.enter_context(
                gateways.gateway(name, servers.upstream.port, servers.folder / str(place), servers.stores(), more=more)
            )
            for place, (name, more) in enumerate(sections.items())
        }
        cpu_us: dict[str, list[float]] = {name: [] for name in subjects}
        latencies_ms: dict[str, list[float]] = {name: [] for name in subjects}
        for number in range(rounds + 1):  # the first one is to warm up
            for name, server in subjects.items():
                question = asking(server.port, server.headers, MODEL, launched=LAUNCHED)
                order = Order(question=question, calls=calls, concurrency=CONNECTIONS, rate_per_s=arguments.rate)
                us, latencies = measured(server, order, collector if name == "on" else None)
                if number:
                    cpu_us[name].append(us)
                    latencies_ms[name] += latencies
    console().print(_table(cpu_us, latencies_ms, arguments.rate))
    sys.stdout.write(
        f"{collector.bytes / collector.spans:.0f} bytes a span,"
        f" {collector.spans / collector.requests:.0f} spans a request\n"
    )


def _table(cpu_us: dict[str, list[float]], latencies_ms: dict[str, list[float]], rate: float) -> Table:
    columns = ("traces", "µs of CPU per call", "min to max", "added", "latency p50", "p99")
    made = grid(f"Traces at {rate:g} calls/s, races of two", columns, (), caption=described())
    for name, values in cpu_us.items():
        ratios = [after / before for before, after in zip(cpu_us["off"], values, strict=True)]
        cuts = statistics.quantiles(latencies_ms[name], n=100)
        made.add_row(
            name,
            f"{statistics.median(values):.0f}",
            f"{min(values):.0f} to {max(values):.0f}",
            "" if name == "off" else f"{statistics.median(ratios) - 1:+.1%}",
            f"{cuts[49]:.2f} ms",
            f"{cuts[98]:.2f} ms",
        )
    return made


if __name__ == "__main__":
    main()
