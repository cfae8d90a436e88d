"""Runs other programs of ours as child processes: with our packages, never others of the same names."""

import os
import sys
from pathlib import Path

_PACKAGES = Path(__file__).resolve().parents[1]  # the folder that contains ``gateway`` and ``providers``


def command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs ``module``. Nothing is imported from the working directory."""
    return (sys.executable, "-P", "-m", module, *arguments)


def environment() -> dict[str, str]:
    """Return the environment of a child: ours, with our packages before all others."""
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(_PACKAGES), *([others] if others else [])])}
