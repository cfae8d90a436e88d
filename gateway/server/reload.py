"""Reloads the configuration on SIGHUP, or when its file changes. An invalid configuration changes nothing.

A reload never removes authentication: that takes a restart.
"""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import structlog

from gateway.app.gateway import Gateway
from gateway.core.tasks import WatchedFiles
from gateway.settings import ConfigurationError, Settings

FILE_LOOK_S = 1.0
NEEDS_RESTART = (
    "host",
    "port",
    "tls",
    "workers",
    "database_url",
    "reports_database_url",
    "redis_url",
    "spool_dir",
    "ledger",
    "keys",
    "replica",
    "log_level",
    "log_format",
    "shutdown_grace_s",
)


Load = Callable[[], Settings]


class RenewableCertificate(Protocol):
    """The TLS certificate, which is read again together with the configuration."""

    def look(self, *, at_once: bool) -> None:
        """Read it again if it has changed; ``at_once``: also if it may still be in the process of being written."""


class ConfigurationRefusedError(Exception):
    """A valid configuration that a running gateway does not accept; the message says what to do."""


def taken_over(running: Settings, new: Settings) -> Settings:
    """Return the configuration after a reload: ``new``, except for settings that only a restart changes.

    Raises:
        ConfigurationRefusedError: it would end authentication or have no providers, as an incompletely written file
            may.

    """
    if running.clients and not new.clients and running.keys == "file":
        raise ConfigurationRefusedError(
            "there are no `clients:` any more, so everybody would be let in without a key:"
            " put them back, or restart the gateway if that is meant"
        )
    if running.providers and not new.providers:
        raise ConfigurationRefusedError(
            "there are no providers any more: put them back, or restart the gateway if you mean this"
        )
    # So that reports about the settings are true.
    return new.model_copy(update={name: getattr(running, name) for name in NEEDS_RESTART})


class Reloader:
    """Reloads the configuration on SIGHUP and when its file changes."""

    def __init__(
        self, gateway: Gateway, path: Path | None, load: Load, certificate: RenewableCertificate | None = None
    ) -> None:
        """Start watching. ``load`` reads the configuration, ``path`` is its file; ``certificate`` is checked too."""
        self._gateway = gateway
        self._file = WatchedFiles(() if path is None else (path,))
        self._load = load
        self._certificate = certificate
        self._log = structlog.get_logger()
        self._wanted = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._wanted.set)
        self._task = loop.create_task(self._run())

    async def close(self) -> None:
        """Stop watching."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), FILE_LOOK_S)
            is_wanted = self._wanted.is_set()
            self._wanted.clear()
            if self._certificate is not None:
                self._certificate.look(at_once=is_wanted)
            if self._file.have_changed() or is_wanted:
                try:
                    self._reload()
                except Exception:  # noqa: BLE001 - whatever a file contains, the next one must be read
                    # Event configuration.unreadable: Reading the file failed in a way that was not foreseen. The
                    # running configuration stays.
                    # Do: It is a bug: report it with the trace.
                    self._log.exception("configuration.unreadable", effect="the running configuration stays")

    def _reload(self) -> None:
        running = self._gateway.context.settings
        try:
            new = self._load()
        except ConfigurationError as error:
            for problem in error.problems:
                self._say_invalid(str(problem))
            return
        if new == running:
            return
        try:
            self._gateway.reload(taken_over(running, new))
        except (ConfigurationRefusedError, ValueError) as error:
            self._say_invalid(str(error))
            return
        restart = [name for name in NEEDS_RESTART if getattr(new, name) != getattr(running, name)]
        if restart:
            # Event configuration.needs_restart: The file was read, but these `settings` are used only by a new process.
            # Do: Restart the gateway when it suits.
            self._log.warning("configuration.needs_restart", settings=restart)
        # Event configuration.reloaded: The changed file is in force for new calls.
        # Do: Nothing.
        self._log.info("configuration.reloaded", models=len(new.models), providers=len(new.providers))

    def _say_invalid(self, problem: str) -> None:
        # Event configuration.invalid: The changed file is not accepted; `problem` has the line and what is wrong. The
        # running configuration stays.
        # Do: Correct the file: it is read again when it changes. `holeshot check` tells before.
        self._log.error("configuration.invalid", problem=problem, effect="the running configuration stays")


class Latest:
    """The configuration for a worker that starts now: the one the running workers have accepted. It logs nothing."""

    def __init__(self, settings: Settings, path: Path | None, load: Load) -> None:
        """Start with the running configuration, its file, and the function that reads it."""
        self.settings = settings
        self._file = WatchedFiles(() if path is None else (path,))
        self._load = load

    def look(self) -> None:
        """Read the file again if it has changed."""
        if self._file.have_changed():
            self.read()

    def read(self) -> None:
        """Read the file again; if the new configuration is not accepted, the old one stays."""
        with suppress(ConfigurationError, ConfigurationRefusedError):
            self.settings = taken_over(self.settings, self._load())
