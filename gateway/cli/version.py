"""``holeshot version``."""

import platform

import typer

from gateway import __version__


def version() -> None:
    """Print the version, and the Python it runs on."""
    typer.echo(f"holeshot {__version__} (Python {platform.python_version()}, {platform.system()} {platform.machine()})")
