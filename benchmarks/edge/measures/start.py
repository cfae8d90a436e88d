"""From exec to the first whole answer, and the memory of a gateway that has answered one call."""

from benchmarks.edge.edge import Edge
from benchmarks.edge.figure import Figure


async def measure(edge: Edge) -> list[Figure]:
    async with edge.gateway() as gateway:
        return [
            Figure("start to first answer", gateway.started_s, "s"),
            Figure("resident, idle", gateway.rss_mb(), "MB"),
        ]
