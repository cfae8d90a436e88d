"""A gateway whose standard error is a pipe that nobody reads. ``micro/recording.py`` measures what a line costs."""

import asyncio
import contextlib
import os
import signal
import time

from benchmarks.edge.edge import Edge, Figure, ask
from tests.support.measured.load import asking

CALLS, CALLERS = 1000, 10
PATIENCE_S = 5.0  # a caller whose call takes longer makes no more
STOP_S = 20.0
MODEL = "burst-single"


async def measure(edge: Edge) -> list[Figure]:
    reading, writing = os.pipe()
    try:
        async with edge.gateway(stderr=writing) as gateway:
            headers = {**gateway.headers, "connection": "close"}
            request = asking(gateway.port, headers, MODEL, streamed=False).rendered()
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
