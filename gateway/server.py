"""The gateway as a process: start, signals, workers and shutdown.

After SIGTERM it reports for ``lame_duck_s`` that it is not ready, but still answers; after SIGINT it does not. Then it
closes its port, lets calls end within ``shutdown_grace_s``, flushes and ends; a second signal ends it at once. A worker
whose parent is killed stops as after SIGINT. SIGHUP, or a change of the file, reloads the configuration: an invalid one
is logged and changes nothing.
"""

import asyncio
import gc
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import structlog
import uvloop

from gateway import children
from gateway.app import Gateway
from gateway.connections.descriptors import descriptor_budget, raise_limit
from gateway.connections.listener import listening
from gateway.connections.ports import SharedPort, bind
from gateway.connections.tls import Certificate, open_context
from gateway.ingress.phase import Phase
from gateway.ledger.database import check_schema, create_engine, is_sqlite
from gateway.ledger.errors import DatabaseUnreachableError, SchemaOutdatedError
from gateway.lifeline import Lifeline
from gateway.reloading import Latest, Load, Reloader
from gateway.settings.model import Settings
from gateway.watching import logs
from gateway.watching.lines import Lines
from gateway.watching.metrics import forget_process
from gateway.workers import Supervisor

GC_THRESHOLD = 20_000  # objects; a call leaves almost none that only the collector can free


def run(settings: Settings, path: Path | None, load: Load) -> None:
    """Serve until stopped. ``load`` reads the configuration again.

    Raises:
        ListenError: the gateway cannot listen on the address.
        OSError: a system resource is missing.
        TlsError: the certificate or its key cannot be used.
        LedgerError: the database's schema is missing or old.

    """
    log = logs.configure(settings.log_level, settings.log_format)
    logs.take_standard_error(log)
    descriptors = raise_limit()
    structlog.get_logger().debug("gateway.descriptors", limit=descriptors, clients=descriptor_budget(descriptors))
    _look_for_authorities(os.environ.get("SSL_CERT_FILE"))
    if settings.tls is not None:
        open_context(settings.tls)  # before clients can connect, or workers are forked
    if settings.workers == 1:
        sock = bind(settings.host, settings.port)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, sock, path, load, lambda: _StopSignals(log)))
    else:
        _supervise(settings, SharedPort(settings.host, settings.port), path, load, log)


async def _serve(
    settings: Settings, sock: socket.socket, path: Path | None, load: Load, stop_signals: Callable[[], "_StopSignals"]
) -> None:
    stop = stop_signals()
    async with AsyncExitStack() as stack:
        if not settings.providers:
            from gateway.demo import simulated_fleet, with_demo  # noqa: PLC0415 - only for users without a key

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
        certificate = await _open(gateway, sock, settings, stack)
        reloader = Reloader(gateway, path, load, certificate)
        stack.push_async_callback(reloader.close)
        _settle_garbage()
        _announce(settings, sock)
        await stop.wait()
        await _lame_duck(gateway, stop, settings.shutdown_grace_s)
    structlog.get_logger().info("gateway.stopped")


async def _open(gateway: Gateway, sock: socket.socket, settings: Settings, stack: AsyncExitStack) -> Certificate | None:
    """Serve ``gateway`` on ``sock`` until the stack is left; return the certificate, if there is one."""
    certificate = None if settings.tls is None else Certificate(settings.tls)
    context = None if certificate is None else certificate.context
    connections = await stack.enter_async_context(listening(gateway, sock, settings.shutdown_grace_s, context))

    def use(context: ssl.SSLContext) -> None:
        connections.ssl_context = context

    if certificate is not None:
        certificate.on_change = use
    return certificate


async def _lame_duck(gateway: Gateway, stop: "_StopSignals", grace_s: float) -> None:
    """Continue to answer while reporting not to be ready, so that load balancers can stop sending calls."""
    duck_s = 0.0 if stop.is_urgent.is_set() else gateway.context.settings.lame_duck_s
    structlog.get_logger().info("gateway.stopping", lame_duck_s=duck_s, grace_s=grace_s)
    if duck_s:
        gateway.context.phase = Phase.LAME_DUCK
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.is_urgent.wait(), duck_s)


def _look_for_authorities(path: str | None) -> None:
    """Log if SSL_CERT_FILE cannot be used: OpenSSL ignores that silently."""
    if not path:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError as error:
        problem = f"SSL_CERT_FILE names {path}, which cannot be used: {error.strerror or 'it holds no certificate'}"
        effect = "providers with a private authority are not trusted; correct the variable, or unset it"
        structlog.get_logger().warning("tls.authorities_missing", problem=problem, effect=effect)


def _settle_garbage() -> None:
    """Exclude what lives as long as the process from garbage collection, and collect the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 20)


async def prepare_schema(url: str) -> None:
    """Check the ledger's tables: SQLite is migrated automatically, Postgres only by its operator.

    Raises:
        SchemaOutdatedError, SchemaTooNewError: Postgres has another schema; the message has the command to run.

    """
    engine = create_engine(url)
    try:
        await check_schema(engine)
    except SchemaOutdatedError:
        if not is_sqlite(engine.url):
            raise
        # In a child process: serving needs none of what migrating imports.
        process = await asyncio.create_subprocess_exec(
            *children.command("gateway.cli", "migrate"),
            stdout=asyncio.subprocess.DEVNULL,
            env={**children.environment(), "HOLESHOT_DATABASE_URL": url},
        )
        if await process.wait():
            raise
    except DatabaseUnreachableError as error:
        structlog.get_logger().warning("ledger.database_unreachable", error=str(error), effect="rows wait in the spool")
    finally:
        await engine.dispose()


class _StopSignals:
    """SIGTERM and SIGINT: the first one stops the process gracefully, the second one ends it.

    A worker ignores the second and leaves it to its parent, as a terminal or a supervisor may signal both. It also
    stops when its parent ends.
    """

    def __init__(self, log: Lines, lifeline: Lifeline | None = None) -> None:
        self._log = log
        self._is_worker = lifeline is not None
        self._is_asked = asyncio.Event()
        self.is_urgent = asyncio.Event()  # there is no load balancer, or the port is needed
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._hear, number)
        if lifeline is not None:
            lifeline.on_end(self._orphaned)

    def _hear(self, number: signal.Signals) -> None:
        if self._is_asked.is_set() and not self._is_worker:
            self._log.drain()
            os._exit(128 + number)
        if number == signal.SIGINT:
            self.is_urgent.set()
        self._is_asked.set()

    def _orphaned(self) -> None:
        structlog.get_logger().error("worker.orphaned", effect="it stops, as its parent process has ended")
        self._hear(signal.SIGINT)

    async def wait(self) -> None:
        """Wait for the first signal."""
        await self._is_asked.wait()


def _announce(settings: Settings, sock: socket.socket) -> None:
    host, port = sock.getsockname()[:2]
    url = f"http{'' if settings.tls is None else 's'}://{f'[{host}]' if ':' in host else host}:{port}"
    log = structlog.get_logger()
    log.info(
        "gateway.started", url=url, models=list(settings.models), providers=list(settings.providers), pid=os.getpid()
    )
    if sys.stderr.isatty() or all(name.startswith("sim-") for name in settings.providers):
        from gateway.welcome import welcome  # noqa: PLC0415 - only if a person reads it

        sys.stderr.write(welcome(settings, url))
        sys.stderr.flush()


def _supervise(settings: Settings, port: SharedPort, path: Path | None, load: Load, log: Lines) -> None:
    """Run the workers as child processes, after checking that they can start."""
    with asyncio.Runner() as runner:
        runner.run(prepare_schema(settings.database_url.get_secret_value()))
    latest = Latest(settings, path, load)

    def work(sock: socket.socket, lifeline: Lifeline) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(latest.settings, sock, path, load, lambda: _StopSignals(log, lifeline)))

    Supervisor(
        work,
        settings.workers,
        make_socket=port.make_socket,
        on_look=latest.look,
        on_reload=latest.read,
        on_stop=port.close,  # else clients could connect, and wait, after the last worker has closed its socket
        on_death=forget_process,
        at_exit=log.drain,
    ).run()
