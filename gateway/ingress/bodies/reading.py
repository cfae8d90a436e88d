"""Reads the body of an admitted request, with limits on time and on its size, also after decompression."""

import asyncio
from collections.abc import Hashable

from aiohttp import HttpVersion11, web

from gateway.errors import BodyTimeout, BodyTooLarge, ExpectationFailed
from gateway.ingress.addresses import FORWARDED_FOR, counted_address
from gateway.ingress.bodies.inflating import Inflater, inflater_for
from gateway.ingress.context import Context
from gateway.overload.bodies import SEATED_BYTES, Body

_MIB = 2**20
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Received:
    """A whole body, decompressed, which counts in the budget of bodies until its ``release``."""

    __slots__ = ("_budgeted", "_data")

    def __init__(self, data: bytes, budgeted: Body | None) -> None:
        self._data = data
        self._budgeted = budgeted  # None: it is short, and needs no room

    def take(self) -> bytes:
        """Return the bytes, once: they are not kept here."""
        data, self._data = self._data, b""
        return data

    def release(self) -> None:
        """Note that the bytes are not needed any more. More than once does no harm."""
        if self._budgeted is not None:
            self._budgeted.release()


async def read_body(request: web.Request, context: Context, owner: Hashable, priority: int | None = None) -> Received:
    """Return the whole body of a request of ``owner``. Its declared size is checked first.

    ``priority`` is that of a call, which needs a seat: it is refused unread if it did not come whole with its head, and
    there is neither a seat nor a place in the queue.

    Raises:
        BodyTooLarge: it has more bytes than ``max_body_mb`` or the memory allows, compressed or decompressed.
        TooManyBodies: the client has too many bytes of bodies in memory, or too many unfinished ones.
        Overloaded: the gateway has no memory for it, or no room for the call.
        BodyTimeout: it arrives too slowly.
        UnsupportedMediaType: its content-encoding is not supported.
        InvalidRequest: it does not match its content-encoding.

    """
    content = request.content
    encoding = request.headers.get("content-encoding")
    if encoding is None and content.is_eof():  # the usual case: it arrived with the head
        body = content.read_nowait()
        if len(body) <= SEATED_BYTES and len(body) <= context.settings.max_body_mb * _MIB:
            return Received(body, None)
        if len(body) > _most_bytes(context):
            raise _too_large(context)
        return Received(body, context.bodies.whole(owner, len(body)))
    if priority is not None:
        context.intake.demand_place(priority, owner)
    return await _Arriving(request, context, inflater_for(encoding)).whole(owner)


def address_of(request: web.Request, context: Context) -> Hashable:
    """Return what stands for the client's address in limits."""
    trusted, peer = context.settings.trusted_proxies, request.remote
    if peer is None or not (trusted or ":" in peer):  # most often: an IPv4 address as it is
        return peer
    return counted_address(peer, request.headers.getall(FORWARDED_FOR, ()), trusted)


async def withhold_continue(request: web.Request) -> None:
    """Do nothing: as the routes' ``expect`` handler it delays 100 Continue until the body is read."""


class _Arriving:
    """A body that is being received."""

    def __init__(self, request: web.Request, context: Context, inflater: Inflater | None) -> None:
        self._request = request
        self._context = context
        self._inflater = inflater
        self._limit = _most_bytes(context)
        self._body = bytearray()
        self._clock: asyncio.Timeout | None = None

    async def whole(self, owner: Hashable) -> Received:
        if (self._request.content_length or 0) > self._limit:
            raise _too_large(self._context)
        budgeted = self._context.bodies.begin(owner, address_of(self._request, self._context), self._cut)
        try:
            await self._welcome()
            await self._collect(budgeted)
            if self._inflater is not None:
                self._inflater.end()
            body = bytes(self._body)
        except BaseException:
            budgeted.release()
            raise
        budgeted.finish()
        return Received(body, budgeted)

    def _cut(self) -> None:
        """Drop what has arrived, and end the wait for more."""
        self._body.clear()
        if self._clock is not None and not self._clock.expired():
            self._clock.reschedule(asyncio.get_running_loop().time())

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

    async def _collect(self, budgeted: Body) -> None:
        loop = asyncio.get_running_loop()
        clocks = self._context.settings.client_timeouts
        bytes_per_s = clocks.body_kib_per_s * 1024
        deadline, received = loop.time() + clocks.body_timeout_s, 0
        content = self._request.content
        try:
            async with asyncio.timeout_at(deadline) as clock:
                self._clock = clock
                while data := await content.readany():
                    received += len(data)
                    if received > self._limit:
                        raise _too_large(self._context)
                    if self._inflater is None:
                        budgeted.grow(len(data))
                        self._body += data
                    else:
                        await self._inflate(self._inflater, data, budgeted)
                    clock.reschedule(deadline + received / bytes_per_s)
        except TimeoutError:
            if budgeted.error is not None:
                raise budgeted.error from None
            raise BodyTimeout(
                f"the body did not come in time: {received} bytes in {clocks.body_timeout_s:g} s and one more for every"
                f" {clocks.body_kib_per_s:g} KiB (client_timeouts)"
            ) from None

    async def _inflate(self, inflater: Inflater, packed: bytes, budgeted: Body) -> None:
        work = self._context.body_work
        inflater.feed(packed)
        while True:
            async with work.slice():
                piece = inflater.piece()
            if not piece:
                return
            work.inflated_bytes += len(piece)
            if len(self._body) + len(piece) > self._limit:
                raise _too_large(self._context)
            budgeted.grow(len(piece))
            self._body += piece


def _most_bytes(context: Context) -> int:
    """Return the most bytes of a body: larger ones would never find room."""
    return min(int(context.settings.max_body_mb * _MIB), context.bodies.most_each)


def _too_large(context: Context) -> BodyTooLarge:
    limit_mb = context.settings.max_body_mb
    if context.bodies.most_each < limit_mb * _MIB:
        most_mib = context.bodies.most_each / _MIB
        return BodyTooLarge(f"the body is larger than {most_mib:.0f} MiB, one client's share of the gateway's memory")
    return BodyTooLarge(f"the body is larger than {limit_mb:g} MiB; the operator's max_body_mb sets the limit")
