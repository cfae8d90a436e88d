"""Lines: the log's way out. Those of calls are written a few at a time, and before any other."""

import asyncio
import select
from contextlib import suppress
from threading import Lock
from typing import TextIO

HELD_BYTES = select.PIPE_BUF  # written at once, no line is torn by another worker's in the same pipe
HELD_S = 0.05


class Lines:
    """A text stream that can hold lines back: one ``write(2)`` each would be a third of what a line costs.

    What is ``held`` is written when it is more than a pipe takes whole, after 50 ms, or with the next line of anybody
    else: they keep their order. A process that is killed loses what it held.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._held = bytearray()
        self._lock = Lock()  # threads log too

    def hold(self, line: bytes) -> None:
        """Write ``line`` soon. Without a loop to remind us that is now."""
        with self._lock:
            if len(self._held) + len(line) > HELD_BYTES:
                self._write_held()
            if not self._held:
                try:
                    asyncio.get_running_loop().call_later(HELD_S, self.flush)
                except RuntimeError:
                    self._held += line
                    self._write_held()
                    return
            self._held += line

    def write(self, text: str) -> int:
        """Write ``text`` after what is held."""
        with self._lock:
            self._write_held()
            return self._stream.write(text)

    def flush(self) -> None:
        """Write what is held, and see that all is out."""
        with self._lock:
            self._write_held()
            self._stream.flush()

    def _write_held(self) -> None:
        if self._held:
            held, self._held = self._held, bytearray()
            with suppress(OSError):  # nobody is left whom we could tell
                self._stream.flush()
                self._stream.buffer.write(held)
                self._stream.buffer.flush()
