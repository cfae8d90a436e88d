"""Rows made by hand whose tags are no JSON object count without them; the hours of ``load_peaks`` are those of UTC.

One such row stopped all sums: on Postgres each fold failed, on SQLite each batch of rows that was to be added up with
it was refused. The hours were those of the session's time zone, which begin at another minute in India and Nepal.
"""

import re
from pathlib import Path

from alembic import op
from sqlalchemy import Connection

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None
only_adds = True

# What yields the keys and values of a JSON object, and now nothing of what is none.
EACH = re.compile(r"\b(jsonb?)_each_text\((\w+\.(?:tags|itl))\)")
OF_AN_OBJECT = r"\1_each_text(case when \1_typeof(\2) = 'object' then \2 end)"
EACH_ON_SQLITE = re.compile(r"\bjson_each\((\w+\.(?:tags|itl))\)")
OF_AN_OBJECT_ON_SQLITE = r"json_each(case when json_valid(\1) then case json_type(\1) when 'object' then \1 end end)"
LOAD_PEAKS = Path(__file__).resolve().parents[1] / "views" / "0004" / "postgresql" / "load_peaks.sql"


def upgrade() -> None:
    bind = op.get_bind()
    if bind.dialect.name == "postgresql":
        _on_postgres(bind)
    else:
        _on_sqlite(bind)


def downgrade() -> None:
    """Do nothing: the version before works with these definitions as with its own."""


def _on_postgres(bind: Connection) -> None:
    for name in ("roll_up_fresh", "values_of_wide_tag"):
        definition = bind.exec_driver_sql(f"select pg_get_functiondef('{name}'::regproc)").scalar_one()
        bind.exec_driver_sql(EACH.sub(OF_AN_OBJECT, definition))
    for name in ("tag_values_1h", "tag_values_24h"):
        definition = bind.exec_driver_sql(f"select pg_get_viewdef('{name}'::regclass)").scalar_one()
        bind.exec_driver_sql(f"create or replace view {name} as {EACH.sub(OF_AN_OBJECT, definition)}")
    peaks = LOAD_PEAKS.read_text(encoding="utf-8").replace("create view", "create or replace view", 1)
    bind.exec_driver_sql(peaks.replace("date_trunc('hour', window_start)", "date_trunc('hour', window_start, 'UTC')"))


def _on_sqlite(bind: Connection) -> None:
    for name in ("roll_up", "tag_values", "tag_values_1h", "tag_values_24h", "tag_values_30d"):
        kind, definition = bind.exec_driver_sql("select type, sql from sqlite_master where name = ?", (name,)).one()
        bind.exec_driver_sql(f"drop {kind} {name}")
        bind.exec_driver_sql(EACH_ON_SQLITE.sub(OF_AN_OBJECT_ON_SQLITE, definition))
