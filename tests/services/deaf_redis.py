"""A client of Redis that loses a cancellation, as ``asyncio.wait_for`` inside redis-py can before Python 3.12."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError

from gateway.topology import Command, Nodes
from tests.patience import PATIENCE_S


class DeafNodes(Nodes):
    """Its exchange number ``deaf`` waits until it is cancelled, and says that Redis is away; so do all others at once.

    ``asked`` is set when that one has begun.
    """

    def __init__(self, deaf: int) -> None:
        super().__init__("redis://localhost")
        self.asked = asyncio.Event()
        self.deaf = deaf
        self.exchanges = 0

    async def find(self) -> None:
        """Know that it is one node."""

    async def run(self, shard: str, commands: Sequence[Command]) -> list[Any]:
        self.exchanges += 1
        if self.exchanges == self.deaf:
            self.asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as error:
                raise RedisConnectionError from error
        raise RedisConnectionError


async def ends(closing: Coroutine[Any, Any, None]) -> bool:
    """Return whether it ends; one that waits for ever is cancelled."""
    task = asyncio.create_task(closing)
    done, waiting = await asyncio.wait([task], timeout=PATIENCE_S)
    for each in waiting:
        each.cancel()
    return bool(done)
