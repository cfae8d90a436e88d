"""A compressed body, inflated a bounded piece at a time."""

import zlib

from gateway.errors import InvalidRequest, UnsupportedMediaType

PIECE_BYTES = 256 * 1024  # inflated in well under a millisecond; a few kilobytes may hold gigabytes
TAKEN = "gzip, deflate"
_PLAIN = frozenset({"", "identity", "utf-8", "utf8"})  # the last two are a charset's names, which some write there
_GZIP = frozenset({"gzip", "x-gzip"})
_GZIP_WINDOW, _ZLIB_WINDOW, _RAW_WINDOW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_ZLIB_METHOD = 8  # in the first byte of a zlib stream; "deflate" without one is sent by mistake, and often


class Inflater:
    """Inflates one body: ``feed`` it as it comes, take ``piece`` after piece until there is none, at last ``end``."""

    def __init__(self, encoding: str) -> None:
        self._gzip = encoding in _GZIP
        self._packed = b""
        self._full = False  # the last piece was as large as pieces get: there may be more without more input
        self._stream: zlib._Decompress | None = None  # None: nothing has come

    def feed(self, packed: bytes) -> None:
        """Take what has come; everything before was inflated."""
        self._packed = packed

    def piece(self) -> bytes:
        """Return the next bytes, at most ``PIECE_BYTES``; ``b""`` when more must come first.

        Raises:
            InvalidRequest: the body is not what its content-encoding says, or goes on after its end.

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
        """Take the end of the body.

        Raises:
            InvalidRequest: it is too early.

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
    """Return what inflates a body with this header, None for one that is not compressed.

    Raises:
        UnsupportedMediaType: it is compressed in a way that is not taken here.

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
