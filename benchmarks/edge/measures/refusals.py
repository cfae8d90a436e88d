"""A stranger who knocks: 300 wrong keys, and 300 requests that are no HTTP, and what the log makes of them."""

import asyncio
import contextlib
import time

from benchmarks.edge.edge import HOST, Edge, Figure, Running, get

KNOCKS, TOGETHER = 300, 30
KEY = "hs-" + "aB3_" * 10
WRONG = get("/v1/models", {"authorization": f"Bearer {KEY}"})
MALFORMED = f"GET /v1/models HTTP/1.1\r\nhost: {HOST}\r\nauthorization: Bearer {KEY}\r\nx y: {KEY}\r\n\r\n".encode()
SETTLED_S = 1.5  # what is held back is written by then


async def measure(edge: Edge) -> list[Figure]:
    # Most wrong keys are answered at once, as only a few answers may wait; those take five seconds.
    async with edge.gateway() as gateway:
        found = [*await _knocked(gateway, "wrong keys", WRONG), *await _knocked(gateway, "no HTTP", MALFORMED)]
        metrics = await _answer(gateway.port, get("/metrics", gateway.headers))
        lines = [line for line in metrics.decode().splitlines() if line.startswith("holeshot_refusals_total{")]
        return [*found, Figure("refusals in the metrics", sum(float(line.split()[-1]) for line in lines))]


async def _knocked(gateway: Running, name: str, request: bytes) -> list[Figure]:
    before = len(gateway.log)
    left = iter(range(KNOCKS))
    quoted = 0

    async def knock() -> None:
        nonlocal quoted
        for _ in left:
            with contextlib.suppress(OSError):
                quoted += KEY.encode() in await _answer(gateway.port, request)

    began = time.monotonic()
    await asyncio.gather(*(knock() for _ in range(TOGETHER)))
    took_s = time.monotonic() - began
    await asyncio.sleep(SETTLED_S)
    log = gateway.log[before:]
    return [
        Figure(f"{KNOCKS} x {name}: took", took_s, "s"),
        Figure(f"{KNOCKS} x {name}: lines of the log", log.count("\n")),
        Figure(f"{KNOCKS} x {name}: bytes of the log", len(log)),
        Figure(f"{KNOCKS} x {name}: log lines with the key", sum(KEY in line for line in log.splitlines())),
        Figure(f"{KNOCKS} x {name}: answers with the key", quoted),
    ]


async def _answer(port: int, request: bytes) -> bytes:
    """Return all that is answered until the connection ends."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()
