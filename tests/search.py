"""Searches what ``make test`` runs a fixed part of, with other seeds: ``make test WHAT=search``, for ``SECONDS``.

Each seed draws other schedules, examples of Hypothesis, rules, snippets and patterns. The first failure ends the
search, with the command that repeats it; whoever mends it puts the case among those that always run.
"""

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEARCHING = re.compile(r"^from (?:tests\.support\.searched|hypothesis) import ", re.MULTILINE)
USUAL_S = 600.0


def files() -> list[str]:
    """Return the test files that a seed changes, benchmarks' own tests among them."""
    tests = (path for room in ("tests", "strict_vendors", "benchmarks") for path in (ROOT / room).rglob("test_*.py"))
    found = (path for path in tests if SEARCHING.search(path.read_text(encoding="utf-8")))
    return sorted(str(path.relative_to(ROOT)) for path in found if "tests/fuzz" not in path.as_posix())


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run from the command line; the exit code is 1 when something was found."""
    seconds = float(os.environ.get("SECONDS") or USUAL_S)
    first = int(os.environ.get("SEED") or random.SystemRandom().randrange(1_000_000))
    began, seed = time.monotonic(), first
    jobs = os.environ.get("JOBS") or "2"
    while seed == first or time.monotonic() - began < seconds:
        _say(f"seed {seed}")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", jobs, "--dist", "loadfile", *files()]
        if subprocess.run(command, cwd=ROOT, env={**os.environ, "SEED": str(seed)}, check=False).returncode:
            _say(f"found with seed {seed}; again: make test WHAT=search SECONDS=1 SEED={seed}")
            return 1
        seed += 1
    _say(f"nothing found with {seed - first} seeds, from {first} on")
    return 0


if __name__ == "__main__":
    sys.exit(main())
