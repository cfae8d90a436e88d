"""SQLite: seconds are cut off, not rounded, so that a call in the last instant of a window is in that window.

``strftime('%s', …)`` rounds to milliseconds first: 59.9997 s was the next minute's. Postgres has ``floor``. What was
added up before stays where it is: one in some 600,000 calls, five minutes later than it was.
"""

import re

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None
only_adds = True

ROUNDED = re.compile(r"strftime\('%s', ((?:\w+\.)?started_at)\)")
CUT_OFF = re.compile(r"strftime\('%s', substr\(((?:\w+\.)?started_at), 1, 19\)\)")
NAMES = ("roll_up", "samples", "throughput_5m")


def upgrade() -> None:
    _replace(ROUNDED, r"strftime('%s', substr(\1, 1, 19))")


def downgrade() -> None:
    _replace(CUT_OFF, r"strftime('%s', \1)")


def _replace(there: re.Pattern[str], instead: str) -> None:
    """Make again, with ``instead``, the trigger that adds up and the views that make windows of rows."""
    bind = op.get_bind()
    if bind.dialect.name == "postgresql":
        return
    for name in NAMES:
        kind, definition = bind.exec_driver_sql("select type, sql from sqlite_master where name = ?", (name,)).one()
        changed, found = there.subn(instead, definition)
        if not found:
            raise ValueError(f"{name} has changed: {there.pattern} is not there")
        bind.exec_driver_sql(f"drop {kind} {name}")
        bind.exec_driver_sql(changed)
