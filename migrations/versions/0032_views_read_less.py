"""Views that compare less: on Postgres the leaderboard, and on both databases the load by five minutes.

The leaderboard's survival goes from bucket to bucket. For each step Postgres read the buckets of all deployments, as it
expects two rows there; now it reads one of the deployment's arrays. All figures stay the same.
"""

from typing import Any

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None
only_adds = True

CHANGES = {
    "-- The share still waiting for": """\
steps as materialized (
  select
    model, deployment, array_agg(bucket order by position) as buckets, array_agg(events order by position) as events_of,
    array_agg(at_risk order by position) as at_risk_of, array_agg(watched_so_far order by position) as watched_of
  from at_risk
  where n_events >= 3
  group by model, deployment
),
-- The share still waiting for""",
    "at_risk.position, at_risk.bucket,": "step.position, step.bucket,",
    """\
  join at_risk using (model, deployment)
  join basis using (model, deployment)
  where at_risk.position = survival.position + 1 and n_events >= 3
""": """\
  join steps using (model, deployment)
  join basis using (model, deployment)
  cross join lateral (
    select
      survival.position + 1 as position, buckets[survival.position + 1] as bucket,
      events_of[survival.position + 1] as events, at_risk_of[survival.position + 1] as at_risk,
      watched_of[survival.position + 1] as watched_so_far
  ) as step
  where survival.position < cardinality(buckets)
""",
}


def upgrade() -> None:
    _make(revision, CHANGES)


def downgrade() -> None:
    _make("0007", {})


def _make(of_revision: str, changes: dict[str, str]) -> None:
    before, sums = _revision("0024"), _revision("0007")
    load = before._file(of_revision, "load_5m")  # noqa: SLF001 - of the same views
    before._make("load_5m", sums.defined(load, "load_5m", "", ""))
    if op.get_bind().dialect.name != "postgresql":
        return
    leaderboard = _revision("0004").file_of("0004", "leaderboard").read_text(encoding="utf-8")
    for there, instead in changes.items():
        if there not in leaderboard:
            raise ValueError(f"leaderboard.sql has changed: {there!r} is not there")
        leaderboard = leaderboard.replace(there, instead)
    before._make("leaderboard", leaderboard)


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module
