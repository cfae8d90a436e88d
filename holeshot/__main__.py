"""The command ``holeshot``, which finds its own packages before anybody else's.

``gateway`` and ``providers`` lie in a wheel under ``_lib``, in a checkout beside this package: names so common that
other distributions have them, too. So neither is installed where all see it, and the folder that has them comes first.
"""

import sys
from pathlib import Path

from holeshot import NOT_ON_WINDOWS


def main() -> None:
    """Run the command line; on Windows, say where it can be run, before anything is imported that Windows lacks."""
    if sys.platform == "win32":
        sys.exit(f"holeshot: {NOT_ON_WINDOWS}")
    package = Path(__file__).resolve().parent
    inside = package / "_lib"
    sys.path.insert(0, str(inside if inside.is_dir() else package.parent))
    from gateway.cli.main import main as run  # noqa: PLC0415 - only now is it ours

    run()


if __name__ == "__main__":
    main()
