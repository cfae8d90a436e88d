"""Look at the page with a real Chromium: ``make test`` runs this beside the other suites.

By hand: ``python tests/browser/run.py [PYTEST-ARGUMENTS]``. With ``install`` it only installs what it needs: nobody
may do so while other tests run in the same environment.

A process of its own, because Playwright's loop and pytest-asyncio's do not share one. Playwright comes from
tools/requirements/browser.lock, and Sphinx, for the documentation's search, from tools/requirements/docs.lock; a
browser is never downloaded. Without a Chromium it says so and ends with 0.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.browser.chromium import HOW, chromium  # noqa: E402 - the checkout is found by the line above

LOCKS = {"playwright": "browser.lock", "sphinx": "docs.lock"}  # by a module of each
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r")


def main() -> int:
    """Run the tests, or install what they need; return the exit code."""
    if chromium() is None:
        if sys.argv[1:] != ["install"]:
            print(f"skipped: the tests of the page, as there is no Chromium ({HOW})")  # noqa: T201 - for who runs it
        return 0
    for module, lock in LOCKS.items():
        if importlib.util.find_spec(module) is None:
            subprocess.run([sys.executable, *_PIP, str(ROOT / "tools" / "requirements" / lock)], check=True)
    asked = sys.argv[1:]
    if asked == ["install"]:
        return 0
    is_narrowed = any(Path(each.partition("::")[0]).exists() for each in asked)
    command = [sys.executable, "-m", "pytest", "-p", "tests.costs", *asked]
    command += [] if is_narrowed else [str(Path(__file__).parent)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
