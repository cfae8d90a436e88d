"""What a query of the ledger may not do, besides the rules of a read-only transaction: protects ``holeshot sql``.

A read-only transaction cannot write tables. But its functions may read and write the server's files, end other
sessions, hold locks or reach other databases, and SQLite's ATTACH may read and create other files. A restricted role is
the better protection (see ``roles``); this one is for queries with the owner's role.
"""

import re
import sqlite3
from typing import Any

from gateway.ledger.errors import QueryError

# Functions that do more than return a value are volatile in Postgres. Only few volatile functions are harmless.
_HARMLESS = (
    "clock_timestamp", "gen_random_uuid", "random", "random_normal", "setseed", "timeofday", "uuidv4", "uuidv7",
    "pg_blocking_pids", "pg_current_wal_lsn", "pg_is_in_recovery", "pg_last_wal_receive_lsn", "pg_last_wal_replay_lsn",
    "pg_last_xact_replay_timestamp", "pg_sleep", "pg_sleep_for", "pg_sleep_until",
    "pg_database_size", "pg_indexes_size", "pg_relation_size", "pg_table_size", "pg_tablespace_size",
    "pg_total_relation_size",
)  # fmt: skip
_VOLATILE = """
select proname from pg_catalog.pg_proc
where provolatile = 'v' and proname = any($1::text[]) and not proname = any($2::text[])
  and not 'pg_catalog.internal'::pg_catalog.regtype = any(proargtypes)
order by proname limit 1
"""
_SECRETS = frozenset(
    {"pg_authid", "pg_largeobject", "pg_shadow", "pg_subscription", "pg_user_mapping", "pg_user_mappings"}
)
# They read a table, or all of them, that a string names in pieces.
_BY_NAME = re.compile(r"(table|query|cursor|schema|database)_to_xml(schema|_and_xmlschema)?")
_WORD = re.compile(r"[^\W\d][\w$]*")  # anywhere in the text: some functions run SQL that is in a string
_ESCAPED_NAME = re.compile(r'\bu&"', re.IGNORECASE)
_NAME_MAX_BYTES = 63  # Postgres cuts longer names

_SQLITE_FUNCTIONS = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})
_SQLITE_PRAGMAS = frozenset(
    {
        "compile_options", "database_list", "foreign_key_list", "function_list", "index_info", "index_list",
        "index_xinfo", "pragma_list", "table_info", "table_list", "table_xinfo",
    }
)  # fmt: skip


async def refuse_side_effects(driver: Any, sql: str) -> None:
    """Check the functions that ``sql`` may call in Postgres' catalog; ``driver`` is asyncpg's connection.

    Raises:
        QueryError: one of them can do more than return a value.

    """
    if _ESCAPED_NAME.search(sql):
        raise QueryError('names with escapes, U&"...", are refused: write plain names')
    words = {word.encode()[:_NAME_MAX_BYTES].decode(errors="ignore") for word in _WORD.findall(sql)}
    words |= {word.lower() for word in words}
    if secret := min(words & _SECRETS, default=None):
        raise QueryError(f"{secret} is not read: it holds passwords or other people's data; use psql for it")
    if by_name := min((word for word in words if _BY_NAME.fullmatch(word)), default=None):
        raise QueryError(f"{by_name} is not run: it reads what a string names; select from the table itself")
    found = await driver.fetchval(_VOLATILE, sorted(words), _HARMLESS)
    if found is not None:
        raise QueryError(
            f"{found} is not run: it can do more than read the ledger; use psql for it. "
            "A function of your own that only reads must be declared stable"
        )


class SqliteGuard:
    """SQLite's authorizer: denies other files, extensions, and changes of the connection; ``refused`` says what."""

    def __init__(self) -> None:
        self.refused: str | None = None

    def __call__(self, action: int, first: str | None, second: str | None, *_where: str | None) -> int:
        """Return SQLite's code for whether a statement may do ``action``; called while it is prepared."""
        refusal = _sqlite_refusal(action, first, second)
        if refusal is None:
            return sqlite3.SQLITE_OK
        self.refused = self.refused or refusal
        return sqlite3.SQLITE_DENY


def _sqlite_refusal(action: int, first: str | None, second: str | None) -> str | None:
    match action:
        case sqlite3.SQLITE_ATTACH | sqlite3.SQLITE_DETACH:
            return "other files are not attached or written: queries read the ledger only"
        case sqlite3.SQLITE_PRAGMA if (first or "").lower() not in _SQLITE_PRAGMAS:
            return f"pragma {first} is not run: it can do more than read the ledger"
        case sqlite3.SQLITE_FUNCTION if (second or "").lower() in _SQLITE_FUNCTIONS:
            return f"{second} is not run: it can do more than read the ledger"
        case sqlite3.SQLITE_TRANSACTION | sqlite3.SQLITE_SAVEPOINT:
            return "only statements that return rows are run"
        case _:
            return None
