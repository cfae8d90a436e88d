"""The log: one canonical line per call, dotted event names, key=value, secrets masked."""

import io
import logging
import os
import select
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Literal, TextIO, cast

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gateway.core.calls import CallRecord
from gateway.core.columns import names_of
from gateway.core.processes import mask_signals
from gateway.core.terminal_text import visible, visible_json
from providers import redact, redact_json

# Writes the log's lines in a thread, so that nothing waits for the reader of standard error.

HELD_BYTES = select.PIPE_BUF  # a pipe takes so much in one piece, so lines of several workers are not mixed
HELD_S = 0.05
WAITING_BYTES = 2**20  # the queue's limit: about 3,000 calls
DRAIN_S = 1.0  # how long the end of the process waits for a reader


class LogLines:
    """A bounded queue of lines for a descriptor that may block forever, such as a pipe without a reader.

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
        mask_signals(signal.valid_signals(), blocked=True)
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
        """Write ``chunk``, without a time limit; return how many of its lines could not be written."""
        rest = memoryview(chunk)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # another process has set the terminal to non-blocking
                select.select([], [self._descriptor], [])  # not poll, which some systems lack for terminals
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


def configure(level: str, style: Literal["auto", "console", "json"]) -> LogLines:
    """Set up structlog, and the standard library's logging through it, for this process and its forks.

    Return the queue of lines, which lives as long as the process: ``drain`` it before an exit without exit handlers.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    console = style == "console" or (style == "auto" and sys.stderr is not None and sys.stderr.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        mask_secrets,
    ]
    renderer: Processor
    if console:
        shared.append(show_controls)
        renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    else:
        renderer = structlog.processors.JSONRenderer(serializer=_json)

    def announce(dropped: int) -> bytes:
        # Event log.lines_dropped: What reads standard error was too slow, so this many `lines` were not written.
        # Do: Make the reader of the log faster, or set `log_level: warning`.
        event: EventDict = {
            "event": "log.lines_dropped",
            "lines": dropped,
            "effect": "no process read standard error",
        }
        for processor in (*shared[1:3], renderer):  # its level and the time
            event = processor(None, "warning", event)  # type: ignore[assignment] # the last one's is text
        return f"{event}\n".encode(errors="backslashreplace")

    lines = LogLines(_descriptor(), announce)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=_Output(lines, None if console or threshold > logging.INFO else lines),
    )
    handler = _Handler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(logging.WARNING, threshold), force=True)
    return lines


def mask_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Mask everything that looks like a key, in every field: many quote text of providers and clients."""
    for name, value in event.items():
        if isinstance(value, str | list | dict):
            event[name] = redact_json(value)
    return event


def show_controls(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape control characters, which could write to the operator's terminal."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = visible(value, lines=name in _LAID_OUT)
    return event


class StandardError(io.TextIOBase):
    """Replaces ``sys.stderr``: everything written there goes to the log's queue and blocks nothing.

    Python's own tracebacks and warnings come here, line by line; whatever looks like a key is masked.
    """

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, lines: LogLines, instead_of: TextIO) -> None:
        self._lines = lines
        self._instead_of = instead_of
        self._begun = ""  # an incomplete line

    def write(self, text: str) -> int:
        """Queue the lines that ``text`` completes."""
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self._queue(line + "\n")
        return len(text)

    def flush(self) -> None:
        """Queue an incomplete line. Does not wait: the end of the process does."""
        begun, self._begun = self._begun, ""
        if begun:
            self._queue(begun)

    def fileno(self) -> int:
        """Return the descriptor, for child processes."""
        return self._instead_of.fileno()

    def isatty(self) -> bool:
        """Whether the log is a terminal."""
        return self._instead_of.isatty()

    def writable(self) -> bool:
        """Return True: it can be written to."""
        return True

    def _queue(self, text: str) -> None:
        self._lines.write(visible(redact(text), lines=True).encode(errors="backslashreplace"))


def take_standard_error(lines: LogLines) -> None:
    """Send everything that Python code of this process writes to ``sys.stderr`` to ``lines``, from now on."""
    if sys.stderr is not None:
        sys.stderr = cast("TextIO", StandardError(lines, sys.stderr))  # it has all the methods that are used


class CallLog:
    """Writes ``call.finished``, the one line of each call."""

    def __init__(self) -> None:
        self._log = structlog.get_logger()
        output = structlog.get_config()["logger_factory"]
        self._lines = output.calls if isinstance(output, _Output) else None
        self._output = output.lines if isinstance(output, _Output) else None

    @property
    def dropped(self) -> int:
        """The number of log lines of this process that were dropped because nothing read them."""
        return self._output.dropped if self._output is not None else 0

    def call_finished(self, record: CallRecord) -> None:
        """Write the line."""
        winner = None
        for item in record.attempts:
            if item.id == record.winner_attempt_id:
                winner = item
        causes = None
        if record.error_kind is not None:
            causes = [f"{item.deployment}:{item.error_kind}" for item in record.attempts if item.error_kind]
        line = CallLine(
            record.id,
            record.model,
            record.status_code,
            record.mode,
            record.launched,
            winner.deployment if winner else None,
            record.ttft_ms,
            record.total_ms,
            winner.decode_tps if winner else None,
            record.completion_tokens,
            "call.finished",
            "info",
            datetime.now(UTC),
            None if record.trace is None else record.trace.trace_id,
            causes,
            *_logged_of(record),
        )
        if self._lines is not None:
            self._lines.hold(_encode(line) + b"\n")
        else:
            facts = msgspec.to_builtins(line)
            self._log.info(**{name: value for name, value in facts.items() if name not in _STRUCTLOGS_OWN})


class _Line(msgspec.Struct, omit_defaults=True, gc=False):
    """The line of a call. It quotes no text of providers or prompts, so no secret can be in it."""

    id: str
    model: str
    status: int
    mode: str
    launched: int
    winner: str | None
    ttft_ms: float | None
    total_ms: float
    decode_tps: float | None
    tokens: int | None
    # Event call.finished: The one line of each call: who answered (`winner`), how soon (`ttft_ms`) and how fast
    # (`decode_tps`, tokens per second). `narrowed` says why it had fewer attempts. A failed call has `error_kind` and
    # `causes`, with the reason of each attempt.
    # Do: For a failed call see [errors](errors.md).
    event: str
    level: str
    timestamp: datetime
    trace_id: str | None = None
    causes: list[str] | None = None


_LOGGED = names_of(CallRecord, "logged")
_logged_of = attrgetter(*_LOGGED)
# With the columns that are in the line where they are not null.
CallLine = msgspec.defstruct(
    "CallLine", [(name, Any, None) for name in _LOGGED], bases=(_Line,), omit_defaults=True, gc=False
)


class _Output:
    """The target of log lines; those of ``calls`` are written directly, unless they go through structlog too."""

    def __init__(self, lines: LogLines, calls: LogLines | None) -> None:
        self.lines = lines
        self.calls = calls

    def __call__(self, *_arguments: object) -> "_Logger":
        """Return a logger for structlog to wrap."""
        return _Logger(self.lines)


class _Logger:
    """Writes structlog's rendered lines, of any level."""

    def __init__(self, lines: LogLines) -> None:
        self._lines = lines

    def msg(self, line: str) -> None:
        """Write ``line``."""
        self._lines.write(line.encode(errors="backslashreplace") + b"\n")

    debug = info = warning = error = critical = msg


class _Handler(logging.Handler):
    """Writes the lines of the standard library's logging, which flushes it when the process ends."""

    def __init__(self, lines: LogLines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - as every handler of logging does
            self.handleError(record)
        else:
            self._lines.write(line.encode(errors="backslashreplace") + b"\n")

    def flush(self) -> None:
        """Wait until everything is written, or the reader seems to be gone."""
        self._lines.drain()


def _descriptor() -> int:
    """Return a descriptor of standard error; if it was closed, one of /dev/null, as 2 may be another file now."""
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC) if sys.stderr is None else sys.stderr.fileno()


def _json(event: EventDict, **_options: Any) -> str:
    return visible_json(msgspec.json.encode(event, enc_hook=str).decode())


_encode = msgspec.json.Encoder().encode
_LAID_OUT = frozenset({"exception", "stack"})
_STRUCTLOGS_OWN = frozenset({"level", "timestamp"})
