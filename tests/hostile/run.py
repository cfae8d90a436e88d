"""A fair client beside each attack of ``attacks.py``: ``make test WHAT=hostile``, or ``run.py NAME…``.

Each is tried against a gateway of its own with 512 MiB. What misses is tried once more: the machine may be busy.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.hostile.attacks import ATTACKS, Attack  # noqa: E402 - not before the path
from tests.hostile.beside import Figures, beside  # noqa: E402 - the same


def main() -> int:
    """Try them, then shapes of bodies and answers; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of attacks; all by default")
    parser.add_argument("--seconds", type=float, default=4.0, help="that each attack lasts (default 4)")
    options = parser.parse_args()
    chosen = [each for each in ATTACKS if not options.names or any(name in each.name for name in options.names)]
    missed = 0
    _say(f"{'who: what':52}{'alone':>6}{'p50':>7}{'p99':>7}{'max ms':>8}{'turn ms':>9}{'MB':>15}{'back s':>8}  answers")
    for each in chosen:
        figures = tried(each, options.seconds)
        if figures.missed():
            _show(each, figures)
            figures = tried(each, options.seconds)
        _show(each, figures)
        missed += bool(figures.missed())
    _say(f"{len(chosen) - missed} of {len(chosen)} attacks cost nobody else anything")
    shapes = 0
    if not options.names:
        command = [sys.executable, "-m", "pytest", "-s", "--numprocesses", "0", "tests/hostile/test_shapes.py"]
        shapes = subprocess.run(command, cwd=ROOT, env={**os.environ, "SHAPES_S": "60"}, check=False).returncode
    return int(missed > 0 or shapes != 0)


def tried(attack: Attack, seconds: float) -> Figures:
    """Try ``attack`` once."""
    with tempfile.TemporaryDirectory(prefix="holeshot-hostile-") as folder:
        return asyncio.run(beside(attack, seconds, Path(folder)))


def _show(attack: Attack, figures: Figures) -> None:
    fair = figures.beside
    memory = f"{figures.before_mb:.0f} {figures.peak_mb:.0f} {figures.after_mb:.0f}"
    back = "never" if figures.back_s is None else f"{figures.back_s:.1f}"
    turn_ms = max(figures.turns_ms.values(), default=0.0)
    times = f"{figures.alone.share(0.99):6.0f}{fair.share(0.5):7.0f}{fair.share(0.99):7.0f}{fair.share(1):8.0f}"
    answers = ", ".join(f"{number} x {status}" for status, number in figures.answers.items() if number)
    _say(f"{f'{attack.who}: {attack.name}':52}{times}{turn_ms:9.0f}{memory:>15}{back:>8}  {answers}")
    for each in figures.missed():
        _say(f"    missed: {each}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
