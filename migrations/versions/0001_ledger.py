"""The ledger: calls, attempts and the views over them."""

from pathlib import Path

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# In the order they are made.
VIEWS = ("throughput", "throughput_5m", "leaderboard", "race_value", "slo", "provider_errors")
VIEWS_FOLDER = Path(__file__).resolve().parents[1] / "views" / revision


def upgrade() -> None:
    instant = sa.DateTime(timezone=True)
    identity = sa.Uuid(as_uuid=False).with_variant(sa.CHAR(36), "sqlite")
    json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    op.create_table(
        "calls",
        sa.Column("id", identity, primary_key=True),
        sa.Column("started_at", instant, nullable=False),
        sa.Column("client", sa.Text),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("streamed", sa.Boolean, nullable=False),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("objective", sa.Text, nullable=False),
        sa.Column("prompt_class", sa.SmallInteger, nullable=False),
        sa.Column("launched", sa.SmallInteger, nullable=False),
        sa.Column("winner_attempt_id", identity),
        sa.Column("status_code", sa.SmallInteger, nullable=False),
        sa.Column("error_kind", sa.Text),
        sa.Column("ttft_ms", sa.Double),
        sa.Column("total_ms", sa.Double),
        sa.Column("overhead_ms", sa.Double),
        sa.Column("prompt_tokens", sa.Integer),
        sa.Column("completion_tokens", sa.Integer),
        sa.Column("reasoning_tokens", sa.Integer),
        sa.Column("cached_tokens", sa.Integer),
        sa.Column("cost_usd", sa.Double),
        sa.Column("duplicate_cost_usd", sa.Double),
        sa.Column("tags", json, nullable=False),
        sa.Column("replica", sa.Text, nullable=False),
        sa.Column("region", sa.Text),
    )
    op.create_index("calls_started_at", "calls", ["started_at"])
    op.create_index("calls_model_started_at", "calls", ["model", "started_at"])
    op.create_table(
        "attempts",
        sa.Column("id", identity, primary_key=True),
        sa.Column("call_id", identity, nullable=False),
        sa.Column("number", sa.SmallInteger, nullable=False),
        sa.Column("started_at", instant, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("audited", sa.Boolean, nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("deployment", sa.Text, nullable=False),
        sa.Column("launch_offset_ms", sa.Double, nullable=False),
        sa.Column("connect_ms", sa.Double),
        sa.Column("headers_ms", sa.Double),
        sa.Column("first_event_ms", sa.Double),
        sa.Column("ttft_ms", sa.Double),
        sa.Column("ttft_answer_ms", sa.Double),
        sa.Column("last_token_ms", sa.Double),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("censored_at_ms", sa.Double),
        sa.Column("status_code", sa.SmallInteger),
        sa.Column("error_kind", sa.Text),
        sa.Column("error_message", sa.Text),
        sa.Column("prompt_tokens", sa.Integer),
        sa.Column("completion_tokens", sa.Integer),
        sa.Column("reasoning_tokens", sa.Integer),
        sa.Column("cached_tokens", sa.Integer),
        sa.Column("tokens_source", sa.Text),
        sa.Column("decode_tps", sa.Double),
        sa.Column("e2e_tps", sa.Double),
        sa.Column("itl_p50_ms", sa.Double),
        sa.Column("itl_p95_ms", sa.Double),
        sa.Column("itl_max_ms", sa.Double),
        sa.Column("cost_usd", sa.Double),
        sa.Column("cost_is_lower_bound", sa.Boolean, nullable=False),
    )
    op.create_index("attempts_started_at", "attempts", ["started_at"])
    op.create_index("attempts_deployment_started_at", "attempts", ["deployment", "started_at"])
    op.create_index("attempts_call_id", "attempts", ["call_id"])
    for view in VIEWS:
        definition = (VIEWS_FOLDER / op.get_bind().dialect.name / f"{view}.sql").read_text(encoding="utf-8")
        op.get_bind().exec_driver_sql(definition)


def downgrade() -> None:
    for view in reversed(VIEWS):
        op.execute(f"drop view {view}")
    op.drop_table("attempts")
    op.drop_table("calls")
