"""The Pythons it runs on: named alike everywhere, and the start says so on another one."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway import NEWEST, OLDEST, PYTHONS
from gateway.server.server import _check_python

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PROMISED = [tuple(map(int, entry.split()[-1].split("."))) for entry in PROJECT["classifiers"] if ":: 3." in entry]
AS_OLDER = """
import runpy, sys
sys.version_info = (3, 10, 13, "final", 0)
sys.argv = ["holeshot", "serve"]
runpy.run_module("holeshot", run_name="__main__")
"""


def test_what_installers_are_told_is_what_the_start_says() -> None:
    assert (PROMISED[0], PROMISED[-1]) == (OLDEST, NEWEST)
    assert [(3, minor) for minor in range(OLDEST[1], NEWEST[1] + 1)] == PROMISED
    assert PROJECT["requires-python"] == f">=3.{OLDEST[1]}"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/start.md"])
def test_pages_name_the_same(page: str) -> None:
    assert PYTHONS in (ROOT / page).read_text(encoding="utf-8")


def test_an_older_python_is_told_which_it_needs() -> None:
    command = [sys.executable, "-S", "-P", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{AS_OLDER}"]
    environ = {"PATH": os.environ["PATH"]}
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"holeshot: this is Python 3.10, and Holeshot runs on {PYTHONS}: ")
    assert "pipx install --python" in ended.stderr


@pytest.mark.parametrize("version", PROMISED, ids=str)
def test_a_python_that_was_tested_is_not_mentioned(version: tuple[int, int]) -> None:
    with capture_logs() as logged:
        _check_python(version)
    assert logged == []


def test_a_newer_python_is_named_at_the_start() -> None:
    with capture_logs() as logged:
        _check_python((NEWEST[0], NEWEST[1] + 1))
    assert logged == [
        {
            "event": "gateway.untested_python",
            "log_level": "warning",
            "python": f"3.{NEWEST[1] + 1}",
            "tested": PYTHONS.removeprefix("Python "),
        }
    ]
