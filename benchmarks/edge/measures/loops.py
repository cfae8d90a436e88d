"""The same as ``newcomers`` with libuv's way of accepting and with asyncio's loop, beside our own way under uvloop."""

import msgspec

from benchmarks.edge.edge import Edge, Figure
from benchmarks.edge.measures import newcomers


async def measure(edge: Edge) -> list[Figure]:
    return [
        msgspec.structs.replace(figure, name=f"{title}: {figure.name}")
        for title, loop in (("libuv accepts", "libuv"), ("asyncio's loop", "asyncio"), ("ours", None))
        for figure in await newcomers.measure(edge, loop)
    ]
