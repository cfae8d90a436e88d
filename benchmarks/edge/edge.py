"""What a measure is given: a checkout whose gateway it starts, as processes of its own, and attacks over sockets."""

import asyncio
import contextlib
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from benchmarks.harness import machine
from tests.support.measured import gateways
from tests.support.measured.servers import FILES, Server, fetch, running, wait_until_listening
from tests.support.servers import free_port

HOST = "127.0.0.1"
PATIENCE_S = 60.0


class Running:
    """A gateway that listens on ``port``; ``folder`` is its own, ``log`` what it has written to stderr so far."""

    def __init__(self, pid: int, port: int, folder: Path, started_s: float) -> None:
        self.pid = pid  # the parent of the workers if there are several
        self.port = port
        self.folder = folder
        self.started_s = started_s  # from exec to the first whole answer
        self.headers = dict(gateways.HEADERS)  # with the key of its one client

    @property
    def log(self) -> str:
        """What it has written to stderr so far."""
        return (self.folder / "stderr").read_text(errors="replace")

    def cpu_s(self) -> float:
        """Return the CPU seconds it has used, all its processes together."""
        return machine.cpu_s(self.pid)

    def rss_mb(self) -> float:
        """Return its resident memory now, in 10^6 bytes."""
        return machine.memory_mb(self.pid)


class Edge:
    """The gateway of one checkout. ``upstream`` is the benchmarks' mock; ``answers.py`` says how it can answer."""

    def __init__(self, checkout: Path, upstream: Server, folder: Path) -> None:
        self.checkout = checkout
        self.upstream = upstream
        self.folder = Path(tempfile.mkdtemp(dir=folder))  # for whatever a measure writes
        self._bytecode = folder / "bytecode"  # of all measures
        self._started = 0

    @asynccontextmanager
    async def gateway(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        descriptors: int = FILES,
        at_most: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Running]:
        """Run a gateway until the block ends, with a folder, a port and an SQLite ledger of its own.

        It has a provider for each behaviour of the mock, a model for each of ``gateways.RACES``, and one client, whose
        key is in ``Running.headers``. ``settings`` are laid over that, sections merged; None takes a key away.
        ``descriptors`` is the soft limit it starts with; ``at_most``: it cannot raise it.
        """
        self._started += 1
        folder = self.folder / f"gateway-{self._started}"
        port = free_port()
        path = gateways.write_config(folder, self.upstream.port, port, gateways.sqlite(folder))
        config = _laid_over(yaml.safe_load(path.read_text()), settings or {})
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(self._bytecode)}
        told = {**gateways.environment(), **compiled, "PYTHONPATH": str(self.checkout), **(environ or {})}
        gateways.migrate(config["database_url"], told, folder)
        limited = ("sh", "-c", f'ulimit {"" if at_most else "-S"} -n {descriptors}; exec "$@"', "sh")
        command = (*limited, sys.executable, "-P", "-m", "gateway.cli", "serve", "--config", str(path))
        began = time.monotonic()
        told["HOLESHOT_LAME_DUCK_S"] = "0"
        with (folder / "stderr").open("wb") as log, running(command, told, log, folder) as own:
            await asyncio.to_thread(wait_until_listening, own, port, log=folder / "stderr")
            await asyncio.to_thread(fetch, port, "/health/live")
            yield Running(own.pid, port, folder, time.monotonic() - began)


def _laid_over(lower: dict[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(lower)
    for name, value in upper.items():
        below = result.get(name)
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _laid_over(below, value) if isinstance(below, dict) and isinstance(value, Mapping) else value
    return result


class Answer(msgspec.Struct, frozen=True):
    """Seconds since the connection was begun, and the answer's first bytes; no status: closed without an answer."""

    connected_s: float
    first_byte_s: float
    status: int | None
    start: bytes


def get(path: str, headers: Mapping[str, str] | None = None) -> bytes:
    """Return a GET as HTTP/1.1 writes it; the connection is to be closed after its answer."""
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    return f"GET {path} HTTP/1.1\r\nhost: {HOST}\r\n{more}connection: close\r\n\r\n".encode()


async def ask(port: int, request: bytes, *, source: str | None = None, patience_s: float = PATIENCE_S) -> Answer:
    """Send ``request`` on a connection of its own, from the address ``source``; return when the first byte is there."""
    began = time.perf_counter()
    async with asyncio.timeout(patience_s):
        reader, writer = await asyncio.open_connection(HOST, port, local_addr=(source, 0) if source else None)
        try:
            connected_s = time.perf_counter() - began
            writer.write(request)
            start = await reader.read(65_536)
            first_byte_s = time.perf_counter() - began
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    return Answer(connected_s, first_byte_s, int(start[9:12]) if start.startswith(b"HTTP/1.1 ") else None, start)


@asynccontextmanager
async def silent(port: int, number: int, *, source: str | None = None) -> AsyncIterator[list[socket.socket]]:
    """Hold ``number`` connections on which nothing is said; those that are refused at once are among them, too."""
    held = [socket.socket() for _ in range(number)]
    try:
        for each in held:
            if source is not None:
                each.bind((source, 0))
            each.setblocking(False)  # noqa: FBT003 - its only argument
            each.connect_ex((HOST, port))
        yield held
    finally:
        for each in held:
            each.close()


class Figure(msgspec.Struct, frozen=True):
    """A name, a value and its unit. ``value`` is None when what was waited for did not happen."""

    name: str
    value: float | None
    unit: str = ""
