"""The command ``holeshot``: it imports its own ``gateway`` and ``providers``, not another distribution's.

In a wheel they are under ``_lib``, in a checkout beside this package. Other distributions may have packages of these
common names, too. So neither is installed at the top level, and the folder that has them comes first in ``sys.path``.
"""

import signal
import sys
from pathlib import Path

from holeshot import NOT_ON_WINDOWS


def main() -> None:
    """Run the command line. Exit with a message before a module is imported that Windows or an older Python lacks."""
    if sys.platform == "win32" and sys.argv[1:2] not in (["login"], ["token"]):  # these are for people's laptops
        sys.exit(f"holeshot: {NOT_ON_WINDOWS}")
    if sys.argv[1:2] == ["serve"]:
        # SIGHUP asks to reload a configuration that is only about to be read, and ends a process without a handler. Not
        # SIG_IGN, which programs that the configuration runs would inherit.
        signal.signal(signal.SIGHUP, lambda *_: None)
    package = Path(__file__).resolve().parent
    inside = package / "_lib"
    sys.path.insert(0, str(inside if inside.is_dir() else package.parent))
    from gateway import OLDEST, PYTHONS  # noqa: PLC0415 - sys.path is set only now

    if sys.version_info < OLDEST:
        sys.exit(
            f"holeshot: this is Python {sys.version_info[0]}.{sys.version_info[1]}, and Holeshot runs on {PYTHONS}:"
            " install it with one of these: in a checkout `make PYTHON=python3.13 run`, from a wheel"
            " `pipx install --python python3.13 FILE`"
        )
    from gateway.cli.main import main as run  # noqa: PLC0415 - likewise

    run()


if __name__ == "__main__":
    main()
