"""Counts the instructions of a call, which do not depend on the clock, and fails when they grew: a guard per commit.

The hot path runs under callgrind, counting from the end of a warm-up. What the driver and the mock take, counted alone,
is taken off. The figures to hold it against are in ``instructions.json``; other builds of Python and other processors
have others, so those of one machine say nothing about another.
"""

import argparse
import contextlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import msgspec
from rich.table import Table

from benchmarks.harness.gateways import WAYS
from benchmarks.harness.report import console, described, grid
from benchmarks.harness.servers import ROOT

KNOWN = Path(__file__).parent / "instructions.json"
WARM_UP_CALLS, CALLS = 60, 200
AT_MOST = 1.1  # of what is known
_LAUNCH = "from benchmarks.micro import ticking; ticking.install(); from benchmarks.micro.counted import main; main()"


class Counts(msgspec.Struct, frozen=True):
    """Instructions per call of each way, and what they were counted with."""

    machine: str
    python: str
    instructions: Mapping[str, int]


class Callgrind:
    """A process under callgrind that obeys lines. Made by ``running``."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._dumps = 0

    def obey(self, line: str) -> None:
        """Have it carry out ``line``.

        Raises:
            RuntimeError: it ended.

        """
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
def running(*arguments: str) -> Iterator[Callgrind]:
    """Run the counted process with ``arguments`` under callgrind until the block ends."""
    with tempfile.TemporaryDirectory(prefix="holeshot-instructions-") as name:
        folder = Path(name)
        callgrind = ["--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder / 'callgrind'}"]
        command = ["valgrind", *callgrind, sys.executable, "-c", _LAUNCH, str(folder), *arguments]
        root = str(ROOT)
        environment = {**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        with (folder / "log").open("wb") as log, _started(command, environment, log) as process:
            yield Callgrind(process, folder)


@contextlib.contextmanager
def _started(command: list[str], environment: Mapping[str, str], log: IO[bytes]) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def counted(*arguments: str) -> Counts:
    """Count, in a process with ``arguments``.

    Raises:
        RuntimeError: a call went wrong.

    """
    instructions = {}
    with running(*arguments) as process:
        for way in WAYS:
            totals = {}
            for subject in ("direct", "gateway"):
                process.obey(f"{subject} {way} {WARM_UP_CALLS}")
                totals[subject] = process.count(f"{subject} {way} {CALLS}")
            instructions[way] = round((totals["gateway"] - totals["direct"]) / CALLS)
    return Counts(platform.machine(), platform.python_version(), instructions)


def watched() -> Table:
    """Count with and without somebody who looks at the calls live; return a table.

    Raises:
        RuntimeError: a call went wrong.

    """
    made = grid("Instructions per call", ("", "nobody looks", "one viewer", "added"), (), caption=described())
    with running() as process:
        counts: dict[str, list[float]] = {}
        for subject in ("direct", "gateway", "gateway"):
            if "race" in counts and len(counts["race"]) == len(("direct", "gateway")):
                process.obey("watch - 0")
            for way in WAYS:
                process.obey(f"{subject} {way} {WARM_UP_CALLS}")
                counts.setdefault(way, []).append(process.count(f"{subject} {way} {CALLS}") / CALLS)
    for way, (direct, alone, looking) in counts.items():
        added = (looking - alone) / (alone - direct)
        made.add_row(way, f"{alone - direct:,.0f}", f"{looking - direct:,.0f}", f"{added:+.2%}")
    return made


def traced() -> Table:
    """Count with traces off and on; return a table.

    Raises:
        RuntimeError: a call went wrong.

    """
    made = grid("Instructions per call", ("", "traces off", "traces on", "added"), (), caption=described())
    off, on = counted().instructions, counted("traced").instructions
    for way, instructions in off.items():
        made.add_row(way, f"{instructions:,}", f"{on[way]:,}", f"{on[way] / instructions - 1:+.2%}")
    return made


def compared(now: Counts, known: Counts) -> tuple[Table, bool]:
    """Return a table of both, and whether nothing grew by more than it may."""
    made = grid("Instructions per call", ("", "now", "known", "ratio"), (), caption=described())
    good = True
    for way, instructions in now.instructions.items():
        before = known.instructions.get(way)
        ratio = instructions / before if before else 1.0
        good &= ratio <= AT_MOST
        colour = "red" if ratio > AT_MOST else "default"
        made.add_row(way, f"{instructions:,}", f"{before:,}" if before else "", f"[{colour}]{ratio:.3f}[/]")
    return made, good


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro.instructions", description=__doc__)
    parser.add_argument("--write", action="store_true", help="take today's figures as the ones to hold others against")
    parser.add_argument("--viewer", action="store_true", help="count what one viewer of live races adds instead")
    parser.add_argument("--tracing", action="store_true", help="count what traces add on the way of a call instead")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        parser.exit(2, "it needs valgrind; on Debian: apt-get install valgrind\n")
    try:
        if arguments.viewer:
            console().print(watched())
            return
        if arguments.tracing:
            console().print(traced())
            return
        now = counted()
    except RuntimeError as error:
        sys.exit(f"broken: {error}")
    known = msgspec.json.decode(KNOWN.read_bytes(), type=Counts) if KNOWN.exists() else now
    if (now.machine, now.python) != (known.machine, known.python):
        sys.stderr.write(f"known are those of Python {known.python} on {known.machine}: not to be compared\n")
        known = now
    table, good = compared(now, known)
    console().print(table)
    if arguments.write:
        KNOWN.write_bytes(msgspec.json.format(msgspec.json.encode(now)) + b"\n")
    elif not good:
        sys.exit(f"a call takes more than {AT_MOST - 1:.0%} more instructions than before; if it is worth it: --write")


if __name__ == "__main__":
    main()
