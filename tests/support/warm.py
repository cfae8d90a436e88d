"""The command ``holeshot`` as a process that need not import anything: a warm parent forks it.

A gateway takes 0.7 s of CPU to import what it is made of. One parent a test process imports it once, each command is
a fork of that, with its own arguments, environment, folder and files. Not for tests of the process itself: how it is
started, its warnings, workers (which read the environment as they import), packages.
"""

import array
import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

# As of pytest's own process (pyproject.toml): what Python or a library will drop is an error.
DEPRECATED = ("-W", "error::DeprecationWarning", "-W", "error::PendingDeprecationWarning")
_MOST_BYTES = 2**20  # of a request: arguments and an environment


class Asked(TypedDict):
    """What a fork is told."""

    arguments: list[str]
    cwd: str
    env: dict[str, str]


class WarmProcess:
    """A forked command, with what tests use of ``asyncio.subprocess.Process``."""

    def __init__(self, pid: int, stderr: asyncio.StreamReader | None) -> None:
        self.pid = pid
        self.stderr = stderr
        self.returncode: int | None = None
        self.ended = asyncio.Event()

    async def wait(self) -> int:
        """Return the exit code, or minus the number of the signal that ended it."""
        await self.ended.wait()
        assert self.returncode is not None
        return self.returncode

    async def communicate(self) -> tuple[None, bytes]:
        """Return what it has written to its standard error, when it has ended."""
        said = b"" if self.stderr is None else await self.stderr.read()
        await self.wait()
        return None, said

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class Used:
    """What the forks of this process have used."""

    cpu_s = 0.0  # of those that have ended
    started = 0


used = Used()
_parent: tuple[socket.socket, subprocess.Popen[bytes]] | None = None


def _request() -> socket.socket:
    """Return the socket to the warm parent, which ends with this process."""
    global _parent  # noqa: PLW0603 - one for each test process, made at the first use
    if _parent is None or _parent[1].poll() is not None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", *DEPRECATED, __file__, str(its.fileno())]
        _parent = ours, subprocess.Popen(command, pass_fds=[its.fileno()])
        its.close()
    return _parent[0]


async def forked(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], stderr: int = asyncio.subprocess.PIPE
) -> WarmProcess:
    """Run ``holeshot`` with ``arguments``; ``stderr`` is a file descriptor, or PIPE."""
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe() if stderr == asyncio.subprocess.PIPE else (None, stderr)
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked: Asked = {"arguments": list(arguments), "cwd": str(cwd), "env": dict(env)}
    passed = array.array("i", [its.fileno(), writing])
    _request().sendmsg([json.dumps(asked).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
    its.close()
    ours.setblocking(False)  # noqa: FBT003 - its only argument
    stream = None
    if reading is not None:
        os.close(writing)
        stream = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading, "rb"))
    used.started += 1
    process = WarmProcess(int(await loop.sock_recv(ours, 64)), stream)

    def ended() -> None:
        code, _, cpu_s = ours.recv(64).decode().partition(" ")
        loop.remove_reader(ours)
        ours.close()
        used.cpu_s += float(cpu_s or 0)
        process.returncode = int(code or -signal.SIGKILL)  # nothing is said: the parent itself was ended
        process.ended.set()

    loop.add_reader(ours, ended)
    return process


# In the warm parent.


def _warm(control: socket.socket) -> None:
    """Import what the command needs, and fork at each request, until the tests' process has closed its end."""
    from gateway.cli import serve  # noqa: PLC0415 - imported by the parent alone
    from gateway.core.tasks import collect_less  # noqa: PLC0415 - likewise

    collect_less()
    serve._import_without("rich", "structlog")
    serve._import_without("opentelemetry", "redis")
    import gc  # noqa: PLC0415 - likewise

    import gateway.server.server  # noqa: F401, PLC0415 - the whole of it

    gc.freeze()
    waiting: dict[int, socket.socket] = {}
    wakes, wake = socket.socketpair()
    wake.setblocking(False)  # noqa: FBT003 - its only argument
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([control, wakes], [], [])
        if wakes in ready:
            wakes.recv(4096)
            _report(waiting)
        if control in ready:
            asked, rights, _, _ = control.recvmsg(_MOST_BYTES, socket.CMSG_SPACE(8))
            if not asked:
                break
            files = array.array("i")
            files.frombytes(rights[0][2])
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (control, wakes, wake, *waiting.values()):
                    each.close()
                _become(json.loads(asked), *files)
            os.close(files[1])
            waiting[pid] = socket.socket(fileno=files[0])
            waiting[pid].send(str(pid).encode())
    for pid in waiting:
        os.kill(pid, signal.SIGKILL)


def _report(waiting: dict[int, socket.socket]) -> None:
    for pid in [*waiting]:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            teller = waiting.pop(pid)
            with suppress(OSError):  # whoever asked has gone
                teller.send(f"{os.waitstatus_to_exitcode(status)} {usage.ru_utime + usage.ru_stime:.3f}".encode())
            teller.close()


def _become(asked: Asked, teller: int, stderr: int) -> None:
    """Run the command in the fork."""
    os.close(teller)
    os.dup2(stderr, 2)
    os.close(stderr)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = ["holeshot", *asked["arguments"]]
    from gateway.cli.main import main  # noqa: PLC0415 - likewise

    main()
    sys.exit()


if __name__ == "__main__":
    _warm(socket.socket(fileno=int(sys.argv[1])))
