"""Streams that broke count as failed, and attempts that ended after their call in what clients used.

Sums of failed calls are those of ``gateway.core.calls.has_failed``; what broke before is added where its rows remain.
What attempts cost that ended after their call was in the sums of races already, which ``client_usage`` reads now. There
it was duplicated only if the winner's answer was whole; that is added too.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None
only_adds = True

ALL_SPANS = ("", "1h", "24h", "30d")
FAILED = "f.error_kind is not null and (f.status_code in (424, 429) or f.status_code not between 400 and 499)"
BROKEN = "f.error_kind is not null and f.status_code < 400"  # what of them was not counted
WAS = "f.error_kind is not null and (f.status_code in (424, 429) or f.status_code >= 500)"
COUNTED = {"n_failed": f"count(*) filter (where {FAILED})"}

# As ``gateway.racing.costs`` has it.
BESIDE = "('race', 'hedge', 'explore', 'probe')"
ADDED = (
    f"f.id <> coalesce(c.winner_attempt_id, f.call_id) "
    f"and (f.role in {BESIDE} or (f.outcome in ('lost', 'superseded') and w.role in {BESIDE}))"
)
NOT_COUNTED = (
    f"f.role not in {BESIDE} and f.outcome in ('lost', 'superseded') "
    f"and f.id <> coalesce(c.winner_attempt_id, f.call_id) and w.role in {BESIDE} "
    "and (w.outcome <> 'won' or w.number <= 1)"
)
COSTS = {
    "race_duplicate_cost_usd": "f.cost_usd",
    "race_duplicate_cost_low_usd": "coalesce(f.cost_low_usd, f.cost_usd)",
    "race_duplicate_cost_high_usd": "coalesce(f.cost_high_usd, f.cost_usd)",
}
DEFINED = {
    "tags": COUNTED,
    "races": {name: f"sum({cost}) filter (where {ADDED})" for name, cost in COSTS.items()},
}


def upgrade() -> None:
    before = _revision("0024")
    before._make_triggers({**before.ADDED, **DEFINED, "calls": {**before.ADDED["calls"], **COUNTED}})  # noqa: SLF001 - of the same tables
    _add_up_what_is_there(1)
    usage = before.FOLDER.parent / revision / "client_usage.sql"
    _make_usage(dict.fromkeys(ALL_SPANS, usage))
    _make_tag_values(WAS, FAILED)


def downgrade() -> None:
    before = _revision("0024")
    of_sums, of_rows = before.FOLDER.parent / "0007" / "client_usage_sums.sql", _of_rows("client_usage")
    _make_usage({"": of_sums, "1h": of_rows, "24h": of_rows, "30d": of_sums})
    _make_tag_values(WAS, WAS)
    _add_up_what_is_there(-1)
    before._make_triggers(before.ADDED)  # noqa: SLF001 - of the same tables


def _make_usage(files: Mapping[str, Path]) -> None:
    before, sums = _revision("0024"), _revision("0007")
    for span, file in files.items():
        name = f"client_usage_{span}" if span else "client_usage"
        text = file.read_text(encoding="utf-8")
        windows = sums.windows(span) if span else before.ALL_TIME
        is_of_rows = "{windows}" not in text
        before._make(name, before._of_rows(text, name) if is_of_rows else sums.defined(text, name, windows, ""))  # noqa: SLF001 - likewise


def _make_tag_values(there: str, instead: str) -> None:
    """Make what adds up rows of tags again, with another condition for a call that failed."""
    before, sums = _revision("0024"), _revision("0007")
    of_rows = _of_rows("tag_values").read_text(encoding="utf-8")
    of_rows = of_rows.replace(there.replace("f.", "calls."), instead.replace("f.", "calls."))
    for span in ("1h", "24h"):
        before._make(f"tag_values_{span}", before._of_rows(of_rows, f"tag_values_{span}"))  # noqa: SLF001 - likewise
    if op.get_bind().dialect.name == "postgresql":
        before._make_function({"n_failed": f"count(*) filter (where {instead})"})  # noqa: SLF001 - likewise
        return
    text = before._file("0007", "tag_values_sums")  # noqa: SLF001 - likewise
    first = {"": sums._instant("0"), "30d": sums._first("30d")}  # noqa: SLF001 - likewise
    for name, windows, since in (
        ("tag_values", before.ALL_TIME, first[""]),
        ("tag_values_30d", sums.windows("30d"), first["30d"]),
    ):
        before._make(name, sums.defined(text, name, windows, since).replace(there, instead))


def _of_rows(view: str) -> Path:
    return Path(_revision("0004").file_of("0004", view))


def _add_up_what_is_there(times: int) -> None:
    """Add what was not counted, of the rows that are there, to the sums that are there; -1 ``times`` takes it away."""
    rollups = _revision("0006")
    dialect = rollups.Dialect(op.get_bind().dialect.name)
    is_there = (
        "exists (select 1 from {0} as r where r.minutes = p.minutes "
        f"and r.window_start = {dialect.instant('g.w - g.w % (p.minutes * 60)')} and {{1}})"
    )
    cost = {name: f"{times} * sum({cost}) filter (where {NOT_COUNTED})" for name, cost in COSTS.items()}
    window, day = (f"{dialect.epoch('f.started_at')} / {seconds} * {seconds}" for seconds in (300, 86400))
    calls = (
        f"select {window} as w, coalesce(f.client, '') as client, f.model as model, {times} * count(*) as n_failed "
        f"from calls as f where {BROKEN} group by 1, 2, 3"
    )
    tags = (
        f"select {day} as w, each.key as tag, cast(each.value as text) as value, {times} * count(*) as n_failed "
        f"from {dialect.tagged('calls as f')} and {BROKEN} group by 1, 2, 3"
    )
    races = rollups._by_race(dialect, rollups._called(dialect, "attempts as f"), cost)  # noqa: SLF001 - of the same tables
    same_client, same_tag = "r.client = g.client and r.model = g.model", "r.tag = g.tag and r.value = g.value"
    for table, key, names, grouped, same in (
        ("rollup_calls", ("client", "model"), ("n_failed",), calls, same_client),
        ("rollup_tags", ("tag", "value"), ("n_failed",), tags, same_tag),
        ("rollup_calls", ("client", "model"), tuple(cost), races, same_client),
    ):
        sums, condition = dict.fromkeys(names, ""), is_there.format(table, same)
        statement = rollups._add_up(dialect, table, key, sums, grouped, condition)  # noqa: SLF001 - likewise
        if not dialect.is_postgres:
            statement = _revision("0024")._cut_off(statement)  # noqa: SLF001 - likewise
        op.get_bind().exec_driver_sql(statement)


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module
