"""Decompression of bodies, requested or not: gzip and deflate, in pieces of limited size."""

import asyncio
import zlib
from collections.abc import Mapping

from providers.http.message import READ_BYTES, WHOLE_READ_BYTES, Response
from providers.refusals import ErrorKind, UpstreamError

ACCEPTED = "gzip, deflate"
# The last two are no encodings, but some servers say them: "none" to keep proxies from buffering events.
_NOT_ENCODED = frozenset({"", "identity", "none", "utf-8"})
_MEMBERS = 100  # concatenated compressed streams in one body; each costs a copy of the rest
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_ZLIB_METHOD = 8  # in the first byte of a zlib stream; many servers send "deflate" without that header


class DecodedResponse:
    """A response whose body is decompressed as it is read."""

    def __init__(self, response: Response, encoding: str) -> None:
        """Decompress ``encoding``, the response's content-encoding.

        Raises:
            UpstreamError: this encoding was not offered (invalid_response).

        """
        if encoding not in {"gzip", "x-gzip", "deflate"}:
            message = f"its body is compressed as {encoding[:40]!r}, which was not offered"
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, message, status=response.status)
        self.status = response.status
        self.connect_ms = response.connect_ms
        self._response = response
        self._deflate = encoding == "deflate"
        self._decompressor: zlib._Decompress | None = None  # None before the first byte
        self._members = 0
        self._packed = b""  # compressed input for the next read
        self._most = READ_BYTES  # of one piece: a few kilobytes can decompress to gigabytes
        self._full = False  # the last piece had the maximal size: there may be more output without more input

    @property
    def headers(self) -> Mapping[str, str]:
        """The response's headers."""
        return self._response.headers

    @property
    def ended(self) -> bool:
        """Whether the body has ended."""
        return self._response.ended

    async def read(self) -> bytes:
        """Return the next decompressed bytes, ``b""`` at the end.

        Raises:
            UpstreamError: as of the response; or the body cannot be decompressed (invalid_response).

        """
        while True:
            if self._packed or self._full:
                await asyncio.sleep(0)  # a body that decompresses to gigabytes must not block the event loop
            elif not (packed := await self._response.read()):
                return self._rest()
            else:
                self._packed = packed
            decompressor = self._decompressor_for(self._packed)
            try:
                data = decompressor.decompress(self._packed, self._most)
            except zlib.error as error:
                raise _broken() from error
            self._packed = decompressor.unused_data or decompressor.unconsumed_tail
            self._full = len(data) == self._most and not decompressor.eof
            if data:
                return data

    def expect_all(self) -> None:
        """Declare that the reader will read all of the body without pauses."""
        self._most = WHOLE_READ_BYTES
        self._response.expect_all()

    def abort(self) -> None:
        """Drop the exchange."""
        self._response.abort()

    def _decompressor_for(self, packed: bytes) -> "zlib._Decompress":
        """Return the decompressor for ``packed``: the current one, or a new one at the beginning and after each end."""
        if self._decompressor is None or self._decompressor.eof:
            self._members += 1
            if self._members > _MEMBERS:
                raise _broken()
            window = _GZIP
            if self._deflate:
                window = _ZLIB if packed[0] & 0x0F == _ZLIB_METHOD else _RAW
            self._decompressor = zlib.decompressobj(window)
        return self._decompressor

    def _rest(self) -> bytes:
        if self._decompressor is not None and not self._decompressor.eof:
            raise _broken()
        return b""


Body = Response | DecodedResponse


def decoded(response: Response) -> Body:
    """Return ``response`` with its body decompressed.

    Raises:
        UpstreamError: it is compressed in a way that was not offered.

    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    return response if encoding in _NOT_ENCODED else DecodedResponse(response, encoding)


def _broken() -> UpstreamError:
    return UpstreamError(ErrorKind.INVALID_RESPONSE, "its compressed body is broken")
