"""What a run of the tests costs, as a plugin of pytest: at its end it prints the files that take most, in wall and CPU.

CPU is that of the test's own process and of those that it has started and awaited. ``pytest -p tests.costs`` adds it.
"""

import resource
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest

from tests.searched import SEED, WHOLE
from tests.support.warm import used

MOST = 10  # files that are printed
_STARTING = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn"})
_started = 0


def _count(event: str, _: Any, starting: frozenset[str] = _STARTING) -> None:
    global _started  # noqa: PLW0603 - an audit hook has nowhere else to count
    if event in starting:  # not the module's: it is gone before the last event
        _started += 1


sys.addaudithook(_count)


def _cpu_s() -> float:
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime + used.cpu_s


_last = [time.perf_counter(), _cpu_s(), 0.0]


def pytest_collection_finish() -> None:
    """Begin to count: what is collected is no file's."""
    _last[:] = time.perf_counter(), _cpu_s(), float(_started)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to each phase's report what was used since the last one ended: fixtures count where they were made."""
    report = yield
    now = [time.perf_counter(), _cpu_s(), float(_started + used.started)]
    report.cost = [  # type: ignore[attr-defined] # xdist passes all of its fields on
        after - before for after, before in zip(now, _last, strict=True)
    ]
    _last[:] = now
    return report


class Costs:
    """The sums, where the reports come together."""

    def __init__(self) -> None:
        self.files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        self.since = time.perf_counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test to its file."""
        sums = self.files[report.nodeid.partition("::")[0]]
        for at, each in enumerate(getattr(report, "cost", ())):
            sums[at] += each

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table."""
        rows = sorted(self.files.items(), key=lambda each: -each[1][1])
        wall, cpu, processes = (sum(sums[at] for _, sums in rows) for at in range(3))
        say = terminalreporter.write_line
        took = time.perf_counter() - self.since
        say(f"{took:.0f} s: {wall:.0f} s of tests, {cpu:.0f} s of CPU, {processes:.0f} processes; the dearest files:")
        say(f"{'CPU s':>7} {'wall s':>7} {'started':>7}")
        for name, (wall, cpu, processes) in rows[:MOST]:
            say(f"{cpu:7.1f} {wall:7.1f} {processes:7.0f}  {name}")
        say("everything was searched" if WHOLE else f"SEED={SEED} make test searches the same parts again")


def pytest_configure(config: pytest.Config) -> None:
    """Sum up where the reports come together: not in a worker."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Costs())
