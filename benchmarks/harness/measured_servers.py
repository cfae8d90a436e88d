"""Everything that is measured, by name: started when it is first asked for, stopped at the end."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

import msgspec

from benchmarks.harness import gateways, nginx, servers
from benchmarks.harness.gateways import Stores, Tls
from benchmarks.harness.nginx import Origin
from benchmarks.harness.servers import FOLDER, Server
from tests.services.servers import postgres, redis_server

ONE_WAY_S = 0.02  # to the far side: a round trip of 40 ms


class Gateway(msgspec.Struct, frozen=True):
    """How one of the gateways differs from the others. ``tls``: its providers are reached that way as well."""

    workers: int = 1
    tls: bool = False
    sqlite: bool = False


GATEWAYS = {
    "gateway": Gateway(),
    "gateway with SQLite": Gateway(sqlite=True),
    "gateway of one": Gateway(),
    "gateway of two": Gateway(workers=2),
    "gateway over TLS": Gateway(tls=True),
    # Memory is told from a fresh one each: what a crowd leaves behind would hide what the next one takes.
    "crowded": Gateway(),
    "crowded by 2,000": Gateway(),
    "crowded over HTTP/1.1": Gateway(tls=True),
    "crowded over HTTP/2": Gateway(tls=True),
}


class MeasuredServers:
    """The servers of one run. Made by ``measured_servers``."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._servers: dict[str, Server] = {}

    def __getitem__(self, name: str) -> Server:
        """Return the server of that name.

        Raises:
            Missing: something it needs is not on this machine.

        """
        if name not in self._servers:
            self._servers[name] = self._start(name)
        return self._servers[name]

    @cached_property
    def upstream(self) -> Server:
        """The mock upstream."""
        return self._stack.enter_context(servers.upstream())

    @cached_property
    def origin(self) -> Origin:
        """The TLS server in front of it.

        Raises:
            Missing: there is no nginx.

        """
        return self._stack.enter_context(nginx.origin(self.upstream.port, self._folder / "origin"))

    @cached_property
    def tls(self) -> Tls:
        """How gateways reach the origin.

        Raises:
            Missing: there is no nginx.

        """
        port = servers.free_port()
        command = [str(FOLDER / "delay.py"), str(port), str(self.origin.server.port), str(ONE_WAY_S)]
        process = self._stack.enter_context(servers.running([sys.executable, *command]))
        servers.wait_until_listening(process, port)
        return Tls(self.origin.server.port, port, self.origin.authority)

    @cached_property
    def _production(self) -> Callable[[], Stores]:
        """Postgres for all, and a Redis database for each: what one gateway learned is none of the others' business."""
        database_url = self._stack.enter_context(postgres())
        redis_url = self._stack.enter_context(redis_server())
        gateways.migrate(database_url)
        databases = iter(range(16))
        return lambda: Stores(database_url, f"{redis_url.rpartition('/')[0]}/{next(databases)}")

    def stores(self) -> Stores:
        """Return stores for one more gateway, as in production."""
        return self._production()

    def _start(self, name: str) -> Server:
        folder = self._folder / name.replace(" ", "-").replace("/", "-")
        if name == "upstream":
            return self.upstream
        if name == "pass-through":
            return self._stack.enter_context(servers.passthrough(self.upstream.port))
        if name == "nginx":
            return self._stack.enter_context(nginx.baseline(self.upstream.port, folder))
        kind = GATEWAYS[name]
        tls = self.tls if kind.tls else None
        stores = gateways.sqlite(folder) if kind.sqlite else self.stores()
        return self._stack.enter_context(
            gateways.gateway(name, self.upstream.port, folder, stores, tls=tls, workers=kind.workers)
        )


@contextmanager
def measured_servers(folder: Path) -> Iterator[MeasuredServers]:
    """Run what is asked for, until the block ends."""
    with ExitStack() as stack:
        yield MeasuredServers(folder, stack)
