"""A gateway process whose standard error is a small pipe, read up to its start and no further."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

import aiohttp
import msgspec

from providers.simulator import ScriptedProvider
from tests.app.gateway.process import launched
from tests.app.gateway.running_gateway import chat_body, configuration
from tests.patience import PATIENCE_S
from tests.support.warm import WarmProcess

PIPE_BYTES = 4096  # a dozen lines
CALLS = 100


class Unread:
    """The running process, and the end of the pipe that would be read."""

    def __init__(self, process: asyncio.subprocess.Process | WarmProcess, url: str, pipe: BinaryIO) -> None:
        self.process = process
        self.url = url
        self.pipe = pipe

    async def lines(self) -> list[dict[str, Any]]:
        """Return what is in the pipe, up to its end."""
        return [msgspec.json.decode(line) for line in await asyncio.to_thread(self.pipe.readlines)]


@asynccontextmanager
async def unread(folder: Path, **settings: Any) -> AsyncIterator[tuple[Unread, aiohttp.ClientSession]]:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    async with ScriptedProvider() as provider, aiohttp.ClientSession() as http, asyncio.timeout(PATIENCE_S):
        process = await launched(
            configuration(folder, {"alpha": provider.base_url}, **settings), folder, stderr=writing
        )
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            try:
                event: dict[str, Any] = {}
                while event.get("event") != "gateway.started":
                    event = msgspec.json.decode(await asyncio.to_thread(pipe.readline))
                yield Unread(process, event["url"], pipe), http
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()


async def answered(http: aiohttp.ClientSession, gateway: Unread) -> int:
    """Make calls one after the other; return how many were answered."""
    number = 0
    for _ in range(CALLS):
        async with http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response:
            number += response.status == 200
    return number
