"""The migrations on disk: where they are, and the revisions that this version knows.

Does not import SQLAlchemy or Alembic, which ``holeshot --version`` would wait for.
"""

from pathlib import Path


def migrations_folder() -> Path:
    """Return the folder of the migrations: inside ``gateway`` in the wheel, at the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "migrations"
    return shipped if shipped.is_dir() else package.parent / "migrations"


def head_revision() -> str:
    """Return the revision that this version needs: the number of the newest migration."""
    return max(_revisions())


def first_revision() -> str:
    """Return the oldest revision that this version can update or go back to."""
    return min(_revisions())


def _revisions() -> list[str]:
    return [path.name.partition("_")[0] for path in (migrations_folder() / "versions").glob("[0-9]*.py")]
