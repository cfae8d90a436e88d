"""Postgres: storing rows only appends their ids, and one process at a time adds up the rows of these (a fold).

Before, each insert added its rows to the sums itself. All workers add to the same few rows, and each of these was
locked until the COMMIT of the first: with many workers nearly all of them waited. Now a trigger only notes
which rows are new, in ``rollup_fresh``; ``roll_up_fresh`` takes up to 2,000 of these notes and adds up their rows, in
one transaction, for one caller at a time. So each row still counts once, whichever version inserts it, however often.

A row is found by its note as soon as its transaction has ended, in whatever order transactions end. An attempt whose
call is not there yet is in the sums of attempts at once; it waits in ``rollup_waiting`` for those of its call's race.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None
only_adds = False  # an older version adds nothing up: with it alone, sums would stand still, and limits with them

# ``xid`` is the transaction that noted it: who folds again and again begins with the oldest one that was still running
# the last time, and does not look at what it took before. While an old snapshot is open that is still in the index.
FRESH = """
create table rollup_fresh (
  xid bigint not null default pg_current_xact_id()::text::bigint,
  is_call boolean not null,
  id uuid not null,
  started_at timestamptz not null,
  noted_at timestamptz not null default statement_timestamp()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_analyze_threshold = 1000000)
"""
WAITING = "create table rollup_waiting (id uuid not null, started_at timestamptz not null, call_id uuid not null)"
INDEXES = (
    "create index rollup_fresh_xid on rollup_fresh (xid)",
    "create index rollup_waiting_call_id on rollup_waiting (call_id)",
)
PENDING = """
create view rollup_pending as
select
  count(*) filter (where is_call) as calls,
  count(*) filter (where not is_call) as attempts,
  cast(coalesce(greatest(extract(epoch from now() - min(noted_at)), 0), 0) as double precision) as trails_s
from rollup_fresh
"""
PENDING_ON_SQLITE = """
create view rollup_pending as
select calls, attempts, case when calls + attempts = 0 then 0.0 end as trails_s
from (
  select
    (select count(*) from rollup_fresh_calls) as calls,
    (select count(*) from rollup_fresh_attempts) as attempts
)
"""
WITHOUT_TRAIL = (
    "create view rollup_pending as select (select count(*) from rollup_fresh_calls) as calls, "
    "(select count(*) from rollup_fresh_attempts) as attempts"
)
LOCK = "hashtext('holeshot.fold')"

# ``most``: notes taken at a time. ``since``: the ``until`` of the caller's last fold; what is older has been taken.
# ``rest_s``: nothing is done until a note is so old, as many rows at a time cost less each. ``taken`` is null while
# another process folds.
FOLD = """
create function roll_up_fresh(
  most integer default 2000, since bigint default 0, rest_s double precision default 0,
  out taken integer, out until bigint
)
language plpgsql security definer
set search_path = "{path}", pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan set lock_timeout = '3s'
as $$
#variable_conflict use_column
declare
  the_calls calls[];
  the_attempts attempts[];
  of_calls attempts[];
  waiting uuid[];
begin
  if not has_table_privilege(session_user, 'calls', 'insert') then
    raise insufficient_privilege using message = 'only who may insert calls may add them up';
  end if;
  taken := 0;
  until := since;
  if not exists (
    select from rollup_fresh
    where xid >= since and noted_at <= statement_timestamp() - make_interval(secs => rest_s)
  ) then
    return;
  end if;
  if not pg_try_advisory_xact_lock({lock}) then
    taken := null;
    return;
  end if;
  if pg_snapshot_xmin(pg_current_snapshot())::text::bigint < since then
    since := 0;  -- another cluster: it was restored from a copy
  end if;
  -- In one statement, so that all is of one snapshot: a row is there as soon as its note is.
  with notes as materialized (
    delete from rollup_fresh
    where ctid = any(array(select ctid from rollup_fresh where xid >= since order by xid limit most))
    returning xid, is_call, id, started_at
  )
  select
    count(*),
    least(pg_snapshot_xmin(pg_current_snapshot())::text::bigint, case when count(*) = most then max(xid) end),
    array(
      select c from notes join calls as c on c.id = notes.id and c.started_at = notes.started_at where notes.is_call
    ),
    array(
      select a from notes join attempts as a on a.id = notes.id and a.started_at = notes.started_at
      where not notes.is_call
    )
  into taken, until, the_calls, the_attempts
  from notes;
  with come as (
    delete from rollup_waiting as w using unnest(the_calls) as c where w.call_id = c.id returning w.id, w.started_at
  )
  select array(select a from come join attempts as a on a.id = come.id and a.started_at = come.started_at)
  into of_calls;
  -- Probes have no call. Whether a call is there is decided here, once for all that follows.
  with early as (
    insert into rollup_waiting (id, started_at, call_id)
    select f.id, f.started_at, f.call_id from unnest(the_attempts) as f
    where f.number > 0 and not exists (select from calls as c where c.id = f.call_id and {same_day})
    returning id
  )
  select array(select id from early) into waiting;
  if cardinality(waiting) > 0 then
    of_calls := of_calls || array(select f from unnest(the_attempts) as f where f.id <> all(waiting));
  else
    of_calls := of_calls || the_attempts;
  end if;
  if cardinality(the_calls) > 0 then
    {of_calls};
  end if;
  if cardinality(the_attempts) + cardinality(of_calls) > 0 then
    {of_attempts};
  end if;
end $$
"""


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        _make_pending_on_sqlite(PENDING_ON_SQLITE)
        return
    for statement in (FRESH, WAITING, *INDEXES, PENDING, fold()):
        op.get_bind().exec_driver_sql(statement)
    _grant_as("calls", "rollup_pending")
    # From now on, without a lock: a transaction that runs has added up its rows, or notes them.
    for table in ("calls", "attempts"):
        op.get_bind().exec_driver_sql(_noting(table))


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        _make_pending_on_sqlite(WITHOUT_TRAIL)
        return
    op.execute("lock table calls, attempts in share row exclusive mode")  # who inserts now waits for the old trigger
    op.execute(
        f"do $fold$ begin perform pg_advisory_xact_lock({LOCK}); "
        "while (select taken from roll_up_fresh()) > 0 loop end loop; end $fold$"
    )
    latest, before = _revision("0025"), _revision("0024")
    before._make_triggers(_added(latest, before))  # noqa: SLF001 - of the same tables
    op.execute("drop function roll_up_fresh")
    op.execute("drop view rollup_pending")
    op.execute("drop table rollup_waiting")
    op.execute("drop table rollup_fresh")


def fold() -> str:
    """Return the function that adds up rows, of sums as they are defined in 0006, 0016, 0024 and 0025."""
    rollups, cut = _revision("0006"), _revision("0016").CUT
    dialect, added = rollups.Dialect("postgresql"), _added(_revision("0025"), _revision("0024"))
    called = rollups._called(dialect, "unnest(of_calls) as f")  # noqa: SLF001 - of the same tables
    raced = f"({rollups.DRAWN}) or ({rollups.EXPLORED})"
    of_call = [expression.format("c") for expression in rollups.OF_CALL]
    of_attempts = [
        rollups._series([(of_call, called, raced)]),  # noqa: SLF001 - likewise
        *rollups._statements(dialect, "attempts", "unnest(the_attempts) as f", [cut], added, called),  # noqa: SLF001 - likewise
    ]
    words = {
        "path": op.get_bind().scalar(sa.text("select current_schema()")),
        "lock": LOCK,
        "same_day": rollups.SAME_DAY,
        "of_calls": ";\n    ".join(rollups._statements(dialect, "calls", "unnest(the_calls) as f", (), added)),  # noqa: SLF001 - likewise
        "of_attempts": ";\n    ".join(of_attempts),
    }
    definition = FOLD
    for word, text in words.items():
        definition = definition.replace(f"{{{word}}}", text)
    return definition


def _added(latest: Any, before: Any) -> dict[str, Any]:
    return {**before.ADDED, **latest.DEFINED, "calls": {**before.ADDED["calls"], **latest.COUNTED}}


def _noting(table: str) -> str:
    """Return the trigger's function, which notes new rows. Who stores rows needs no right to the notes."""
    path = op.get_bind().scalar(sa.text("select current_schema()"))
    is_call = "true" if table == "calls" else "false"
    return (
        f"create or replace function roll_up_{table}() returns trigger language plpgsql security definer "
        f'set search_path = "{path}", pg_temp as $$ begin '
        f"insert into rollup_fresh (is_call, id, started_at) select {is_call}, id, started_at from fresh; "
        "return null; end $$"
    )


def _make_pending_on_sqlite(definition: str) -> None:
    """Make the view again, and the trigger that it takes with it."""
    bind = op.get_bind()
    trigger = bind.exec_driver_sql("select sql from sqlite_master where name = 'roll_up'").scalar_one()
    bind.exec_driver_sql("drop view rollup_pending")
    bind.exec_driver_sql(definition)
    bind.exec_driver_sql(trigger)


def _grant_as(there: str, new: str) -> None:
    """Let everybody read the new view who may read the table that is there."""
    found = op.get_bind().execute(
        sa.text(
            "select case when grantee = 0 then 'public' else grantee::regrole::text end as role "
            "from pg_class, aclexplode(relacl) "
            "where pg_class.oid = to_regclass(:name) and grantee <> relowner and privilege_type = 'SELECT'"
        ),
        {"name": there},
    )
    for row in found.fetchall():
        op.execute(f"grant select on {new} to {row.role}")


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module
