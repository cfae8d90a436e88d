"""Reloading of the configuration: on SIGHUP, or when its file changes. An invalid one changes nothing and says so."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import structlog

from gateway.app import Gateway
from gateway.settings import ConfigurationError
from gateway.settings.checks import is_loopback
from gateway.settings.model import Settings

FILE_LOOK_S = 1.0
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


class Reloader:
    """Reloads the configuration on SIGHUP and when its file changes."""

    def __init__(self, gateway: Gateway, path: Path | None, load: Load) -> None:
        """Begin to look. ``load`` reads the configuration again, ``path`` is its file."""
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
