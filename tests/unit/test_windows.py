"""Windows: all but signing in says that WSL is needed, before anything is imported that Windows does not have."""

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


# The libraries come first, as those of Linux do not find here what Windows has. What is imported then is ours.
AT_A_LAPTOP = f"""
import asyncio, ctypes, ssl, sys, zoneinfo
import filelock, keyring, oauthlib.oauth2, pydantic.fields, tomlkit, typer.main, typer.rich_utils
from holeshot.__main__ import main
sys.modules.update(dict.fromkeys({(*WITHOUT, "posix", "pty", "tty")}))
sys.platform = "win32"
ssl.enum_certificates = lambda _: []  # of the system
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("token",), "nobody has signed in at URL here"),
        (("token", "https://llm.example.com"), "nobody has signed in at https://llm.example.com here"),
        (("login", "http://127.0.0.1:1"), "the gateway at http://127.0.0.1:1 cannot be reached"),
        (("login", "http://127.0.0.1:1", "--out"), "nobody was signed in at http://127.0.0.1:1"),
        (("login", "http://127.0.0.1:1", "--undo", "codex"), "nothing to change"),
        (("races",), "Holeshot does not run on Windows itself, but in WSL"),
        (("--help",), "Holeshot does not run on Windows itself, but in WSL"),
    ],
)
def test_people_sign_in_on_windows_itself_and_all_else_names_wsl(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    program = f"{AT_A_LAPTOP}\nsys.argv = ['holeshot', *{arguments}]\nmain()"
    environ = {"PATH": os.environ["PATH"], "APPDATA": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-c", program]
    ended = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert said in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
