"""Two rolling restarts of two gateways behind a balancer that heeds readiness, and the calls that fail meanwhile."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.edge.edge import Edge, Figure, Running, ask, get
from benchmarks.harness.client_connection import Connection, NothingReceived, connected, is_whole
from tests.support.measured import gateways
from tests.support.measured.load import asking

RESTARTS, GATEWAYS = 2, 2
KEEPING, FRESH = 12, 4  # callers that keep their connections, and that make one for each call
PROBE_S = 0.5  # between two looks of the balancer at each gateway
REST_S = 1.0  # between two restarts
PATIENCE_S = 30.0
_KINDS = (("paced-single", True), ("soon-single", False), ("soon-single", True))


async def measure(edge: Edge) -> list[Figure]:
    async with _balanced(edge) as balancer:
        callers = [asyncio.create_task(_call_on(balancer, keeps=number < KEEPING)) for number in range(KEEPING + FRESH)]
        for _ in range(RESTARTS):
            for place in range(GATEWAYS):
                await asyncio.sleep(REST_S)
                await balancer.restart(place)
        await asyncio.sleep(REST_S)
        balancer.is_over = True
        await asyncio.gather(*callers)
        return [
            Figure("calls", float(balancer.calls)),
            Figure("failed, on kept connections", float(balancer.failed[True])),
            Figure("failed, on connections of their own", float(balancer.failed[False])),
        ]


class _Balancer:
    """Knows which gateways say that they are ready; asked for one, it takes turns."""

    def __init__(self, edge: Edge) -> None:
        self.calls = 0
        self.failed = {True: 0, False: 0}  # by whether connections are kept
        self.is_over = False
        self._edge = edge
        self._places: list[tuple[Running, AsyncExitStack] | None] = [None] * GATEWAYS
        self._ready: list[bool] = [False] * GATEWAYS
        self._turn = 0

    async def start(self, place: int) -> None:
        stack = AsyncExitStack()
        self._places[place] = (await stack.enter_async_context(self._edge.gateway()), stack)

    async def restart(self, place: int) -> None:
        """Tell one to stop, as its supervisor would, and start another in its place; wait until it is ready."""
        at = self._places[place]
        assert at is not None
        at[0].process.send_signal(signal.SIGTERM)
        await at[0].process.wait()
        await at[1].aclose()
        await self.start(place)
        while not self._ready[place]:  # noqa: ASYNC110 - until a look finds it so
            await asyncio.sleep(PROBE_S / 4)

    async def close(self) -> None:
        for at in self._places:
            if at is not None:
                await at[1].aclose()

    def choose(self) -> Running:
        """Return one of those that said they are ready, or anyone where none did."""
        for _ in range(GATEWAYS):
            self._turn = (self._turn + 1) % GATEWAYS
            if self._ready[self._turn]:
                break
        at = self._places[self._turn]
        assert at is not None
        return at[0]

    async def probe(self) -> None:
        """Ask each again and again whether it is ready."""
        while True:
            for place, at in enumerate(self._places):
                ready = False
                if at is not None:
                    with contextlib.suppress(OSError, TimeoutError):
                        ready = (await ask(at[0].port, get("/health/ready"), patience_s=PROBE_S)).status == 200
                self._ready[place] = ready
            await asyncio.sleep(PROBE_S)


@asynccontextmanager
async def _balanced(edge: Edge) -> AsyncIterator[_Balancer]:
    balancer = _Balancer(edge)
    probing = None
    try:
        for place in range(GATEWAYS):
            await balancer.start(place)
        probing = asyncio.create_task(balancer.probe())
        yield balancer
    finally:
        if probing is not None:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
        await balancer.close()


async def _call_on(balancer: _Balancer, *, keeps: bool) -> None:
    """Call without a pause until it is over; a call that fails is not made again."""
    connection: Connection | None = None
    number = 0
    while not balancer.is_over:
        model, stream = _KINDS[number % len(_KINDS)]
        request = asking(0, gateways.HEADERS, model, streamed=stream).rendered()
        number += 1
        balancer.calls += 1
        received = b""
        try:
            async with asyncio.timeout(PATIENCE_S):
                connection = connection or await connected(balancer.choose().port, lambda _: None)
                received = await connection.exchange(request)
        except (NothingReceived, TimeoutError):
            pass
        is_answered = is_whole(received) and received.startswith(b"HTTP/1.1 200")
        balancer.failed[keeps] += not is_answered
        head = received.partition(b"\r\n\r\n")[0].lower()
        if connection is not None and not (keeps and is_answered and b"\r\nconnection: close" not in head):
            connection.abort()
            connection = None
    if connection is not None:
        connection.abort()
