"""Fingerprints that providers state, and calls in Gemini's API in the sums of promises.

Such a call was raced and logged as any other, but not counted by ``slo`` and its sums. Sums that are there stay as they
are: what is added up from now on has these calls.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None
only_adds = True

BEFORE = "endpoint in ('chat.completions', 'completions', 'messages', 'responses')"  # as 0006 has it
RACED = "endpoint in ('chat.completions', 'completions', 'messages', 'responses', 'generate_content')"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":  # in the order in which rows are stored: a later one changes calls
        op.execute("lock table calls, attempts in access exclusive mode")
    op.add_column("attempts", sa.Column("system_fingerprint", sa.Text))
    _count(BEFORE, RACED)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":  # in the order in which rows are stored: else both would wait
        op.execute("lock table calls, attempts in share row exclusive mode")
    _count(RACED, BEFORE)
    op.drop_column("attempts", "system_fingerprint")


def _count(there: str, instead: str) -> None:
    """Make what adds up rows again, with other APIs whose calls are raced."""
    bind = op.get_bind()
    if bind.dialect.name == "postgresql":
        definition = _revision("0028").fold().replace("create function", "create or replace function", 1)
        bind.exec_driver_sql(definition.replace(BEFORE, instead))
        return
    trigger = bind.exec_driver_sql("select sql from sqlite_master where name = 'roll_up'").scalar_one()
    op.execute("drop trigger roll_up")
    bind.exec_driver_sql(trigger.replace(there, instead))


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module
