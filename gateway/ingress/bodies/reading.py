"""Reads the body of an admitted request, with limits on time and on its size, also after decompression."""

import asyncio

from aiohttp import HttpVersion11, web

from gateway.errors import BodyTimeout, BodyTooLarge, ExpectationFailed
from gateway.ingress.bodies.inflating import Inflater, inflater_for
from gateway.ingress.context import CONTEXT, Context

_MIB = 2**20
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def read_body(request: web.Request) -> bytes:
    """Return the whole body, decompressed. Its declared size is checked first.

    Raises:
        BodyTooLarge: it has more bytes than ``max_body_mb`` allows, compressed or decompressed.
        BodyTimeout: it arrives too slowly.
        UnsupportedMediaType: its content-encoding is not supported.
        InvalidRequest: it does not match its content-encoding.

    """
    context = request.app[CONTEXT]
    content = request.content
    encoding = request.headers.get("content-encoding")
    if encoding is None and content.is_eof():  # the usual case: it arrived with the head
        body = content.read_nowait()
        if len(body) > context.settings.max_body_mb * _MIB:
            raise _too_large(context)
        return body
    return await _Arriving(request, context, inflater_for(encoding)).whole()


async def withhold_continue(request: web.Request) -> None:
    """Do nothing: as the routes' ``expect`` handler it delays 100 Continue until the body is read."""


class _Arriving:
    """A body that is being received."""

    def __init__(self, request: web.Request, context: Context, inflater: Inflater | None) -> None:
        self._request = request
        self._context = context
        self._inflater = inflater
        self._limit = int(context.settings.max_body_mb * _MIB)
        self._body = bytearray()

    async def whole(self) -> bytes:
        if (self._request.content_length or 0) > self._limit:
            raise _too_large(self._context)
        await self._welcome()
        await self._collect()
        if self._inflater is not None:
            self._inflater.end()
        return bytes(self._body)

    async def _welcome(self) -> None:
        """Send 100 Continue to a client that waits for it."""
        request = self._request
        expected = request.headers.get("expect")
        if expected is None or request.version < HttpVersion11:
            return
        if expected.lower() != "100-continue":
            raise ExpectationFailed(f"the expectation {expected[:40]!r} is not supported; only 100-continue is")
        if not request.content.is_eof():
            await request.writer.write(_CONTINUE)
            request.writer.output_size = 0  # the response itself has not begun

    async def _collect(self) -> None:
        loop = asyncio.get_running_loop()
        clocks = self._context.settings.client_timeouts
        bytes_per_s = clocks.body_kib_per_s * 1024
        deadline, received = loop.time() + clocks.body_timeout_s, 0
        content = self._request.content
        try:
            async with asyncio.timeout_at(deadline) as clock:
                while data := await content.readany():
                    received += len(data)
                    clock.reschedule(deadline + received / bytes_per_s)
                    if received > self._limit:
                        raise _too_large(self._context)
                    if self._inflater is None:
                        self._body += data
                    else:
                        await self._inflate(self._inflater, data)
        except TimeoutError:
            raise BodyTimeout(
                f"the body did not come in time: {received} bytes in {clocks.body_timeout_s:g} s and one more for every"
                f" {clocks.body_kib_per_s:g} KiB (client_timeouts)"
            ) from None

    async def _inflate(self, inflater: Inflater, packed: bytes) -> None:
        work = self._context.body_work
        inflater.feed(packed)
        while True:
            async with work.slice():
                piece = inflater.piece()
            if not piece:
                return
            work.inflated_bytes += len(piece)
            self._body += piece
            if len(self._body) > self._limit:
                raise _too_large(self._context)


def _too_large(context: Context) -> BodyTooLarge:
    limit_mb = context.settings.max_body_mb
    return BodyTooLarge(f"the body is larger than {limit_mb:g} MiB; the operator's max_body_mb sets the limit")
