"""What a loser costs over TLS: reconnects, losers that ran on at the origin, and the next call to where it was lost."""

import http.client
import time
from collections.abc import Iterator, Mapping
from statistics import median

import msgspec

from benchmarks.harness import gateways, load
from benchmarks.harness.answers import BEHAVIOURS
from benchmarks.harness.gateways import ONE_WAY_S, MeasuredServers, over
from benchmarks.harness.load import Order, Question
from benchmarks.harness.nginx import Missing
from benchmarks.harness.report import Row, row, skipped
from benchmarks.harness.servers import START_LIMIT_S, count
from benchmarks.speed.measuring import Effort

NAME = "tls losers"
RACES, CONCURRENCY = 500, 16
RECONNECTS = 0.05  # per race over HTTP/2: a connection is left after many resets, before its server minds
PAIRS, QUICK_PAIRS, WARM_UP_PAIRS = 40, 15, 5
NEXT_CALL_MS = 3.0
_VERSIONS = {"auto": "HTTP/2", "1.1": "HTTP/1.1"}  # as ALPN will have it


def rows(measured: MeasuredServers, effort: Effort) -> Iterator[Row]:
    """Measure.

    Raises:
        LoadError: an answer was not whole.

    """
    try:
        measured["gateway over TLS"]
    except Missing as missing:
        yield skipped("what a loser costs over TLS", missing)
        return
    for version, name in _VERSIONS.items():
        effort.say(f"{NAME}: {RACES} races over {name}")
        yield from _counted(measured, version, name)
        effort.say(f"{NAME}: calls after a loss over {name}")
        yield _next_call(measured, version, name, QUICK_PAIRS if effort.quick else PAIRS)


def _counted(measured: MeasuredServers, version: str, name: str) -> Iterator[Row]:
    server, upstream = measured["gateway over TLS"], measured.upstream
    question = Question(
        port=server.port,
        path=gateways.PATH,
        model="burst-race" + over(version),
        streamed=True,
        headers=server.headers,
        launched=2,
    )
    load.run(Order(question=question, calls=RACES // 5, concurrency=CONCURRENCY))
    made, answered = measured.origin.connections(), count(upstream, "answered")
    load.run(Order(question=question, calls=RACES, concurrency=CONCURRENCY))
    reconnects = measured.origin.connections() - made - 1  # the look itself is one
    time.sleep(2 * (BEHAVIOURS["late"].first_s or 0.0))  # until whoever was not cut has answered
    ran_on = count(upstream, "answered") - answered - RACES
    yield Row(
        title=f"TLS, {name}: connections made per race",
        value=reconnects / RACES,
        at_most=RECONNECTS if name == "HTTP/2" else None,
        detail=f"{reconnects} in {RACES} races, counted at the origin",
    )
    yield Row(
        title=f"TLS, {name}: losers that ran on",
        value=float(ran_on),
        at_most=0.0,
        detail=f"of {RACES}, counted behind the origin",
    )


def _next_call(measured: MeasuredServers, version: str, name: str, pairs: int) -> Row:
    server = measured["gateway over TLS"]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=START_LIMIT_S)
    after_ms, warm_ms = [], []
    for _ in range(pairs + WARM_UP_PAIRS):
        _first_byte_ms(connection, server.headers, "far-race" + over(version))
        after_ms.append(_first_byte_ms(connection, server.headers, "far-single" + over(version)))
        warm_ms.append(_first_byte_ms(connection, server.headers, "far-single" + over(version)))
    connection.close()
    after_ms, warm_ms = after_ms[WARM_UP_PAIRS:], warm_ms[WARM_UP_PAIRS:]
    return row(
        f"TLS, {name}: the call after a loss, beside a warm one",
        [after - warm for after, warm in zip(after_ms, warm_ms, strict=True)],
        "ms",
        at_most=NEXT_CALL_MS,
        detail=(
            f"{median(after_ms):.1f} / {median(warm_ms):.1f} ms to the first byte, round trip {2000 * ONE_WAY_S:.0f} ms"
        ),
    )


def _first_byte_ms(connection: http.client.HTTPConnection, headers: Mapping[str, str], model: str) -> float:
    body = msgspec.json.encode({"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True})
    began = time.perf_counter()
    connection.request("POST", gateways.PATH, body, {**headers, "content-type": "application/json"})
    response = connection.getresponse()
    first = response.read(1)
    took_ms = (time.perf_counter() - began) * 1000
    if response.status != 200 or not first:
        raise load.LoadError(f"{model}: {response.status} {response.read()!r}")
    response.read()
    return took_ms
