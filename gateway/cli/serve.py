"""``holeshot serve``: the gateway itself."""

import os
import shutil
import tempfile
from typing import Annotated

import typer

from gateway.cli.configuration import ConfigOption, read_settings
from gateway.cli.terminal import MISUSED, fail


def serve(
    config: ConfigOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; other than loopback needs clients.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on. [default: 4000]")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; more than one needs Postgres and Redis.")
    ] = None,
) -> None:
    """Start the gateway.

    Without a configuration file, providers whose keys are in the environment are usable at once as provider/model;
    without any key, a fleet of simulated providers is started.

    Example: GROQ_API_KEY=gsk-... holeshot serve --port 4000
    """
    overrides = {"host": host, "port": port, "workers": workers}
    settings, path = read_settings(config, overrides, exit_code=MISUSED)
    if settings.workers > 1:
        # Where workers share their metrics, each in a file of its own.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="holeshot-metrics-")
    from gateway.ledger.errors import LedgerError  # noqa: PLC0415 - the whole gateway, only now that it is wanted
    from gateway.server import run  # noqa: PLC0415 - likewise
    from gateway.settings import load  # noqa: PLC0415 - likewise

    try:
        run(settings, path, lambda: load(path, os.environ, overrides))
    except LedgerError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; choose another with --port")
    finally:
        if settings.workers > 1:
            shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)
