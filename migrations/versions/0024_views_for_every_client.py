"""Views of all time read the sums of days, so that they are quick for any program; what attempts that lost were for.

psql and most tools have Postgres's ``jit`` on: from an estimated cost of 100,000 on it compiles a statement before it
runs it, which for the value of racing over rows took minutes. Only a lower estimate is of use to everybody.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None
only_adds = True

FOLDER = Path(__file__).resolve().parents[1] / "views" / revision
LATELY = ("1h", "24h", "30d")
ALL_TIME = "r.minutes = 1440"
DAY_S = 86400

WASTED = ("wasted_low_tokens", "wasted_high_tokens")
LOST = "f.outcome in ('lost', 'superseded')"
TRIED = (
    "f.ttft_ms is not null or (f.outcome in ('failed', 'timeout', 'stalled') "
    "and coalesce(f.error_kind, '') not in ('rate_limited', 'bad_request'))"
)
COMPARED = "f.ttft_ms is not null and (f.alone_ms is not null or f.alone_age_ms is not null)"
CALL_SUMS = {
    "n_held": f"count(f.held_ms) filter (where {COMPARED})",
    "held_ms": f"coalesce(sum(f.held_ms) filter (where {COMPARED}), 0)",
}
ATTEMPT_SUMS = {
    "n_tried": f"count(*) filter (where {TRIED})",
    "n_wasted": f"count(*) filter (where {LOST})",
    "n_bounded": f"count(f.wasted_high_tokens) filter (where {LOST})",
    "wasted_prompt_tokens": f"coalesce(sum(f.prompt_tokens) filter (where {LOST}), 0)",
    "wasted_tokens": f"coalesce(sum(f.completion_tokens) filter (where {LOST}), 0)",
    "wasted_low_tokens": f"coalesce(sum(f.wasted_low_tokens) filter (where {LOST}), 0)",
    "wasted_high_tokens": f"coalesce(sum(f.wasted_high_tokens) filter (where {LOST}), 0)",
}
ATTEMPT_MONEY = {
    "wasted_cost_usd": f"sum(f.cost_usd) filter (where {LOST})",
    "wasted_cost_low_usd": f"sum(coalesce(f.cost_low_usd, f.cost_usd)) filter (where {LOST})",
    "wasted_cost_high_usd": f"sum(coalesce(f.cost_high_usd, f.cost_usd)) filter (where {LOST})",
}
ADDED: Mapping[str, Mapping[str, str]] = {"calls": CALL_SUMS, "attempts": {**ATTEMPT_SUMS, **ATTEMPT_MONEY}}
OF_TABLE = {"calls": (CALL_SUMS, {}), "attempts": (ATTEMPT_SUMS, ATTEMPT_MONEY)}

# The file that each view is made of, by the revision that has it.
ALL = {
    "race_value": ("0024", "race_value"),
    "throughput": ("0024", "throughput"),
    "cache_value": ("0024", "cache_value"),
    "waste": ("0024", "waste"),
    "slo": ("0007", "slo_sums"),
    "provider_errors": ("0007", "provider_errors_sums"),
    "client_usage": ("0007", "client_usage_sums"),
    "tag_values": ("0007", "tag_values_sums"),
}
OF_A_WINDOW = {
    **{f"race_value_{span}": ("0024", "race_value") for span in LATELY},
    **{f"waste_{span}": ("0024", "waste") for span in LATELY},
    "throughput_30d": ("0024", "throughput"),
    "tag_values_30d": ("0007", "tag_values_sums"),
}
NEW = ("waste", *(f"waste_{span}" for span in LATELY))
QUALITIES = ("answer_quality", *(f"answer_quality_{span}" for span in LATELY))


def upgrade() -> None:
    for name in WASTED:
        op.add_column("attempts", sa.Column(name, sa.Integer))
    rollups = _revision("0006")
    for table, (always, known) in OF_TABLE.items():
        for column in rollups._sums(always, known):  # noqa: SLF001 - of the same tables
            op.add_column(f"rollup_{table}", column)
    _add_up_what_is_there()
    _make_triggers(ADDED)
    if op.get_bind().dialect.name == "postgresql":
        _make_function()
    sums = _revision("0007")
    for name, place in ALL.items():
        _make(name, sums.defined(_file(*place), name, ALL_TIME, sums._instant("0")))  # noqa: SLF001 - likewise
    for name, place in OF_A_WINDOW.items():
        span = name.rpartition("_")[2]
        _make(name, sums.defined(_file(*place), name, sums.windows(span), sums._first(span)))  # noqa: SLF001 - likewise
    two_days = f"r.minutes = 5 and r.window_start >= {sums._instant(f'{{now}} / 300 * 300 - {2 * DAY_S}')}"  # noqa: SLF001 - likewise
    _make("throughput_5m", sums.defined(_file("0024", "throughput_5m"), "throughput_5m", two_days, ""))
    for name in QUALITIES:
        _make(name, _of_rows(_file("0024", "answer_quality"), name))
    if op.get_bind().dialect.name == "postgresql":
        _grant_as("race_value", NEW)


def downgrade() -> None:
    before, sums, saved = _revision("0004"), _revision("0007"), _revision("0012")
    for name in NEW:
        op.execute(f"drop view {name}")
    for name in QUALITIES:
        _make(name, _of_rows(_file("0004", "answer_quality"), name))
    dialect = op.get_bind().dialect.name
    by_rows = (FOLDER.parent / "0001" / dialect / "throughput_5m.sql").read_text(encoding="utf-8")
    _make("throughput_5m", _cut_off(by_rows))
    for name in ("throughput", "slo", "provider_errors", "client_usage", "tag_values"):
        _make(name, before.file_of("0004", name).read_text(encoding="utf-8"))
    _make("cache_value", (FOLDER.parent / "0003" / dialect / "cache_value.sql").read_text(encoding="utf-8"))
    for span, file in (("30d", "throughput_sums"), ("30d", "tag_values_sums")):
        name = f"{file.removesuffix('_sums')}_{span}"
        _make(name, sums.defined(_file("0007", file, shared=True), name, sums.windows(span), sums._first(span)))  # noqa: SLF001 - likewise
    for name in (*saved.OF_ROWS, *saved.OF_SUMS):  # with columns that Postgres does not take away from a view
        op.execute(f"drop view {name}")
    saved.make()
    if dialect == "postgresql":
        op.execute("drop function values_of_wide_tag(text, timestamptz)")
    _make_triggers({})
    for table, parts in OF_TABLE.items():
        for name in reversed([name for part in parts for name in part]):
            op.drop_column(f"rollup_{table}", name)
    for name in reversed(WASTED):
        op.drop_column("attempts", name)


def _file(of_revision: str, name: str, *, shared: bool = False) -> str:
    """Return a view's text: this revision's for Postgres, where it has one, unless it is to be both databases'."""
    if name == "tag_values_sums" and not shared and op.get_bind().dialect.name == "postgresql":
        return (FOLDER / "postgresql" / "tag_values.sql").read_text(encoding="utf-8")
    return (FOLDER.parent / of_revision / f"{name}.sql").read_text(encoding="utf-8")


def _make(name: str, definition: str) -> None:
    """Make a view, or make it again; on Postgres who may read it stays as it was."""
    if op.get_bind().dialect.name == "postgresql":
        definition = definition.replace("create view", "create or replace view", 1)
    else:
        op.execute(f"drop view if exists {name}")
    for days in ("7d", "24h"):
        definition = definition.replace(f"{{windows {days}}}", _windows_of(days))
    op.get_bind().exec_driver_sql(definition)


def _windows_of(span: str) -> str:
    """Return what is true of the windows of the last day, or of the last 7: hours until the first whole day."""
    sums = _revision("0007")
    if span != "7d":
        return str(sums.windows(span))
    since = f"({{now}} - {7 * DAY_S})"
    first = sums._instant(f"{since} - {since} % 3600")  # noqa: SLF001 - of the same views
    turn = sums._instant(f"{since} - {since} % {DAY_S} + {DAY_S}")  # noqa: SLF001 - likewise
    return (
        f"((r.minutes = 1440 and r.window_start >= {turn}) "
        f"or (r.minutes = 60 and r.window_start >= {first} and r.window_start < {turn}))"
    )


def _of_rows(definition: str, name: str) -> str:
    """Return a view of rows, of all time or lately: the comments that name ``:since`` become conditions."""
    before = _revision("0004")
    view, _, span = name.rpartition("_")
    if span not in before.WINDOWS:
        return definition
    since = before.SINCE[op.get_bind().dialect.name].format(before.WINDOWS[span])
    definition = definition.replace(f"create view {view} as", f"create view {name} as")
    return re.sub(r"-- (and \S+ >= ):since", lambda found: found[1] + since, definition)


def _make_function(defined: Mapping[str, str] | None = None) -> None:
    """Make the function, or make it again; ``defined`` are sums that a later revision defines otherwise."""
    path = op.get_bind().scalar(sa.text("select current_schema()"))
    named = {**_revision("0006").TAG_SUMS, **(defined or {})}
    sums = ", ".join(f"{expression} as {column}" for column, expression in named.items())
    definition = (FOLDER / "postgresql" / "values_of_wide_tag.sql").read_text(encoding="utf-8")
    definition = definition.replace("create function", "create or replace function")
    op.get_bind().exec_driver_sql(definition.replace("{path}", f'"{path}"').replace("{tag sums}", sums))


def _add_up_what_is_there() -> None:
    """Add what is new to the sums of attempts that are there already; no call has been held."""
    rollups = _revision("0006")
    dialect = rollups.Dialect(op.get_bind().dialect.name)
    added = ADDED["attempts"]
    window = f"{dialect.epoch('f.started_at')} / 300 * 300"
    grouped = rollups._by_series("attempts as f", window, added)  # noqa: SLF001 - of the same tables
    statement = rollups._add_up(dialect, "rollup_attempts", ("series_id",), added, grouped)  # noqa: SLF001 - likewise
    if not dialect.is_postgres:
        statement = _cut_off(statement)
    op.get_bind().exec_driver_sql(statement)
    # Of days whose rows are deleted.
    op.execute("update rollup_attempts set n_tried = n_errors + n_first_token where n_tried = 0")


def _make_triggers(added: Mapping[str, Mapping[str, str]]) -> None:
    """Make what adds up rows again, with what is ``added``."""
    rollups, slowdowns = _revision("0006"), _revision("0016")
    dialect = rollups.Dialect(op.get_bind().dialect.name)
    if dialect.is_postgres:
        for table, more in (("calls", []), ("attempts", [slowdowns.CUT])):
            function = rollups._postgres_trigger(dialect, table, more, added)[0]  # noqa: SLF001 - of the same tables
            op.get_bind().exec_driver_sql(function.replace("create function", "create or replace function"))
        return
    op.execute("drop trigger roll_up")
    trigger = rollups._triggers(dialect, [slowdowns.CUT], added)[-1]  # noqa: SLF001 - likewise
    op.get_bind().exec_driver_sql(_cut_off(trigger))


def _cut_off(statement: str) -> str:
    """Return a statement whose seconds are cut off on SQLite, not rounded."""
    return str(_revision("0022").ROUNDED.sub(r"strftime('%s', substr(\1, 1, 19))", statement))


def _grant_as(there: str, new: tuple[str, ...]) -> None:
    """Give everybody the rights to the new views that they have to one that is there."""
    found = op.get_bind().execute(
        sa.text(
            "select case when grantee = 0 then 'public' else grantee::regrole::text end as role, privilege_type as may "
            "from pg_class, aclexplode(relacl) where pg_class.oid = to_regclass(:name) and grantee <> relowner"
        ),
        {"name": there},
    )
    for row in found.fetchall():
        op.execute(f"grant {row.may} on {', '.join(new)} to {row.role}")


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module
