"""What a run of the tests costs, as a plugin of pytest: at its end it prints the files that take most, in wall and CPU.

CPU is that of the test's own process and of all that it has started, servers that go on running too (on Linux).
``pytest -p tests.costs`` adds it; ``COSTS=30`` prints so many files. ``python -m tests.costs COMMAND`` runs a command,
and prints at its end the costs of all runs of tests in it together, and what failed: so does ``make test``.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.searched import FIXED, SEED
from tests.support.warm import used

MOST = int(os.environ.get("COSTS", "10"))  # files that are printed
_INTO = "COSTS_INTO"  # names a folder: the costs of a run are written there, and printed by who has made it
_STARTING = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn"})
_THREADS = Path("/proc/self/task")
_started = 0


def _count(event: str, _: Any, starting: frozenset[str] = _STARTING) -> None:
    global _started  # noqa: PLW0603 - an audit hook has nowhere else to count
    if event in starting:  # not the module's: it is gone before the last event
        _started += 1


sys.addaudithook(_count)


def _ended_s() -> float:
    """Return the CPU of this process, and of those that it has started and awaited."""
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def _running_s() -> float:
    """Return the CPU of those that still run, and of theirs that have ended."""
    if not _THREADS.exists():
        return used.cpu_s
    ticks = 0
    for thread in _THREADS.iterdir():
        with suppress(OSError):  # it has ended meanwhile
            for child in (thread / "children").read_text().split():
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Meter:
    """What was used since it was last read: wall, CPU, and how many processes were started."""

    def __init__(self) -> None:
        self.is_last = False  # the test that runs is its file's last
        self._running_s = 0.0
        self._read = self._now()

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter(), _ended_s() + self._running_s, float(_started + used.started)

    def read(self, *, with_running: bool = False) -> list[float]:
        """Return it; to look at what still runs would cost more, after each test, than most of the tests."""
        if with_running:
            self._running_s = _running_s()
        before, self._read = self._read, self._now()
        return [after - earlier for after, earlier in zip(self._read, before, strict=True)]


_meter = Meter()


def pytest_collection_finish() -> None:
    """Begin to count: what is collected is no file's."""
    _meter.read()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Tell the last test of a file."""
    _meter.is_last = nextitem is None or nextitem.path != item.path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to each phase's report what was used since the last one ended: fixtures count where they were made."""
    report = yield
    is_end = _meter.is_last and report.when == "teardown"
    report.cost = _meter.read(with_running=is_end)  # type: ignore[attr-defined] # xdist passes all of its fields on
    return report


class Costs:
    """The sums, where the reports come together."""

    def __init__(self) -> None:
        self.files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
        self.failed: dict[str, None] = {}
        self.since = time.perf_counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test to its file."""
        sums = self.files[report.nodeid.partition("::")[0]]
        for at, each in enumerate(getattr(report, "cost", ())):
            sums[at] += each
        sums[3] += report.when == "setup"
        if report.failed:
            self.failed[report.nodeid] = None

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table."""
        if folder := os.environ.get(_INTO):
            told = json.dumps({"files": self.files, "failed": [*self.failed]})
            Path(folder, f"{os.getpid()}.json").write_text(told, encoding="utf-8")
        else:
            tell([self.files], f"{time.perf_counter() - self.since:.0f} s", terminalreporter.write_line)


def tell(runs: Iterable[Mapping[str, Sequence[float]]], took: str, say: Callable[[str], object]) -> None:
    """Say what runs of tests have cost, in all and in the dearest files."""
    rows = sorted((each for files in runs for each in files.items()), key=lambda each: -each[1][1])
    wall, cpu, processes, tests = (sum(sums[at] for _, sums in rows) for at in range(4))
    say(f"{took}: {wall:.0f} s of {tests:.0f} tests, {cpu:.0f} s of CPU, {processes:.0f} processes; the dearest files:")
    say(f"{'CPU s':>7} {'wall s':>7} {'started':>7}")
    for name, (wall, cpu, processes, _) in rows[:MOST]:
        say(f"{cpu:7.1f} {wall:7.1f} {processes:7.0f}  {name}")
    if SEED != FIXED:
        say(f"SEED={SEED} make test searches the same parts again")


def pytest_configure(config: pytest.Config) -> None:
    """Sum up where the reports come together: not in a worker."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Costs())


def main(command: Sequence[str]) -> int:
    """Run it, and print the costs and what failed, unless whoever runs this does; return its exit code."""
    if _INTO in os.environ:
        return subprocess.run(command, check=False).returncode
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        code = subprocess.run(command, env={**os.environ, _INTO: folder}, check=False).returncode
        runs = [json.loads(each.read_text(encoding="utf-8")) for each in sorted(Path(folder).iterdir())]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # not of what ends unawaited, as the parts of a Chromium
    wall_s, cpu_s = time.perf_counter() - began, used.ru_utime + used.ru_stime
    say = partial(print, flush=True)
    tell([each["files"] for each in runs], f"{wall_s:.0f} s and {cpu_s:.0f} s of CPU in all", say)
    for name in (name for each in runs for name in each["failed"]):
        say(f"failed: {name}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
