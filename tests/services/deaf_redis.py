"""A client of Redis that loses a cancellation, as ``asyncio.wait_for`` inside redis-py can before Python 3.12."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.patience import PATIENCE_S


class DeafRedis(Redis):
    """Its exchange number ``deaf`` waits until it is cancelled, and says that Redis is away; so do all others at once.

    ``asked`` is set when that one has begun.
    """

    def __init__(self, deaf: int) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.deaf = deaf
        self.exchanges = 0

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        return DeafPipeline(self)


class DeafPipeline(Pipeline):
    def __init__(self, redis: DeafRedis) -> None:
        super().__init__(redis.connection_pool, redis.response_callbacks, transaction=False, shard_hint=None)
        self._redis = redis

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        self._redis.exchanges += 1
        if self._redis.exchanges == self._redis.deaf:
            self._redis.asked.set()
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
