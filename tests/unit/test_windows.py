"""Windows: the command and ``Racer`` say that WSL is needed, before they import what Windows does not have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT = ("fcntl", "grp", "pwd", "resource", "termios", "uvloop")
AS_WINDOWS = f"""
import runpy, sys
from importlib.metadata import EntryPoint
sys.modules.update(dict.fromkeys({WITHOUT}))
sys.platform = "win32"
sys.path.insert(0, {str(ROOT)!r})
sys.argv = ["holeshot", "serve"]
"""


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-P", "-c", AS_WINDOWS + program]  # -S: nothing that Holeshot needs is installed
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "program",
    [
        "EntryPoint(name='holeshot', value='holeshot.__main__:main', group='console_scripts').load()()",
        "runpy.run_module('holeshot', run_name='__main__')",
    ],
    ids=["holeshot", "python -m holeshot"],
)
def test_the_command_names_wsl(program: str, tmp_path: Path) -> None:
    ended = run(program, tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.startswith("holeshot: Holeshot does not run on Windows itself, but in WSL")
    assert "wsl --install" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_importing_works_and_racing_names_wsl(tmp_path: Path) -> None:
    program = "import holeshot\nprint('imported')\ntry:\n  holeshot.Racer\nexcept ImportError as e: print(e)"
    ended = run(program, tmp_path)
    imported, said = ended.stdout.splitlines()
    assert imported == "imported"
    assert said.startswith("Holeshot does not run on Windows itself, but in WSL")
    assert ended.stderr == ""
