"""Writes the log's lines in a thread, so that nothing waits for the reader of standard error."""

import os
import select
import signal
import threading
import weakref
from collections.abc import Callable

HELD_BYTES = select.PIPE_BUF  # so much is written to a pipe in one piece: no line is mixed with another worker's
HELD_S = 0.05
WAITING_BYTES = 2**20  # about 3,000 calls; how far a slow reader may be behind
DRAIN_S = 1.0  # how long the end of the process waits for a reader


class Lines:
    """A bounded queue of lines for a descriptor that may block for ever, such as a pipe without a reader.

    Lines keep their order. Lines that do not fit are dropped and counted; when half of the queue is written, a line
    from ``announce`` reports their number. A line that is ``held`` is written within 50 ms or with the next other line,
    with as many bytes at once as a pipe accepts in one piece. A killed process loses held and unread lines.

    Usable from any thread, from a finalizer, and on both sides of a fork: the child starts with an empty queue.
    """

    def __init__(self, descriptor: int, announce: Callable[[int], bytes]) -> None:
        self.dropped = 0  # lines that were never written
        self._descriptor = descriptor
        self._announce = announce
        self._begin()
        _call_in_children(weakref.WeakMethod(self._begin_again))

    def hold(self, line: bytes) -> None:
        """Queue ``line``, to be written soon."""
        with self._lock:
            if self._takes(line) and len(self._waiting) >= HELD_BYTES:
                self._hurry()

    def write(self, line: bytes) -> None:
        """Queue ``line``, to be written as soon as possible."""
        with self._lock:
            if self._takes(line):
                self._hurry()

    def drain(self, limit_s: float = DRAIN_S) -> bool:
        """Wait until everything is written, at most ``limit_s`` seconds; return whether it is."""
        with self._lock:
            self._hurry()
            return self._changed.wait_for(lambda: self._is_idle, limit_s)

    def _begin(self) -> None:
        # A finalizer may log in the middle of a log line: the same thread may take the lock twice.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting = bytearray()
        self._unannounced = 0  # lines dropped since the last announcement
        self._is_full = False  # lines are dropped until half of the queue is written
        self._is_idle = True  # nothing waits, nothing is being written
        self._is_hurried = False
        self._thread: threading.Thread | None = None

    def _begin_again(self) -> None:
        """Start again in a forked process: the thread, and the holder of the lock, stayed in the parent."""
        self.dropped = 0
        self._begin()

    def _takes(self, line: bytes) -> bool:
        if self._is_full or len(self._waiting) + len(line) > WAITING_BYTES:
            self._is_full = len(self._waiting) > WAITING_BYTES // 2  # else it is a single huge line
            self._lost(1)
            return False
        self._waiting += line
        if self._is_idle:
            self._is_idle = False
            self._wake()
        return True

    def _lost(self, lines: int) -> None:
        self.dropped += lines
        self._unannounced += lines

    def _wake(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="log", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads, for now or because the interpreter ends
                self._is_idle = True  # so that the next line tries again
                return
            self._thread = thread
        else:
            self._changed.notify_all()

    def _hurry(self) -> None:
        if not self._is_hurried and not self._is_idle:
            self._is_hurried = True
            self._changed.notify_all()

    def _run(self) -> None:
        # Signals must go to the main thread, which may wait for one.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            lost = self._put(self._next())
            with self._lock:
                if lost:
                    self._lost(lost)
                elif self._unannounced and len(self._waiting) <= WAITING_BYTES // 2:
                    self._waiting += self._announce(self._unannounced)
                    self._unannounced = 0
                    self._is_full = False

    def _next(self) -> bytes:
        """Wait for lines; return as many as are written at once."""
        with self._lock:
            if not self._waiting:
                self._is_idle, self._is_hurried = True, False
                self._is_full = False
                self._changed.notify_all()
                while self._is_idle:
                    self._changed.wait()
            if len(self._waiting) < HELD_BYTES and not self._is_hurried:
                self._changed.wait_for(lambda: self._is_hurried, HELD_S)
            end = len(self._waiting)
            if end > HELD_BYTES:  # whole lines that fit, or one that does not
                end = self._waiting.rfind(b"\n", 0, HELD_BYTES) + 1 or self._waiting.find(b"\n") + 1 or end
            chunk = bytes(self._waiting[:end])
            del self._waiting[:end]
            return chunk

    def _put(self, chunk: bytes) -> int:
        """Write ``chunk``, however long it takes; return how many of its lines could not be written."""
        rest = memoryview(chunk)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # another process has set the terminal to non-blocking
                writable = select.poll()
                writable.register(self._descriptor, select.POLLOUT)
                writable.poll()
            except OSError:  # a closed pipe, a full disk
                return bytes(rest).count(b"\n")
        return 0


def _call_in_children(method: "weakref.WeakMethod[Callable[[], None]]") -> None:
    """Call ``method`` in every process forked from this one, while its object exists."""

    def call() -> None:
        found = method()
        if found is not None:
            found()

    os.register_at_fork(after_in_child=call)
