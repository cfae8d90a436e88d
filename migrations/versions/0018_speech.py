"""When an answer could be spoken, how long speech then had to pause, and which samples are of speech."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None
only_adds = True

COLUMNS = ("sentence_ms", "speech_pause_ms")
_BEFORE = "case when calls.win_on = 'answer' then attempts.ttft_answer_ms else attempts.ttft_ms end"
NOW = (
    "case coalesce(calls.win_on, attempts.win_on) when 'answer' then attempts.ttft_answer_ms "
    "when 'sentence' then attempts.sentence_ms else attempts.ttft_ms end"
)
IS_SPOKEN = {
    "    attempts.flaw is not null as is_flawed,\n": (
        "    attempts.flaw is not null as is_flawed,\n    coalesce(attempts.win_on, '') = 'sentence' as is_spoken,\n"
    ),
    "  is_judged,\n  is_flawed": "  is_judged,\n  is_flawed,\n  is_spoken",
}


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("attempts", sa.Column(name, sa.Double))
    make_samples(NOW)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":  # whose views cannot lose a column
        op.execute("drop view leaderboard")
        op.execute("drop view samples")
    probes = _revision("0017")
    probes.make_samples(probes.CHANGES)
    if op.get_bind().dialect.name == "postgresql":
        _revision("0004").create("leaderboard")
    for name in reversed(COLUMNS):
        op.drop_column("attempts", name)


def make_samples(token: str) -> None:
    """Make the view ``samples`` again: what wins a call is what its attempts are compared by."""
    probes = _revision("0017")
    changes = {there: instead for there, instead in probes.CHANGES.items() if not _BEFORE.startswith(there)}
    probes.make_samples({**changes, _BEFORE: token, **IS_SPOKEN})


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module
