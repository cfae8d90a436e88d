"""``make release``: sdist, wheel and software bill of materials in dist/, checked, and installed as a user would.

Users have pip, pipx or uv, and any Python that pyproject.toml names. Each of these Pythons on the PATH (``python3.12``)
is tried with each of the three installers, in an empty environment, until it has run a race. For all of these Pythons,
also those that are not here, each package of the lock files must have a wheel. Nothing is published. The exit code is 1
after a message if a step fails.
"""

import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.first_race import asked, raced_in_process, serving

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
_PLATFORMS = "x86_64-manylinux_2_28", "aarch64-manylinux_2_28"
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


def main() -> None:
    """Build, check, install and race."""
    version = _version()
    _step("looking for a wheel of each locked package")
    _check_wheels()
    shutil.rmtree(DIST, ignore_errors=True)
    _step("building sdist and wheel")
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(ROOT))
    wheel = DIST / f"holeshot-{version}-py3-none-any.whl"
    sdist = DIST / f"holeshot-{version}.tar.gz"
    _step("checking what is in them")
    _run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    _run(str(Path(sys.executable).parent / "check-wheel-contents"), str(wheel))
    pythons = dict(_interpreters()) or {f"3.{sys.version_info.minor}": Path(sys.executable)}
    for name, install in _INSTALLERS.items():
        for minor, python in pythons.items():
            with tempfile.TemporaryDirectory() as folder:
                _race(f"Python {minor}, {name}", Path(folder), wheel, python, install)
    _write_bill(wheel, version)
    for path in sorted(DIST.iterdir()):
        _step(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB")


def _version() -> str:
    found = _VERSION.search((ROOT / "gateway" / "__init__.py").read_text(encoding="utf-8"))
    if found is None:
        sys.exit("gateway/__init__.py does not say the version")
    if f"\n## {found[1]}" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        sys.exit(f"CHANGELOG.md has no section {found[1]}")
    return found[1]


def _minors() -> list[str]:
    """Return the Pythons that pyproject.toml names, as ``3.11``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))


def _check_wheels() -> None:
    """End the program if a locked package has no wheel for one of the Pythons, on Linux with an x86-64 or ARM CPU."""
    install = [sys.executable, "-m", "uv", "--quiet", "--system-certs", "pip", "install", "--dry-run", "--no-deps"]
    with tempfile.TemporaryDirectory() as folder:
        for lock in sorted((ROOT / "tools" / "requirements").glob("*.lock")):
            wheels = [*install, "--only-binary", ":all:", "--target", folder, "--requirements", str(lock)]
            for platform in _PLATFORMS:
                for minor in _minors():
                    _run(*wheels, "--python-platform", platform, "--python-version", minor)


def _interpreters() -> Iterator[tuple[str, Path]]:
    """Yield each Python version that pyproject.toml names and the PATH has, with its interpreter."""
    for minor in _minors():
        found = shutil.which(f"python{minor}")
        usable = [str(found), "-c", "import ensurepip, venv"]
        if found is None or subprocess.run(usable, check=False, capture_output=True).returncode:
            _step(f"Python {minor} is not here, or without venv: not tried")
        else:
            yield minor, Path(found)


def _by_pip(python: Path, home: Path, wheel: Path) -> tuple[Path, Path]:
    """Install into a new environment; return the command, and the interpreter that can import the package."""
    _run(str(python), "-m", "venv", str(home))
    _run(str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", str(wheel))
    _run(str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "check")
    return home / "bin" / "holeshot", home / "bin" / "python"


def _by_pipx(python: Path, home: Path, wheel: Path) -> tuple[Path, Path]:
    """Like ``_by_pip``."""
    places = {"PIPX_HOME": str(home), "PIPX_BIN_DIR": str(home / "bin"), "PIPX_MAN_DIR": str(home / "man")}
    pipx = [sys.executable, "-m", "pipx", "install", "--quiet", "--backend", "pip"]
    _run(*pipx, "--python", str(python), str(wheel), **places)
    return home / "bin" / "holeshot", home / "venvs" / "holeshot" / "bin" / "python"


def _by_uv(python: Path, home: Path, wheel: Path) -> tuple[Path, Path]:
    """Like ``_by_pip``."""
    places = {"UV_TOOL_DIR": str(home), "UV_TOOL_BIN_DIR": str(home / "bin"), "UV_PYTHON_DOWNLOADS": "never"}
    # Its own list of authorities lacks a company's; pip and pipx take the system's too.
    uv = [sys.executable, "-m", "uv", "--quiet", "--system-certs", "tool", "install"]
    _run(*uv, "--python", str(python), str(wheel), **places)
    return home / "bin" / "holeshot", home / "holeshot" / "bin" / "python"


_INSTALLERS = {"pip": _by_pip, "pipx": _by_pipx, "uv": _by_uv}


def _race(
    what: str, folder: Path, wheel: Path, python: Path, install: Callable[[Path, Path, Path], tuple[Path, Path]]
) -> None:
    """Install the wheel in an empty environment, and race without a key: a whole answer, a stream, and in a program."""
    begun = time.monotonic()
    holeshot, inside = install(python, folder / "empty", wheel)
    installed_s = time.monotonic() - begun
    environ = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    begun = time.monotonic()
    with serving(holeshot, folder, environ) as port:
        answer, body = asked(port)
        if answer.status != http.client.OK:
            sys.exit(f"{what}: the first answer is {answer.status}: {body!r}")
        raced_s = time.monotonic() - begun
        _, streamed = asked(port, stream=True)
        if not streamed.endswith(b"data: [DONE]\n\n"):
            sys.exit(f"{what}: the stream is not whole: {streamed!r}")
        printed = raced_in_process(inside, folder, environ, port)
        if not printed.startswith("2 "):
            sys.exit(f"{what}: holeshot.race did not race two: {printed}")
    size_mb = sum(path.stat().st_size for path in (folder / "empty").rglob("*") if path.is_file()) / 1e6
    _step(f"{what}: installed in {installed_s:.0f} s, first raced answer {raced_s:.1f} s later; {size_mb:.0f} MB")


def _write_bill(wheel: Path, version: str) -> None:
    """Write the bill of materials of a new environment with the wheel, and check the version the command prints."""
    with tempfile.TemporaryDirectory() as folder:
        holeshot, python = _by_pip(Path(sys.executable), Path(folder) / "empty", wheel)
        line = subprocess.run([str(holeshot), "version"], cwd=folder, check=True, capture_output=True, text=True).stdout
        if not line.startswith(f"holeshot {version} "):
            sys.exit(f"the installed command says: {line}")
        bill = DIST / f"holeshot-{version}.cdx.json"
        _run(sys.executable, "-m", "cyclonedx_py", "environment", "--output-file", str(bill), str(python))


def _step(what: str) -> None:
    sys.stdout.write(f"-- {what}\n")
    sys.stdout.flush()


def _run(*command: str, **environ: str) -> None:
    ended = subprocess.run(command, cwd=ROOT, check=False, env={**os.environ, **environ})
    if ended.returncode:
        sys.exit(f"this failed: {' '.join(command)}")


if __name__ == "__main__":
    main()
