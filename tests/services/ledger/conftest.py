"""A migrated ledger of the test's own, on each of the two databases."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def sqlite_url(tmp_path: Path, migrated_file: Path) -> str:
    shutil.copy(migrated_file, tmp_path / "ledger.db")
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture(params=["postgres", "sqlite"])
def ledger_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))
