"""Answers in HTTP/1.1 as servers really write them, and as they should not: what we take them for."""

from typing import NamedTuple

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKS = OK + b"transfer-encoding: chunked\r\n"
CHUNKED = CHUNKS + b"\r\n"
TWO = OK + b"content-length: 2\r\n"


class Case(NamedTuple):
    """An answer in bytes, and what it is taken for."""

    name: str
    answer: bytes
    body: bytes | None  # None: it is refused
    closed: bool = False  # the connection, after it
    reused: bool = True  # likewise
    aiohttp_differs: bool = False  # it takes it, or waits for ever

    def __str__(self) -> str:
        return self.name


TAKEN = [
    Case("a length", TWO + b"\r\nok", b"ok"),
    Case("chunks", CHUNKED + b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n", b"ok"),
    Case(
        "chunk sizes with zeros, in either case",
        CHUNKED + b"0000A\r\n0123456789\r\n0b\r\n0123456789a\r\n0\r\n\r\n",
        b"01234567890123456789a",
    ),
    Case("chunk extensions", CHUNKED + b'2;a=b;c="d e"\r\nok\r\n0;last\r\n\r\n', b"ok"),
    Case("trailers", CHUNKED + b"2\r\nok\r\n0\r\nx-sum: 1\r\nx-more: 2\r\n\r\n", b"ok"),
    Case("a body that ends with the connection", OK + b"\r\nto the end", b"to the end", closed=True, reused=False),
    Case("an empty body that ends with the connection", OK + b"\r\n", b"", closed=True, reused=False),
    Case("connection: close", TWO + b"connection: close\r\n\r\nok", b"ok", reused=False),
    Case("connection: close in chunks", CHUNKS + b"connection: close\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"ok", reused=False),
    Case("HTTP/1.0", b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ok", reused=False),
    Case("HTTP/1.0 to the end", b"HTTP/1.0 200 OK\r\n\r\nok", b"ok", closed=True, reused=False),
    Case(
        "HTTP/1.0 that keeps alive", b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok", b"ok"
    ),
    Case("no reason", b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok", b"ok"),
    Case("an empty reason", b"HTTP/1.1 200 \r\ncontent-length: 2\r\n\r\nok", b"ok"),
    Case("a reason beyond ASCII", b"HTTP/1.1 200 Tr\xc3\xa8s bien\r\ncontent-length: 2\r\n\r\nok", b"ok"),
    Case("an unknown status", b"HTTP/1.1 299 Odd\r\ncontent-length: 2\r\n\r\nok", b"ok"),
    Case("field names in any case", OK + b"CONTENT-LENGTH: 2\r\n\r\nok", b"ok"),
    Case("no space after the colon", OK + b"content-length:2\r\n\r\nok", b"ok"),
    Case("space around a value", OK + b"content-length: \t 2 \t\r\n\r\nok", b"ok"),
    Case("100 Continue", b"HTTP/1.1 100 Continue\r\n\r\n" + TWO + b"\r\nok", b"ok"),
    Case("early hints", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 3 + TWO + b"\r\nok", b"ok"),
    Case("an empty line before it", b"\r\n" + TWO + b"\r\nok", b"ok"),
    Case("204 with a length", b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n", b""),
    Case("an upgrade that is only offered", TWO + b"connection: upgrade\r\nupgrade: h2c\r\n\r\nok", b"ok"),
    Case("a keep-alive field", TWO + b"connection: keep-alive\r\nkeep-alive: timeout=5, max=100\r\n\r\nok", b"ok"),
]

REFUSED = [
    Case("what is no HTTP", b"SSH-2.0-OpenSSH_9.2\r\n", None),
    Case("HTML without a head", b"<html>502</html>\r\n\r\n", None),
    Case("a TLS alert", b"\x15\x03\x01\x00\x02\x02\x46", None),
    Case("HTTP/2", b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\xff\xff", None),
    Case("a broken version", b"HTTP/1.x 200 OK\r\n\r\n", None),
    Case("a status of two digits", b"HTTP/1.1 20 OK\r\ncontent-length: 2\r\n\r\nok", None),
    Case("a status that is no number", b"HTTP/1.1 abc OK\r\ncontent-length: 2\r\n\r\nok", None),
    Case(
        "status 000", b"HTTP/1.1 000 No\r\ncontent-length: 4\r\n\r\nevil" + TWO + b"\r\nok", None, aiohttp_differs=True
    ),
    Case(
        "status 099", b"HTTP/1.1 099 No\r\ncontent-length: 4\r\n\r\nevil" + TWO + b"\r\nok", None, aiohttp_differs=True
    ),
    Case("two lengths", TWO + b"content-length: 2\r\n\r\nok", None),
    Case("two lengths that differ", TWO + b"content-length: 3\r\n\r\nok", None),
    Case("a list of lengths", OK + b"content-length: 2, 2\r\n\r\nok", None),
    Case("a length and chunks", TWO + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", None),
    Case("chunks and a length", CHUNKS + b"content-length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n", None),
    Case("a signed length", OK + b"content-length: +2\r\n\r\nok", None),
    Case("a negative length", OK + b"content-length: -2\r\n\r\nok", None),
    Case("a hexadecimal length", OK + b"content-length: 0x2\r\n\r\nok", None),
    Case("a length that is too large", OK + b"content-length: 99999999999999999999\r\n\r\nok", None),
    Case("an empty length", OK + b"content-length:\r\n\r\nok", None),
    Case("a chunk size that is none", CHUNKED + b"2x\r\nok\r\n0\r\n\r\n", None),
    Case("a signed chunk size", CHUNKED + b"+2\r\nok\r\n0\r\n\r\n", None),
    Case("a chunk size that is too large", CHUNKED + b"fffffffffffffffff\r\nok", None),
    Case("a chunk longer than it says", CHUNKED + b"2\r\nokay\r\n0\r\n\r\n", None),
    Case("bare line feeds", b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok", None, aiohttp_differs=True),
    Case("bare line feeds in chunks", CHUNKED + b"2\nok\n0\n\n", None, aiohttp_differs=True),
    Case("a bare carriage return", OK + b"x-a: b\rc\r\ncontent-length: 2\r\n\r\nok", None),
    Case("a folded field", OK + b"x-a: b\r\n c\r\ncontent-length: 2\r\n\r\nok", None, aiohttp_differs=True),
    Case("space before the colon", OK + b"content-length : 2\r\n\r\nok", None, aiohttp_differs=True),
    Case("a field without a colon", OK + b"nonsense\r\ncontent-length: 2\r\n\r\nok", None),
    Case("a field without a name", OK + b": b\r\ncontent-length: 2\r\n\r\nok", None),
    Case("a zero in a value", OK + b"x-a: b\0c\r\ncontent-length: 2\r\n\r\nok", None),
    Case(
        "switched protocols",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        None,
        aiohttp_differs=True,
    ),
    Case(
        "switched protocols, to none",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + TWO + b"\r\nok",
        None,
        aiohttp_differs=True,
    ),
    Case("interim responses without end", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 17, None, aiohttp_differs=True),
    Case("a field of 65 KiB", OK + b"x-a: " + b"b" * 66_000 + b"\r\ncontent-length: 2\r\n\r\nok", None),
    Case(
        "fields of 65 KiB together",
        OK + (b"x-more: " + b"b" * 1000 + b"\r\n") * 66 + b"content-length: 2\r\n\r\nok",
        None,
        aiohttp_differs=True,
    ),
    Case("257 fields", OK + b"x-a: b\r\n" * 256 + b"content-length: 2\r\n\r\nok", None, aiohttp_differs=True),
    Case("257 trailers", CHUNKED + b"2\r\nok\r\n0\r\n" + b"x-a: b\r\n" * 257 + b"\r\n", None, aiohttp_differs=True),
    Case("trailers of 65 KiB", CHUNKED + b"2\r\nok\r\n0\r\n" + b"x-a: " + b"b" * 600_000, None, aiohttp_differs=True),
    Case("a chunk extension of 65 KiB", CHUNKED + b"2;a=" + b"b" * 70_000, None, aiohttp_differs=True),
]

BROKEN_OFF = [
    Case("nothing", b"", None),
    Case("half a head", OK + b"content-le", None),
    Case("an interim response", b"HTTP/1.1 100 Continue\r\n\r\n", None),
    Case("less than its length", OK + b"content-length: 3\r\n\r\nok", None),
    Case("a chunk without its end", CHUNKED + b"5\r\nok", None),
    Case("chunks without the last", CHUNKED + b"2\r\nok\r\n", None),
    Case("a last chunk without its end", CHUNKED + b"2\r\nok\r\n0\r\n", None),
    Case("half a trailer", CHUNKED + b"2\r\nok\r\n0\r\nx-a: ", None),
    Case(
        "chunked and then something else",
        OK + b"transfer-encoding: chunked, gzip\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        None,
        aiohttp_differs=True,
    ),
]
