"""The gateway as a process: its socket, its signals, its workers, and the reloading of its configuration.

SIGTERM and SIGINT stop taking calls, let streams end within ``shutdown_grace_s``, flush and end; a second one ends
at once. SIGHUP, or a change of the file, reloads the configuration: an invalid one changes nothing and says so.
"""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog
import uvloop
from aiohttp import web

from gateway.app import Gateway
from gateway.ledger.database import check_schema, create_engine, is_sqlite
from gateway.ledger.errors import DatabaseUnreachableError, SchemaOutdatedError
from gateway.settings import ConfigurationError
from gateway.settings.checks import is_loopback
from gateway.settings.model import Settings
from gateway.watching import logs
from gateway.watching.metrics import forget_process
from gateway.workers import Supervisor

BACKLOG = 4096  # a crowd that calls at once is not made to knock again; the kernel may cap it (somaxconn)
KEEPALIVE_S = 75.0  # longer than load balancers keep idle connections, so that they close first
FILE_LOOK_S = 1.0
GC_THRESHOLD = 20_000  # objects; a call leaves nearly none behind that only the collector could free
NEEDS_RESTART = (
    "host",
    "port",
    "workers",
    "database_url",
    "redis_url",
    "spool_dir",
    "replica",
    "log_level",
    "log_format",
    "max_body_mb",
    "shutdown_grace_s",
)

Load = Callable[[], Settings]


@asynccontextmanager
async def listening(gateway: Gateway, sock: socket.socket, grace_s: float) -> AsyncIterator[None]:
    """Serve ``gateway`` on ``sock``; on leaving, let calls end within ``grace_s`` seconds.

    The one place where the runner is built: with ``handler_cancellation``, without which nobody would notice a client
    that hangs up, and its race would run on.
    """
    runner = web.AppRunner(
        gateway.application,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=KEEPALIVE_S,
        shutdown_timeout=grace_s / 2,  # aiohttp waits for it twice before it cancels
        handle_signals=False,
    )
    await runner.setup()
    try:
        await web.SockSite(runner, sock, backlog=BACKLOG).start()
        yield
    finally:
        gateway.context.draining = True
        await runner.cleanup()


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address; it listens once served.

    Raises:
        OSError: the address is taken or not of this machine.

    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)  # noqa: FBT003 - its only argument
    return sock


def run(settings: Settings, path: Path | None, load: Load) -> None:
    """Serve until told to stop. ``load`` reads the configuration again.

    Raises:
        OSError: the address cannot be bound.
        LedgerError: the database's schema is missing or old.

    """
    logs.configure(settings.log_level, settings.log_format)
    sock = bind(settings.host, settings.port)
    if settings.workers == 1:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, sock, path, load))
    else:
        _supervise(settings, sock, path, load)


async def _serve(settings: Settings, sock: socket.socket, path: Path | None, load: Load) -> None:
    stop = _StopSignals()
    async with AsyncExitStack() as stack:
        if not settings.providers:
            from gateway.demo import simulated_fleet, with_demo  # noqa: PLC0415 - only for those without a key

            base_urls = await stack.enter_async_context(simulated_fleet())
            settings = with_demo(settings, base_urls)
            given = load

            def load() -> Settings:
                fresh = given()
                return fresh if fresh.providers else with_demo(fresh, base_urls)

        await prepare_schema(settings.database_url.get_secret_value())
        gateway = Gateway(settings)
        await gateway.start()
        stack.push_async_callback(gateway.close)
        reloader = _Reloader(gateway, path, load)
        stack.push_async_callback(reloader.close)
        await stack.enter_async_context(listening(gateway, sock, settings.shutdown_grace_s))
        _settle_garbage()
        _announce(settings, sock)
        await stop.wait()
        structlog.get_logger().info("gateway.stopping", grace_s=settings.shutdown_grace_s)
    structlog.get_logger().info("gateway.stopped")


def _settle_garbage() -> None:
    """Keep the collector away from what lives as long as the process, and let it look at the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 20)


async def prepare_schema(url: str) -> None:
    """See that the ledger's tables are there: SQLite is migrated by itself, Postgres only by its operator.

    Raises:
        SchemaOutdatedError, SchemaTooNewError: Postgres has another schema; the message has the command to run.

    """
    engine = create_engine(url)
    try:
        await check_schema(engine)
    except SchemaOutdatedError:
        if not is_sqlite(engine.url):
            raise
        # In a process of its own: what migrating imports, serving never needs.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gateway.cli",
            "migrate",
            stdout=asyncio.subprocess.DEVNULL,
            env={**os.environ, "HOLESHOT_DATABASE_URL": url},
        )
        if await process.wait():
            raise
    except DatabaseUnreachableError as error:
        structlog.get_logger().warning("ledger.database_unreachable", error=str(error), effect="rows wait in the spool")
    finally:
        await engine.dispose()


class _StopSignals:
    """SIGTERM and SIGINT: the first one asks, the second one ends the process."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._heard, number)

    def _heard(self, number: signal.Signals) -> None:
        if self._asked.is_set():
            os._exit(128 + number)
        self._asked.set()

    async def wait(self) -> None:
        """Wait for the first."""
        await self._asked.wait()


class _Reloader:
    """Reloads the configuration on SIGHUP and when its file changes."""

    def __init__(self, gateway: Gateway, path: Path | None, load: Load) -> None:
        self._gateway = gateway
        self._path = path
        self._load = load
        self._host = gateway.context.settings.host  # what the socket is bound to, whatever the file says later
        self._log = structlog.get_logger()
        self._wanted = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._wanted.set)
        self._task = loop.create_task(self._run())

    async def close(self) -> None:
        """Stop looking."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        seen = None  # the first look always reads: the file may have changed while we started
        while True:
            try:
                await asyncio.wait_for(self._wanted.wait(), FILE_LOOK_S)
            except TimeoutError:
                if self._state() == seen:
                    continue
            self._wanted.clear()
            seen = self._state()
            self._reload()

    def _state(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size

    def _reload(self) -> None:
        old = self._gateway.context.settings
        try:
            new = self._load()
        except ConfigurationError as error:
            for problem in error.problems:
                self._log.error("configuration.invalid", problem=str(problem), effect="the running one stays")
            return
        if new == old:
            return
        if not new.clients and not is_loopback(self._host):
            reason = f"clients cannot be removed while the gateway listens on {self._host}, which others can reach"
            self._log.error("configuration.invalid", problem=reason, effect="the running one stays")
            return
        restart = [name for name in NEEDS_RESTART if getattr(new, name) != getattr(old, name)]
        if restart:
            self._log.warning("configuration.needs_restart", settings=restart)
        kept = {name: getattr(old, name) for name in restart}
        try:
            self._gateway.reload(new.model_copy(update=kept))  # so that what is told of the settings is true
        except ValueError as error:
            self._log.error("configuration.invalid", problem=str(error), effect="the running one stays")
            return
        self._log.info("configuration.reloaded", models=len(new.models), providers=len(new.providers))


def _announce(settings: Settings, sock: socket.socket) -> None:
    host, port = sock.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    log = structlog.get_logger()
    log.info(
        "gateway.started", url=url, models=list(settings.models), providers=list(settings.providers), pid=os.getpid()
    )
    if sys.stderr.isatty() or all(name.startswith("sim-") for name in settings.providers):
        from gateway.welcome import welcome  # noqa: PLC0415 - a person is there to read it

        sys.stderr.write(welcome(settings, url))
        sys.stderr.flush()


def _supervise(settings: Settings, sock: socket.socket, path: Path | None, load: Load) -> None:
    """Run the workers as child processes, once it is certain that they can start."""
    with asyncio.Runner() as runner:
        runner.run(prepare_schema(settings.database_url.get_secret_value()))
    Supervisor(lambda: _work(settings, sock, path, load), settings.workers, on_death=forget_process).run()


def _work(settings: Settings, sock: socket.socket, path: Path | None, load: Load) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, sock, path, load))
