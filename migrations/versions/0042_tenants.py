"""Sums and views have what the operator's keys did: what clients' own keys cost, and how they failed, is not his.

Sums from before have both; nothing is added up again. A first token with a client's own key ends no outage.
"""

from alembic import op

from gateway.ledger.schema import Changes

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None
only_adds = True

VIEWS = (
    *("samples", "throughput_1h", "throughput_24h", "provider_errors_1h", "provider_errors_24h"),
    *("cache_latency_24h", "outages_30d"),
)


def upgrade() -> None:
    changes = Changes(op.get_bind(), revision)
    changes.make_sums()
    changes.make_views(*VIEWS)


def downgrade() -> None:
    before = Changes(op.get_bind(), down_revision)
    before.make_views(*VIEWS)
    before.make_sums()
