"""``holeshot init``: a configuration to start from."""

import os
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.terminal import fail


def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("config/gateway.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
) -> None:
    """Write a configuration from the keys in your environment.

    It is commented. Keys are written as ${NAME}, never their values. A model that several of your providers sell is
    proposed as a race.

    Example: GROQ_API_KEY=... CEREBRAS_API_KEY=... holeshot init
    """
    from gateway.settings.presets import found_vendors  # noqa: PLC0415 - pydantic only where it is needed
    from gateway.settings.starter import starter  # noqa: PLC0415 - likewise
    from providers.catalog import load_catalog  # noqa: PLC0415 - likewise

    found = list(found_vendors(os.environ, load_catalog()))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(starter(found, os.environ))
    except FileExistsError:
        fail(f"{path} is there already; --force overwrites it")
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}")
    names = (
        ", ".join(vendor.name for vendor in found)
        or "none: set one such as GROQ_API_KEY and run it again, or edit the file"
    )
    typer.echo(
        f"wrote {path}\nproviders found in the environment: {names}\nnext: holeshot check --live, then holeshot serve"
    )
