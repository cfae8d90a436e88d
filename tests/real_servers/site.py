"""A running server: its folder, its ports, its process, and how it is started, told to reload, killed and ended."""

import asyncio
import os
import pwd
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import trustme

from tests.real_servers.watched import Way
from tests.support.servers import LAUNCHER, free_port

HTTP1, HTTP1_TLS, HTTP2, HTTP2_TLS = Way("1.1", False), Way("1.1", True), Way("2", False), Way("2", True)  # noqa: FBT003 - a way has two parts
AUTO_TLS = Way("auto", True)  # noqa: FBT003 - likewise
ALL_WAYS = (HTTP1, HTTP1_TLS, HTTP2, HTTP2_TLS, AUTO_TLS)

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 5.0
_LOOK_EVERY_S = 0.02


class ServerFailedError(Exception):
    """A server does not start, or ends by itself; the message holds its last words."""


class Limits(NamedTuple):
    """What the server is configured to end connections for; None: nothing in reach."""

    requests: int | None = None  # on one connection
    idle_s: int | None = None


class Site:
    """Where a server runs, and what its configuration is made of."""

    def __init__(self, folder: Path, application_port: int, authority: trustme.CA, limits: Limits) -> None:
        self.folder = folder
        self.application_port = application_port
        self.limits = limits
        self.certificate = folder / "server.pem"  # with its key
        self.ports = {way: free_port() for way in (HTTP1, HTTP1_TLS, HTTP2, HTTP2_TLS)}
        self.ports[AUTO_TLS] = self.ports[HTTP2_TLS]
        self.log = folder / "server.log"
        self.proxies: Mapping[str, str] = {}  # what the client's environment says
        self._authority = authority
        issued = authority.issue_cert("localhost", "127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(self.certificate)

    def trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self._authority.configure_trust(context)
        return context

    def write(self, name: str, text: str) -> Path:
        """Write a file of the configuration."""
        path = self.folder / name
        path.write_text(text)
        return path

    def folders(self, *names: str) -> None:
        for name in names:
            (self.folder / name).mkdir(exist_ok=True)

    def hand_over(self, user: pwd.struct_passwd) -> None:
        """Let ``user`` own all of it."""
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid)


class Process:
    """A server's process, and those that it started: a group of their own."""

    def __init__(self, command: list[str], site: Site, user: pwd.struct_passwd | None, ports: set[int]) -> None:
        self._command = command
        self._site = site
        self._user = user
        self._ports = ports
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it and wait until it listens.

        Raises:
            ServerFailedError: it does not.

        """
        user = "" if self._user is None else f"{self._user.pw_uid}:{self._user.pw_gid}"
        with self._site.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-c", LAUNCHER, user, str(int(signal.SIGTERM))),
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._site.folder,
                start_new_session=True,
            )
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
        for port in self._ports:
            while not _listens(port):
                if self._process.returncode is not None or asyncio.get_running_loop().time() > deadline:
                    raise ServerFailedError(f"{self._command[0]} does not listen: {self._last_words()}")
                await asyncio.sleep(_LOOK_EVERY_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the first process."""
        assert self._process is not None
        self._process.send_signal(number)

    async def kill(self) -> None:
        """End all of it with SIGKILL, now."""
        assert self._process is not None
        self._kill_group()
        await self._process.wait()

    async def stop(self) -> None:
        """End it, by force if it lingers."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT_S)
        self._kill_group()
        await self._process.wait()

    def _kill_group(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _last_words(self) -> str:
        logs = [self._site.log, self._site.folder / "error.log"]
        return " … ".join(log.read_text(errors="replace")[-1500:].strip() for log in logs if log.exists())


@asynccontextmanager
async def site(application_port: int, authority: trustme.CA, limits: Limits) -> AsyncIterator[Site]:
    """Make the folder of a server; it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="holeshot-server-", ignore_cleanup_errors=True) as folder:
        yield Site(Path(folder), application_port, authority, limits)


def unprivileged_user() -> pwd.struct_passwd | None:
    """Return who runs a server when we are root: several refuse to serve as root."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam("nobody")
    return None


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
