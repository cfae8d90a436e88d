"""Views without a reader go: others, or the rows, answer the same. The views of throughput are made from one text.

Of how many times as many tokens a provider states, SQLite says 2.00, as Postgres does, no more 2.0.
"""

from alembic import op

from gateway.ledger.schema import UNTIL, Changes

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None
only_adds = True  # the version before reads none of those that go

GONE = tuple(name for name, last in UNTIL.items() if last == revision)
CHANGED = (
    *("throughput", "throughput_30d", "throughput_5m"),
    *("provider_errors", "provider_errors_24h", "provider_errors_30d"),
)


def upgrade() -> None:
    changes = Changes(op.get_bind(), revision)
    changes.drop_views(*GONE)
    changes.make_views(*CHANGED)


def downgrade() -> None:
    Changes(op.get_bind(), down_revision).make_views(*CHANGED, *GONE)
