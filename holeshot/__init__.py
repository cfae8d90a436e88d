"""Holeshot races LLM providers: as a gateway (the command ``holeshot``), or in your own process (``Racer``).

Importing this package costs next to nothing: the engine is imported when one of its names is first used.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holeshot._racer import (
        Answer,
        Api,
        ApiError,
        Attempt,
        Chunk,
        ConfigurationError,
        InvalidRequest,
        ModelNotFound,
        RaceFailed,
        Racer,
        Stream,
        UpstreamError,
        race,
    )

__all__ = [
    "Answer",
    "Api",
    "ApiError",
    "Attempt",
    "Chunk",
    "ConfigurationError",
    "InvalidRequest",
    "ModelNotFound",
    "RaceFailed",
    "Racer",
    "Stream",
    "UpstreamError",
    "race",
]


# The message on Windows, instead of a traceback about a module that it lacks (fcntl, termios, resource).
NOT_ON_WINDOWS = (
    "Holeshot does not run on Windows itself, but in WSL, the Windows Subsystem for Linux: run `wsl --install` once in"
    " PowerShell, then install Holeshot again in the Linux shell that `wsl` opens"
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'holeshot' has no attribute {name!r}")
    if sys.platform == "win32":
        raise ImportError(NOT_ON_WINDOWS)
    _find_own_packages()
    from holeshot import _racer  # noqa: PLC0415 - the engine takes long to import

    globals().update({each: getattr(_racer, each) for each in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def _find_own_packages() -> None:
    """Make ``gateway`` and ``providers`` importable: last in ``sys.path``, so that a program's own packages come first.

    Raises:
        ImportError: the program has a package of one of these names, and one process cannot have two.

    """
    package = Path(__file__).resolve().parent
    inside = package / "_lib"
    home = inside if inside.is_dir() else package.parent
    if str(home) not in sys.path:
        sys.path.append(str(home))
    for name in ("gateway", "providers"):
        try:
            spec = find_spec(name)
        except ValueError:  # a module without a spec, created at run time
            spec = None
        found = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        if found != home / name / "__init__.py":
            raise ImportError(
                f"holeshot.Racer needs its own package {name!r}, and this program already has another one of that name,"
                f" at {found or 'an unknown place'}: rename that one, or run `holeshot serve` as a process of its own"
                " and call it over HTTP",
                name=name,
            )
