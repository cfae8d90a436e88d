"""Questions to a ledger, as ``holeshot sql`` asks them."""

from typing import Any

from gateway.ledger import queries


async def asked(url: str, sql: str) -> list[dict[str, Any]]:
    """Return the rows that are found, as dictionaries."""
    result = await queries.run(url, sql)
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]
