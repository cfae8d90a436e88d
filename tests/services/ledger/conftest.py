"""A migrated ledger of the test's own, on each of the two databases."""

import asyncio
from pathlib import Path

import pytest

from gateway.ledger.database import migrate


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/ledger.db"
    asyncio.run(migrate(url))
    return url


@pytest.fixture(params=["postgres", "sqlite"])
def ledger_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))
