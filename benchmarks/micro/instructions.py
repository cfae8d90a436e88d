"""Counts the instructions of a call, which do not depend on the clock, and fails when they grew: a guard per commit.

    python -m benchmarks.micro.instructions [--against COMMIT]

The hot path runs under callgrind, counting from the end of a warm-up. What the driver and the mock take, counted alone,
is taken off. The same is counted of another commit, in the same run: of the one before, or, where files have changed
since the last commit, of that. There is no file of known figures that could be written again to let a call cost more.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO

from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.harness.report import Grid, bad
from tests.support.measured.gateways import WAYS
from tests.support.measured.servers import ROOT

AT_MOST = 1.005  # of the commit before; two runs of the same code agree within 0.1 %
TITLE = "Instructions per call"
_LAUNCH = "from benchmarks.micro import ticking; ticking.install(); from benchmarks.micro.counted import main; main()"


class Callgrind:
    """A process under callgrind that obeys lines. Made by ``running``."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._dumps = 0

    def obey(self, line: str) -> None:
        """Have it carry out ``line``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        if self._process.stdout.readline() != "done\n":
            raise RuntimeError((self._folder / "log").read_text(errors="replace")[-2000:])

    def count(self, line: str) -> int:
        """Have it carry out ``line``, and return the instructions that took."""
        self._control("--instr=on")
        self.obey(line)
        self._control("--instr=off")
        self._control("--dump")
        self._dumps += 1
        dump = (self._folder / f"callgrind.{self._dumps}").read_text()
        return int(dump.rpartition("totals:")[2])

    def _control(self, what: str) -> None:
        subprocess.run(["callgrind_control", what, str(self._process.pid)], check=True, capture_output=True)


@contextlib.contextmanager
def running(*arguments: str, root: Path = ROOT) -> Iterator[Callgrind]:
    """Run the counted process of the checkout at ``root`` with ``arguments`` under callgrind until the block ends."""
    with tempfile.TemporaryDirectory(prefix="holeshot-instructions-") as name:
        folder = Path(name)
        callgrind = ["--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder / 'callgrind'}"]
        command = ["valgrind", *callgrind, sys.executable, "-c", _LAUNCH, str(folder), *arguments]
        environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        with (folder / "log").open("wb") as log, _started(command, environment, root, log) as process:
            yield Callgrind(process, folder)


@contextlib.contextmanager
def _started(
    command: list[str], environment: Mapping[str, str], root: Path, log: IO[bytes]
) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=environment, cwd=root
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def counted(*arguments: str, root: Path = ROOT) -> dict[str, int]:
    """Count instructions of a call of each way, in a process of the checkout at ``root`` with ``arguments``.

    A way that an older checkout does not know is left out.
    """
    instructions = {}
    left, way = list(WAYS), ""
    while left:
        with running(*arguments, root=root) as process:
            try:
                while left:
                    way = left.pop(0)
                    instructions[way] = _of_way(process, way)
            except RuntimeError as error:  # asked for a way that it does not know, it has ended
                if root == ROOT or f"KeyError: {way!r}" not in str(error):
                    raise
    return instructions


def _of_way(process: Callgrind, way: str) -> int:
    calls, totals = WAYS[way].calls, {}
    for subject in ("direct", "gateway"):
        process.obey(f"{subject} {way} {calls // 3}")
        totals[subject] = process.count(f"{subject} {way} {calls}")
    return round((totals["gateway"] - totals["direct"]) / calls)


def watched() -> Grid:
    """Count with and without somebody who looks at the calls live."""
    with running() as process:
        counts: dict[str, list[float]] = {}
        for looks, subject in enumerate(("direct", "gateway", "gateway")):
            if looks > 1:
                process.obey("watch - 0")
            for way, each in WAYS.items():
                process.obey(f"{subject} {way} {each.calls // 3}")
                counts.setdefault(way, []).append(process.count(f"{subject} {way} {each.calls}") / each.calls)
    rows = [
        [way, f"{alone - direct:,.0f}", f"{looking - direct:,.0f}", f"{(looking - alone) / (alone - direct):+.2%}"]
        for way, (direct, alone, looking) in counts.items()
    ]
    return Grid(TITLE, ("", "nobody looks", "one viewer", "added"), rows)


def with_more(*more: str) -> Grid:
    """Count without and with what the gateway does besides, one after the other; see ``counted.MORE``."""
    counts = [counted(), *map(counted, more)]
    rows = [
        [way, f"{instructions:,}", *(f"{now[way] / before[way] - 1:+.2%}" for before, now in pairwise(counts))]
        for way, instructions in counts[0].items()
    ]
    return Grid(TITLE, ("", "without", *more), rows)


def compared(now: Mapping[str, int], before: Mapping[str, int], commit: str) -> tuple[Grid, list[str]]:
    """Return a table of both, and what grew by more than it may."""
    ratios = {way: instructions / before[way] if way in before else 1.0 for way, instructions in now.items()}
    rows = [
        [way, f"{now[way]:,}", f"{before[way]:,}" if way in before else "", bad(f"{ratio:.4f}", ratio > AT_MOST)]
        for way, ratio in ratios.items()
    ]
    grown = [f"{way}: more than {AT_MOST - 1:.1%} more than at {commit}" for way in ratios if ratios[way] > AT_MOST]
    return Grid(TITLE, ("", "now", commit, "ratio"), rows), grown


def of_commit(commit: str) -> dict[str, int]:
    """Count the same of another commit."""
    with tempfile.TemporaryDirectory(prefix="holeshot-before-") as folder:
        files = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=files, check=True)
        return counted(root=Path(folder))


def _before() -> str:
    changed = subprocess.run(
        ["git", "status", "--porcelain", "gateway", "providers"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    return "HEAD" if changed else "HEAD^"


def measured(run: Run) -> Told:
    """Count what is asked for."""
    if shutil.which("valgrind") is None:
        raise RuntimeError("it needs valgrind; on Debian: apt-get install valgrind")
    options = run.options
    grown: list[str] = []
    try:
        if options.viewer:
            grid = watched()
        elif options.tracing or options.levels:
            grid = with_more("traced") if options.tracing else with_more("client", "team", "end user")
        else:
            commit = options.against or _before()
            grid, grown = compared(counted(), of_commit(commit), commit)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"git: {(error.stderr or b'').decode().strip() or error}") from error
    return Told(facts=grid, grids=[grid], missed=grown)


def main() -> None:
    parser = command("micro.instructions", __doc__)
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit")
    parser.add_argument("--viewer", action="store_true", help="count what one viewer of live races adds instead")
    parser.add_argument("--tracing", action="store_true", help="count what traces add on the way of a call instead")
    parser.add_argument("--levels", action="store_true", help="count what each level of limits adds instead")
    carry_out(parser, measured)


if __name__ == "__main__":
    main()
