"""What the ledger says that clients used, in SQL."""

import asyncpg
import msgspec

_QUERY = """
SELECT client, count(*), count(*) FILTER (WHERE error_kind = 'interrupted'),
       coalesce(sum(prompt_tokens + completion_tokens), 0), coalesce(sum(cost_usd), 0)
FROM calls WHERE client IS NOT NULL GROUP BY client
"""


class Booked(msgspec.Struct, frozen=True):
    """The sums of one client's calls. ``interrupted``: they died with their replica."""

    calls: int = 0
    interrupted: int = 0
    tokens: int = 0
    usd: float = 0.0

    def of(self, limit: str) -> float:
        """Return what was used of a limit; of parallel calls only their number is known."""
        if limit == "tpm":
            return float(self.tokens)
        return self.usd if "usd" in limit else float(self.calls)


async def booked(database_url: str) -> dict[str, Booked]:
    """Return the sums by client."""
    connection = await asyncpg.connect(database_url)
    try:
        return {client: Booked(*sums) for client, *sums in await connection.fetch(_QUERY)}
    finally:
        await connection.close()
