"""Put defects into the product, one at a time, and see that the tests find each: ``make test WHAT=defects``.

Each is a line of the product written otherwise, in a copy of the checkout, and the files of ``make test`` that should
find it; all of them pass without a defect. ``NAMES="hold window"`` narrows it. The engine's own defects, which random
schedules have to find, are ``tests/schedules/mutations.py``; this runs all of those, too. Ends with 1 if one is missed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FAILED = 1  # pytest's exit code where tests have failed


class Defect(NamedTuple):
    """What is written otherwise, and who should find it."""

    name: str
    file: str
    right: str
    wrong: str
    finders: tuple[str, ...]


DEFECTS = (
    Defect(
        "a limit lets one amount too much through",
        "gateway/limits/quota.py",
        "self.used + self.held + amount <= self.top",
        "self.used + self.held <= self.top",
        ("tests/unit/limits",),
    ),
    Defect(
        "a limit keeps what an ended call has held",
        "gateway/limits/admission.py",
        "            quota.held -= amounts[counts]\n",
        "",
        ("tests/unit/limits",),
    ),
    Defect(
        "a revoked key works on",
        "gateway/keys/keys.py",
        "if row.revoked_at is not None:",
        "if row.revoked_at is not None and row.retires_at is not None:",
        ("tests/unit/keys",),
    ),
    Defect(
        "a known key is shown in an error",
        "providers/refusals/redaction.py",
        "    if secret_texts:\n        text = _without(text, secret_texts)\n",
        "",
        ("tests/unit/providers/refusals/inside/test_redaction.py",),
    ),
    Defect(
        "an unknown setting is taken for nothing",
        "gateway/settings/sections.py",
        'extra="forbid"',
        'extra="ignore"',
        ("tests/unit/settings",),
    ),
    Defect(
        "a cut loser is no sample",
        "gateway/steering/survival.py",
        "list(accumulate(n_events + cut for",
        "list(accumulate(n_events + 0 * cut for",
        ("tests/unit/steering/inside/test_estimator.py",),
    ),
    Defect(
        "a sum of errors forgets what it was",
        "gateway/ledger/sums.py",
        "do update set n = rollup_errors.n + excluded.n",
        "do update set n = excluded.n",
        ("tests/services/ledger/test_rollups.py",),
    ),
    Defect(
        "a tool call ends an answer of Gemini's as if it were cut",
        "providers/dialects/gemini/streams.py",
        '_FINISH_REASONS.get(reason, "STOP")',
        '_FINISH_REASONS.get(reason, "MAX_TOKENS")',
        ("tests/unit/providers/dialects/inside/test_gemini.py",),
    ),
    Defect(
        "one client reads another's conversation",
        "gateway/memory/answers.py",
        "        share = self._shares.setdefault(scope, _Share())\n",
        "        share = next(iter(self._shares.values()), None) or _Share()\n        self._shares[scope] = share\n",
        ("tests/unit/memory", "tests/app/gateway/responses/test_named_items.py"),
    ),
    Defect(
        "a loser's connection is closed instead of aborted",
        "providers/http/http1.py",
        "self._transport.abort()",
        "self._transport.close()",
        ("tests/unit/providers/http", "tests/app/http/test_cancelling.py", "tests/app/providers/test_abort.py"),
    ),
)


def main() -> int:
    """Run what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only defects with one of these words in their names")
    asked = parser.parse_args()
    chosen = [each for each in DEFECTS if not asked.names or any(word in each.name for word in asked.names)]
    missed = 0
    with copied() as checkout:
        for number, each in enumerate(chosen, 1):
            began = time.monotonic()
            is_found = found(each, checkout)
            missed += not is_found
            verdict = "found" if is_found else "MISSED"
            print(f"{number:2}/{len(chosen)} {verdict:7}{each.name} ({time.monotonic() - began:.0f} s)", flush=True)  # noqa: T201 - the result
        if not asked.names:
            code = tests(checkout, ("tests/schedules/test_mutations.py",), WHOLE="1")
            missed += code != 0
            print(f"      {'found' if code == 0 else 'MISSED':7}the engine's own (tests/schedules/mutations.py)")  # noqa: T201 - likewise
    return 1 if missed else 0


@contextmanager
def copied() -> Iterator[Path]:
    """Copy what git knows of the checkout."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="holeshot-defects-") as folder:
        for name in filter(None, files.split("\0")):
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).exists():
                shutil.copy2(ROOT / name, target)
        yield Path(folder)


def found(defect: Defect, checkout: Path) -> bool:
    """Tell whether tests fail with the defect.

    Raises:
        SystemExit: the tests could not run.

    """
    path = checkout / defect.file
    right = path.read_text(encoding="utf-8")
    path.write_text(right.replace(defect.right, defect.wrong), encoding="utf-8")
    try:
        code = tests(checkout, defect.finders, "-x")
    finally:
        path.write_text(right, encoding="utf-8")
    if code not in {0, FAILED}:
        raise SystemExit(f"{defect.name}: pytest ended with {code}")
    return code == FAILED


def tests(checkout: Path, files: tuple[str, ...], *options: str, **environ: str) -> int:
    """Run tests of the copy; return pytest's exit code."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", *options, *files]
    environment = {**os.environ, "PYTHONPATH": str(checkout), **environ}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in {0, FAILED}:
        print(done.stdout[-2000:], done.stderr[-2000:])  # noqa: T201 - why there is no result
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
