"""Exports what has ended, in a thread: nothing waits for a collector."""

import asyncio
import signal
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import structlog

from gateway.tracing.ended import Ended

QUEUED = 4096  # calls and late attempts, with their records: some 10 MB
BATCH = 128  # exported at once: some 0.5 MB
EVERY_S = 0.5
CLOSE_S = 2.0  # how long the end of the gateway waits for a collector
_LOOK_S, _GIVE_UP_S = 0.05, 0.2
PAUSE_FIRST_S, PAUSE_MAX_S = 1.0, 30.0  # after a failed export, doubled each time
TELL_EVERY_S = 60.0  # of spans that were rejected one by one


class Exporter(Protocol):
    """Makes spans of what has ended, and sends them; used by the thread alone, but for ``shutdown``."""

    @property
    def is_failing(self) -> bool:
        """Whether what is being sent was refused at first, and is tried again."""

    @property
    def rejected(self) -> tuple[int, str] | None:
        """How many spans of the last export, which was accepted, were not kept, and why; None: all were."""

    def export(self, ended: Sequence[Ended]) -> str | None:
        """Send the spans; return None, or why they were not accepted. May take long, may not raise."""

    def hurry(self) -> None:
        """Take no more care of the event loop: the process ends."""

    def shutdown(self) -> None:
        """Give up what is being sent. No export follows."""


class Sender:
    """A bounded queue, and the thread that empties it. What does not fit is dropped and counted.

    The thread begins with ``start`` and ends with ``close``. While a collector is away there is one log line at the
    beginning and one at the end.
    """

    def __init__(self, exporter: Exporter) -> None:
        self.dropped = 0  # spans
        self._exporter = exporter
        self._queue: deque[Ended] = deque()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._failures = 0  # in a row
        self._rejected = 0  # spans, since that was logged
        self._tell_at_s: float | None = None  # of the monotonic clock; None: at once
        self._log = structlog.get_logger()

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is None and not self._closing.is_set():
            self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
            self._thread.start()

    def offer(self, ended: Ended) -> None:
        """Queue what has ended, or drop it."""
        if len(self._queue) < QUEUED and not self._closing.is_set():
            self._queue.append(ended)
        else:
            self.dropped += ended.spans

    async def close(self) -> None:
        """Export what is queued, for ``CLOSE_S`` at most, and not at all to a collector that has not answered."""
        self._closing.set()
        self._exporter.hurry()
        if self._thread is not None:
            await asyncio.to_thread(self._wait, self._thread)
        if self._queue:
            lost = self._drop(len(self._queue))
            self._log.warning("tracing.spans_dropped", spans=lost, effect="the collector did not take them in time")

    def _wait(self, thread: threading.Thread) -> None:
        """Wait for the end of the thread, but not for a collector that has failed."""
        until = time.monotonic() + CLOSE_S
        while thread.is_alive() and time.monotonic() < until and not (self._failures or self._exporter.is_failing):
            thread.join(_LOOK_S)
        self._exporter.shutdown()
        thread.join(_GIVE_UP_S)

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the main thread's
        while not self._closing.wait(EVERY_S):
            self._empty()
        if not self._failures:
            self._empty()

    def _empty(self) -> None:
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            problem = self._exporter.export(batch)
            if problem is not None:
                self._failed(batch, problem)
                if self._closing.wait(min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0 ** (self._failures - 1))):
                    return
                continue
            if self._failures:
                self._log.info("tracing.exporting_again", dropped=self.dropped)
                self._failures = 0
            if self._exporter.rejected is not None:
                self._lost(*self._exporter.rejected)

    def _failed(self, batch: Sequence[Ended], problem: str) -> None:
        self.dropped += sum(ended.spans for ended in batch)
        self._failures += 1
        if self._failures == 1:
            self._log.warning(
                "tracing.not_exported",
                reason=problem,
                effect="spans are dropped and counted (holeshot_spans_dropped_total) until the collector accepts them",
            )

    def _lost(self, spans: int, reason: str) -> None:
        """Count spans that the collector has not kept of those it took, and log them now and then."""
        self.dropped += spans
        self._rejected += spans
        now_s = time.monotonic()
        if self._tell_at_s is None or now_s >= self._tell_at_s:
            self._log.warning("tracing.spans_rejected", spans=self._rejected, reason=reason)
            self._rejected, self._tell_at_s = 0, now_s + TELL_EVERY_S

    def _drop(self, number: int) -> int:
        lost = 0
        for _ in range(number):
            try:
                lost += self._queue.popleft().spans
            except IndexError:  # the thread has taken it
                break
        self.dropped += lost
        return lost
