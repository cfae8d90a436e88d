"""The gateway as a process: start, signals, workers and shutdown.

After SIGTERM it reports for ``lame_duck_s`` that it is not ready, but still answers; after SIGINT it does not. Then it
closes its port, lets calls end within ``shutdown_grace_s``, flushes and ends; a second signal ends it at once. A worker
whose parent is killed stops as after SIGINT. SIGHUP, or a change of the file, reloads the configuration: an invalid one
is logged and changes nothing.
"""

import asyncio
import errno
import gc
import os
import select
import signal
import socket
import ssl
import sys
import time
import warnings
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, date, datetime
from enum import EnumType
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, NoReturn

import msgspec
import structlog

from gateway import NEWEST, PYTHONS
from gateway.api import GatewayPhase
from gateway.app import Gateway, Runtime, check_redis
from gateway.core.processes import Lifeline, mask_signals
from gateway.core.tasks import pause
from gateway.core.terminal_text import counted, program
from gateway.ledger import prepare_schema
from gateway.overload import SHARE_FOR_ANSWERS, memory_limit, return_freed_memory
from gateway.server.listener import (
    REPLACED_S,
    Beats,
    SharedPort,
    Silence,
    WorkerPeers,
    bind,
    descriptor_budget,
    listening,
    raise_limit,
)
from gateway.server.reload import ConfigurationSource, Latest, Reloader, check_opens
from gateway.server.tls import Authorities, Certificate, open_context, problem_of_authorities
from gateway.settings import (
    Settings,
    is_pattern,
    leave_note,
    local_url,
    near_keys,
    remove_note,
    who_can_race,
)
from gateway.watching import LogLines, forget_process, logs
from providers import DatasheetTable, bound_memory, load_catalog
from providers.http import not_understood
from providers.simulator import are_demo

# The text shown when the gateway has started: commands to try it.


def welcome(
    settings: Settings, url: str, environ: Mapping[str, str] = MappingProxyType({}), *, has_file: bool = True
) -> str:
    """Return the commands to try, for the first model; ``environ`` may have keys under names that are not read.

    ``has_file``: whether there is a configuration file; else the keys in the environment decide.
    """
    model = next((name for name in settings.models if not is_pattern(name)), "PROVIDER/MODEL")
    needs_key = bool(settings.clients) or settings.keys == "database"
    authorization = ' \\\n  -H "authorization: Bearer $HOLESHOT_KEY"' if needs_key else ""
    api_key = 'os.environ["HOLESHOT_KEY"]' if needs_key else '"none"'
    python, holeshot = program("python"), program("holeshot")
    race = f'  {holeshot} race "Why race?"\n\n' if settings.models else ""  # without a model it needs a choice
    return f"""
{_who_races(settings, url, environ)}{"" if has_file else _without_file(settings)}{_who_calls(settings)}
Try it:

{race}  curl -N {url}/v1/chat/completions{authorization} \\
  -H 'content-type: application/json' \\
  -d '{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "Why race?"}}]}}'

{_installing(python)}  {python} - <<'PY'
import os
from openai import OpenAI
client = OpenAI(base_url="{url}/v1", api_key={api_key})
for chunk in client.chat.completions.create(
    model="{model}", stream=True, messages=[{{"role": "user", "content": "Why race?"}}]
):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
PY

Then ask which provider was fast:

  {holeshot} leaderboard{f" --url {url}" if not (url.startswith("http:") and url.endswith(":4000")) else ""}
  {holeshot} sql "select model, verdict, saved_per_call_ms from race_value"

"""  # noqa: S608 - text for people; the SQL in it is an example


def _installing(python: str) -> str:
    """Return the command that installs OpenAI's SDK, if it is missing; the gateway does not need it."""
    return "" if find_spec("openai") else f"  {python} -m pip install openai\n"


def _who_races(settings: Settings, url: str, environ: Mapping[str, str]) -> str:
    number = len(settings.providers)
    if are_demo(settings.providers):
        near = "".join(f"{each}\n" for each in near_keys(environ, load_catalog()))
        return (
            f"No provider keys were found, so {number} simulated providers race, over real HTTP on loopback.\n"
            "To use real providers, set for example GROQ_API_KEY and CEREBRAS_API_KEY, then run "
            f"`{program('holeshot')} init`.\n{near}"
            f"To see what racing saves, open {url} and send calls for a minute: there is a button.\n"
        )
    if not settings.models:
        return f"{counted(number, 'provider')} and no model: name deployments directly, as provider/model.\n"
    verb = "answers" if number == 1 else "answer"
    races = "".join(f"  {name} {can}\n" for name, can in who_can_race(settings).items())
    return f"{counted(number, 'provider')} {verb} for {counted(len(settings.models), 'model')}.\n{races}"


def _without_file(settings: Settings) -> str:
    """Return what to do where keys were found and no file."""
    if are_demo(settings.providers):
        return ""
    any_other = f"{next(iter(settings.providers))}/MODEL"
    return (
        f"There is no configuration file, so these are the models that `{program('holeshot')} init` would write for"
        f" your keys.\nAny other is named with its provider, as {any_other}; to have more names, run"
        f" `{program('holeshot')} init`, and edit the file.\n"
    )


def _who_calls(settings: Settings) -> str:
    if settings.keys == "file" or settings.clients:
        return ""
    return "Every call needs a key; `holeshot keys new NAME` makes one, also while the gateway runs.\n"


# Worker processes: forked from one parent, restarted when they die or stand still, signalled and ended with it.

SHORT_LIFE_S = 5.0  # a worker that dies sooner has probably failed to start
PAUSE_FIRST_S, PAUSE_MAX_S = 0.5, 30.0  # and is restarted after a pause, doubled each time
LOOK_S = 1.0

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_HANDLED = (*_PASSED_ON, signal.SIGCHLD)


class Supervisor:
    """The parent of ``number`` workers, each of which runs ``work``; it serves nothing itself.

    A worker must end by itself when its lifeline ends. The first signal to stop is passed on to all workers; at the
    second one they are killed.
    """

    def __init__(
        self,
        work: Callable[[int, Lifeline], None],
        beats: Beats,
        *,
        on_look: Callable[[], None],
        on_reload: Callable[[], None],
        on_stop: Callable[[], None],
        on_death: Callable[[int], None],
        at_exit: Callable[[], object],
    ) -> None:
        """``work`` is called in each worker with its place, from 0 up to the number of ``beats``.

        The parent calls ``on_look`` once a second, ``on_reload`` after SIGHUP, ``on_stop`` before workers are told to
        stop, ``on_death`` when one has died. Each process calls ``at_exit`` at its very end.
        """
        self._work = work
        self._on_look = on_look
        self._on_reload = on_reload
        self._on_stop = on_stop
        self._on_death = on_death
        self._at_exit = at_exit
        self._beats = beats
        self._silence = Silence(beats, most_s=1.5 * LOOK_S)
        self._lifeline = Lifeline()
        self._born_at: dict[int, float] = {}  # by process id
        self._places: dict[int, int] = {}  # by process id
        self._has_forked = False
        self._failures = 0  # short lives in a row
        self._start_after = 0.0  # monotonic seconds
        self._stopping = False

    def run(self) -> None:
        """Keep the workers running until a signal to stop; return when all have ended.

        Raises:
            OSError: the first one cannot be forked. Later ones are tried again.

        """
        read_end, write_end = os.pipe()
        for end in (read_end, write_end):
            os.set_blocking(end, False)
        for number in _HANDLED:
            signal.signal(number, ignore)  # signals are read from the pipe, between two steps of this loop
        signal.set_wakeup_fd(write_end)
        while self._born_at or not self._stopping:
            self._start_missing()
            ready, _, _ = select.select([read_end], [], [], LOOK_S)
            if ready:
                for byte in os.read(read_end, select.PIPE_BUF):
                    self._handle(signal.Signals(byte))
            self._reap()
            self._replace_stopped()
            if not self._stopping:
                self._on_look()

    def _handle(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            self._on_reload()
            self._signal_workers(number)
        elif number in _PASSED_ON and not self._stopping:
            self._stopping = True
            self._on_stop()
            self._signal_workers(number)
        elif number in _PASSED_ON:
            self._signal_workers(signal.SIGKILL)
            say_ended_at_once()
            self._at_exit()
            os._exit(128 + number)

    def _signal_workers(self, number: signal.Signals) -> None:
        for pid in self._born_at:
            os.kill(pid, number)

    def _reap(self) -> None:
        while self._born_at:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            born_at = self._born_at.pop(pid, None)
            if born_at is None:  # not a worker, but an earlier child of this process, from before exec
                continue
            self._beats.clear(self._places.pop(pid))
            self._on_death(pid)
            if not self._stopping:
                # Event worker.died: A worker process ended (`exit_code` -9: killed, often as memory ran out). Another
                # one is started. Its running calls are `interrupted`.
                # Do: See `worker.failed` before it, or the kernel's log.
                structlog.get_logger().error("worker.died", pid=pid, exit_code=os.waitstatus_to_exitcode(status))
                self._pause(time.monotonic() - born_at)

    def _replace_stopped(self) -> None:
        """Kill workers whose event loop has stood still for long. Another one is started when they are reaped."""
        self._silence.look(time.monotonic())
        for pid, place in self._places.items():
            silent_s = self._silence.silent_s[place]
            if silent_s >= REPLACED_S:
                # Event worker.replaced: A worker's event loop has stood still for `silent_s` seconds, so it is
                # replaced. Its running calls are `interrupted`.
                # Do: See `worker.stopped`.
                structlog.get_logger().error("worker.replaced", pid=pid, silent_s=round(silent_s, 1))
                os.kill(pid, signal.SIGKILL)

    def _pause(self, lived_s: float) -> None:
        self._failures = self._failures + 1 if lived_s < SHORT_LIFE_S else 0
        if self._failures:
            pause_s = min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0 ** (self._failures - 1))
            self._start_after = time.monotonic() + pause_s

    def _start_missing(self) -> None:
        while not self._stopping and len(self._born_at) < len(self._beats) and time.monotonic() >= self._start_after:
            self._start()

    def _start(self) -> None:
        place = min(set(range(len(self._beats))).difference(self._places.values()))
        # Until it has its own handlers, a signal to the child would reach the parent's pipe.
        mask_signals(_HANDLED, blocked=True)
        try:
            with warnings.catch_warnings():
                # The log's thread runs beside: a child begins with lines and a lock of its own (``watching/logs.py``).
                warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
                pid = os.fork()
        except OSError as error:
            mask_signals(_HANDLED, blocked=False)
            if not self._has_forked:
                raise
            # Event worker.not_forked: The system refuses a new worker (`error`): processes or memory have run out. It
            # is tried again within 30 s.
            # Do: Raise the user's or container's number of processes, free memory, or set fewer `workers`.
            structlog.get_logger().error("worker.not_forked", error=str(error))
            self._pause(0.0)
            return
        if pid:
            self._has_forked = True
            self._born_at[pid] = time.monotonic()
            self._places[pid] = place
            mask_signals(_HANDLED, blocked=False)
            return
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in _HANDLED:
                signal.signal(number, ignore if number == signal.SIGHUP else signal.SIG_DFL)
            self._lifeline.grasp()
            mask_signals(_HANDLED, blocked=False)
            self._work(place, self._lifeline)
            code = 0
        except Exception:  # noqa: BLE001 - the process ends here, and nothing else would log why
            # Event worker.failed: A worker could not go on. Another one is started.
            # Do: It is a bug: report it with the trace.
            structlog.get_logger().exception("worker.failed")
        finally:
            self._at_exit()
            os._exit(code)


def say_ended_at_once() -> None:
    """Log that a second signal ends the process."""
    # Event gateway.ended_at_once: A second signal came, so running calls are cancelled. Rows that are not in
    # the database yet are in `spool_dir`.
    # Do: Start a gateway with the same `spool_dir`. To end in order, send one signal and wait.
    structlog.get_logger().warning(
        "gateway.ended_at_once", hint="rows not yet in the database are in spool_dir; the next start writes them"
    )


def ignore(_number: int, _frame: object) -> None:
    """Do nothing. By default SIGHUP ends a process that is starting; ``Reloader`` reads the files again in any case.

    Programs that are started do not inherit this, as they would SIG_IGN.
    """


def run(settings: Settings, source: ConfigurationSource) -> None:
    """Serve until stopped. ``source`` is the source of ``settings``, for reloads.

    One worker ends the process itself, with 0; the parent of several returns.

    Raises:
        ListenError: the gateway cannot listen on the address.
        OSError: a system resource is missing.
        TlsError: the certificate or its key cannot be used.
        LedgerError: the database's schema is missing or old.
        UnusableTopologyError: limits and standings cannot be shared over this Redis.
        ConfigurationError: a provider cannot be opened.

    """
    signal.signal(signal.SIGHUP, ignore)
    speed_up_enums()
    return_freed_memory()
    bound_memory(SHARE_FOR_ANSWERS * memory_limit(), settings.workers)
    log = logs.configure(settings.log_level, settings.log_format)
    logs.take_standard_error(log)
    if settings.workers > 1 and not hasattr(os, "fork"):
        raise OSError(errno.ENOSYS, "this system cannot fork worker processes; set workers: 1")
    descriptors = raise_limit()
    # Event gateway.descriptors: How many files and sockets the process may open, and clients of them.
    # Do: Nothing.
    structlog.get_logger().debug("gateway.descriptors", limit=descriptors, clients=descriptor_budget(descriptors))
    _check_authorities(os.environ)
    _check_no_proxy()
    _check_python(sys.version_info[:2])
    _check_prices(datetime.now(UTC).date(), settings.prices.file)
    if settings.tls is not None:
        open_context(settings.tls)  # before clients can connect, or workers are forked
    if settings.workers == 1:
        sock = bind(settings.host, settings.port)
        _run_to_the_end(_serve(settings, sock, source, lambda: _StopSignals(log)), log)
    else:
        _supervise(settings, SharedPort(settings.host, settings.port, settings.workers), source, log)


def _run_to_the_end(serving: Coroutine[Any, Any, None], log: LogLines) -> NoReturn:
    """Run ``serving``, and end the process with it, whatever its threads do.

    To close the loop, or to return, is to wait for look-ups of names and for reads of disks that may hang for minutes,
    though all is closed and written.
    """
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(serving)
        log.drain()
        sys.stdout.flush()
        os._exit(0)


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop; where it is not installed, asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - some systems have none
    except ImportError:
        # Event gateway.no_uvloop: There is no uvloop, so a call costs more CPU.
        # Do: `pip install uvloop`, where it exists.
        structlog.get_logger().warning("gateway.no_uvloop", effect="asyncio's own loop is used; a call costs more CPU")
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _serve(
    settings: Settings,
    sock: socket.socket,
    source: ConfigurationSource,
    stop_signals: Callable[[], "_StopSignals"],
    peers: WorkerPeers | None = None,
) -> None:
    stop = stop_signals()
    async with AsyncExitStack() as stack:
        if peers is not None:
            stack.callback(peers.close)  # the last of all: its parent would kill a worker that does not beat
        if not settings.providers:
            from gateway.server.demo import simulated_fleet, with_demo  # noqa: PLC0415 - only for users without a key

            base_urls = await stack.enter_async_context(simulated_fleet())
            settings = with_demo(settings, base_urls)
            given = source.load

            def load() -> Settings:
                fresh = given()
                return fresh if fresh.providers else with_demo(fresh, base_urls)

            source = msgspec.structs.replace(source, load=load)

        database_answers = await prepare_stores(settings)
        gateway = Gateway(settings, Runtime(peers=peers))
        await gateway.start(database_answers=database_answers)
        stack.push_async_callback(gateway.close)
        certificate = await _open(gateway, sock, settings, stack, peers)
        authorities = Authorities(gateway.trust_anew, os.environ)
        reloader = Reloader(gateway, source, [authorities] if certificate is None else [authorities, certificate])
        stack.push_async_callback(reloader.close)
        _freeze_garbage()
        pid = os.getpid() if peers is None else os.getppid()  # that of all workers
        stack.callback(remove_note, settings.spool_dir, pid)
        _announce(settings, sock, has_file=source.path is not None, pid=pid)
        await stop.wait()
        await _lame_duck(gateway, stop, settings.shutdown_grace_s)
    # Event gateway.stopped: It has ended in order: rows are in the database or the spool.
    # Do: Nothing.
    structlog.get_logger().info("gateway.stopped")


async def _open(
    gateway: Gateway, sock: socket.socket, settings: Settings, stack: AsyncExitStack, peers: WorkerPeers | None
) -> Certificate | None:
    """Serve ``gateway`` on ``sock`` until the stack is left; return the certificate, if there is one."""
    certificate = None if settings.tls is None else Certificate(settings.tls)
    context = None if certificate is None else certificate.context
    connections = await stack.enter_async_context(listening(gateway, sock, settings.shutdown_grace_s, context))
    if peers is not None:
        peers.start(connections)
        stack.callback(peers.stop_accepting)

    def use(context: ssl.SSLContext) -> None:
        connections.ssl_context = context

    if certificate is not None:
        certificate.on_change = use
    return certificate


async def _lame_duck(gateway: Gateway, stop: "_StopSignals", grace_s: float) -> None:
    """Continue to answer while reporting not to be ready, so that load balancers can stop sending calls."""
    duck_s = 0.0 if stop.is_urgent.is_set() else gateway.context.settings.lame_duck_s
    # Event gateway.stopping: It was asked to end. It answers for `lame_duck_s`; then running calls have `grace_s`.
    # Do: Nothing.
    structlog.get_logger().info("gateway.stopping", lame_duck_s=duck_s, grace_s=grace_s)
    if duck_s:
        gateway.context.phase = GatewayPhase.LAME_DUCK
        await pause(duck_s, stop.is_urgent)


def _check_authorities(environ: Mapping[str, str]) -> None:
    """Log if SSL_CERT_FILE cannot be used."""
    if (problem := problem_of_authorities(environ)) is not None:
        effect = "providers with a private authority are not trusted; correct the variable, or unset it"
        # Event tls.authorities_missing: The file in `SSL_CERT_FILE` cannot be used, so providers with a private
        # authority are not trusted.
        # Do: Correct the file, which is read again, or the variable, and restart.
        structlog.get_logger().warning("tls.authorities_missing", problem=problem, effect=effect)


def _check_prices(today: date, own: str | None) -> None:
    source = DatasheetTable.shipped(own).source()
    if source is not None and (problem := source.is_old(today)) is not None:
        # Event configuration.old_prices: The table of prices is over 90 days old.
        # Do: Upgrade Holeshot, or set `price_per_mtok` where a vendor has another price now.
        structlog.get_logger().warning("configuration.old_prices", problem=problem)


def _check_no_proxy() -> None:
    """Log what NO_PROXY has that is not understood."""
    if entries := not_understood():
        effect = "calls to these go through the proxy, with their keys and prompts; correct the variable and restart"
        # Event configuration.no_proxy_not_understood: `NO_PROXY` has `entries` that are not understood: such calls go
        # through the proxy, with keys and prompts.
        # Do: Write a name, `.domain`, `*.domain`, an address or a network such as 10.0.0.0/8; `:port` may follow all
        # but a network. Restart.
        structlog.get_logger().warning("configuration.no_proxy_not_understood", entries=entries, effect=effect)


def _check_python(version: tuple[int, int]) -> None:
    """Log if the tests were not run on a Python as new as ``version``."""
    if version > NEWEST:
        # Event gateway.untested_python: The tests were not run on a `python` as new as this one, only on those that are
        # `tested`. It may work.
        # Do: Install Holeshot with one of these, for example `make PYTHON=python3.13 run` in a checkout.
        structlog.get_logger().warning(
            "gateway.untested_python", python=f"{version[0]}.{version[1]}", tested=PYTHONS.removeprefix("Python ")
        )


def _freeze_garbage() -> None:
    """Exclude objects that live as long as the process from garbage collection."""
    gc.collect()
    gc.freeze()


def speed_up_enums() -> None:
    """Speed up access to enum members (``Outcome.WON``) on Python 3.11 ninefold, as on 3.12.

    There ``EnumType`` has a ``__getattr__``, so every access takes a slow path, although members are found without it:
    3 % of a streamed call's 1.9 million instructions. 3.12 has removed it; tests/unit/test_quick_enums.py tries this.
    """
    if sys.version_info < (3, 12) and "__getattr__" in vars(EnumType):
        delattr(EnumType, "__getattr__")


async def prepare_stores(settings: Settings) -> bool:
    """Check the database's schema, and that this Redis can be used; return whether the database answered.

    Raises:
        SchemaOutdatedError, SchemaTooNewError: raised by ``prepare_schema``.
        UnusableTopologyError: limits and standings cannot be shared over this Redis.

    """
    database_answers = await prepare_schema(settings.database_url.get_secret_value())
    await check_redis(settings)
    return database_answers


class _StopSignals:
    """SIGTERM and SIGINT: the first one stops the process gracefully, the second one ends it.

    A worker ignores the second and leaves it to its parent, as a terminal or a supervisor may signal both. It also
    stops when its parent ends.
    """

    def __init__(self, log: LogLines, lifeline: Lifeline | None = None) -> None:
        self._log = log
        self._is_worker = lifeline is not None
        self._is_asked = asyncio.Event()
        self.is_urgent = asyncio.Event()  # set if there is no load balancer, or the port is needed
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        if lifeline is not None:
            lifeline.on_end(self._orphaned)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._is_asked.is_set() and not self._is_worker:
            say_ended_at_once()
            self._log.drain()
            os._exit(128 + number)
        if number == signal.SIGINT:
            self.is_urgent.set()
        self._is_asked.set()

    def _orphaned(self) -> None:
        # Event worker.orphaned: The parent process of the workers is gone, so this one stops.
        # Do: Find out what killed the parent.
        structlog.get_logger().error("worker.orphaned", effect="it stops, as its parent process has ended")
        self._on_signal(signal.SIGINT)

    async def wait(self) -> None:
        """Wait for the first signal."""
        await self._is_asked.wait()


def _announce(settings: Settings, sock: socket.socket, *, has_file: bool, pid: int) -> None:
    host, port = sock.getsockname()[:2]
    leave_note(settings.spool_dir, local_url(host, port, has_tls=settings.tls is not None), pid)
    url = f"http{'' if settings.tls is None else 's'}://{f'[{host}]' if ':' in host else host}:{port}"
    log = structlog.get_logger()
    # Event gateway.started: It listens at `url` and takes calls. `races` says of each model whether it can race, and
    # why not.
    # Do: Nothing.
    log.info(
        "gateway.started",
        url=url,
        models=list(settings.models),
        providers=list(settings.providers),
        pid=os.getpid(),
        races={name: str(can) for name, can in who_can_race(settings).items()},
    )
    if sys.stderr.isatty() or not has_file or all(name.startswith("sim-") for name in settings.providers):
        sys.stderr.write(welcome(settings, url, os.environ, has_file=has_file))
        sys.stderr.flush()


def _supervise(settings: Settings, port: SharedPort, source: ConfigurationSource, log: LogLines) -> None:
    """Run the workers as child processes, after checking that they can start."""
    with asyncio.Runner() as runner:
        runner.run(prepare_stores(settings))
    check_opens(settings)  # before workers are forked: each of them would fail alike, again and again
    latest = Latest(settings, source)

    beats = Beats(settings.workers)

    def work(place: int, lifeline: Lifeline) -> None:
        latest.renew()
        peers = WorkerPeers(beats, place, port.sockets, clock=time.monotonic)
        serving = _serve(latest.settings, port.of(place), source, lambda: _StopSignals(log, lifeline), peers)
        _run_to_the_end(serving, log)

    Supervisor(
        work,
        beats,
        on_look=latest.look,
        on_reload=partial(latest.read, is_confirmed=True),
        on_stop=port.close,  # else clients could connect, and wait in vain, after the last worker's end
        on_death=forget_process,
        at_exit=log.drain,
    ).run()
