"""Worker processes: forked from one parent, restarted when they die, told what the parent is told."""

import os
import signal
import time
from collections.abc import Callable

import structlog

SHORT_LIFE_S = 5.0  # a worker that dies sooner has probably not been able to start,
PAUSE_FIRST_S, PAUSE_MAX_S = 0.5, 30.0  # and is started again after a pause, doubled each time

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """The parent of ``number`` workers, each of which does ``work``; it serves nothing itself."""

    def __init__(
        self,
        work: Callable[[], None],
        number: int,
        *,
        on_death: Callable[[int], None],
        at_exit: Callable[[], object],
    ) -> None:
        """Take what each worker does, what is to be done here when it has died, and by itself as the last of all."""
        self._work = work
        self._on_death = on_death
        self._at_exit = at_exit
        self._number = number
        self._born_at: dict[int, float] = {}  # by process id
        self._failures = 0  # short lives in a row
        self._stopping = False

    def run(self) -> None:
        """Keep the workers running until a signal to stop; return when all have ended."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGHUP, self._pass_on)
        for _ in range(self._number):
            self._start()
        while self._born_at:
            pid, status = os.wait()
            lived_s = time.monotonic() - self._born_at.pop(pid)
            self._on_death(pid)
            if not self._stopping:
                structlog.get_logger().error("worker.died", pid=pid, exit_code=os.waitstatus_to_exitcode(status))
                self._pause(lived_s)
            if not self._stopping:
                self._start()

    def _pause(self, lived_s: float) -> None:
        self._failures = self._failures + 1 if lived_s < SHORT_LIFE_S else 0
        if self._failures:
            time.sleep(min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0 ** (self._failures - 1)))

    def _start(self) -> None:
        # A signal between the fork and the note of it would not be passed on to the new one.
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        pid = os.fork()
        if pid:
            self._born_at[pid] = time.monotonic()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
            return
        code = 1
        try:
            for number in _PASSED_ON:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
            self._work()
            code = 0
        except Exception:  # noqa: BLE001 - the process ends here, and nobody else would say why
            structlog.get_logger().exception("worker.failed")
        finally:
            self._at_exit()
            os._exit(code)

    def _stop(self, number: int, _frame: object) -> None:
        self._stopping = True
        self._pass_on(number, _frame)

    def _pass_on(self, number: int, _frame: object) -> None:
        for pid in self._born_at:
            os.kill(pid, number)
