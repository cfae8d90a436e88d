"""One answer from litellm as an ``Exchange``: its chunks as OpenAI's events, read by one task and taken by another."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from providers.errors import ErrorKind, UpstreamError

DONE = b"data: [DONE]\n\n"


class PumpedExchange:
    """An ``Exchange`` fed by the task that reads litellm's stream."""

    finishing = False  # what it says is passed on as it comes

    def __init__(self) -> None:
        self.status = 200
        self.secrets: Sequence[str] = ()  # what litellm says of errors is redacted before it gets here
        self.headers: Mapping[str, str] = {}
        self.connect_ms: float | None = None  # litellm does not tell
        self._pump: asyncio.Task[None] | None = None
        self._opened = asyncio.Event()
        self._arrived = asyncio.Event()
        self._blocks: list[bytes] = []
        self._ended = False
        self._error: UpstreamError | None = None

    @property
    def ended(self) -> bool:
        """Whether the provider has sent all of it."""
        return self._ended

    async def read(self) -> bytes:
        """Return what has arrived since the last read, waiting for more if nothing has, ``b""`` at the end."""
        try:
            await self._arrived.wait()
        except asyncio.CancelledError:
            self.abort()
            raise
        block = b"".join(self._blocks)
        self._blocks.clear()
        if not self._ended:
            self._arrived.clear()
        if not block and self._error is not None:
            raise self._error
        return block

    def conclude(self) -> bytes:
        """Return nothing: no end is held back."""
        return b""

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Leave it: litellm's own cost per chunk is a hundred times that of waking a task."""

    def abort(self) -> None:
        """Cancel the reading task, which closes the connection; harmless when it is over or aborted."""
        if self._pump is not None:
            self._pump.cancel()
        self._blocks.clear()
        self.end()

    async def opened(self) -> None:
        """Wait for the response's headers.

        Raises:
            UpstreamError: there were none.

        """
        await self._opened.wait()
        if self._error is not None and not self._blocks:
            raise self._error

    def owned_by(self, pump: asyncio.Task[None]) -> None:
        """Name the task that fills this exchange; its cancellation closes the connection."""
        self._pump = pump

    def open(self, headers: Mapping[str, str]) -> None:
        """Note that the response has begun."""
        self.headers = headers
        self._opened.set()

    def put(self, block: bytes) -> None:
        """Add bytes of the event stream; none at all would be its end to who reads."""
        if block:
            self._blocks.append(block)
            self._arrived.set()

    def end(self, error: UpstreamError | None = None) -> None:
        """Note the end of the stream; what was put before can still be read."""
        if self._ended:
            return
        self._ended = True
        self._error = error
        self._opened.set()
        self._arrived.set()


def event(response: Any, chunk: Any) -> bytes:
    """Return one of litellm's chunks as an event, without what litellm made up.

    Usage comes with an idle choice, which OpenAI leaves out, with a price of litellm's own, and also when the provider
    told of none. A finish reason comes at the end of every stream, whatever ended it.

    Raises:
        UpstreamError: the provider's stream ended without a finish reason.

    """
    data = chunk.model_dump(mode="json", exclude_none=True)
    choices = data.get("choices", ())
    if any(choice.get("finish_reason") for choice in choices) and not _finished(response):
        raise UpstreamError(ErrorKind.UPSTREAM_TRUNCATED, "the answer ended without a finish reason")
    if (usage := data.get("usage")) is not None:
        if not any(getattr(part, "usage", None) for part in getattr(response, "chunks", None) or (chunk,)):
            del data["usage"]
        else:
            usage.pop("cost", None)
        if all(not choice.get("delta") and not choice.get("finish_reason") for choice in choices):
            data["choices"] = []
            if "usage" not in data:
                return b""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def _finished(response: Any) -> bool:
    """Tell whether the provider has sent a finish reason; what litellm does not track is taken to be the provider's."""
    names = ("received_finish_reason", "intermittent_finish_reason")
    return any(getattr(response, name, "") is not None for name in names)
