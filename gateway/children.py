"""Other programs of ours as children of this process: with our packages, never somebody's of the same names."""

import os
import sys
from pathlib import Path

_PACKAGES = Path(__file__).resolve().parents[1]  # the folder that has ``gateway`` and ``providers``


def command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return what runs ``module``. Nothing is imported from the working directory, whoever may write there."""
    return (sys.executable, "-P", "-m", module, *arguments)


def environment() -> dict[str, str]:
    """Return the environment of a child: ours, but that our packages come before all others."""
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(_PACKAGES), *([others] if others else [])])}
