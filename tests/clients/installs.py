"""The clients, pinned and hashed, installed under var/clients: environments of Python, and one of Node."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
FOLDER = CHECKOUT / "var" / "clients"
# The pinned packages of each environment of Node.
NODES = {"node": HERE / "node", "node-former": HERE / "node" / "former", "pi": HERE / "node" / "pi"}
NODE_FILES = ("package.json", "package-lock.json")


class Missing(Exception):
    """Something these clients need is not on this machine."""


def python(environment: str) -> Path:
    """Install what requirements/ENVIRONMENT.lock pins, unless it is there; return the interpreter."""
    lock = HERE / "requirements" / f"{environment}.lock"
    folder = FOLDER / environment
    interpreter = folder / "bin" / "python"
    if _is_there(folder, lock.read_bytes()):
        return interpreter
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # The lock has all there is: left to itself, pip takes a newer release for a pinned package with extras, and fails.
    subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", str(lock)], check=True)
    _remember(folder, lock.read_bytes())
    return interpreter


def node(environment: str) -> Path:
    """Install what the environment's package-lock.json pins, unless it is there; return the folder with node_modules.

    Raises:
        Missing: there is no Node on this machine, or no npm.

    """
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Missing("Node and npm are not installed")
    source, folder = NODES[environment], FOLDER / environment
    pinned = b"".join((source / name).read_bytes() for name in NODE_FILES)
    if _is_there(folder, pinned):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in NODE_FILES:
        shutil.copy(source / name, folder / name)
    # Not `npm ci`: agents name a package for each platform, and it refuses a lock that lacks one nobody can download.
    # What is in the lock is installed from it, by its hashes, all the same.
    npm = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(npm, cwd=folder, check=True, stdout=sys.stderr)  # what is printed may be JSON
    _remember(folder, pinned)
    return folder


def _is_there(folder: Path, pinned: bytes) -> bool:
    stamp = folder / ".installed"
    return stamp.exists() and stamp.read_text() == hashlib.sha256(pinned).hexdigest()


def _remember(folder: Path, pinned: bytes) -> None:
    (folder / ".installed").write_text(hashlib.sha256(pinned).hexdigest())


def environment(home: Path, interpreter: str, node_environment: str) -> dict[str, str]:
    """Return the variables a client runs with: few, none of them a key, and a home of its own."""
    path = os.pathsep.join((str(Path(interpreter).parent), os.environ.get("PATH", "")))
    return {
        "PATH": path,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(CHECKOUT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CLIENTS_NODE": str(FOLDER / node_environment),
    }
