"""Worker processes: forked from one parent, restarted when they die, signalled and ended with it."""

import os
import select
import signal
import socket
import time
from collections.abc import Callable

import structlog

from gateway.lifeline import Lifeline

SHORT_LIFE_S = 5.0  # a worker that dies sooner has probably not been able to start
PAUSE_FIRST_S, PAUSE_MAX_S = 0.5, 30.0  # and is restarted after a pause, doubled each time
LOOK_S = 1.0

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_HANDLED = (*_PASSED_ON, signal.SIGCHLD)


class Supervisor:
    """The parent of ``number`` workers, each of which runs ``work``; it serves nothing itself.

    A worker must end by itself when its lifeline does. The first signal to stop is passed on to all workers, at the
    second they are killed.
    """

    def __init__(
        self,
        work: Callable[[socket.socket, Lifeline], None],
        number: int,
        *,
        make_socket: Callable[[], socket.socket],
        on_look: Callable[[], None],
        on_reload: Callable[[], None],
        on_stop: Callable[[], None],
        on_death: Callable[[int], None],
        at_exit: Callable[[], object],
    ) -> None:
        """``work`` is called in each worker with a socket from ``make_socket``.

        The parent calls ``on_look`` once a second, ``on_reload`` after SIGHUP, ``on_stop`` before workers are told to
        stop, ``on_death`` when one has died. Each process calls ``at_exit`` at its very end.
        """
        self._work = work
        self._make_socket = make_socket
        self._on_look = on_look
        self._on_reload = on_reload
        self._on_stop = on_stop
        self._on_death = on_death
        self._at_exit = at_exit
        self._number = number
        self._lifeline = Lifeline()
        self._born_at: dict[int, float] = {}  # by process id
        self._failures = 0  # short lives in a row
        self._start_after = 0.0  # monotonic seconds
        self._stopping = False

    def run(self) -> None:
        """Keep the workers running until a signal to stop; return when all have ended."""
        read_end, write_end = os.pipe()
        for end in (read_end, write_end):
            os.set_blocking(end, False)
        for number in _HANDLED:
            signal.signal(number, lambda *_: None)  # signals are read from the pipe: here, between two steps
        signal.set_wakeup_fd(write_end)
        while self._born_at or not self._stopping:
            self._start_missing()
            ready, _, _ = select.select([read_end], [], [], LOOK_S)
            if ready:
                for byte in os.read(read_end, select.PIPE_BUF):
                    self._handle(signal.Signals(byte))
            self._reap()
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
            self._on_death(pid)
            if not self._stopping:
                structlog.get_logger().error("worker.died", pid=pid, exit_code=os.waitstatus_to_exitcode(status))
                self._pause(time.monotonic() - born_at)

    def _pause(self, lived_s: float) -> None:
        self._failures = self._failures + 1 if lived_s < SHORT_LIFE_S else 0
        if self._failures:
            pause_s = min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0 ** (self._failures - 1))
            self._start_after = time.monotonic() + pause_s

    def _start_missing(self) -> None:
        while not self._stopping and len(self._born_at) < self._number and time.monotonic() >= self._start_after:
            self._start()

    def _start(self) -> None:
        try:
            sock = self._make_socket()
        except OSError as error:
            structlog.get_logger().error("worker.no_socket", error=str(error))
            self._pause(0.0)
            return
        # Until it has its own handlers, a signal to the child would reach the parent's pipe.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        pid = os.fork()
        if pid:
            self._born_at[pid] = time.monotonic()
            sock.close()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
            return
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in _HANDLED:
                signal.signal(number, signal.SIG_DFL)
            self._lifeline.grasp()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
            self._work(sock, self._lifeline)
            code = 0
        except Exception:  # noqa: BLE001 - the process ends here, and nothing else would log why
            structlog.get_logger().exception("worker.failed")
        finally:
            self._at_exit()
            os._exit(code)
