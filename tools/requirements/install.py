"""Install the packages of a lock file, and show the progress: ``python tools/requirements/install.py NAME``.

``NAME`` is ``runtime`` for ``tools/requirements/runtime.lock``, and so on. ``--needed`` installs what the configuration
needs beyond ``runtime.lock``. It needs only pip and the standard library: it runs before anything is installed.
"""

import os
import re
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# Compiling would take a third of the time and a quarter of the disk, mostly for modules that are never imported.
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-compile", "--progress-bar=off")
_PIN = re.compile(r"^([\w.-]+)==([^\s;\\]+)", re.MULTILINE)
_FOUND = re.compile(r"^Collecting ([\w.-]+)")
_WRITING = "Installing collected packages: "


def main(name: str) -> int:
    """Install the lock ``name``, or with ``--needed`` litellm if a provider needs it. Return pip's exit code."""
    if name != "--needed":
        return install(name)
    from providers.upstreams.extras import has_litellm  # noqa: PLC0415 - its packages are installed only with --needed

    if has_litellm() and _installed("litellm") == _pins("litellm")["litellm"]:
        return 0
    if not (users := _users_of_litellm()):
        return 0
    _say(f"{', '.join(users)} {'is' if len(users) == 1 else 'are'} called through litellm, which is not here yet.")
    return install("litellm")


def install(name: str) -> int:
    """Install a lock; return pip's exit code."""
    missing = _missing(name)
    _say(f"Installing up to {len(missing)} packages, as tools/requirements/{name}.lock has them: downloading ...")
    began_s = time.monotonic()
    pip = subprocess.Popen(
        [*_PIP, "--require-hashes", "-r", str(FOLDER / f"{name}.lock")],
        stdout=subprocess.PIPE,
        text=True,
    )
    found = 0
    assert pip.stdout is not None  # it is a pipe
    for line in pip.stdout:
        if match := _FOUND.match(line):
            found += 1
            _show(f"  {found} of {len(missing)}: {match[1]}")
        elif line.startswith(_WRITING):
            _show("")
            _say(f"  downloaded in {time.monotonic() - began_s:.0f} s, writing {line.count(',') + 1} packages ...")
    code = pip.wait()
    _show("")
    if code == 0:
        _say(f"  {len(missing) - len(_missing(name))} packages installed in {time.monotonic() - began_s:.0f} s.")
    return code


def _missing(name: str) -> list[str]:
    """Return the packages not installed in the lock's version; some may be for another Python or platform."""
    return [each for each, pinned in _pins(name).items() if _installed(each) != pinned]


def _pins(name: str) -> dict[str, str]:
    return dict(_PIN.findall((FOLDER / f"{name}.lock").read_text(encoding="utf-8")))


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _users_of_litellm() -> list[str]:
    """Return the providers that need litellm; none if the configuration cannot be read, which ``serve`` reports."""
    from gateway.settings import ConfigurationError, locate  # noqa: PLC0415 - likewise
    from gateway.settings.loader import through_litellm  # noqa: PLC0415 - likewise

    try:
        return through_litellm(locate(None, os.environ), os.environ)
    except ConfigurationError:
        return []


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _show(text: str) -> None:
    """Replace the progress line, which is only shown in a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(f"\r\x1b[K{text}")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
