"""``holeshot serve``: starts the gateway."""

import errno
import os
import resource
import tempfile
from contextlib import ExitStack
from typing import Annotated

import typer

from gateway.cli.configuration import ConfigOption, read_settings
from gateway.cli.terminal import MISUSED, fail


def serve(
    config: ConfigOption = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; any other than loopback needs clients.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on. [default: 4000]")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes; more than one needs Postgres and Redis.")
    ] = None,
) -> None:
    """Start the gateway.

    Without a configuration file, each provider whose key is in the environment can be called as provider/model.
    Without any key, simulated providers are started.

    Example: GROQ_API_KEY=gsk-... holeshot serve --port 4000
    """
    overrides = {"host": host, "port": port, "workers": workers}
    settings, path = read_settings(config, overrides, exit_code=MISUSED)
    from gateway.connections.tls import TlsError  # noqa: PLC0415 - imports the whole gateway, so only here
    from gateway.demo import DemoFailedError  # noqa: PLC0415 - likewise
    from gateway.ledger.errors import LedgerError  # noqa: PLC0415 - likewise
    from gateway.server import run  # noqa: PLC0415 - likewise
    from gateway.settings import load  # noqa: PLC0415 - likewise

    try:
        with ExitStack() as stack:
            if settings.workers > 1:
                # Workers share their metrics there, each in its own file.
                folder = tempfile.TemporaryDirectory(prefix="holeshot-metrics-", ignore_cleanup_errors=True)
                os.environ["PROMETHEUS_MULTIPROC_DIR"] = stack.enter_context(folder)
            run(settings, path, lambda: load(path, os.environ, overrides))
    except TlsError as error:
        fail(str(error), MISUSED)
    except (DemoFailedError, LedgerError) as error:
        fail(str(error))
    except OSError as error:
        fail(_explained(error))


def _explained(error: OSError) -> str:
    """Return why the gateway cannot start, in a sentence that says what to do."""
    from gateway.connections.ports import ListenError  # noqa: PLC0415 - imports the whole gateway, so only here

    if isinstance(error, ListenError):
        return error.strerror or str(error)
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"{limit} open files are too few for the gateway: raise the limit, for example with `ulimit -n 4096`"
    if error.errno == errno.ENFILE:
        return "this machine has no open files left: raise fs.file-max, or stop programs that hold many"
    if error.errno == errno.ENOSPC:
        return f"there is no space left on the disk{_of(error)}: free some, and start again"
    return f"the gateway cannot start: {error.strerror or error}{_of(error)}"


def _of(error: OSError) -> str:
    return f" ({error.filename})" if error.filename else ""
