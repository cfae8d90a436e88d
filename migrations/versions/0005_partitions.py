"""On Postgres, partitions by time: what is old is dropped, not deleted. On both, fewer indexes.

The tables that are there become the first partition, with all of their rows where they are. Views, also those that
people have made themselves, read the new tables by the old names; who may read or write them stays as it was.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
only_adds = True

TABLES = ("calls", "attempts")
# How Postgres finds rows. Of attempts, which lie in the order in which they came, a block range index is as good as a
# tree, and takes next to nothing; what a client calls its request is only ever asked for as a whole.
INDEXES = {
    "calls_started_at": "calls (started_at)",
    "calls_client_started_at": "calls (client, started_at)",
    "calls_request_id": "calls using hash (request_id) where request_id is not null",
    "calls_errors": "calls (started_at) where error_kind is not null",
    "calls_tags": "calls using gin (tags jsonb_path_ops)",
    "attempts_started_at": "attempts using brin (started_at) with (pages_per_range = 32, autosummarize = on)",
    "attempts_call_id": "attempts (call_id)",
    "attempts_errors": "attempts (started_at) where error_kind is not null",
}
# As they were, and are no more: the window of a model or a deployment is found by time.
DROPPED = {
    "calls_model_started_at": "calls (model, started_at)",
    "attempts_deployment_started_at": "attempts (deployment, started_at)",
}
WAS = {
    "attempts_started_at": "attempts (started_at)",
    "calls_request_id": "calls (request_id) where request_id is not null",
}
_RENAMED = "{}_before_0005"


def upgrade() -> None:
    for name in DROPPED:
        op.execute(f"drop index {name}")
    if op.get_bind().dialect.name != "postgresql":
        return
    with _same_views():
        for table in TABLES:
            _partition(table)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        with _same_views():
            for table in TABLES:
                _unite(table)
        for table in TABLES:
            op.execute(f"drop table {_RENAMED.format(table)}")
    for name, definition in DROPPED.items():
        op.execute(f"create index {name} on {definition}")


def _partition(table: str) -> None:
    """Make the table that is there the first partition of one of its name."""
    first = f"{table}_first"
    op.execute(f"alter table {table} rename to {first}")
    op.execute(f"alter table {first} drop constraint {table}_pkey")
    for name in _of(table):
        op.execute(f"drop index {name}" if name in WAS else f"alter index {name} rename to {name}_first")
    op.execute(f"create table {table} (like {first} including defaults) partition by range (started_at)")
    op.execute(f"alter table {table} add primary key (id, started_at)")
    for name, definition in _of(table).items():
        op.execute(f"create index {name} on {definition}")
    _grant_as(first, table)
    op.execute(f"create table {table}_default partition of {table} default")
    # Whatever the clocks said of rows that are there, they are before this.
    latest = f"select max(started_at) from {first}"
    midnight = op.get_bind().scalar(
        sa.text(f"select date_trunc('day', greatest(now(), ({latest})), 'UTC') + interval '1 day'")
    )
    op.execute(f"alter table {table} attach partition {first} for values from (minvalue) to ('{midnight.isoformat()}')")


def _unite(table: str) -> None:
    """Put the rows of all partitions into one table again."""
    parts = _RENAMED.format(table)
    op.execute(f"alter table {table} rename to {parts}")
    for name in (f"{table}_pkey", *_of(table)):
        op.execute(f"alter index {name} rename to {name}_before")
    op.execute(f"create table {table} (like {parts} including defaults)")
    op.execute(f"insert into {table} select distinct on (id) * from {parts}")
    op.execute(f"alter table {table} add constraint {table}_pkey primary key (id)")
    for name, definition in _of(table).items():
        op.execute(f"create index {name} on {WAS.get(name, definition)}")
    _grant_as(parts, table)


def _of(table: str) -> dict[str, str]:
    return {name: definition for name, definition in INDEXES.items() if definition.startswith(f"{table} ")}


@contextmanager
def _same_views() -> Iterator[None]:
    """Have every view that reads the tables read those that have their names afterwards."""
    found = op.get_bind().execute(
        sa.text(
            "select distinct viewed.oid, viewed.oid::regclass::text as name, pg_get_viewdef(viewed.oid) as definition "
            "from pg_depend join pg_rewrite on pg_rewrite.oid = pg_depend.objid "
            "join pg_class as viewed on viewed.oid = pg_rewrite.ev_class "
            "where pg_depend.refobjid in ('calls'::regclass, 'attempts'::regclass) and viewed.relkind = 'v' "
            "order by viewed.oid"
        )
    )
    views = [(row.name, row.definition) for row in found]
    yield
    for name, definition in views:
        op.get_bind().exec_driver_sql(f"create or replace view {name} as {definition}")


def _grant_as(there: str, new: str) -> None:
    """Give everybody the rights to the new table that they have to the one that was there."""
    found = op.get_bind().execute(
        sa.text(
            "select case when grantee = 0 then 'public' else grantee::regrole::text end as role, privilege_type as may "
            "from pg_class, aclexplode(relacl) where pg_class.oid = to_regclass(:name) and grantee <> relowner"
        ),
        {"name": there},
    )
    for row in found.fetchall():
        op.execute(f"grant {row.may} on {new} to {row.role}")
