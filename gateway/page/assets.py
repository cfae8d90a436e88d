"""The page's files, read and compressed once: a browser is served from memory."""

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

FOLDER = Path(__file__).with_name("assets")
TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".ico": "image/x-icon",
    ".txt": "text/plain; charset=utf-8",
}


class Asset(msgspec.Struct, frozen=True):
    """One file: its bytes, plain and as gzip, and the headers' values that name them."""

    body: bytes
    compressed: bytes
    content_type: str
    etag: str


@cache
def assets() -> Mapping[str, Asset]:
    """Return all files by their path below ``FOLDER``, with slashes."""
    return {
        path.relative_to(FOLDER).as_posix(): _read(path)
        for path in sorted(FOLDER.rglob("*"))
        if path.is_file() and path.suffix in TYPES
    }


def _read(path: Path) -> Asset:
    body = path.read_bytes()
    return Asset(body, gzip.compress(body, mtime=0), TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:20]}"')
