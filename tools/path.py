"""Traces a call, and prints its way through the house: the files it passes, in order, and the Python calls in each.

    python -m tools.path [stream|json|race] [--functions] [--json]

The process is the one whose instructions are counted (``counted``), without callgrind: warm, its clock ticks, nothing
runs in the background. Counted are calls of functions of the product and of its libraries, also those that are resumed;
the driver and the mock upstream are not. A line marks where the request has reached the upstream.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import msgspec
from rich.console import Console

from tests.support.measured.gateways import WAYS
from tests.support.measured.servers import ROOT

PRODUCT = ("gateway", "providers")
_LAUNCH = "from benchmarks.micro import ticking; ticking.install(); from benchmarks.micro.counted import main; main()"


class Passed(msgspec.Struct, frozen=True):
    """A function of the way, with how often it was called before the request was on the wire, and after."""

    file: str
    function: str
    before: int
    after: int


def traced(*ways: str) -> dict[str, list[Passed]]:
    """Return the functions that one call of each way passes, in the order in which it reaches them.

    Raises:
        RuntimeError: a call went wrong.

    """
    with tempfile.TemporaryDirectory(prefix="holeshot-path-") as folder:
        lines = "".join(f"gateway {way} {WAYS[way].calls // 3}\ntrace {way} 1\n" for way in ways)
        done = subprocess.run(
            [sys.executable, "-c", _LAUNCH, folder],
            input=lines,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        written = {way: Path(folder) / f"{way}.json" for way in ways}
        if not all(file.exists() for file in written.values()):
            raise RuntimeError(done.stderr[-2000:])
        return {way: msgspec.json.decode(file.read_bytes(), type=list[Passed]) for way, file in written.items()}


def is_product(file: str) -> bool:
    """Whether a file is one of ours."""
    return file.partition("/")[0] in PRODUCT


def python_calls(*ways: str) -> dict[str, int]:
    """Return how many functions of the product one call of each way calls or resumes.

    Raises:
        RuntimeError: a call went wrong.

    """
    return {
        way: sum(each.before + each.after for each in passed if is_product(each.file))
        for way, passed in traced(*ways).items()
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.path", description=__doc__)
    parser.add_argument("way", nargs="?", choices=sorted(WAYS), default="race", help="(default: %(default)s)")
    parser.add_argument("--functions", action="store_true", help="print the functions of each file, too")
    parser.add_argument("--json", action="store_true", help="print the sums alone, as JSON")
    arguments = parser.parse_args()
    try:
        [passed] = traced(arguments.way).values()
    except RuntimeError as error:
        sys.exit(f"broken: {error}")
    ours = [each for each in passed if is_product(each.file)]
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    for each in ours:
        before[each.file] += each.before
        after[each.file] += each.after
    early = [file for file in before if before[file]]
    sums = {
        "files": len(before),
        "files_before_the_wire": len(early),
        "calls": before.total() + after.total(),
        "calls_before_the_wire": before.total(),
        "calls_of_libraries": sum(each.before + each.after for each in passed) - before.total() - after.total(),
    }
    if arguments.json:
        print(json.dumps(sums))
        return
    said = Console()
    wire_shown = False
    for file in before:
        if not before[file] and not wire_shown:
            said.print("[bold]-- the request has reached the upstream --[/]")
            wire_shown = True
        said.print(f"{before[file]:5} {after[file]:5}  {file}", highlight=False)
        if arguments.functions:
            for each in ours:
                if each.file == file:
                    said.print(f"{each.before:5} {each.after:5}      {each.function}", highlight=False)
    said.print("  ".join(f"{name.replace('_', ' ')}: {number}" for name, number in sums.items()), highlight=False)


if __name__ == "__main__":
    main()
