"""Losers: is each cut before its first byte near the limit, and what does one cost over TLS?"""

import http.client
import time
from collections.abc import Iterator, Mapping
from statistics import median

import msgspec

from benchmarks.harness import machine
from benchmarks.harness.report import Row, row, skipped
from benchmarks.speed.scenarios import Effort
from tests.support.measured import gateways, load
from tests.support.measured.answers import BEHAVIOURS
from tests.support.measured.gateways import ONE_WAY_S, MeasuredServers, over
from tests.support.measured.load import Order, asking
from tests.support.measured.nginx import Missing
from tests.support.measured.servers import START_LIMIT_S, count

NAME = "losers"
LOAD_SHARE = 0.8
MODEL = "soon-race"  # first tokens after 5 ms, and after 100 ms
SATURATING_CALLS, CONCURRENCY = 4000, 64
RUN_S, QUICK_RUN_S = 20.0, 6.0
_COUNTED = ("cut_before_first_byte", "cut_later", "answered")
TLS_NAME = "tls losers"
RACES, TLS_CONCURRENCY = 500, 16
RECONNECTS = 0.05  # per race over HTTP/2: a connection is left after many resets, before its server minds
PAIRS, QUICK_PAIRS, WARM_UP_PAIRS = 40, 15, 5
NEXT_CALL_MS = 3.0
_VERSIONS = {"auto": "HTTP/2", "1.1": "HTTP/1.1"}  # as ALPN will have it


def rows(measured: MeasuredServers, effort: Effort) -> Iterator[Row]:
    """Find the rate that saturates the gateway, and call it at 80 % of that."""
    server, upstream = measured["gateway"], measured.upstream
    question = asking(server.port, server.headers, MODEL, launched=2)
    effort.say(f"{NAME}: saturating")
    load.run(Order(question=question, calls=SATURATING_CALLS // 4, concurrency=CONCURRENCY))
    full = load.run(Order(question=question, calls=SATURATING_CALLS, concurrency=CONCURRENCY))
    server.settle()
    rate_per_s = LOAD_SHARE * SATURATING_CALLS / full.wall_s
    calls = int(rate_per_s * (QUICK_RUN_S if effort.quick else RUN_S))
    effort.say(f"{NAME}: {calls:,} races, {rate_per_s:.0f} a second")
    before = {what: count(upstream, what) for what in _COUNTED}
    before_s = machine.cpu_s(server.pid)
    outcome = load.run(Order(question=question, calls=calls, concurrency=CONCURRENCY, rate_per_s=rate_per_s))
    cores = (machine.cpu_s(server.pid) - before_s) / outcome.wall_s
    server.settle()
    seen = {what: count(upstream, what) - before[what] for what in _COUNTED}
    ran_on = max(0, seen["answered"] - calls)
    yield Row(
        title=f"losers not cut before their first byte, at {LOAD_SHARE:.0%} load",
        value=(seen["cut_later"] + ran_on) / calls * 100,
        unit="%",
        at_most=0.0,
        detail=(
            f"{calls:,} races, {rate_per_s:.0f}/s by chance, {cores:.2f} core: {seen['cut_before_first_byte']:,} cut "
            f"before, {seen['cut_later']:,} later, {ran_on:,} ran to the end"
        ),
    )


def tls_rows(measured: MeasuredServers, effort: Effort) -> Iterator[Row]:
    """Measure."""
    try:
        measured["gateway over TLS"]
    except Missing as missing:
        yield skipped("what a loser costs over TLS", missing)
        return
    for version, name in _VERSIONS.items():
        effort.say(f"{TLS_NAME}: {RACES} races over {name}")
        yield from _counted(measured, version, name)
        effort.say(f"{TLS_NAME}: calls after a loss over {name}")
        yield _next_call(measured, version, name, QUICK_PAIRS if effort.quick else PAIRS)


def _counted(measured: MeasuredServers, version: str, name: str) -> Iterator[Row]:
    server, upstream = measured["gateway over TLS"], measured.upstream
    question = asking(server.port, server.headers, "burst-race" + over(version), launched=2)
    load.run(Order(question=question, calls=RACES // 5, concurrency=TLS_CONCURRENCY))
    made, answered = measured.origin.connections(), count(upstream, "answered")
    load.run(Order(question=question, calls=RACES, concurrency=TLS_CONCURRENCY))
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
