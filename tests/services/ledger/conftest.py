"""A migrated ledger of the test's own, on each of the two databases.

``STORES`` names others to take instead: ``german``, a Postgres whose operator has set everything as in Germany, in
Kolkata's time; ``pooled``, one behind PgBouncer.
"""

import os
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def sqlite_url(tmp_path: Path, migrated_file: Path) -> str:
    shutil.copy(migrated_file, tmp_path / "ledger.db")
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture(params=os.environ.get("STORES", "postgres sqlite").split())
def ledger_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))
