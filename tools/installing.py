"""Installing tools and peers from their registries, pinned, into folders of their own under ``var/installed``."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

HOME = Path(__file__).absolute().parents[1] / "var" / "installed"
_LIMIT_S = 900.0


class UnavailableError(Exception):
    """Something cannot be had here; the message says why."""


def python_tool(name: str, *requirements: str) -> Path:
    """Return the ``bin`` folder of an environment that has ``requirements``, made on first use.

    Raises:
        UnavailableError: they cannot be installed.

    """
    folder = HOME / name
    if not (folder / "installed").exists():
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        _run(str(folder / "bin" / "pip"), "install", "--quiet", *requirements)
        (folder / "installed").write_text("\n".join(requirements))
    return folder / "bin"


def node_tool(name: str, requirements: Mapping[str, str], overrides: Mapping[str, str]) -> Path:
    """Return the ``node_modules`` folder that has ``requirements``, made on first use.

    ``overrides`` are the versions of what these require in turn.

    Raises:
        UnavailableError: there is no npm, or it cannot be installed.

    """
    npm = shutil.which("npm")
    if npm is None:
        raise UnavailableError("needs npm")
    folder = HOME / name
    if not (folder / "installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        wanted = {"dependencies": requirements, "overrides": overrides}
        (folder / "package.json").write_bytes(msgspec.json.encode(wanted))
        _run(npm, "install", "--silent", "--ignore-scripts", "--prefix", str(folder))
        (folder / "installed").touch()
    return folder / "node_modules"


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"cannot be installed within {_LIMIT_S:.0f} s") from error
    except subprocess.CalledProcessError as error:
        words = (error.stderr or error.stdout).decode(errors="replace").strip().splitlines()
        raise UnavailableError(f"cannot be installed: {words[-1] if words else error}") from error
