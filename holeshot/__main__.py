"""The command ``holeshot``, which finds its own packages before anybody else's.

``gateway`` and ``providers`` lie in a wheel under ``_lib``, in a checkout beside this package: names so common that
other distributions have them, too. So neither is installed where all see it, and the folder that has them comes first.
"""

import sys
from pathlib import Path


def main() -> None:
    """Run the command line."""
    package = Path(__file__).resolve().parent
    inside = package / "_lib"
    sys.path.insert(0, str(inside if inside.is_dir() else package.parent))
    from gateway.cli.main import main as run  # noqa: PLC0415 - only now is it ours

    run()


if __name__ == "__main__":
    main()
