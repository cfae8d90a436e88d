"""The command ``holeshot`` as a process that need not import anything: a warm parent forks it.

A gateway takes 0.7 s of CPU to import what it is made of. One parent a test process imports it once, each command is
a fork of that, with its own arguments, environment, folder and files. ``forked`` runs it beside a test's loop;
``holeshot()`` is a command that does so wherever a program is started: in a shell, on a terminal. Not for tests of the
process itself: how it is started, its warnings, packages.
"""

import asyncio
import atexit
import gc
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict

# As of pytest's own process (pyproject.toml): what Python or a library will drop is an error.
DEPRECATED = ("-W", "error::DeprecationWarning", "-W", "error::PendingDeprecationWarning")
_LATER = ("yaml", "filelock", "keyring", "oauthlib.oauth2", "tomlkit")  # what ``serve`` and ``login`` import when asked
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
_SHIM = Path(__file__).with_name("warm_shim.py")
_parent: tuple[str, subprocess.Popen[bytes]] | None = None


def _address() -> str:
    """Return where the warm parent listens, which ends with this process."""
    global _parent  # noqa: PLW0603 - one for each test process, made at the first use
    if _parent is None or _parent[1].poll() is not None:
        address = f"holeshot-warm-{os.getpid()}-{secrets.token_hex(8)}"
        its, ours = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"\0{address}")
            listener.listen()
            passed = its, listener.fileno()
            command = [sys.executable, "-P", *DEPRECATED, __file__, *map(str, passed)]
            _parent = address, subprocess.Popen(command, pass_fds=passed)
        os.close(its)
        atexit.register(_end, ours, _parent[1])
    return _parent[0]


def _end(control: int, parent: "subprocess.Popen[bytes]") -> None:
    """End the warm parent, and wait for it: what is forgotten while it runs is a warning."""
    os.close(control)
    parent.wait()


def holeshot() -> tuple[str, ...]:
    """Return the command ``holeshot``, to be started as any process: forked by the warm parent, where there is one."""
    if hasattr(signal, "pidfd_send_signal"):  # on Linux, where sockets may have such names
        return (sys.executable, "-IS", str(_SHIM), _address())
    return (sys.executable, "-P", *DEPRECATED, "-m", "gateway.cli")


async def forked(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], stderr: int = asyncio.subprocess.PIPE
) -> WarmProcess:
    """Run ``holeshot`` with ``arguments``; ``stderr`` is a file descriptor, or PIPE."""
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe() if stderr == asyncio.subprocess.PIPE else (None, stderr)
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.connect(f"\0{_address()}")
    asked: Asked = {"arguments": list(arguments), "cwd": str(cwd), "env": dict(env)}
    socket.send_fds(ours, [json.dumps(asked).encode()], [0, 1, writing])
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


def _import() -> None:
    """Import what the command needs."""
    from gateway.cli import serve  # noqa: PLC0415 - imported by the parent alone
    from gateway.core.processes import collect_less  # noqa: PLC0415 - likewise

    collect_less()
    serve._import_without("rich", "structlog")
    serve._import_without("opentelemetry", "redis")
    import gateway.server.server  # noqa: F401, PLC0415 - the whole of it

    for name in _LATER:
        import_module(name)
    gc.freeze()


def _warm(control: int, listener: socket.socket) -> None:
    """Fork at each request, until the tests' process has closed its end."""
    running: dict[socket.socket, int] = {}  # processes by the connections of those who asked for them
    wakes, wake = socket.socketpair()
    wake.setblocking(False)  # noqa: FBT003 - its only argument
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    ready: list[Any] = []
    while control not in ready:
        watched: list[Any] = [control, listener, wakes, *running]
        ready, _, _ = select.select(watched, [], [])
        if wakes in ready:
            wakes.recv(4096)
            _report(running)
        for gone in running.keys() & ready:
            os.kill(running[gone], signal.SIGKILL)  # whoever asked was ended itself
        if listener in ready:
            asker, _ = listener.accept()
            asked, files, _, _ = socket.recv_fds(asker, _MOST_BYTES, 3)
            pid = os.fork() if asked else None
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(control)
                for each in (listener, wakes, wake, asker, *running):
                    each.close()
                _become(json.loads(asked), files)
            for file in files:
                os.close(file)
            if pid is not None:
                running[asker] = pid
                asker.send(str(pid).encode())
    for pid in running.values():
        os.kill(pid, signal.SIGKILL)


def _report(running: dict[socket.socket, int]) -> None:
    for asker, pid in [*running.items()]:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            with suppress(OSError):  # whoever asked has gone
                asker.send(f"{os.waitstatus_to_exitcode(status)} {usage.ru_utime + usage.ru_stime:.3f}".encode())
            asker.close()
            del running[asker]


def _become(asked: Asked, files: list[int]) -> None:
    """Run the command in the fork, with ``files`` as its standard input, output and error."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = ["holeshot", *asked["arguments"]]
    from gateway.cli.main import main  # noqa: PLC0415 - likewise

    try:
        main()
    except SystemExit as ended:
        if isinstance(ended.code, int) and threading.active_count() == 1:
            _end_at_once(ended.code)
        raise


def _end_at_once(code: int) -> None:
    """End as Python does, but for taking apart all that the parent has imported: 0.05 s of CPU a command."""
    with suppress(OSError):  # what it has written cannot be: Python says so, and has a code for it
        atexit._run_exitfuncs()
        gc.collect()  # what is left of the command itself
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _import()
    _warm(int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
