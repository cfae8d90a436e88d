"""Several gateways with one Postgres and one Redis: processes that can be killed and started again, and end with us."""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg
import yaml
from redis import Redis

from tests.support.measured.gateways import Stores
from tests.support.measured.servers import REQUEST_LIMIT_S, Child


class Replicas:
    """The gateways, and their stores."""

    def __init__(self, gateways: Sequence[Child], stores: Stores) -> None:
        self.gateways = gateways
        self.stores = stores

    def flush_redis(self) -> None:
        """Make Redis forget everything."""
        with Redis.from_url(self.stores.redis_url or "") as redis:
            redis.flushall()

    def settle(self) -> None:
        """Wait until every row is in SQL."""
        deadline = time.monotonic() + REQUEST_LIMIT_S
        for gateway in self.gateways:
            gateway.ready()
            while gateway.ask("/health/ready")["database"]["pending"] and time.monotonic() < deadline:
                time.sleep(0.05)

    async def fetched(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        connection = await asyncpg.connect(self.stores.database_url)
        try:
            return [tuple(row) for row in await connection.fetch(query)]
        finally:
            await connection.close()


def child(name: str, port: int, folder: Path, module: str, *arguments: str) -> Child:
    """Return a process that runs a module; what it says goes to a file in ``folder``."""
    return Child(name, port, [sys.executable, "-m", module, *arguments], folder / f"{name}.log")


def replica(
    name: str, port: int, folder: Path, settings: Mapping[str, Any], stores: Stores, *, module: str = "gateway.cli"
) -> Child:
    """Return a gateway with these settings beside its own and its stores; ``module`` has its command line."""
    config = folder / f"{name}.yaml"
    own = {"port": port, "replica": name, "spool_dir": str(folder / f"spool-{name}"), "lame_duck_s": 0}
    shared = {"database_url": stores.database_url, "redis_url": stores.redis_url}
    config.write_text(
        yaml.safe_dump({**own, **shared, "log_level": "warning", "log_format": "json", **settings}, sort_keys=False)
    )
    return child(name, port, folder, module, "serve", "--config", str(config))


def start(stack: ExitStack, children: Iterable[Child]) -> None:
    """Start them all, and wait until they listen; they are stopped with ``stack``."""
    started = list(children)
    for each in started:
        stack.callback(each.stop)
        each.start()
    for each in started:
        each.ready()
