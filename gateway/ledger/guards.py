"""What a question to the ledger may not do although its transaction is read-only: the net below ``holeshot sql``.

A read-only transaction forbids to write tables. It does not forbid functions that read and write the server's files,
end other sessions, hold locks or reach other databases; nor SQLite's ATTACH, which reads and makes other files. A role
that may do no such thing is the better protection (see ``roles``): this one is for those who ask as the owner.
"""

import re
import sqlite3
from typing import Any

from gateway.ledger.errors import QueryError

# What does more than return a value is volatile in Postgres. Few volatile functions do nothing of the kind.
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
_WORD = re.compile(r"[^\W\d][\w$]*")  # wherever it stands: some functions run the SQL in a string
_ESCAPED_NAME = re.compile(r'\bu&"', re.IGNORECASE)
_NAME_MAX_BYTES = 63  # Postgres cuts names there

_SQLITE_FUNCTIONS = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})
_SQLITE_PRAGMAS = frozenset(
    {
        "compile_options", "database_list", "foreign_key_list", "function_list", "index_info", "index_list",
        "index_xinfo", "pragma_list", "table_info", "table_list", "table_xinfo",
    }
)  # fmt: skip


async def refuse_side_effects(driver: Any, sql: str) -> None:
    """Look at the functions that ``sql`` may call, in Postgres' own catalog; ``driver`` is asyncpg's connection.

    Raises:
        QueryError: one of them can do more than return a value.

    """
    if _ESCAPED_NAME.search(sql):
        raise QueryError('names with escapes, U&"...", are refused: write plain names')
    words = {word.encode()[:_NAME_MAX_BYTES].decode(errors="ignore") for word in _WORD.findall(sql)}
    words |= {word.lower() for word in words}
    if secret := min(words & _SECRETS, default=None):
        raise QueryError(f"{secret} is not read: it holds passwords or other people's data; use psql for it")
    found = await driver.fetchval(_VOLATILE, sorted(words), _HARMLESS)
    if found is not None:
        raise QueryError(
            f"{found} is not run: it can do more than read the ledger; use psql for it. "
            "A function of your own that only reads must be declared stable"
        )


class SqliteGuard:
    """SQLite's authorizer: refuses other files, extensions, and what changes the connection; ``refused`` says what."""

    def __init__(self) -> None:
        self.refused: str | None = None

    def __call__(self, action: int, first: str | None, second: str | None, *_where: str | None) -> int:
        """Tell SQLite whether a statement may do ``action``; called while it is prepared."""
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
