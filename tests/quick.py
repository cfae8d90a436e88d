"""What a change needs first, within a minute: ``make quick``. Linters, types, and the unit tests nearest to the change.

Changed is what differs from main, committed or not. Nearest are changed tests, then unit tests that import
a changed module themselves. No servers are started. ``make test`` is still what must pass.
"""

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
WITHIN_S = 60.0
TESTS_AT_ONCE = 12  # files, of one run of pytest: the time left is looked at between runs
UNIT = ("strict_vendors/tests", "tests/unit")
ALWAYS = ("tests/unit/test_house.py",)
CHECKS = (("ruff", "format", "--check", "."), ("ruff", "check", "."), ("lint-imports",), ("mypy",))


def changed() -> list[str]:
    """Return the Python files that differ from main, or from the commit before where there is nothing else."""
    for since in ("main", "HEAD~1"):
        told = _git("diff", "--name-only", "--diff-filter=d", since) + _git(
            "ls-files", "--others", "--exclude-standard"
        )
        files = sorted({line for line in told if line.endswith(".py")})
        if files:
            return files
    return []


def nearest(files: Sequence[str]) -> list[str]:
    """Return test files to run, those that changed first."""
    tests = [file for file in files if re.match(rf"(?:{'|'.join(UNIT)})/.*test_\w+\.py$", file)]
    modules = [file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in files]
    if modules:
        named = re.compile(rf"^(?:from|import) (?:{'|'.join(map(re.escape, modules))})\b", re.MULTILINE)
        unit = [path for room in UNIT for path in sorted((ROOT / room).rglob("test_*.py"))]
        tests += [str(each.relative_to(ROOT)) for each in unit if named.search(each.read_text(encoding="utf-8"))]
    return list(dict.fromkeys([*tests, *ALWAYS]))


def main() -> None:
    """Run from the command line; the exit code is 1 when something fails."""
    began = time.monotonic()
    files = changed()
    tests = nearest(files)
    _say(f"{len(files)} Python files changed; {len(tests)} files of unit tests are nearest")
    good = True
    for name, *arguments in CHECKS:
        good &= _run([str(Path(sys.executable).with_name(name)), *arguments])
    done = 0
    while done < len(tests) and time.monotonic() - began < WITHIN_S:
        good &= _run([sys.executable, "-m", "pytest", "--maxfail", "5", *tests[done : done + TESTS_AT_ONCE]])
        done += TESTS_AT_ONCE
    left = f"; {len(tests) - done} files of tests were left to make test" if done < len(tests) else ""
    _say(f"{'good' if good else 'FAILED'} after {time.monotonic() - began:.0f} s{left}")
    sys.exit(not good)


def _git(*arguments: str) -> list[str]:
    return subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=False, cwd=ROOT
    ).stdout.splitlines()


def _run(command: Sequence[str]) -> bool:
    _say(f"$ {' '.join([Path(command[0]).name, *command[1:]])}")
    return subprocess.run(command, check=False, cwd=ROOT).returncode == 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
