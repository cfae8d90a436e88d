"""Which attempts ran beside another one of their call, and how many; and how long an answer's text paused.

``launched - 1`` counts what replaced a failed attempt too. Sums and views have ``extras`` from now on, and that of rows
of older versions, which is unknown. The verdict on racing's worth is 'saved' only where it surely saved something.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None
only_adds = True

# By the sum, what is added up before and from now on.
COUNTED = {
    "n_raced": (
        "count(*) filter (where f.launched > 1)",
        "count(*) filter (where coalesce(f.extras, f.launched - 1) > 0)",
    ),
    "extra": (
        "sum(case when f.launched > 1 then f.launched - 1 else 0 end)",
        "sum(coalesce(f.extras, case when f.launched > 1 then f.launched - 1 else 0 end))",
    ),
}


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":  # in the order in which rows are stored: else both would wait
        op.execute("lock table calls, attempts in access exclusive mode")
    op.add_column("calls", sa.Column("extras", sa.SmallInteger))
    op.add_column("attempts", sa.Column("is_extra", sa.Boolean))
    op.add_column("attempts", sa.Column("text_gap_max_ms", sa.Double))
    _count(dict(COUNTED.values()))
    _make_views(revision)


def downgrade() -> None:
    _make_views("0034")
    if op.get_bind().dialect.name == "postgresql":  # likewise
        op.execute("lock table calls, attempts in access exclusive mode")
    _count({now: before for before, now in COUNTED.values()})
    op.drop_column("attempts", "text_gap_max_ms")
    op.drop_column("attempts", "is_extra")
    op.drop_column("calls", "extras")


def _count(instead: dict[str, str]) -> None:
    """Make what adds up rows again, with other expressions; what is added up stays as it is."""
    bind = op.get_bind()
    if is_postgres := bind.dialect.name == "postgresql":
        definition = bind.exec_driver_sql("select pg_get_functiondef('roll_up_fresh'::regproc)").scalar_one()
    else:
        definition = bind.exec_driver_sql("select sql from sqlite_master where name = 'roll_up'").scalar_one()
    for there, new in instead.items():
        if definition.count(there) != 1:
            raise ValueError(f"{there} is added up at {definition.count(there)} places, not at one")
        definition = definition.replace(there, new)
    if not is_postgres:
        op.execute("drop trigger roll_up")
    bind.exec_driver_sql(definition)


def _make_views(of_revision: str) -> None:
    views, sums = _revision("0024"), _revision("0007")
    text = views._file(of_revision, "race_value")  # noqa: SLF001 - of the same views
    for span in _revision("0034").SPANS:
        name, windows = (f"race_value_{span}", sums.windows(span)) if span else ("race_value", views.ALL_TIME)
        views._make(name, sums.defined(text, name, windows, ""))


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module
