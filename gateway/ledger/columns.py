"""What all tables of the ledger have in common: their metadata, and types that both databases have."""

from typing import Any

from sqlalchemy import CHAR, JSON, BigInteger, DateTime, Integer, MetaData, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

# Dashed text on SQLite, so that an id from a response header can be used in a query there too.
ID = Uuid(as_uuid=False).with_variant(CHAR(36), "sqlite")
INSTANT = DateTime(timezone=True)
NUMBER = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts only an INTEGER up by itself
JSON_VALUE = JSON().with_variant(JSONB(), "postgresql")


def where(condition: str) -> dict[str, Any]:
    """Return the arguments of a partial index."""
    return {"postgresql_where": text(condition), "sqlite_where": text(condition)}


metadata = MetaData()
