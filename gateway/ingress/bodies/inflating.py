"""Decompresses a request body in pieces of limited size."""

import zlib

from gateway.errors import InvalidRequest, UnsupportedMediaType

PIECE_BYTES = 256 * 1024  # takes well under a millisecond; a few compressed kilobytes may hold gigabytes
TAKEN = "gzip, deflate"
_PLAIN = frozenset({"", "identity", "utf-8", "utf8"})  # the last two are charsets, which some clients send here
_GZIP = frozenset({"gzip", "x-gzip"})
_GZIP_WINDOW, _ZLIB_WINDOW, _RAW_WINDOW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_ZLIB_METHOD = 8  # in the first byte of a zlib stream; "deflate" is often sent without this header, by mistake


class Inflater:
    """Decompresses one body: ``feed`` it, then call ``piece`` until it returns ``b""``; at the end call ``end``."""

    def __init__(self, encoding: str) -> None:
        self._gzip = encoding in _GZIP
        self._packed = b""
        self._full = False  # the last piece had the maximum size: there may be more without more input
        self._stream: zlib._Decompress | None = None  # None: no input so far

    def feed(self, packed: bytes) -> None:
        """Set the next input; the input before it must have been used up."""
        self._packed = packed

    def piece(self) -> bytes:
        """Return the next bytes, at most ``PIECE_BYTES``; ``b""`` if more input is needed.

        Raises:
            InvalidRequest: the data does not match its content-encoding, or continues after its end.

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
            InvalidRequest: it ends too early.

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
