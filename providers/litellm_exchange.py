"""One answer from litellm as an ``Exchange``: its chunks as OpenAI's events, passed from one task to another."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from providers.errors import ErrorKind, UpstreamError

DONE = b"data: [DONE]\n\n"


class PumpedExchange:
    """An ``Exchange`` that is filled by the task that reads litellm's stream."""

    finishing = False  # what it says is passed on as it comes

    def __init__(self) -> None:
        self.status = 200
        self.secrets: Sequence[str] = ()  # errors from litellm have been redacted already
        self.headers: Mapping[str, str] = {}
        self.connect_ms: float | None = None  # litellm does not report it
        self._pump: asyncio.Task[None] | None = None
        self._opened = asyncio.Event()
        self._arrived = asyncio.Event()
        self._blocks: list[bytes] = []
        self._ended = False
        self._error: UpstreamError | None = None

    @property
    def ended(self) -> bool:
        """Whether the provider has sent everything."""
        return self._ended

    async def read(self) -> bytes:
        """Return everything since the last read, waiting if there is nothing; ``b""`` at the end."""
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
        """Ignore it: litellm's own cost per chunk is a hundred times that of waking a task."""

    def abort(self) -> None:
        """Cancel the reading task, which closes the connection; without effect after the end or an abort."""
        if self._pump is not None:
            self._pump.cancel()
        self._blocks.clear()
        self.end()

    async def opened(self) -> None:
        """Wait for the response's headers.

        Raises:
            UpstreamError: no response.

        """
        await self._opened.wait()
        if self._error is not None and not self._blocks:
            raise self._error

    def owned_by(self, pump: asyncio.Task[None]) -> None:
        """Set the task that fills this exchange; cancelling it closes the connection."""
        self._pump = pump

    def open(self, headers: Mapping[str, str]) -> None:
        """Note that the response has begun."""
        self.headers = headers
        self._opened.set()

    def put(self, block: bytes) -> None:
        """Add bytes of the event stream. Empty ones are ignored: for the reader they would be the end."""
        if block:
            self._blocks.append(block)
            self._arrived.set()

    def end(self, error: UpstreamError | None = None) -> None:
        """Note the end of the stream; the bytes before it can still be read."""
        if self._ended:
            return
        self._ended = True
        self._error = error
        self._opened.set()
        self._arrived.set()


def event(response: Any, chunk: Any) -> bytes:
    """Return one of litellm's chunks as an event, without litellm's own additions.

    Litellm adds an empty choice and a price to usage, and sends usage even if the provider did not. It also sends a
    finish reason at the end of every stream, however that ended.

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
    try:
        return b"data: " + msgspec.json.encode(data) + b"\n\n"
    except UnicodeEncodeError:  # half a character, as JSON writes it; the other half may be in the next event
        return b"data: " + json.dumps(data).encode() + b"\n\n"


def _finished(response: Any) -> bool:
    """Whether the provider has sent a finish reason; assumed where litellm does not track it."""
    names = ("received_finish_reason", "intermittent_finish_reason")
    return any(getattr(response, name, "") is not None for name in names)
