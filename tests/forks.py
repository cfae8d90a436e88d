"""Runs files of tests in several processes, as a plugin of pytest: ``--numprocesses 4``.

All is imported and collected once. Each process is a fork of that one, takes a file after the other, in the order in
which they were collected, and tells in one message what became of a test. A test that ends its process fails, and the
rest of its file with it.
"""

import atexit
import multiprocessing
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from multiprocessing.synchronize import Event
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue
    from pathlib import Path

_FORK = multiprocessing.get_context("fork")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take pytest-xdist's names."""
    group = parser.getgroup("forks", "files of tests in several processes")
    group.addoption("--numprocesses", type=int, default=1, help="how many processes run tests (1)")
    group.addoption("--dist", choices=["loadfile"], default="loadfile", help="a file's tests run in one process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all in several processes, unless one is enough."""
    files: dict[Path, list[int]] = {}
    for at, item in enumerate(session.items):
        files.setdefault(item.path, []).append(at)
    processes = min(session.config.option.numprocesses, len(files))
    if processes < 2 or session.config.option.collectonly or session.testsfailed:
        return None
    _Forks(session, list(files.values()), processes).run()
    return True


class _Forks:
    """The processes, for the one that has collected."""

    def __init__(self, session: pytest.Session, files: Sequence[Sequence[int]], processes: int) -> None:
        self._session = session
        self._files = files
        self._queue: SimpleQueue[int | None] = _FORK.SimpleQueue()  # files that nobody has taken; an end for each
        self._stopping = _FORK.Event()
        self._running: dict[Connection, ForkProcess] = {}
        self._begun: dict[Connection, int] = {}
        for _ in range(processes):
            self._start()
        for each in [*range(len(files)), *[None] * processes]:
            self._queue.put(each)

    def _start(self) -> None:
        told, tell = _FORK.Pipe(duplex=False)
        others = [*self._running, told]
        process = _FORK.Process(target=_Fork(self._session, tell, self._stopping).run, args=(self._taken, others))
        process.start()
        tell.close()
        self._running[told] = process

    def _taken(self) -> Iterator[int]:
        """Yield the tests of files, each of which is taken by who asks first."""
        while (file := self._queue.get()) is not None:
            yield from self._files[file]

    def run(self) -> None:
        """Return when all have run."""
        try:
            while self._running:
                for told in wait([*self._running]):
                    self._hear(told)  # type: ignore[arg-type] # of those that are waited for
                if self._session.shouldfail or self._session.shouldstop:
                    self._stopping.set()
        finally:
            self._stopping.set()
            for told, process in self._running.items():
                told.close()  # or it waits for ever to say more
                process.join()
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _hear(self, told: Connection) -> None:
        try:
            match told.recv():
                case int(begun):
                    self._begun[told] = begun
                case list(reports):
                    self._report(self._begun.pop(told), reports)
                case crash:
                    self._end(told)
                    if crash is not None:
                        raise RuntimeError(crash)
        except EOFError:
            code = self._end(told).exitcode
            at = self._begun.pop(told, None)
            if at is None:
                raise RuntimeError(f"a process has ended with {code} between two tests") from None
            item = self._session.items[at]
            why = f"its process has ended with {code}; the rest of its file was not run"
            self._report(at, [pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")])

    def _end(self, told: Connection) -> ForkProcess:
        process = self._running.pop(told)
        process.join()
        told.close()
        return process

    def _report(self, at: int, reports: Sequence[pytest.TestReport]) -> None:
        item = self._session.items[at]
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


class _Fork:
    """One of the processes."""

    def __init__(self, session: pytest.Session, tell: Connection, stopping: Event) -> None:
        self._session = session
        self._tell = tell
        self._stopping = stopping
        self._reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep it until the test has ended."""
        self._reports.append(report)

    def run(self, taken: Any, others: Sequence[Connection]) -> None:
        """Run what is taken, and tell; nothing is printed here."""
        for each in others:
            each.close()  # who tells must know when nobody hears
        config = self._session.config
        config.workerinput = {}  # type: ignore[attr-defined] # by which plugins know that another process writes files
        config.pluginmanager.unregister(name="terminalreporter")
        capture: Any = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # whose files are shared with the others
        capture.start_global_capturing()
        config.pluginmanager.register(self)
        crash = None
        try:
            self._run(taken())
        except (KeyboardInterrupt, BrokenPipeError):
            pass
        except Exception:  # noqa: BLE001 - a plugin's
            crash = traceback.format_exc()
        config.hook.pytest_sessionfinish(session=self._session, exitstatus=int(self._session.testsfailed > 0))
        with suppress(BrokenPipeError):
            self._tell.send(crash)
        atexit._run_exitfuncs()  # multiprocessing ends without them

    def _run(self, taken: Iterator[int]) -> None:
        items, at = self._session.items, next(taken, None)
        while at is not None and not (self._stopping.is_set() or self._session.shouldfail):
            following = next(taken, None)
            self._tell.send(at)
            self._session.config.hook.pytest_runtest_protocol(
                item=items[at], nextitem=None if following is None else items[following]
            )
            self._tell.send(self._reports)
            self._reports.clear()
            at = following
