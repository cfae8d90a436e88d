"""Racing's worth has an interval as soon as it can be told, of the calls and not only of audits, and a verdict.

For that the sums have two more columns: of what was seen, squares beside the values. Of windows whose rows are deleted
they are 0, so intervals that reach back to these are a little too narrow.
"""

import re
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None
only_adds = True

SPANS = ("", "1h", "24h", "30d")
# By the sum that each follows where rows are added up.
AFTER = {"held_ms": "saved_seen_squared", "explored_seen": "explored_seen_squared"}


def upgrade() -> None:
    for name in AFTER.values():
        op.add_column("rollup_calls", sa.Column(name, sa.Double, nullable=False, server_default="0"))
    _add_up_what_is_there()
    _change_what_adds_up(_added)
    _make_views(revision)


def downgrade() -> None:
    _make_views("0026")
    _change_what_adds_up(_taken_away)
    for name in AFTER.values():
        op.drop_column("rollup_calls", name)


def _squared() -> dict[str, str]:
    """Return the expressions of the new sums, by name."""
    rollups = _revision("0006")
    saved = "(f.alone_ms - f.ttft_ms)"
    return {
        "saved_seen_squared": f"coalesce(sum({saved} * {saved}) filter (where {rollups.COMPARED}), 0)",
        "explored_seen_squared": rollups._known(f"{rollups.SEEN} * {rollups.SEEN}", rollups.EXPLORED),  # noqa: SLF001 - of the same tables
    }


def _add_up_what_is_there() -> None:
    """Add the squares of the rows that are there. What is new is added up before, or it would count twice."""
    rollups, bind = _revision("0006"), op.get_bind()
    dialect = rollups.Dialect(bind.dialect.name)
    if dialect.is_postgres:
        op.execute(
            f"do $fold$ begin perform pg_advisory_xact_lock({_revision('0028').LOCK}); "
            "while (select taken from roll_up_fresh()) > 0 loop end loop; end $fold$"
        )
    else:
        op.execute("delete from rollup_pending")
    squared, key = _squared(), ("client", "model")
    of_calls = {"saved_seen_squared": squared["saved_seen_squared"]}
    of_races = {"explored_seen_squared": squared["explored_seen_squared"]}
    window = f"{dialect.epoch('f.started_at')} / 300 * 300"
    who = "coalesce(f.client, '') as client, f.model as model"
    calls = f"select {window} as w, {who}, {rollups._named(of_calls)} from calls as f group by 1, 2, 3"  # noqa: SLF001 - likewise
    races = rollups._by_race(dialect, rollups._called(dialect, "attempts as f"), of_races)  # noqa: SLF001 - likewise
    for sums, grouped in ((of_calls, calls), (of_races, races)):
        statement = rollups._add_up(dialect, "rollup_calls", key, sums, grouped)  # noqa: SLF001 - likewise
        bind.exec_driver_sql(statement if dialect.is_postgres else _revision("0024")._cut_off(statement))  # noqa: SLF001 - likewise


def _change_what_adds_up(change: Callable[[str], str]) -> None:
    bind = op.get_bind()
    if bind.dialect.name == "postgresql":
        bind.exec_driver_sql(
            change(bind.exec_driver_sql("select pg_get_functiondef('roll_up_fresh'::regproc)").scalar_one())
        )
        return
    trigger = bind.exec_driver_sql("select sql from sqlite_master where name = 'roll_up'").scalar_one()
    op.execute("drop trigger roll_up")
    bind.exec_driver_sql(change(trigger))


def _added(definition: str) -> str:
    """Return what adds up rows with the new sums: among the columns, the expressions, their totals and the updates."""
    for there, new in AFTER.items():
        update = f"{new} = coalesce(rollup_calls.{new} + excluded.{new}, rollup_calls.{new}, excluded.{new})"
        for place, instead in (
            (rf"(insert into rollup_calls \([^)]*\b{there})\b", rf"\1, {new}"),
            (rf"( as {there})\b(?!_)", rf"\1, {_squared()[new]} as {new}"),
            (rf"(sum\(g\.{there}\))", rf"\1, sum(g.{new})"),
            (rf"(\b{there} = coalesce\(rollup_calls\.{there}[^)]*\))", rf"\1, {update}"),
        ):
            definition, found = re.subn(place, instead, definition)
            if found != 1:
                raise ValueError(f"{there} is added up at {found} places, not at one")
    return definition


def _taken_away(definition: str) -> str:
    for new, expression in _squared().items():
        update = f"{new} = coalesce(rollup_calls.{new} + excluded.{new}, rollup_calls.{new}, excluded.{new})"
        for part in (update, f"{expression} as {new}", f"sum(g.{new})", new):
            definition = definition.replace(f", {part}", "")
    return definition


def _make_views(of_revision: str) -> None:
    before, sums = _revision("0024"), _revision("0007")
    text = before._file(of_revision, "race_value")  # noqa: SLF001 - of the same views
    for span in SPANS:
        name, windows = (f"race_value_{span}", sums.windows(span)) if span else ("race_value", before.ALL_TIME)
        if of_revision != revision:  # Postgres does not take columns away from a view
            op.execute(f"drop view {name}")
        before._make(name, sums.defined(text, name, windows, ""))


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module
