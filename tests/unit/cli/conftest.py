import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gateway.cli.main import application

Holeshot = Callable[..., Result]


@pytest.fixture
def holeshot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Holeshot:
    """Runs the command line in an empty folder and an environment without keys."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("HOLESHOT_") or name.endswith(("_KEY", "_TOKEN")):
            monkeypatch.delenv(name)

    def run(*arguments: str, stdin: str | bytes | None = None, **environ: str) -> Result:
        return CliRunner().invoke(application(*arguments[:1]), list(arguments), input=stdin, env=environ)

    return run
