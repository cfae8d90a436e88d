"""``holeshot version``."""

import platform

from gateway import __version__
from gateway.cli.terminal import say


def version() -> None:
    """Print the version, and the Python it runs on."""
    say(f"holeshot {__version__} (Python {platform.python_version()}, {platform.system()} {platform.machine()})")
