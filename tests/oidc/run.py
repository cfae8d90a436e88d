"""Sign in to the page, and use tokens as keys, at a certified provider: ``make test WHAT=oidc`` runs this.

``oidc-provider`` of npm, as package-lock.json pins it, is installed into ``var/oidc`` with ``npm ci``. Without node or
npm it says so and ends with 0.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
VAR = ROOT / "var" / "oidc"


def main() -> int:
    """Run the tests; return the exit code."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        print("skipped: the tests at a certified provider, as there is no node or npm")  # noqa: T201 - for who runs it
        return 0
    VAR.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, VAR / name)
    npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(npm, cwd=VAR, check=True)
    command = [sys.executable, "-m", "pytest", str(HERE / "test_certified.py"), "--verbose", *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "OIDC_FOLDER": str(VAR)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
