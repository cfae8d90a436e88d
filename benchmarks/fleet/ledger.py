"""What the ledger says of the run, in SQL."""

import asyncpg
import msgspec

_ATTEMPTS = """
SELECT calls.model, attempts.provider, calls.prompt_class, attempts.outcome, attempts.audited, count(*) AS attempts
FROM attempts JOIN calls ON calls.id = attempts.call_id
GROUP BY 1, 2, 3, 4, 5
"""
_CALLS = "SELECT count(*), count(*) FILTER (WHERE error_kind = 'interrupted') FROM calls"


class Entry(msgspec.Struct, frozen=True):
    """So many attempts of one kind."""

    model: str
    provider: str
    prompt_class: int
    outcome: str
    audited: bool
    attempts: int


async def entries(database_url: str) -> list[Entry]:
    """Return the attempts, counted by kind."""
    connection = await asyncpg.connect(database_url)
    try:
        return [Entry(*row) for row in await connection.fetch(_ATTEMPTS)]
    finally:
        await connection.close()


async def calls(database_url: str) -> tuple[int, int]:
    """Return how many calls have rows, and how many of these were interrupted by the death of their gateway."""
    connection = await asyncpg.connect(database_url)
    try:
        every, interrupted = await connection.fetchrow(_CALLS)
        return every, interrupted
    finally:
        await connection.close()
