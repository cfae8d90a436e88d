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
    folder, wanted = HOME.resolve() / name, "\n".join(requirements)
    if not _has(folder, wanted):
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        _run(str(folder / "bin" / "pip"), "install", "--quiet", *requirements)
        (folder / "installed").write_text(wanted)
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
    folder = HOME.resolve() / name
    wanted = msgspec.json.encode({"dependencies": requirements, "overrides": overrides}).decode()
    if not _has(folder, wanted):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(wanted)
        _run(npm, "install", "--silent", "--ignore-scripts", "--prefix", str(folder))
        (folder / "installed").write_text(wanted)
    return folder / "node_modules"


def _has(folder: Path, wanted: str) -> bool:
    """Tell whether exactly ``wanted`` was installed into it, not another version."""
    done = folder / "installed"
    return done.exists() and done.read_text() == wanted


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"cannot be installed within {_LIMIT_S:.0f} s") from error
    except subprocess.CalledProcessError as error:
        words = (error.stderr or error.stdout).decode(errors="replace").strip().splitlines()
        raise UnavailableError(f"cannot be installed: {words[-1] if words else error}") from error
