"""A gateway whose standard error is a pipe that nobody reads; and what a line of the log costs where it is read."""

import asyncio
import contextlib
import os
import signal
import time

from benchmarks import gateways, load
from benchmarks.caller import Question
from benchmarks.edge.client import ask
from benchmarks.edge.edge import Edge
from benchmarks.edge.figure import Figure
from benchmarks.load import Order

CALLS, CALLERS = 1000, 10
PATIENCE_S = 5.0  # a caller whose call takes longer makes no more
STOP_S = 20.0
COSTED_CALLS = 3000
MODEL = "burst-single"


async def measure(edge: Edge) -> list[Figure]:
    quiet_us, told_us = await _cost_us(edge, "warning"), await _cost_us(edge, "info")
    return [
        *await _unread(edge),
        Figure("CPU of a call", told_us, "µs"),
        Figure("CPU of its line", told_us - quiet_us, "µs"),
    ]


async def _unread(edge: Edge) -> list[Figure]:
    reading, writing = os.pipe()
    try:
        async with edge.gateway(stderr=writing) as gateway:
            request = _question(gateway.port, gateway.headers).rendered()
            request = request.replace(b"\r\naccept:", b"\r\nconnection: close\r\naccept:", 1)
            answered = 0
            left = iter(range(CALLS))

            async def call() -> None:
                nonlocal answered
                for _ in left:
                    answer = await ask(gateway.port, request, patience_s=PATIENCE_S)
                    answered += answer.status == 200

            callers = [asyncio.create_task(call()) for _ in range(CALLERS)]
            await asyncio.wait(callers)
            for each in callers:
                with contextlib.suppress(OSError, TimeoutError):
                    each.result()
            began = time.monotonic()
            gateway.process.send_signal(signal.SIGINT)
            stopped_s = None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gateway.process.wait(), STOP_S)
                stopped_s = time.monotonic() - began
        return [
            Figure(f"calls answered of {CALLS}, nobody reads the log", answered),
            Figure("from SIGINT to the end, nobody reads the log", stopped_s, "s"),
        ]
    finally:
        os.close(reading)
        os.close(writing)


async def _cost_us(edge: Edge, level: str) -> float:
    """Return the CPU of a call where ``level`` is logged."""
    async with edge.gateway({"log_level": level}) as gateway:
        question = _question(gateway.port, gateway.headers)
        await asyncio.to_thread(load.run, Order(question=question, calls=200, concurrency=CALLERS))
        before_s = gateway.cpu_s()
        await asyncio.to_thread(load.run, Order(question=question, calls=COSTED_CALLS, concurrency=CALLERS))
        return (gateway.cpu_s() - before_s) / COSTED_CALLS * 1e6


def _question(port: int, headers: dict[str, str]) -> Question:
    return Question(port=port, path=gateways.PATH, model=MODEL, streamed=False, headers=headers)
