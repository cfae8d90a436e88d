"""``serve`` puts a gateway on loopback; whatever a test does to it, nothing may be logged as a crash."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import structlog
from structlog.typing import EventDict

from tests.app.gateway.running_gateway import Serve, serving
from tests.app.gateway.shared_gateway import SharedGateways
from tests.support.ledgers import lay, migrated, plain


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[EventDict]]:
    """Everything logged, before masking."""
    with structlog.testing.capture_logs() as entries:
        yield entries
    crashes = [entry for entry in entries if entry["event"] in {"request.crashed", "ledger.task_failed"}]
    assert not crashes


@pytest.fixture
def views() -> None:
    """For who reads the ledger's views: ``@pytest.mark.usefixtures("views")``."""


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with a ledger, for one gateway; see ``views``."""
    lay(migrated() if "views" in request.fixturenames else plain(), tmp_path / "holeshot.db")
    return tmp_path


@pytest.fixture
def serve(folder: Path) -> Serve:
    """Serve a gateway: ``async with serve(alpha=script, beta=None, config={…}) as running``."""

    def start(
        *, config: dict[str, Any] | None = None, key: str = "unused", in_one_minute: bool = False, **scripts: Any
    ) -> Any:
        return serving(folder, scripts or {"alpha": None}, key=key, in_one_minute=in_one_minute, **(config or {}))

    return start


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedGateways]:
    """Gateways for rows of a table, whose module has ``pytestmark = pytest.mark.asyncio(loop_scope="module")``."""
    async with SharedGateways(tmp_path_factory.mktemp("shared")) as gateways:
        yield gateways
