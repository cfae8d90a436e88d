"""Gateways with one Postgres and one Redis before providers: processes that can be killed and started again.

All are stopped when their block ends, and die with this process however it ends (the kernel sees to it on Linux).
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import yaml
from redis import Redis

from tests.support.measured.gateways import Stores, production, sqlite
from tests.support.measured.servers import REQUEST_LIMIT_S, Child, fetch
from tests.support.servers import free_port

READY_S = 180.0  # with hundreds of models, on a busy machine


class Replicas:
    """The gateways, their stores, and the providers by name."""

    def __init__(self, gateways: Sequence[Child], stores: Stores, providers: Sequence[Child]) -> None:
        self.gateways = gateways
        self.stores = stores
        self.providers = {each.name: each for each in providers}
        with Redis.from_url(stores.redis_url or "") as redis:
            self._redis_pid = int(redis.info("server")["process_id"])

    def begin(self, fault: str | None) -> None:
        """Kill the first gateway, have Redis hang or forget everything: ``kill``, ``hang``, ``flush``."""
        if fault == "kill":
            self.gateways[0].kill()
        elif fault == "hang":  # connections stay open, and what is sent waits
            os.kill(self._redis_pid, signal.SIGSTOP)
        elif fault == "flush":
            with Redis.from_url(self.stores.redis_url or "") as redis:
                redis.flushall()

    def end(self, fault: str | None) -> None:
        """End what lasts; call it from the main thread."""
        if fault == "kill":
            self.gateways[0].start()
        elif fault == "hang":
            os.kill(self._redis_pid, signal.SIGCONT)

    def settle(self) -> None:
        """Wait until every row is in SQL."""
        deadline = time.monotonic() + REQUEST_LIMIT_S
        for gateway in self.gateways:
            gateway.ready()
            while gateway.ask("/health/ready")["database"]["pending"] and time.monotonic() < deadline:
                time.sleep(0.05)

    async def fetched(self, query: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.stores.database_url)
        try:
            return [tuple(row) for row in await connection.fetch(query)]
        finally:
            await connection.close()


def child(name: str, folder: Path, module: str, *arguments: str) -> Child:
    """Return a process that serves: a module, whose first argument is its port; its log is in ``folder``."""
    port = free_port()
    return Child(name, port, [sys.executable, "-m", module, str(port), *arguments], folder / f"{name}.log")


def configured(folder: Path, name: str, port: int, settings: Mapping[str, Any], stores: Stores) -> Path:
    """Write a gateway's configuration, these settings laid over its own, and return its path."""
    own = {"port": port, "replica": name, "spool_dir": str(folder / f"spool-{name}"), "lame_duck_s": 0}
    shared = {field: url for field, url in msgspec.structs.asdict(stores).items() if url is not None}
    config = {**own, **shared, "log_level": "warning", "log_format": "json", **settings}
    written, path = folder / f"{name}.new", folder / f"{name}.yaml"
    written.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return written.replace(path)  # at once: a gateway also looks at its file by itself


def replica(name: str, folder: Path, settings: Mapping[str, Any], stores: Stores) -> Child:
    """Return a gateway with these settings beside its own and its stores."""
    port = free_port()
    config = configured(folder, name, port, settings, stores)
    command = [sys.executable, "-m", "gateway.cli", "serve", "--config", str(config)]
    return Child(name, port, command, folder / f"{name}.log")


@asynccontextmanager
async def alone(folder: Path, settings: Mapping[str, Any], stores: Stores | None = None) -> AsyncIterator[Child]:
    """Run one gateway until the block ends, with an SQLite ledger unless ``stores`` are given; it answers by then."""
    gateway = replica("gateway", folder, settings, stores or sqlite(folder))
    try:
        gateway.start()
        await asyncio.to_thread(gateway.ready)
        await asyncio.to_thread(fetch, gateway.port, "/health/ready", limit_s=READY_S)
        yield gateway
    finally:
        gateway.stop()


@contextmanager
def installed(
    folder: Path, settings: Mapping[str, Any], providers: Sequence[Child], gateways: int
) -> Iterator[Replicas]:
    """Run the providers, the stores and so many gateways with these settings; logs and spools go to ``folder``."""
    with ExitStack() as stack:
        stores = production(stack)
        replicas = [replica(f"replica-{number + 1}", folder, settings, stores) for number in range(gateways)]
        start(stack, (*providers, *replicas))
        running = Replicas(replicas, stores, providers)
        stack.callback(running.end, "hang")  # whatever happens meanwhile: a stopped server does not end
        yield running


def start(stack: ExitStack, children: Iterable[Child]) -> None:
    """Start them all, and wait until they listen; they are stopped with ``stack``."""
    started = list(children)
    for each in started:
        stack.callback(each.stop)
        each.start()
    for each in started:
        each.ready()
