"""What holds for every test: none leaves the process's logging other than it found it."""

import asyncio
import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest
import structlog
from aiohttp import web_app

from gateway.core.processes import collect_less
from tests.support.ledgers import migrated
from tests.support.searched import SEED, examples
from tests.support.servers import free_port

# What an example takes depends on what else the machine does.
hypothesis.settings.register_profile("searched", deadline=None, max_examples=examples(100))
hypothesis.settings.load_profile("searched")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have Hypothesis draw its examples by the seed of the run, unless it is given another."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = SEED


# Whoever runs this in the background of a script has SIGINT ignored, and so would all processes started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The caches of compiled modules are worth having: each of many processes would compile all that it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("COLUMNS", None)  # pytest-xdist says 80; without a terminal, tables are as wide as they are
# Ledgers, spools and servers of tests live in memory where there is much of it: nothing of them outlives a test, and
# each write to a disk waits for everybody's.
MEMORY, ENOUGH_BYTES = Path("/dev/shm"), 4 * 2**30


def _has_memory_for_files() -> bool:
    """Tell whether there is a folder in memory that is large, and from which programs may be run."""
    if not os.access(MEMORY, os.W_OK) or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(MEMORY).free > ENOUGH_BYTES


if "TMPDIR" not in os.environ and _has_memory_for_files():
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
# A test that takes longer hangs; 0: none does. Well above what tests wait for by themselves (tests/patience.py).
HANGS_S = int(os.environ.get("HANGS_S", "900"))
# Until all is collected: nothing of it is garbage, and looking for some took a fifth of the time.
gc.disable()


def pytest_collection_finish() -> None:
    """Keep what was imported and collected out of all garbage collections: each would stand still for it.

    The little of it that is garbage is kept as well: looking for it takes a second or two in each process.
    """
    gc.freeze()
    collect_less()  # as a gateway does: as often as by default it is a tenth of what its tests take
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Fail a test that hangs, at the place where it does, and again where its fixtures do; the others go on."""
    signal.signal(signal.SIGALRM, _fail)
    signal.setitimer(signal.ITIMER_REAL, HANGS_S, HANGS_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _fail(*_: object) -> None:
    with suppress(RuntimeError):  # no loop runs
        for task in asyncio.all_tasks():
            task.print_stack(file=sys.stdout)
    pytest.fail(f"it hangs: it has taken {HANGS_S} s")


def pytest_runtest_teardown() -> None:
    """Let go of gateways that have ended: aiohttp keeps a thousand for their middlewares, a megabyte each."""
    web_app._cached_build_middleware.cache_clear()


@pytest.fixture(scope="session")
def migrated_file() -> Path:
    """A SQLite ledger without rows, to be copied."""
    return migrated()


@pytest.fixture
def unused_tcp_port() -> int:
    """A port that nobody else is given: pytest-asyncio's may be the next one of a server that starts beside it."""
    return free_port()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undo what a command under test has set up: it would hide another test's warnings."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    structlog.reset_defaults()
    root.setLevel(level)
    root.handlers[:] = handlers


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name bytes by their number: what is compressed has the time in it, and all processes must collect the same."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None
