"""A fair client beside each attack of ``attacks.py``: ``make test WHAT=hostile``, or ``run.py NAME…``.

Each is tried against a gateway of its own with 512 MiB. What misses is tried once more: the machine may be busy.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.hostile.attacks import ATTACKS, Attack  # noqa: E402 - not before the path
from tests.hostile.beside import beside, share  # noqa: E402 - the same

SHAPES = (sys.executable, "-m", "pytest", "--numprocesses", "0", "--show-capture", "no", "tests/hostile/shapes.py")


def main() -> int:
    """Try them, then shapes of bodies and answers; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of attacks; all by default")
    parser.add_argument("--seconds", type=float, default=4.0, help="that each attack lasts (default 4)")
    options = parser.parse_args()
    chosen = [each for each in ATTACKS if not options.names or any(name in each.name for name in options.names)]
    _say(f"{'first tokens, ms':50} alone   p50   p95   p99  most  turn            MB  back s  answers")
    passed = sum(tried(each, options.seconds) or tried(each, options.seconds) for each in chosen)
    _say(f"{passed} of {len(chosen)} attacks cost nobody else anything")
    shapes = 0
    if not options.names:
        shapes = subprocess.run(SHAPES, cwd=ROOT, check=False).returncode
    return int(passed < len(chosen) or shapes != 0)


def tried(attack: Attack, seconds: float) -> bool:
    """Try ``attack`` once, print a line, and return whether all holds that should."""
    with tempfile.TemporaryDirectory(prefix="holeshot-hostile-") as folder:
        figures = asyncio.run(beside(attack, seconds, Path(folder)))
    waits_ms = (share(figures.beside_ms, each) for each in (0.5, 0.95, 0.99, 1))
    times_ms = (share(figures.alone_ms, 0.99), *waits_ms, max(figures.turns_ms.values(), default=0))
    times = "".join(f"{each:6.0f}" for each in times_ms)
    memory = " ".join(f"{each:.0f}" for each in figures.memory_mb)
    back = "never" if figures.back_s is None else f"{figures.back_s:.1f}"
    answers = ", ".join(f"{number} x {status}" for status, number in figures.answers.items() if number)
    _say(f"{f'{attack.who}: {attack.name}':50}{times}{memory:>14}{back:>8}  {answers}")
    for each in figures.missed():
        _say(f"    missed: {each}")
    return not figures.missed()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
