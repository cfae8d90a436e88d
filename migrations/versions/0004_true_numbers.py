"""What analysts ask of a call and its attempts: bounds of costs, what the answer was, and what racing gained."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

# All of them may be null: no database rewrites its rows for them, and the previous version may go on writing its own.
CALLS: dict[str, sa.types.TypeEngine[Any]] = {
    "api": sa.Text(),
    "size_class": sa.SmallInteger(),
    "tokens_source": sa.Text(),
    "finish_reason": sa.Text(),
    "max_tokens": sa.Integer(),
    "temperature": sa.Double(),
    "tools": sa.Integer(),
    "tool_calls": sa.Integer(),
    "tool_calls_valid": sa.Boolean(),
    "is_empty": sa.Boolean(),
    "is_truncated": sa.Boolean(),
    "cost_low_usd": sa.Double(),
    "cost_high_usd": sa.Double(),
    "duplicate_cost_low_usd": sa.Double(),
    "duplicate_cost_high_usd": sa.Double(),
    "abandoned_cost_low_usd": sa.Double(),
    "abandoned_cost_high_usd": sa.Double(),
    "alone_ms": sa.Double(),
    "alone_predicted_ms": sa.Double(),
    "alone_age_ms": sa.Double(),
}
ATTEMPTS: dict[str, sa.types.TypeEngine[Any]] = {
    "client": sa.Text(),
    "api": sa.Text(),
    "size_class": sa.SmallInteger(),
    "win_on": sa.Text(),
    "token_ms": sa.Double(),
    "chars": sa.Integer(),
    "chunks": sa.Integer(),
    "first_chars": sa.Integer(),
    "finish_reason": sa.Text(),
    "tool_calls": sa.Integer(),
    "tool_calls_valid": sa.Boolean(),
    "key_name": sa.Text(),
    "model_version": sa.Text(),
    "provider_request_id": sa.Text(),
    "in_flight": sa.Integer(),
    "sends": sa.SmallInteger(),
    "cost_low_usd": sa.Double(),
    "cost_high_usd": sa.Double(),
    "is_overtaken": sa.Boolean(),
    "overtaken_at_ms": sa.Double(),
    "predicted_ms": sa.Double(),
    "price": _JSON,
    "itl": _JSON,
}


def upgrade() -> None:
    for table, columns in (("calls", CALLS), ("attempts", ATTEMPTS)):
        for name, kind in columns.items():
            op.add_column(table, sa.Column(name, kind))


def downgrade() -> None:
    for table, columns in (("attempts", ATTEMPTS), ("calls", CALLS)):
        for name in reversed(columns):
            op.drop_column(table, name)
