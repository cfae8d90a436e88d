"""UUIDv7 identifiers (RFC 9562): they sort by the time they were made, so rows of one time lie together on disk."""

import os
import time


def uuid7(unix_ms: int, random_bytes: bytes) -> str:
    """Return a UUIDv7 made of a time in milliseconds and ten random bytes."""
    bits = int.from_bytes(random_bytes[:10], "big")
    high = (unix_ms & 0xFFFFFFFFFFFF) << 16 | 0x7000 | (bits >> 62 & 0x0FFF)
    low = 0x8000000000000000 | bits & 0x3FFFFFFFFFFFFFFF
    text = f"{high:016x}{low:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_id() -> str:
    """Return a fresh UUIDv7."""
    return uuid7(time.time_ns() // 1_000_000, os.urandom(10))
