"""``serve`` puts a gateway on loopback; whatever a test does to it, nothing may be logged as a crash."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.typing import EventDict

from tests.app.gateway.running_gateway import Serve, serving


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[EventDict]]:
    """Everything logged, before masking."""
    with structlog.testing.capture_logs() as entries:
        yield entries
    crashes = [entry for entry in entries if entry["event"] in {"request.crashed", "ledger.task_failed"}]
    assert not crashes


@pytest.fixture
def folder(tmp_path: Path, migrated_file: Path) -> Path:
    """A folder with a ledger, for one gateway."""
    shutil.copy(migrated_file, tmp_path / "holeshot.db")
    return tmp_path


@pytest.fixture
def serve(folder: Path) -> Serve:
    """Serve a gateway: ``async with serve(alpha=script, beta=None, config={…}) as running``."""

    def start(
        *, config: dict[str, Any] | None = None, key: str = "unused", in_one_minute: bool = False, **scripts: Any
    ) -> Any:
        return serving(folder, scripts or {"alpha": None}, key=key, in_one_minute=in_one_minute, **(config or {}))

    return start
