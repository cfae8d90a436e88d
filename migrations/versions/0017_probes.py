"""Probes: the gateway's own small calls to quiet deployments. The leaderboard counts their attempts, without a call."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
only_adds = True

VIEWS = Path(__file__).resolve().parents[1] / "views"
# Of the view ``samples``: an attempt without a call is left out, unless it is a probe's. One is nobody's win.
CHANGES = {
    "    calls.prompt_class,\n": (
        "    coalesce(calls.prompt_class, attempts.size_class) as prompt_class,\n    attempts.number,\n"
    ),
    "case when calls.win_on = 'answer'": "case when coalesce(calls.win_on, attempts.win_on) = 'answer'",
    "  join calls on calls.id = attempts.call_id\n  where calls.prompt_class < 100": (
        "  left join calls on calls.id = attempts.call_id\n"
        "  where (calls.prompt_class < 100 or (attempts.number = 0 and attempts.role = 'probe'))"
    ),
    "  outcome = 'won' as is_won,\n": "  outcome = 'won' and number > 0 as is_won,\n",
}


def upgrade() -> None:
    instant = sa.DateTime(timezone=True)
    op.create_table(
        "probes",
        sa.Column("id", sa.Uuid(as_uuid=False).with_variant(sa.CHAR(36), "sqlite"), primary_key=True),
        sa.Column("started_at", instant, nullable=False),
        sa.Column("ended_at", instant),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("deployment", sa.Text(), nullable=False),
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text()),
        sa.Column("error_kind", sa.Text()),
        sa.Column("ttft_ms", sa.Double()),
        sa.Column("reserved_usd", sa.Double(), nullable=False),
        sa.Column("cost_usd", sa.Double()),
    )
    op.create_index("probes_started_at", "probes", ["started_at"])
    op.create_index("probes_deployment", "probes", ["deployment", "started_at"])
    make_samples(CHANGES)
    _make_cache_values("s.api <> 'probe' and ")
    if op.get_bind().dialect.name == "postgresql":
        _grant_as("calls", "probes")


def downgrade() -> None:
    make_samples({})
    _make_cache_values("")
    op.drop_table("probes")


def make_samples(changes: dict[str, str]) -> None:
    """Make the view again, with these changes."""
    name = op.get_bind().dialect.name
    definition = (VIEWS / "0004" / name / "samples.sql").read_text(encoding="utf-8")
    for there, instead in changes.items():
        if there not in definition:
            raise ValueError(f"samples.sql has changed: {there!r} is not there")
        definition = definition.replace(there, instead)
    if name == "postgresql":  # other views are made of it
        before = _revision("0007")
        definition = definition.replace("create view", "create or replace view")
        definition = definition.replace(before._LOOKED_UP, before._COMPUTED)  # noqa: SLF001 - a migration like this one
    else:
        op.execute("drop view samples")
    op.get_bind().exec_driver_sql(definition)


def _make_cache_values(condition: str) -> None:
    """Make the views again that count answers of calls, of sums with this condition."""
    before = _revision("0007")
    definition = (VIEWS / "0007" / "cache_value_sums.sql").read_text(encoding="utf-8")
    for name, (file, span) in before.VIEWS.items():
        if file == "cache_value_sums":
            op.execute(f"drop view {name}")
            if not condition:
                before.create(name)
                continue
            windows = f"{condition}{before.windows(span)}"
            op.get_bind().exec_driver_sql(definition.replace("{view}", name).replace("{windows}", windows))


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module


def _grant_as(there: str, new: str) -> None:
    """Give everybody the rights to the new table that they have to the one that is there.

    A gateway whose role does not own the tables could not probe otherwise. Who may insert rows may also store the
    end of a probe.
    """
    found = op.get_bind().execute(
        sa.text(
            "select case when grantee = 0 then 'public' else grantee::regrole::text end as role, privilege_type as may "
            "from pg_class, aclexplode(relacl) where pg_class.oid = to_regclass(:name) and grantee <> relowner"
        ),
        {"name": there},
    )
    for row in found.fetchall():
        op.execute(f"grant {row.may} on {new} to {row.role}")
        if row.may == "INSERT":
            op.execute(f"grant select, update on {new} to {row.role}")
