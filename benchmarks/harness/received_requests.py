"""The requests that arrive on one connection of a mock provider."""

import re

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Requests:
    """Cuts what arrives into requests. The next one comes only after the answer, so one at a time is enough."""

    def __init__(self) -> None:
        self._received = bytearray()

    def next(self, data: bytes) -> bytes | None:
        """Add ``data``; return the request, head and body, once it is complete."""
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return None
        length = _LENGTH.search(self._received, 0, end)
        whole = end + 4 + (int(length[1]) if length else 0)
        if len(self._received) < whole:
            return None
        request = bytes(self._received[:whole])
        del self._received[:whole]
        return request
