"""Stores whose clocks a test moves, as those of the gateways that use them."""

import asyncio
import hashlib
import re
from contextlib import suppress

import asyncpg
from sqlalchemy.engine import make_url

from tests.support.moved_time import MovedTime
from tests.support.relay import Relay

_CLOCK = b"return redis.call('TIME')"  # how leases ask for it
_DIGEST = hashlib.sha1(_CLOCK, usedforsecurity=False).hexdigest().encode()
_UNKNOWN = b"0" * len(_DIGEST)  # of no script: so its text is sent again
_TEXT = b"$%d\r\n%s\r\n" % (len(_CLOCK), _CLOCK)
_NOW = """
create schema moved;
create table moved.by (s double precision);
insert into moved.by values (0);
create function moved.now() returns timestamptz language sql stable as
  'select pg_catalog.now() + (select s from moved.by) * interval ''1 second''';
create function moved.clock_timestamp() returns timestamptz language sql volatile as
  'select pg_catalog.clock_timestamp() + (select s from moved.by) * interval ''1 second''';
"""


class MovedRedis(Relay):
    """Redis, telling gateways this time."""

    def __init__(self, url: str, moved: MovedTime) -> None:
        server = make_url(url)
        super().__init__(str(server.host), int(server.port or 0))
        self._moved = moved
        self._path = url.rpartition("/")[2]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/{self._path}"

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while block := await reader.read(65_536):
                seconds, micros = divmod(int(self._moved.unix_s() * 1e6), 1_000_000)
                told = b"return {'%d', '%d'}" % (seconds, micros)
                block = block.replace(_TEXT, b"$%d\r\n%s\r\n" % (len(told), told)).replace(_DIGEST, _UNKNOWN)
                writer.write(block)
                await writer.drain()
        writer.transport.abort()


async def move_postgres(url: str, moved: MovedTime) -> None:
    """Have a test's own database tell this time, in connections that are made from now on."""
    connection = await asyncpg.connect(re.sub(r"^postgresql\+\w+", "postgresql", url))
    try:
        if await connection.fetchval("select to_regnamespace('moved')") is None:
            await connection.execute(_NOW)
            name = await connection.fetchval("select current_database()")
            await connection.execute(f'alter database "{name}" set search_path = moved, pg_catalog, public')
        await connection.execute("update moved.by set s = $1", moved.ahead_s)
    finally:
        await connection.close()
