"""Silent connections from one address, more than a process has descriptors by default, and those who want something."""

import asyncio
import contextlib
import time
from collections.abc import Iterable

from benchmarks.edge.edge import Edge, Figure, Running, ask, get, silent
from tests.support.measured.load import asking

DESCRIPTORS = 1024  # what a shell gives
CROWDS = ((1100, False), (5000, False), (1100, True))  # how many, and whether the limit cannot be raised
OTHER = "127.0.0.2"
LOOK_S = 20.0  # that long new connections are made
EACH_S = 0.5
GIVEN_UP_S = LOOK_S


async def measure(edge: Edge) -> list[Figure]:
    figures: list[Figure] = []
    for number, at_most in CROWDS:
        limited = edge.gateway(descriptors=DESCRIPTORS, at_most=at_most)
        async with limited as gateway, silent(gateway.port, number):
            answered, asked, worst_s = await _visits(gateway)
            log = gateway.log
        title = f"{number:,} silent ones{f', {DESCRIPTORS} descriptors at most' if at_most else ''}"
        figures += [
            Figure(f"{title}, others answered", answered / asked * 100, "%"),
            Figure(f"{title}, others' longest wait for a first byte", worst_s * 1000, "ms"),
            Figure(f"{title}, upstream failures in the log", float(log.count('"connect_error"'))),
        ]
    return figures


async def _visits(gateway: Running) -> tuple[int, int, float]:
    """Ask from elsewhere, for health and for an answer; return how many were answered, of how many, and the worst."""
    question = asking(gateway.port, {**gateway.headers, "connection": "close"}, "burst-race", streamed=False)
    requests = (get("/health/live"), question.rendered())
    began = time.monotonic()
    visits = []
    while time.monotonic() < began + LOOK_S:
        visits += [asyncio.create_task(_visit(gateway.port, request)) for request in requests]
        await asyncio.sleep(EACH_S)
    waits = await asyncio.gather(*visits)
    answered = [wait for wait in waits if wait is not None]
    return len(answered), len(waits), _worst([GIVEN_UP_S if wait is None else wait for wait in waits])


async def _visit(port: int, request: bytes) -> float | None:
    with contextlib.suppress(OSError, TimeoutError):
        answer = await ask(port, request, source=OTHER, patience_s=GIVEN_UP_S)
        if answer.status == 200:
            return answer.first_byte_s
    return None


def _worst(waits: Iterable[float]) -> float:
    return max(waits, default=0.0)
