"""A streamed call of a ``Racer`` while it runs: the sink of its answer, and the blocks that wait for a reader."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from gateway.core.calls import CallRecord
from gateway.core.errors import ShuttingDown
from gateway.racing import Block, ClientSink, Winner
from providers import UpstreamError

_MOST_WAITING = 64  # blocks that the reader has not taken; with more, the winner is read no further (backpressure)

Task = asyncio.Task[CallRecord]


class BlockSink(ClientSink):
    """A bounded queue of whole events, between the race and its reader."""

    streams = True
    understands = False

    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self.winner: Winner | None = None
        self.error: UpstreamError | None = None
        self._arrived, self._room = asyncio.Event(), asyncio.Event()

    def take(self) -> bytes:
        """Return the next block of the queue."""
        block = self.waiting.popleft()
        if len(self.waiting) < _MOST_WAITING:
            self._room.set()
        return block

    async def arrival(self) -> None:
        """Wait for a block, or for the end of the call."""
        self._arrived.clear()
        await self._arrived.wait()

    def wake(self, _: object = None) -> None:
        """Wake the task that waits in ``arrival``."""
        self._arrived.set()

    async def begin(self, winner: Winner) -> None:
        """Note the winner."""
        self.winner = winner

    async def write(self, block: Block) -> None:
        """Queue the block's events, and wait while the queue is full."""
        self._add(block)
        while len(self.waiting) >= _MOST_WAITING:
            self._room.clear()
            await self._room.wait()

    async def end(self, last: Block) -> None:
        """Queue the last events."""
        self._add(last)

    def keep_alive(self, every_s: float) -> None:
        """Do nothing: there is no connection to keep open."""

    async def close(self) -> None:
        """Do nothing: there is no connection to close."""

    async def fail(self, error: UpstreamError) -> None:
        """Keep the error until the reader has taken the blocks before it."""
        self.error = error

    def _add(self, block: Block) -> None:
        if self.delivered is not None:
            self.delivered.add(block.forward)
        if block.forward:
            self.waiting.append(block.forward)
        self._arrived.set()


class StreamedCall:
    """A call whose answer is read block by block, once. Leaving the loop, or ``aclose``, cancels all attempts."""

    def __init__(self, start: Callable[[BlockSink], Task]) -> None:
        """Start the call. ``start`` returns the call's task, which writes the answer to the sink."""
        self.sink = BlockSink()
        self._task = start(self.sink)
        self._task.add_done_callback(self.sink.wake)

    async def begin(self) -> None:
        """Wait until the answer begins.

        Raises:
            ApiError: no provider answered, or the request is at fault.

        """
        try:
            while not (self.sink.waiting or self._task.done()):
                await self.sink.arrival()
        except BaseException:
            await self.aclose()
            raise
        if not self.sink.waiting:
            result_of(self._task)

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield whole events as they come.

        Raises:
            ApiError: no provider answered, or the request is at fault; nothing was yielded.
            UpstreamError: the answer broke off.

        """
        sink, task = self.sink, self._task
        try:
            while True:
                while sink.waiting:
                    yield sink.take()
                if task.done():
                    break
                await sink.arrival()
            result_of(task)
            if sink.error is not None:
                raise sink.error
        finally:
            await self.aclose()

    @property
    def record(self) -> CallRecord | None:
        """The record of the call, once the answer has ended; None before."""
        task = self._task
        return task.result() if task.done() and not task.cancelled() and task.exception() is None else None

    async def aclose(self) -> None:
        """Cancel the call if it is still running, and wait until it has ended."""
        await ended(self._task)


async def ended(task: Task) -> None:
    """Cancel a call if it is still running, and wait until it has ended."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})


def result_of(task: Task) -> CallRecord:
    """Return the record of an ended call, or raise its exception.

    Raises:
        ShuttingDown: the call was cancelled.

    """
    if task.cancelled():
        raise ShuttingDown("the Racer was closed while this call ran")
    return task.result()
