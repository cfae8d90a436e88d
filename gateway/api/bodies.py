"""Reads the body of an admitted request, with limits on time and size, also after decompression."""

import asyncio
import codecs
import zlib
from collections.abc import Callable, Hashable, Mapping
from io import BytesIO
from typing import Protocol, cast

import msgspec
from aiohttp import HttpVersion11, StreamReader, web

from gateway.access import FORWARDED_FOR, counted_address
from gateway.api.context import Context
from gateway.core.errors import BodyTimeout, BodyTooLarge, ExpectationFailed, InvalidRequest, UnsupportedMediaType
from gateway.http import (
    NO_TEXT,
    BodyWork,
    Contents,
    Media,
    read_fields,
    scan_steps,
    too_many_values,
    values_of,
    values_outside_strings,
)
from gateway.overload import SEATED_BYTES, Bodies, Body
from providers import Steps, check_room, separators
from providers.dialects import DIALECTS

# Decompresses a request body in pieces of limited size.

PIECE_BYTES = 256 * 1024  # takes well under a millisecond; a few compressed kilobytes may hold gigabytes
TAKEN = "gzip, deflate"
_PLAIN = frozenset({"", "identity", "utf-8", "utf8"})  # the last two are charsets, which some clients send here
_GZIP = frozenset({"gzip", "x-gzip"})
_GZIP_WINDOW, _ZLIB_WINDOW, _RAW_WINDOW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_ZLIB_METHOD = 8  # in the first byte of a zlib stream; some clients send "deflate" without this header, by mistake


class Inflater:
    """Decompresses one body: ``feed`` it, then call ``piece`` until it returns ``b""``; at the end call ``end``."""

    def __init__(self, encoding: str) -> None:
        self._gzip = encoding in _GZIP
        self._packed = b""
        self._full = False  # the last piece had the maximum size, so more may come without more input
        self._stream: zlib._Decompress | None = None  # None: no input so far

    def feed(self, packed: bytes) -> None:
        """Set the next input; the input before it must have been used up."""
        self._packed = packed

    def piece(self) -> bytes:
        """Return the next bytes, at most ``PIECE_BYTES``; ``b""`` if more input is needed.

        Raises:
            InvalidRequest: the data does not fit the content-encoding, or goes on after the end.

        """
        while self._packed or self._full:
            stream = self._begun()
            if stream.eof:
                raise _broken("there is data after its end; it must be one stream")
            try:
                data = stream.decompress(self._packed, PIECE_BYTES)
            except zlib.error:
                raise _broken("it cannot be decompressed") from None
            self._packed = stream.unused_data or stream.unconsumed_tail
            self._full = len(data) == PIECE_BYTES and not stream.eof
            if data:
                return data
        return b""

    def end(self) -> None:
        """Check that the body is complete.

        Raises:
            InvalidRequest: the body ends too early.

        """
        if self._stream is None or not self._stream.eof:
            raise _broken("it ends too early")

    def _begun(self) -> "zlib._Decompress":
        if self._stream is None:
            window = _GZIP_WINDOW
            if not self._gzip:
                window = _ZLIB_WINDOW if self._packed[0] & 0x0F == _ZLIB_METHOD else _RAW_WINDOW
            self._stream = zlib.decompressobj(window)
        return self._stream


def inflater_for(content_encoding: str | None) -> Inflater | None:
    """Return the inflater for a content-encoding; None if the body is not compressed.

    Raises:
        UnsupportedMediaType: the encoding is not supported.

    """
    encoding = (content_encoding or "").strip().lower()
    if encoding in _PLAIN:
        return None
    if encoding in _GZIP or encoding == "deflate":
        return Inflater(encoding)
    message = f"content-encoding {encoding[:40]!r} is not supported: send the body as gzip, deflate, or uncompressed"
    raise UnsupportedMediaType(message, headers={"accept-encoding": TAKEN})


def _broken(why: str) -> InvalidRequest:
    return InvalidRequest(f"the body does not match its content-encoding: {why}")


_MIB = 2**20
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ReceivedBody:
    """A complete, decompressed body; it counts in the budget of bodies until ``release``."""

    __slots__ = ("_budgeted", "_data", "_holders", "_is_released")

    def __init__(self, data: bytes, budgeted: Body | None) -> None:
        self._data = data
        self._budgeted = budgeted  # None: the body is short and not counted
        self._holders = 0  # attempts that need the bytes after the end of the call
        self._is_released = False

    def take(self) -> bytes:
        """Return the bytes; they are forgotten here, so this works once."""
        data, self._data = self._data, b""
        return data

    def queue(self, bodies: Bodies, owner: Hashable) -> None:
        """Count the bytes of a call that waits for a seat, even if they are few.

        Raises:
            TooManyBodies, Overloaded: the budget has no room.

        """
        if self._budgeted is None:
            self._budgeted = bodies.whole(owner, len(self._data))

    def grow(self, bodies: Bodies, owner: Hashable, size: int) -> None:
        """Count ``size`` bytes from now on, as stored answers named in the body have been put into it.

        Raises:
            TooManyBodies, Overloaded: the budget has no room.

        """
        if self._budgeted is None:
            self._budgeted = bodies.whole(owner, size) if size > SEATED_BYTES else None
        elif size > self._budgeted.size:
            self._budgeted.grow(size - self._budgeted.size)

    def shrink(self, size: int) -> None:
        """Count only ``size`` bytes from now on; a small size is covered by the call's seat."""
        if self._budgeted is not None:
            self._budgeted.shrink(size if size > SEATED_BYTES else 0)

    def hold(self) -> None:
        """Keep the bytes counted until ``let_go``, even after ``release``."""
        self._holders += 1

    def let_go(self, _task: object = None) -> None:
        """End a ``hold``."""
        self._holders -= 1
        if self._is_released:
            self.release()

    def release(self) -> None:
        """Stop counting the bytes, as the call needs them no longer. May be called repeatedly."""
        self._is_released = True
        if self._budgeted is not None and not self._holders:
            self._budgeted.release()


async def read_body(
    request: web.Request, context: Context, owner: Hashable, priority: int | None = None
) -> ReceivedBody:
    """Return the complete body of a request of ``owner``; the declared size is checked first.

    ``priority``: given for calls, which need a seat. Without a free seat or place in the queue, a body that did not
    arrive completely with the head is refused unread.

    Raises:
        BodyTooLarge: there are more bytes than ``max_body_mb`` or the memory allows, compressed or decompressed.
        TooManyBodies: the client has too many bytes of bodies in memory, or too many unfinished ones.
        Overloaded: the gateway has no memory for the body, or no room for the call.
        BodyTimeout: the body arrives too slowly.
        UnsupportedMediaType: the content-encoding is not supported.
        InvalidRequest: the body does not fit the content-encoding.

    """
    content = request.content
    encoding = request.headers.get("content-encoding")
    if encoding is None and content.is_eof():  # the usual case: the body arrived with the head
        body = content.read_nowait()
        if len(body) <= SEATED_BYTES and len(body) <= context.settings.max_body_mb * _MIB:
            return ReceivedBody(body, None)
        if len(body) > most_bytes(context):
            raise too_large(context)
        return ReceivedBody(body, context.bodies.whole(owner, len(body)))
    if priority is not None:
        context.intake.check_place(priority, owner)
    return await _Arriving(request, context, inflater_for(encoding)).whole(owner)


def address_of(request: web.Request, context: Context) -> Hashable:
    """Return the key of the client's address in limits."""
    trusted, peer = context.settings.trusted_proxies, request.remote
    if peer is None or not (trusted or ":" in peer):  # most often: an IPv4 address, unchanged
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
        self._limit = most_bytes(context)
        self._body = BytesIO()  # becomes bytes without a copy, unlike a bytearray; a copy of megabytes takes long
        self._clock: asyncio.Timeout | None = None

    async def whole(self, owner: Hashable) -> ReceivedBody:
        if (self._request.content_length or 0) > self._limit:
            raise too_large(self._context)
        budgeted = self._context.bodies.begin(owner, address_of(self._request, self._context), self._cut)
        try:
            await self._send_continue()
            await self._collect(budgeted)
            if self._inflater is not None:
                self._inflater.end()
            body, self._body = self._body.getvalue(), BytesIO()
        except BaseException:
            budgeted.release()
            raise
        budgeted.finish()
        return ReceivedBody(body, budgeted)

    def _cut(self) -> None:
        """Drop the received part, and end the wait for more."""
        self._body = BytesIO()
        if self._clock is not None and not self._clock.expired():
            self._clock.reschedule(asyncio.get_running_loop().time())

    async def _send_continue(self) -> None:
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
                        raise too_large(self._context)
                    if self._inflater is None:
                        budgeted.grow(len(data))
                        self._body.write(data)
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
            if self._body.tell() + len(piece) > self._limit:
                raise too_large(self._context)
            budgeted.grow(len(piece))
            self._body.write(piece)


def most_bytes(context: Context) -> int:
    """Return the maximum size of a body in bytes; a larger body would never fit the budget."""
    return min(int(context.settings.max_body_mb * _MIB), context.bodies.most_each)


def too_large(context: Context) -> BodyTooLarge:
    """Return the error for a body of more than ``most_bytes``."""
    limit_mb = context.settings.max_body_mb
    if context.bodies.most_each < limit_mb * _MIB:
        most_mib = context.bodies.most_each / _MIB
        return BodyTooLarge(f"the body is larger than {most_mib:.0f} MiB, one client's share of the gateway's memory")
    return BodyTooLarge(f"the body is larger than {limit_mb:g} MiB; the operator's max_body_mb sets the limit")


# Bodies of megabytes are parsed in slices, so that they never block the event loop for long. Only the JSON decoder's
# step cannot be sliced; it leaves values raw. It takes 10 to 50 ms for 64 MiB of texts, and a nanosecond for each
# value, so values are counted before.

LARGE_BYTES = 2**20  # up to this size, parsing in one go takes a few milliseconds
MOST_VALUES = (
    8_000_000  # decoded in well under 0.1 s; the longest list of tokens that is embedded at once has 0.3 million
)
LONGEST_DECODED_BYTES = 2 * 2**20  # of a field that becomes Python objects, which may need many times as much

_DECODED = frozenset(
    {"fastest_response", "model", "models", "provider", "race", "route", "transforms"}  # in any dialect
).union(*(dialect.requests.decoded for dialect in DIALECTS.values()))
_COUNTED = _DECODED | {"tools"}  # fields of which objects are made, in any dialect
_SHORTEST_VALUE = len("1,")
_SLICE_BYTES = 2**18  # a slice takes a tenth of a millisecond; two with many separators


async def read_contents(
    body: bytes,
    work: BodyWork,
    prompt: str = "",
    media: Media | None = None,
    *,
    most_values: int = MOST_VALUES,
    nulls: bool = False,
) -> Contents:
    """Parse ``body``. If it is large and ``media`` is given, scan its field ``prompt``, too.

    ``most_values``: in each field that is decoded here. ``nulls``: whether fields that are null have a meaning.

    Raises:
        InvalidRequest: the body is not JSON, not an object, nested too deeply, or has too many fields or values.
        TooManyValues: a field has too many values to be decoded.
        MemoryError: there is no room for the objects of a large body.

    """
    if len(body) <= LARGE_BYTES:
        contents = Contents.of(body, nulls=nulls)
    else:
        check_room(3 * len(body))  # for the objects of the body
        contents = await work.run(contents_steps(body, prompt, media, nulls=nulls))
    if len(body) > most_values * _SHORTEST_VALUE:
        await work.run(_built_steps(contents.fields, most_values))
    return contents


def _built_steps(fields: Mapping[str, msgspec.Raw], most: int) -> Steps[None]:
    for name in _COUNTED & fields.keys():
        if len(memoryview(fields[name])) > most * _SHORTEST_VALUE:
            values = yield from values_of([fields[name]], most)
            if values > most:
                raise too_many_values(most, f"in {name!r}", param=name)


def contents_steps(body: bytes, prompt: str, media: Media | None, *, nulls: bool = False) -> Steps[Contents]:
    """Parse a large ``body``, step by step.

    Raises:
        InvalidRequest: as for ``read_contents``.

    """
    yield from _text_steps(body)
    values = yield from _values_steps(body)
    if values > MOST_VALUES:
        raise InvalidRequest(f"the body has more than {MOST_VALUES} values")
    yield
    fields = read_fields(body, nulls=nulls)
    _check_lengths(fields)
    yield
    raw = fields.get(prompt)
    scan_media = None if media is None or raw is None else (yield from scan_steps(raw, media))
    return Contents(fields, len(body), values, scan_media)


def _text_steps(body: bytes) -> Steps[None]:
    if body.isascii():
        return
    decode, view = codecs.getincrementaldecoder("utf-8")().decode, memoryview(body)
    try:
        for at in range(0, len(body), _SLICE_BYTES):
            decode(view[at : at + _SLICE_BYTES])
            yield
        decode(b"", True)  # noqa: FBT003 - the codec has no keyword for ``final``
    except UnicodeDecodeError:
        raise InvalidRequest(NO_TEXT) from None


def _values_steps(body: bytes) -> Steps[int]:
    """Return an upper bound of the number of values; strings are excluded only if there seem to be too many."""
    view = memoryview(body)
    values = 0
    for at in range(0, len(body), _SLICE_BYTES):
        values += separators(bytes(view[at : at + _SLICE_BYTES]))
        yield
    return values if values <= MOST_VALUES else (yield from values_outside_strings(body, MOST_VALUES))


def _check_lengths(fields: Mapping[str, msgspec.Raw]) -> None:
    for name in _DECODED & fields.keys():
        if len(memoryview(fields[name])) > LONGEST_DECODED_BYTES:
            raise InvalidRequest(f"{name!r} is longer than {LONGEST_DECODED_BYTES // 2**20} MiB", param=name)


# Unread bodies: the response is sent first, then the rest is read and dropped, with limits on bytes and seconds. A
# connection that is closed while data arrives is reset, and then the client may never read the response.

DRAINED_BYTES = 16 * 2**20  # this is cheaper to read than new connections for the same bytes
DRAINED_S = 5.0


class ClientWire(Protocol):
    """A client's connection."""

    def drop_rest(self, dropped: Callable[[int], object]) -> None:
        """Parse nothing more: drop the rest, and report its number of bytes to ``dropped``."""


async def answer_first(
    request: web.Request, response: web.StreamResponse, work: BodyWork, limit_s: float = DRAINED_S
) -> None:
    """Send ``response`` to a request with an unread rest of a body, then read the rest or close the connection.

    All within ``limit_s``. A chunked rest is not parsed, as its framing may take much CPU.
    """
    length = request.content_length
    if length is None or length > DRAINED_BYTES or "expect" in request.headers:
        response.force_close()  # many clients stop sending when they see this header
    content = request.content
    try:
        async with asyncio.timeout(limit_s):
            await response.prepare(request)
            await response.write_eof()
            if length is None:
                await _drop(cast("ClientWire", request.protocol), work)
            else:
                await _drain(content, work)
    except (TimeoutError, ConnectionError, web.RequestPayloadError):
        pass
    if not content.is_eof():
        response.force_close()


async def _drain(content: StreamReader, work: BodyWork) -> None:
    left_bytes = DRAINED_BYTES
    while left_bytes > 0 and (data := await content.readany()):
        left_bytes -= len(data)
        work.drained_bytes += len(data)


async def _drop(wire: ClientWire, work: BodyWork) -> None:
    left_bytes = DRAINED_BYTES
    end = asyncio.get_running_loop().create_future()

    def dropped(number: int) -> None:
        nonlocal left_bytes
        left_bytes -= number
        work.drained_bytes += number
        if left_bytes <= 0 and not end.done():
            end.set_result(None)

    wire.drop_rest(dropped)
    await end
