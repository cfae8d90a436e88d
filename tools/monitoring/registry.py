"""All families of metrics of a gateway: those of one with every kind of store, which is composed but not started."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web
from pydantic import SecretStr

from gateway.app import Gateway
from gateway.server.connections import Connections
from gateway.settings import ClickHouseSettings
from gateway.settings.model import LedgerSettings, Settings
from gateway.watching import Family

_NOWHERE = SecretStr("redis://127.0.0.1:1/0")


async def families() -> Sequence[Family]:
    """Return the families, sorted by name. Nothing is connected."""
    with tempfile.TemporaryDirectory(prefix="holeshot-families-") as folder:
        gateway = Gateway(
            Settings(
                spool_dir=str(Path(folder) / "spool"),
                database_url=SecretStr(f"sqlite:///{folder}/ledger.db"),
                redis_url=_NOWHERE,
                ledger=LedgerSettings(clickhouse=ClickHouseSettings(url=SecretStr("http://127.0.0.1:1"))),
            )
        )
        try:
            Connections(gateway, web.Server(_never), most=1)
            return sorted(gateway.metrics.families, key=lambda family: family.name)
        finally:
            await gateway.close()


async def _never(_: web.BaseRequest) -> web.StreamResponse:
    raise web.HTTPNotFound
