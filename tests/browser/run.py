"""Look at the page with a real Chromium: ``make test`` runs this last.

By hand: ``python tests/browser/run.py [PYTEST-ARGUMENTS]``.

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
    """Run the tests; return the exit code."""
    if chromium() is None:
        print(f"skipped: the tests of the page, as there is no Chromium ({HOW})")  # noqa: T201 - for who runs it
        return 0
    for module, lock in LOCKS.items():
        if importlib.util.find_spec(module) is None:
            subprocess.run([sys.executable, *_PIP, str(ROOT / "tools" / "requirements" / lock)], check=True)
    asked = sys.argv[1:]
    is_narrowed = any(Path(each.partition("::")[0]).exists() for each in asked)
    everything = [str(Path(__file__).parent), "--numprocesses", "2", "--dist", "loadfile"]
    command = [sys.executable, "-m", "pytest", *asked, *([] if is_narrowed else everything)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
