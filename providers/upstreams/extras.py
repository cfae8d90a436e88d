"""Packages that only some configurations need: whether they are installed, and how they are installed here.

What is said never names this project to an index of packages, where another may own the name: it names the packages
themselves, for the Python that runs, or the lock of a checkout.
"""

import os
import shlex
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

# By extra, as in pyproject.toml, which an installed wheel does not have.
EXTRAS = {
    "bench": ("scipy>=1.16",),
    "litellm": ("litellm>=1.106", "google-auth>=2.40"),
    "oidc": ("pyjwt[crypto]>=2.13,<3",),
    "otel": ("opentelemetry-exporter-otlp-proto-http>=1.45,<2", "opentelemetry-sdk>=1.45,<2"),
    "login": ("filelock>=3.20", "keyring>=25", "oauthlib>=3.3", "tomlkit>=0.13"),
    "bedrock": ("botocore>=1.40",),
    "foundry": ("azure-identity>=1.20",),
    "vertex": ("google-auth>=2.40",),
}


@dataclass(frozen=True, slots=True)
class Installation:
    """Where the gateway runs from."""

    python: str  # as it is called here
    lock_installer: str | None  # the program of a checkout that installs a lock; None: this is no checkout
    locks: frozenset[str]  # those it has
    has_pip: bool
    is_image: bool


def installation(folder: Path = Path(__file__).parents[2], *, prefix: Path | None = None) -> Installation:
    """Return where the gateway runs from; ``folder`` is that of its packages."""
    requirements = folder / "tools" / "requirements"
    installer = requirements / "install.py"
    return Installation(
        python=_as_called(sys.executable),
        lock_installer=_as_called(str(installer)) if installer.is_file() else None,
        locks=frozenset(lock.stem for lock in requirements.glob("*.lock")),
        has_pip=find_spec("pip") is not None,
        is_image=((prefix or Path(sys.prefix)) / "container" / "health.py").is_file(),  # the Dockerfile puts it there
    )


def _as_called(path: str) -> str:
    """Return the path from the working folder if it is the shorter one."""
    try:
        return min(os.path.relpath(path), path, key=len)
    except (OSError, ValueError):  # the working folder is gone, or on another drive
        return path


def how_to_install(extra: str, here: Installation | None = None) -> str:
    """Return what to do for the packages of ``extra``, as the rest of a sentence: "run …"."""
    here = here or installation()
    if here.has_pip and not here.is_image and here.lock_installer is not None and extra in here.locks:
        return f"run {shlex.join((here.python, here.lock_installer, extra))}"
    return how_to_install_packages(EXTRAS[extra], here)


def how_to_install_packages(packages: tuple[str, ...], here: Installation | None = None) -> str:
    """Return what to do for ``packages``, as the rest of a sentence: "run …"."""
    here = here or installation()
    if here.is_image:
        command = f"python -m ensurepip && python -m pip install {shlex.join(packages)}"
        return f"build an image from this one, with the lines USER root, RUN {command}, USER 10001:10001"
    if here.has_pip:
        return f"run {shlex.join((here.python, '-m', 'pip', 'install', *packages))}"
    return f"run {shlex.join(('uv', 'pip', 'install', '--python', here.python, *packages))}"


def has_litellm() -> bool:
    """Whether litellm is installed. It is not imported for this check, which would take seconds."""
    return find_spec("litellm") is not None


def has_oidc() -> bool:
    """Whether the library that verifies tokens is installed. It is imported only where an issuer is configured."""
    return find_spec("jwt") is not None and find_spec("cryptography") is not None


def has_botocore() -> bool:
    """Whether botocore is installed. It is imported only where requests are signed."""
    return find_spec("botocore") is not None


def has_azure_identity() -> bool:
    """Whether azure-identity is installed. It is imported only when a token is needed."""
    try:
        return find_spec("azure.identity") is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def has_scipy() -> bool:
    """Whether scipy is installed, which `holeshot bench` needs. It is imported only there."""
    return find_spec("scipy") is not None


def has_google_auth() -> bool:
    """Whether google-auth is installed. It is imported only when a token is needed."""
    try:
        return find_spec("google.auth") is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def has_otel() -> bool:
    """Whether OpenTelemetry's exporter is installed. It is imported only where traces are on."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # one of its parent packages is missing
        return False
