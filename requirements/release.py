"""``make release``: sdist, wheel and a bill of materials in dist/, checked, and installed as a stranger would.

Nothing is published. It ends with 1 where something does not fit, and says what.
"""

import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.app.packaging.first_race import first_race

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


def main() -> None:
    """Build, check, install, and race once."""
    version = _version()
    shutil.rmtree(DIST, ignore_errors=True)
    _step("building sdist and wheel")
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(ROOT))
    wheel = DIST / f"holeshot-{version}-py3-none-any.whl"
    sdist = DIST / f"holeshot-{version}.tar.gz"
    _step("checking what is in them")
    _run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    _run(str(Path(sys.executable).parent / "check-wheel-contents"), str(wheel))
    with tempfile.TemporaryDirectory() as folder:
        _install(Path(folder), wheel, version)
    for path in sorted(DIST.iterdir()):
        _step(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB")


def _version() -> str:
    found = _VERSION.search((ROOT / "gateway" / "__init__.py").read_text(encoding="utf-8"))
    if found is None:
        sys.exit("gateway/__init__.py does not say the version")
    if f"\n## {found[1]}" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        sys.exit(f"CHANGELOG.md has no section {found[1]}")
    return found[1]


def _install(folder: Path, wheel: Path, version: str) -> None:
    """Install the wheel in an empty environment, list what that holds, and race once without a key."""
    _step("installing it in an empty environment")
    begun = time.monotonic()
    _run(sys.executable, "-m", "venv", str(folder / "empty"))
    python, holeshot = (folder / "empty" / "bin" / name for name in ("python", "holeshot"))
    _run(str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", str(wheel))
    installed_s = time.monotonic() - begun
    said = subprocess.run([str(holeshot), "version"], cwd=folder, check=True, capture_output=True, text=True).stdout
    if not said.startswith(f"holeshot {version} "):
        sys.exit(f"the installed command says: {said}")
    _run(str(python), "-m", "pip", "--disable-pip-version-check", "check")
    bill = DIST / f"holeshot-{version}.cdx.json"
    _run(sys.executable, "-m", "cyclonedx_py", "environment", "--output-file", str(bill), str(python))
    _step("racing")
    begun = time.monotonic()
    answer, told = first_race(holeshot, folder, {"HOME": str(folder), "PATH": os.environ["PATH"]})
    if answer.status != http.client.OK:
        sys.exit(f"the first answer is {answer.status}: {told}")
    size_mb = sum(path.stat().st_size for path in (folder / "empty" / "lib").rglob("*") if path.is_file()) / 1e6
    raced_s = time.monotonic() - begun
    _step(f"from pip install to the first raced answer: {installed_s:.0f} s + {raced_s:.1f} s; {size_mb:.0f} MB")


def _step(what: str) -> None:
    sys.stdout.write(f"-- {what}\n")
    sys.stdout.flush()


def _run(*command: str) -> None:
    ended = subprocess.run(command, cwd=ROOT, check=False)
    if ended.returncode:
        sys.exit(f"this failed: {' '.join(command)}")


if __name__ == "__main__":
    main()
