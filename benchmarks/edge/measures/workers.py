"""How evenly new connections spread over four workers: when all are idle, and while they work."""

import asyncio
import contextlib
import socket
import time
from collections import Counter
from pathlib import Path

from benchmarks.edge.edge import HOST, PATIENCE_S, Edge, Figure, Running
from benchmarks.harness import machine
from tests.support.measured import gateways, load
from tests.support.measured.load import Order, asking
from tests.support.servers import postgres, redis_server

WORKERS, CONNECTIONS = 4, 400
LOAD_CALLS, LOAD_CALLERS = 3000, 200
_ESTABLISHED = "01"


async def measure(edge: Edge) -> list[Figure]:
    with postgres() as database_url, redis_server() as redis_url:
        gateways.migrate(database_url)
        settings = {"workers": WORKERS, "database_url": database_url, "redis_url": redis_url}
        async with edge.gateway(settings) as gateway:
            idle = await _shares(gateway)
            question = asking(gateway.port, gateway.headers, "soon-race")
            order = Order(question=question, calls=LOAD_CALLS, concurrency=LOAD_CALLERS)
            working = asyncio.create_task(asyncio.to_thread(load.run, order))
            await asyncio.wait([working], timeout=1.0)
            busy = await _shares(gateway)
            await working
    return [*_told("idle", idle), *_told("under load", busy)]


async def _shares(gateway: Running) -> list[int]:
    """Open connections, and return how many of them each worker has."""
    loop = asyncio.get_running_loop()
    made = []
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            made.append(stack.enter_context(socket.socket()))
            made[-1].setblocking(False)  # noqa: FBT003 - its only argument
        await asyncio.gather(*(loop.sock_connect(each, (HOST, gateway.port)) for each in made))
        ours = {each.getsockname()[1] for each in made}
        deadline = time.monotonic() + PATIENCE_S
        while sum((held := _held(gateway, ours)).values()) < CONNECTIONS and time.monotonic() < deadline:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.1)
        return sorted(held.values())


def _held(gateway: Running, peers: set[int]) -> Counter[int]:
    """Return how many connections each worker has accepted, of those from ``peers``' ports."""
    inodes = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, remote = (int(fields[place].rpartition(":")[2], 16) for place in (1, 2))
        if local == gateway.port and fields[3] == _ESTABLISHED and remote in peers:
            inodes.add(fields[9])
    held: Counter[int] = Counter()
    for pid in machine.tree(gateway.pid)[1:]:
        held[pid] = 0
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                link = str(descriptor.readlink())
                held[pid] += link.startswith("socket:[") and link[8:-1] in inodes
    return held


def _told(when: str, shares: list[int]) -> list[Figure]:
    even = CONNECTIONS / WORKERS
    return [
        Figure(f"{when}, most of {CONNECTIONS} in one of {WORKERS} workers", float(shares[-1])),
        Figure(f"{when}, fewest", float(shares[0])),
        Figure(f"{when}, most / even share", shares[-1] / even, "x"),
    ]
