"""What cases send and expect: a picture, a sound, and how vectors are written in base64."""

import base64
import struct
import zlib


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 2, 8, 0, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\x00\x80\x80\x80" * 2))
    + _chunk(b"IEND", b"")
)
PNG_BASE64 = base64.b64encode(PNG).decode()
PNG_URL = f"data:image/png;base64,{PNG_BASE64}"
WAV = (
    b"RIFF\x2c\x00\x00\x00WAVE"
    + struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8)
    + b"data\x08\x00\x00\x00"
)
WAV += b"\x80" * 8  # a millisecond of silence


def floats(encoded: str) -> list[float]:
    """Return the numbers of a vector in base64: little-endian, four bytes each."""
    content = base64.b64decode(encoded)
    return list(struct.unpack(f"<{len(content) // 4}f", content))
