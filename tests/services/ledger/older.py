"""Older versions of what writes rows, as far as a test needs them: the code of today without what it has added."""

import pytest

from gateway.core.attempts import AttemptRecord
from gateway.core.calls import CallRecord
from gateway.ledger import entries as ledger_entries
from gateway.ledger import inserts


def without(added: frozenset[str], patch: pytest.MonkeyPatch) -> None:
    """Store rows without these columns, as older versions do, which every later schema takes."""
    for table, record, names, json in (
        ("attempts", AttemptRecord, "ATTEMPT_COLUMNS", ("price", "itl", "units")),
        ("calls", CallRecord, "CALL_COLUMNS", ("dropped", "tags")),
    ):
        omitted = {*record.__struct_fields__} - {*getattr(ledger_entries, names)}
        kept = tuple(name for name in json if name not in added)
        columns = ledger_entries.Columns(record, left_out=added | omitted, json=kept)
        patch.setattr(ledger_entries, f"_{table.upper()}", columns)
        patch.setattr(inserts, names, columns.names)
        now, before = inserts._NAMES[table], ", ".join(columns.names)
        patch.setitem(inserts._NAMES, table, before)
        patch.setitem(inserts._TAKE_OVER, table, inserts._TAKE_OVER[table].replace(now, before))
        fewer = now.count(",") - before.count(",")
        on_sqlite = inserts._INSERT_SQLITE[table].replace(now, before).replace(", ?" * fewer, "", 1)
        patch.setitem(inserts._INSERT_SQLITE, table, on_sqlite)
    if "units" in added:
        patch.setattr(
            inserts, "attempt_rows", lambda entries: (row[:-1] for row in ledger_entries.attempt_rows(entries))
        )
