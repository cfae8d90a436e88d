"""The traces of a process: off, or on with an exporter; a reload may change that."""

import asyncio
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from gateway.core.attempts import AttemptRecord
from gateway.core.calls import CallRecord
from gateway.core.ids import TraceContext, begun_here
from gateway.core.log import get_logger
from gateway.core.processes import mask_signals
from gateway.settings import Settings, TracingSettings
from gateway.tracing.naming import Ended, EndedCall, LateAttempt, peers

if TYPE_CHECKING:
    from gateway.tracing.exporting import OtlpExporter

# Exports ended calls and attempts in a thread: nothing waits for a collector.

QUEUED = 4096  # calls and late attempts, with their records: some 10 MB
BATCH = 128  # exported at once: some 0.5 MB
EVERY_S = 0.5
CLOSE_S = 2.0  # how long the end of the gateway waits for a collector
_LOOK_S, _GIVE_UP_S = 0.05, 0.2
PAUSE_FIRST_S, PAUSE_MAX_S = 1.0, 30.0  # after a failed export, doubled each time
LOG_EVERY_S = 60.0  # at most, spans rejected one by one


class Exporter(Protocol):
    """Makes spans of ended calls and attempts, and sends them; used by the thread alone, but for ``shutdown``."""

    @property
    def is_failing(self) -> bool:
        """Whether the running export was refused at first, and is tried again."""

    @property
    def rejected(self) -> tuple[int, str] | None:
        """The number of spans that the collector rejected of the last export, and its reason; None: it kept all."""

    def export(self, ended: Sequence[Ended]) -> str | None:
        """Send the spans; return None, or the reason if they were not accepted. May take long, may not raise."""

    def hurry(self) -> None:
        """Make no more pauses for the event loop: the process ends."""

    def shutdown(self) -> None:
        """Abandon the running export. No export follows."""


class TraceSender:
    """A bounded queue, and the thread that empties it. Items that do not fit are dropped and counted.

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
        self._rejected = 0  # spans, since the last log line about them
        self._log_at_s: float | None = None  # of the monotonic clock; None: at once

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is None and not self._closing.is_set():
            self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
            self._thread.start()

    def offer(self, ended: Ended) -> None:
        """Queue a call or attempt, or drop it."""
        if len(self._queue) < QUEUED and not self._closing.is_set():
            self._queue.append(ended)
        else:
            self.dropped += ended.spans

    async def close(self) -> None:
        """Export the queue, for ``CLOSE_S`` at most, and not at all if the last export failed."""
        self._closing.set()
        self._exporter.hurry()
        if self._thread is not None:
            await asyncio.to_thread(self._wait, self._thread)
        if self._queue:
            lost = self._drop(len(self._queue))
            # Event tracing.spans_dropped: The process ended before the collector had taken these spans.
            # Do: Nothing.
            get_logger().warning("tracing.spans_dropped", spans=lost, effect="the collector did not take them in time")

    def _wait(self, thread: threading.Thread) -> None:
        """Wait for the end of the thread, but not for a collector that has failed."""
        until = time.monotonic() + CLOSE_S
        while thread.is_alive() and time.monotonic() < until and not (self._failures or self._exporter.is_failing):
            thread.join(_LOOK_S)
        self._exporter.shutdown()
        thread.join(_GIVE_UP_S)

    def _run(self) -> None:
        mask_signals(signal.valid_signals(), blocked=True)  # they are the main thread's
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
                # Event tracing.exporting_again: The collector accepts spans again; `dropped` were lost since the start.
                # Do: Nothing.
                get_logger().info("tracing.exporting_again", dropped=self.dropped)
                self._failures = 0
            if self._exporter.rejected is not None:
                self._lost(*self._exporter.rejected)

    def _failed(self, batch: Sequence[Ended], problem: str) -> None:
        self.dropped += sum(ended.spans for ended in batch)
        self._failures += 1
        if self._failures == 1:
            # Event tracing.not_exported: The collector did not accept spans (`reason`). They are dropped until it does.
            # Do: Check `tracing.endpoint`, its `headers`, and the collector.
            get_logger().warning(
                "tracing.not_exported",
                reason=problem,
                effect="spans are dropped and counted (holeshot_spans_dropped_total) until the collector accepts them",
            )

    def _lost(self, spans: int, reason: str) -> None:
        """Count spans that the collector rejected of an accepted export, and log their number at intervals."""
        self.dropped += spans
        self._rejected += spans
        now_s = time.monotonic()
        if self._log_at_s is None or now_s >= self._log_at_s:
            # Event tracing.spans_rejected: The collector did not keep `spans` of what it accepted (`reason`).
            # Do: Check the limits of the collector.
            get_logger().warning("tracing.spans_rejected", spans=self._rejected, reason=reason)
            self._rejected, self._log_at_s = 0, now_s + LOG_EVERY_S

    def _drop(self, number: int) -> int:
        lost = 0
        for _ in range(number):
            try:
                lost += self._queue.popleft().spans
            except IndexError:  # the thread has taken it
                break
        self.dropped += lost
        return lost


# Receives the events of calls while traces are on, and passes sampled calls to the exporting thread.

MOST_WAITING = 10_000  # calls with an audited loser that still runs


class CallTraces:
    """The traces of a process's calls. ``clock``: the records' clock, in monotonic seconds.

    A call's own work is only to note when its attempts ended, and to enter the queue: spans are made in the thread.
    """

    def __init__(
        self, sender: TraceSender, *, sample_ratio: float, is_passed_on: bool, clock: Callable[[], float]
    ) -> None:
        self.sender = sender
        self._sample_ratio = sample_ratio
        self._is_passed_on = is_passed_on
        self._clock = clock
        self._ended_at: dict[str, float] = {}  # attempts of running calls, in seconds of the clock
        self._waiting: dict[str, _Waiting] = {}  # calls with audited losers that still run

    def use(self, sender: TraceSender, *, sample_ratio: float, is_passed_on: bool) -> None:
        """Use another ``sender`` from now on; the other settings are for new calls."""
        self.sender = sender
        self._sample_ratio = sample_ratio
        self._is_passed_on = is_passed_on

    def trace(self, call_id: str, parent: TraceContext | None) -> TraceContext:
        """Return the trace of a new call: its client's, or one of its own."""
        found = begun_here(call_id, self._sample_ratio) if parent is None else parent
        if found.is_passed_on is self._is_passed_on:
            return found
        return TraceContext(found.trace_id, found.parent_id, found.flags, found.state, self._is_passed_on)

    def attempt_ended(self, attempt: AttemptRecord, ago_s: float) -> None:
        """Note that an attempt ended ``ago_s`` seconds ago: records have the times of tokens, not of ends."""
        self._ended_at[attempt.id] = self._clock() - ago_s

    def call_finished(self, record: CallRecord) -> None:
        """Queue a call's spans, if it is sampled."""
        now, ended_at = self._clock(), self._ended_at
        received_at = now - record.total_ms / 1000
        ended_ms = tuple([(ended_at.pop(each.id, now) - received_at) * 1000 for each in record.attempts])
        trace = record.trace
        if trace is None or not trace.is_sampled:
            return
        call = EndedCall(record, trace, ended_ms)
        self.sender.offer(call)
        if (missing := record.launched - len(ended_ms)) and len(self._waiting) < MOST_WAITING:
            self._waiting[record.id] = _Waiting(call, received_at, missing)

    def attempt_audited(self, attempt: AttemptRecord) -> None:
        """Queue the span of an attempt that was measured beyond its call."""
        ended_at = self._ended_at.pop(attempt.id, None)
        waiting = self._waiting.get(attempt.call_id)
        if waiting is None:
            return
        waiting.missing -= 1
        if not waiting.missing:
            del self._waiting[attempt.call_id]
        at = self._clock() if ended_at is None else ended_at
        self.sender.offer(LateAttempt(attempt, waiting.call, (at - waiting.received_at) * 1000))


class _Waiting:
    """A finished call with attempts that still run."""

    __slots__ = ("call", "missing", "received_at")

    def __init__(self, call: EndedCall, received_at: float, missing: int) -> None:
        self.call = call
        self.received_at = received_at
        self.missing = missing


_OFF = TracingSettings()


class Tracing:
    """``own`` receives the events of calls; it is None while traces are off. OpenTelemetry is imported if they are on.

    ``worker`` names this process in its spans; ``clock``: the records' clock, in monotonic seconds.
    """

    def __init__(self, settings: Settings, *, worker: str, clock: Callable[[], float]) -> None:
        """Set up traces; ``start`` them.

        Raises:
            ValueError: an OTEL_* variable is invalid.

        """
        self.own: CallTraces | None = None
        self._worker = worker
        self._clock = clock
        self._settings = _OFF
        self._exporter: OtlpExporter | None = None
        self._senders: list[TraceSender] = []  # the last one is in use, if traces are on
        self._closing: set[asyncio.Task[None]] = set()
        self._set_up(settings)

    @property
    def dropped(self) -> int:
        """The number of spans of this process that were not exported."""
        return sum(sender.dropped for sender in self._senders)

    def start(self) -> None:
        """Start to export."""
        if self.own is not None:
            self.own.sender.start()

    def configure(self, settings: Settings) -> None:
        """Use the settings of a reload; an invalid variable leaves traces as they were."""
        before = None if self.own is None else self.own.sender
        try:
            self._set_up(settings)
        except ValueError as error:
            # Event tracing.not_configured: A variable `OTEL_…` is invalid (`problem`). Traces stay as they were.
            # Do: Correct the variable and restart.
            get_logger().error("tracing.not_configured", problem=str(error), effect="traces stay as they were")
            return
        self.start()
        if before is not None and (self.own is None or self.own.sender is not before):
            task = asyncio.get_running_loop().create_task(before.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Export the queue, for a limited time."""
        if self.own is not None:
            await self.own.sender.close()
        await asyncio.gather(*self._closing)

    def _set_up(self, settings: Settings) -> None:
        new = settings.tracing
        if new == self._settings or not (new.enabled or self._settings.enabled):
            if self._exporter is not None:
                self._exporter.spans.peers = peers(settings)
            return
        if not new.enabled:
            self.own, self._exporter, self._settings = None, None, new
            return
        from gateway.tracing.exporting import OtlpExporter  # noqa: PLC0415 - half a second that others need not pay

        self._exporter = OtlpExporter(new, instance=self._worker, peers=peers(settings))
        sender = TraceSender(self._exporter)
        self._senders.append(sender)
        if self.own is None:
            self.own = CallTraces(sender, sample_ratio=new.sample_ratio, is_passed_on=new.propagate, clock=self._clock)
        else:
            self.own.use(sender, sample_ratio=new.sample_ratio, is_passed_on=new.propagate)
        self._settings = new
