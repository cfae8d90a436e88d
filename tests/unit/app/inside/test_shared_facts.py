"""What refusals taught, as replicas tell each other: the end of it."""

import asyncio
from typing import Any, cast

import pytest

from gateway.app.shared_facts import SharedFacts
from tests.patience import PATIENCE_S


class Connecting:
    """A Redis whose client tells a cancellation while it connects as an error."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()

    async def call(self, *_: Any) -> Any:
        self.is_asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as cancelled:
            raise ConnectionError from cancelled


async def test_it_ends_though_redis_client_takes_the_cancellation_for_an_error() -> None:
    store = Connecting()
    facts = SharedFacts(cast("Any", store), lambda _: None, lambda _: None, unix_clock=lambda: 0.0)
    reading = asyncio.create_task(facts.run())
    await store.is_asked.wait()
    reading.cancel()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(asyncio.CancelledError):
            await reading
