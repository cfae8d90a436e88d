"""Worker processes: forked from one parent, restarted when they die or stand still, signalled and ended with it."""

import os
import select
import signal
import time
from collections.abc import Callable

import structlog

from gateway.connections.workers import REPLACED_S, Beats, Silence
from gateway.core.tasks import Lifeline, mask_signals

SHORT_LIFE_S = 5.0  # a worker that dies sooner has probably failed to start
PAUSE_FIRST_S, PAUSE_MAX_S = 0.5, 30.0  # and is restarted after a pause, doubled each time
LOOK_S = 1.0

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_HANDLED = (*_PASSED_ON, signal.SIGCHLD)


class Supervisor:
    """The parent of ``number`` workers, each of which runs ``work``; it serves nothing itself.

    A worker must end by itself when its lifeline ends. The first signal to stop is passed on to all workers; at the
    second one they are killed.
    """

    def __init__(
        self,
        work: Callable[[int, Lifeline], None],
        beats: Beats,
        *,
        on_look: Callable[[], None],
        on_reload: Callable[[], None],
        on_stop: Callable[[], None],
        on_death: Callable[[int], None],
        at_exit: Callable[[], object],
    ) -> None:
        """``work`` is called in each worker with its place, from 0 up to the number of ``beats``.

        The parent calls ``on_look`` once a second, ``on_reload`` after SIGHUP, ``on_stop`` before workers are told to
        stop, ``on_death`` when one has died. Each process calls ``at_exit`` at its very end.
        """
        self._work = work
        self._on_look = on_look
        self._on_reload = on_reload
        self._on_stop = on_stop
        self._on_death = on_death
        self._at_exit = at_exit
        self._beats = beats
        self._silence = Silence(beats, most_s=1.5 * LOOK_S)
        self._lifeline = Lifeline()
        self._born_at: dict[int, float] = {}  # by process id
        self._places: dict[int, int] = {}  # by process id
        self._has_forked = False
        self._failures = 0  # short lives in a row
        self._start_after = 0.0  # monotonic seconds
        self._stopping = False

    def run(self) -> None:
        """Keep the workers running until a signal to stop; return when all have ended.

        Raises:
            OSError: the first one cannot be forked. Later ones are tried again.

        """
        read_end, write_end = os.pipe()
        for end in (read_end, write_end):
            os.set_blocking(end, False)
        for number in _HANDLED:
            signal.signal(number, ignore)  # signals are read from the pipe, between two steps of this loop
        signal.set_wakeup_fd(write_end)
        while self._born_at or not self._stopping:
            self._start_missing()
            ready, _, _ = select.select([read_end], [], [], LOOK_S)
            if ready:
                for byte in os.read(read_end, select.PIPE_BUF):
                    self._handle(signal.Signals(byte))
            self._reap()
            self._replace_stopped()
            if not self._stopping:
                self._on_look()

    def _handle(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            self._on_reload()
            self._signal_workers(number)
        elif number in _PASSED_ON and not self._stopping:
            self._stopping = True
            self._on_stop()
            self._signal_workers(number)
        elif number in _PASSED_ON:
            self._signal_workers(signal.SIGKILL)
            say_ended_at_once()
            self._at_exit()
            os._exit(128 + number)

    def _signal_workers(self, number: signal.Signals) -> None:
        for pid in self._born_at:
            os.kill(pid, number)

    def _reap(self) -> None:
        while self._born_at:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            born_at = self._born_at.pop(pid, None)
            if born_at is None:  # not a worker, but an earlier child of this process, from before exec
                continue
            self._beats.clear(self._places.pop(pid))
            self._on_death(pid)
            if not self._stopping:
                # Event worker.died: A worker process ended by itself; `exit_code` is negative if a signal ended it (-9:
                # killed, often as memory ran out). Another one is started. Its running calls are cut, and get
                # `interrupted` in the ledger.
                # Do: See `worker.failed` before it, or the kernel's log.
                structlog.get_logger().error("worker.died", pid=pid, exit_code=os.waitstatus_to_exitcode(status))
                self._pause(time.monotonic() - born_at)

    def _replace_stopped(self) -> None:
        """Kill workers whose event loop has stood still for long. Another one is started when they are reaped."""
        self._silence.look(time.monotonic())
        for pid, place in self._places.items():
            silent_s = self._silence.silent_s[place]
            if silent_s >= REPLACED_S:
                # Event worker.replaced: The event loop of a worker has stood still for `silent_s` seconds, so it is
                # killed, and another one is started. Its running calls are cut, and get `interrupted` in the ledger.
                # Do: See `worker.stopped`.
                structlog.get_logger().error("worker.replaced", pid=pid, silent_s=round(silent_s, 1))
                os.kill(pid, signal.SIGKILL)

    def _pause(self, lived_s: float) -> None:
        self._failures = self._failures + 1 if lived_s < SHORT_LIFE_S else 0
        if self._failures:
            pause_s = min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0 ** (self._failures - 1))
            self._start_after = time.monotonic() + pause_s

    def _start_missing(self) -> None:
        while not self._stopping and len(self._born_at) < len(self._beats) and time.monotonic() >= self._start_after:
            self._start()

    def _start(self) -> None:
        place = min(set(range(len(self._beats))).difference(self._places.values()))
        # Until it has its own handlers, a signal to the child would reach the parent's pipe.
        mask_signals(_HANDLED, blocked=True)
        try:
            pid = os.fork()
        except OSError as error:
            mask_signals(_HANDLED, blocked=False)
            if not self._has_forked:
                raise
            # Event worker.not_forked: The system refuses a new worker (`error`): processes or memory have run out. It
            # is tried again, after at most 30 s; the other workers serve meanwhile.
            # Do: Raise the number of processes that this user or container may have, free memory, or set fewer
            # `workers`.
            structlog.get_logger().error("worker.not_forked", error=str(error))
            self._pause(0.0)
            return
        if pid:
            self._has_forked = True
            self._born_at[pid] = time.monotonic()
            self._places[pid] = place
            mask_signals(_HANDLED, blocked=False)
            return
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in _HANDLED:
                signal.signal(number, ignore if number == signal.SIGHUP else signal.SIG_DFL)
            self._lifeline.grasp()
            mask_signals(_HANDLED, blocked=False)
            self._work(place, self._lifeline)
            code = 0
        except Exception:  # noqa: BLE001 - the process ends here, and nothing else would log why
            # Event worker.failed: A worker could not go on. Its trace says why; another one is started.
            # Do: It is a bug: report it with the trace.
            structlog.get_logger().exception("worker.failed")
        finally:
            self._at_exit()
            os._exit(code)


def say_ended_at_once() -> None:
    """Log that a second signal ends the process."""
    # Event gateway.ended_at_once: A second signal came before the end, so running calls are cut. No row of a call that
    # was answered is lost: rows that are not in the database yet are in `spool_dir`.
    # Do: Start a gateway with the same `spool_dir`: it writes them. To end in order, send one signal and wait.
    structlog.get_logger().warning(
        "gateway.ended_at_once", hint="rows not yet in the database are in spool_dir; the next start writes them"
    )


def ignore(_number: int, _frame: object) -> None:
    """Do nothing. By default SIGHUP ends a process that is starting; ``Reloader`` reads the files again in any case.

    Programs that are started do not inherit this, as they would SIG_IGN.
    """
