"""The value of racing has intervals at p50, p95 and p99 too."""

import re
from pathlib import Path
from typing import Any

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None
only_adds = True

FOLDER = Path(__file__).resolve().parents[1] / "views" / revision
OF_ROWS = ("race_value", "race_value_1h")
OF_SUMS = ("race_value_24h", "race_value_30d")


def upgrade() -> None:
    _drop()
    make()


def make() -> None:
    """Make the views, which are not there."""
    of_rows = (FOLDER / "race_value.sql").read_text(encoding="utf-8")
    dialect = op.get_bind().dialect.name
    since = _revision("0004").SINCE[dialect].format(_revision("0004").WINDOWS["1h"])
    op.get_bind().exec_driver_sql(of_rows)
    of_an_hour = of_rows.replace("create view race_value as", "create view race_value_1h as")
    op.get_bind().exec_driver_sql(re.sub(r"-- (and \S+ >= ):since", lambda found: found[1] + since, of_an_hour))
    for name in OF_SUMS:
        windows = _revision("0007").windows(name.rpartition("_")[2])
        op.get_bind().exec_driver_sql(of_sums().replace("{view}", name).replace("{windows}", windows))


def downgrade() -> None:
    _drop()
    for name in OF_ROWS:
        _revision("0004").create(name)
    for name in OF_SUMS:
        _revision("0007").create(name)


def of_sums() -> str:
    """Return the view over sums, with ``{view}`` and ``{windows}`` in it: the estimate itself is that over rows."""
    of_rows = (FOLDER / "race_value.sql").read_text(encoding="utf-8")
    statement = (FOLDER / "race_value_sums.sql").read_text(encoding="utf-8")
    for word, first, last in (
        ("{estimate}", "\nratio as (", "\n-- First tokens"),
        ("{quantiles}", "\nranked as (", "\ncounts as ("),
        ("{figures}", "\nselect\n  model,\n  calls,", None),
    ):
        start = of_rows.index(first) + 1
        part = of_rows[start:] if last is None else of_rows[start : of_rows.index(last, start)]
        statement = statement.replace(word, part.rstrip())
    return statement


def _drop() -> None:
    for name in (*OF_ROWS, *OF_SUMS):
        op.execute(f"drop view {name}")


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module
