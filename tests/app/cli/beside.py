"""The command line in a thread beside the servers of a test's loop: as a process it takes seconds to start."""

import asyncio
import io
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryFile

import pytest
import structlog

from gateway.cli.main import application


async def run_beside(
    folder: Path, arguments: Sequence[str], environ: Mapping[str, str], stdin: bytes = b""
) -> tuple[int | str | None, str, str]:
    """Run a command in ``folder`` to its end; return its exit code, standard output and standard error."""
    return await asyncio.to_thread(_run, folder, list(arguments), environ, stdin)


def _run(
    folder: Path, arguments: list[str], environ: Mapping[str, str], stdin: bytes
) -> tuple[int | str | None, str, str]:
    code: int | str | None = 0
    handlers, logs = logging.getLogger().handlers[:], structlog.get_config()
    with (
        pytest.MonkeyPatch.context() as patch,
        TemporaryFile("w+", encoding="utf-8") as out,
        TemporaryFile("w+", encoding="utf-8") as err,  # a log is written to its descriptor
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        patch.chdir(folder)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        for name in [name for name in os.environ if name.startswith("HOLESHOT_")]:
            patch.delenv(name)
        for name, value in environ.items():
            patch.setenv(name, value)
        try:
            application(arguments[0])(arguments)
        except SystemExit as error:
            code = error.code
        finally:  # nobody shall write there later
            structlog.configure(**logs)
            logging.getLogger().handlers[:] = handlers
        for file in (out, err):
            file.seek(0)
        return code, out.read(), err.read()
