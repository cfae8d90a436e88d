"""Reloads the configuration on SIGHUP, or when its file or a file of its references changes.

An invalid configuration changes nothing.

A reload never removes authentication: that takes a restart.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Protocol

import msgspec
import structlog
from pydantic import SecretStr

from gateway.app import Gateway, Upstreams
from gateway.core.addresses import without_login
from gateway.core.tasks import WatchedFiles, end_if_cancelled, pause
from gateway.settings import ConfigurationError, References, Settings, signing_secret, vendor_of
from providers import load_catalog

FILE_LOOK_S = 1.0
NEEDS_RESTART = (
    "host",
    "port",
    "tls",
    "workers",
    "database_url",
    "reports_database_url",
    "redis_url",
    "redis_prefix",
    "spool_dir",
    "ledger",
    "keys",
    "replica",
    "log_level",
    "log_format",
    "shutdown_grace_s",
)


# Stores whose user and password are renewed while the gateway runs.
ADDRESSES = ("database_url", "reports_database_url", "redis_url")
REFUSED_EVERY_S = 10.0  # the least interval at which the files are read as a store refuses a login, and commands run


# A file in which half of four or more clients are gone may be incomplete: the file is read again after this time.
LOST_CLIENTS_S = 30.0
FEW_CLIENTS = 4


Load = Callable[[], Settings]


class ConfigurationSource(msgspec.Struct, frozen=True):
    """The source of the configuration: the file, if any, the function that reads it, and the references read so far."""

    path: Path | None
    load: Load
    references: References

    @property
    def files(self) -> tuple[Path, ...]:
        """The configuration's file, and those it refers to."""
        return (*(() if self.path is None else (self.path,)), *self.references.files)


class Renewable(Protocol):
    """Certificates in files, which are read again together with the configuration."""

    def look(self, *, at_once: bool) -> None:
        """Read the files again if they have changed; ``at_once``: even if they are still being written."""


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
    kept = {name: getattr(running, name) for name in needing_restart(running, new)}
    accepted = new.model_copy(update=kept)
    return accepted if accepted.page.signing_key.get_secret_value() else _signing_as_before(running, accepted)


def needing_restart(running: Settings, new: Settings) -> list[str]:
    """Return the settings that have changed, and not only a login of a store, and that a reload does not change."""
    return [name for name in NEEDS_RESTART if _place(name, running) != _place(name, new)]


def _place(name: str, settings: Settings) -> object:
    """Return a setting without the logins in it."""
    value = getattr(settings, name)
    if name in ADDRESSES and value is not None:
        return without_login(value.get_secret_value())
    if name == "ledger" and value.clickhouse is not None:
        url = SecretStr(without_login(value.clickhouse.url.get_secret_value()))
        return value.model_copy(update={"clickhouse": value.clickhouse.model_copy(update={"url": url})})
    return value


def _signing_as_before(running: Settings, new: Settings) -> Settings:
    """Return ``new`` with the signing key of ``running``, if ``new`` has none of its own.

    A database's password that is renewed every quarter of an hour would end sessions, and the names of end users, as
    often. It counts as not set in the file.
    """
    key, is_ours = running.page.signing_key, "signing_key" not in running.page.model_fields_set
    if signing_secret(new) == signing_secret(running) or (key.get_secret_value() and not is_ours):
        return new
    page = new.page.model_copy(update={"signing_key": SecretStr(signing_secret(running))})
    page.model_fields_set.discard("signing_key")
    return new.model_copy(update={"page": page})


def _say_the_same(one: Settings, other: Settings) -> bool:
    """Whether two configurations are equal, also in which race settings they write: a written default has effects."""
    return one == other and all(
        model.race.model_fields_set == other.models[name].race.model_fields_set for name, model in one.models.items()
    )


class Doubts:
    """Holds back a configuration that has lost half of its clients, until it has been read again a while later.

    A full disk, or an upload that has stopped, leaves the beginning of a file, which may be valid. To use it would cut
    the calls of all clients in the missing rest.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: monotonic, in seconds."""
        self._clock = clock
        self._held: Settings | None = None
        self._until_s = 0.0

    def is_due(self) -> bool:
        """Whether the held configuration has to be read again."""
        return self._held is not None and self._clock() >= self._until_s

    def is_new(self, new: Settings) -> bool:
        """Whether ``new`` was not held before: another configuration was, or none."""
        return self._held is None or not _say_the_same(self._held, new)

    def holds(self, running: Settings, new: Settings, *, is_confirmed: bool) -> bool:
        """Whether ``new`` is held; ``is_confirmed``: the operator has asked for it."""
        is_again = not self.is_new(new)
        if not is_confirmed and lost_clients(running, new) and not (is_again and self.is_due()):
            if not is_again:
                self._held, self._until_s = new, self._clock() + LOST_CLIENTS_S
            return True
        self._held = None
        return False


def lost_clients(running: Settings, new: Settings) -> int:
    """Return how many clients of the file are gone in ``new``, if these are half of them or more, of four or more."""
    gone = len(running.clients.keys() - new.clients.keys())
    return gone if len(running.clients) >= FEW_CLIENTS and 2 * gone >= len(running.clients) else 0


def with_denials(running: Settings, new: Settings) -> Settings:
    """Return ``running`` with the tokens that ``new`` denies as well: a denial never comes too soon."""
    issuers = {
        name: each.model_copy(update={"deny": tuple(dict.fromkeys((*each.deny, *new.issuers[name].deny)))})
        for name, each in running.issuers.items()
        if name in new.issuers
    }
    return running.model_copy(update={"issuers": {**running.issuers, **issuers}})


class Reloader:
    """Reloads the configuration on SIGHUP, when one of its files changes, and when a command is due to run again."""

    def __init__(
        self,
        gateway: Gateway,
        source: ConfigurationSource,
        certificates: Sequence[Renewable] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start watching the files of ``source``, and ``certificates``. ``clock``: monotonic, in seconds."""
        self._gateway = gateway
        self._source = source
        self._files = WatchedFiles(source.files)
        self._certificates = certificates
        self._doubts = Doubts(clock)
        self._is_confirmed = False  # by SIGHUP
        self._log = structlog.get_logger()
        self._is_invalid = False  # the file, as it was read last
        self._told: list[str] = []  # the settings of which the log says that they need a restart
        self._wanted = asyncio.Event()
        self._reading: asyncio.Future[None] | None = None  # waiters for the end of the next reading
        self._refused_at_s = -inf
        loop = asyncio.get_running_loop()
        gateway.addresses.read_again = self.read_again
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        self._task = loop.create_task(self._run())

    def _hang_up(self) -> None:
        self._is_confirmed = True
        self._wanted.set()

    async def close(self) -> None:
        """Stop watching."""
        self._gateway.addresses.read_again = None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._reading is not None:
            self._reading.set_result(None)

    async def read_again(self) -> None:
        """Read the configuration now, and what its commands print, as a store refuses a login; not too often."""
        loop = asyncio.get_running_loop()
        if self._reading is None:
            if self._task.done() or loop.time() < self._refused_at_s + REFUSED_EVERY_S:
                return
            self._refused_at_s = loop.time()
            self._source.references.expire()
            self._reading = loop.create_future()
            self._wanted.set()
        await asyncio.shield(self._reading)

    async def _run(self) -> None:
        while True:
            await pause(FILE_LOOK_S, self._wanted)
            reading, self._reading = self._reading, None
            is_wanted = self._wanted.is_set()
            self._wanted.clear()
            is_confirmed, self._is_confirmed = self._is_confirmed, False
            for certificate in self._certificates:
                certificate.look(at_once=is_wanted)
            is_due = self._source.references.is_due() or self._doubts.is_due()
            if self._files.have_changed() or is_wanted or is_due:
                try:
                    await self._reload(is_confirmed=is_confirmed)
                except Exception:  # noqa: BLE001 - whatever a file contains, the next one must be read
                    # Event configuration.unreadable: Reading the file failed in an unforeseen way. The running
                    # configuration stays.
                    # Do: It is a bug: report it with the trace.
                    self._log.exception("configuration.unreadable", effect="the running configuration stays")
                finally:
                    if reading is not None:
                        reading.set_result(None)
                end_if_cancelled()

    async def _reload(self, *, is_confirmed: bool = False) -> None:
        running = self._gateway.context.settings
        try:
            new = await asyncio.to_thread(self._source.load)  # it may run commands, and files may be on a slow disk
        except ConfigurationError as error:
            for problem in error.problems:
                self._log_invalid(str(problem))
            return
        finally:
            self._files.watch(self._source.files)
        for failure in self._source.references.failures:
            # Event secrets.command_failed: A command of `${exec:…}` failed (`problem`). What it printed before stays in
            # use; it runs again within 30 s.
            # Do: Run it by hand, as the gateway's user and with its environment.
            self._log.warning("secrets.command_failed", problem=failure, effect="its former value stays in use")
        restart = needing_restart(running, new)
        try:
            accepted = taken_over(running, new)
            is_new = self._doubts.is_new(accepted)
            if self._doubts.holds(running, accepted, is_confirmed=is_confirmed):
                self._hold(running, accepted, is_new=is_new)
                return
            if _say_the_same(accepted, running) and (not restart or restart == self._told):
                self._told = restart
                if self._is_invalid:
                    self._is_invalid = False
                    # Event configuration.valid_again: The file, of which `configuration.invalid` said what is wrong, or
                    # `configuration.waits` that half of it is gone, is what is in force again.
                    # Do: Nothing.
                    self._log.info("configuration.valid_again")
                return  # also where a command has run again, and printed the same
            self._gateway.reload(accepted)
        except (ConfigurationRefusedError, ConfigurationError) as error:
            self._log_invalid(str(error))
            return
        self._told, self._is_invalid = restart, False
        if restart:
            # Event configuration.needs_restart: These `settings` of the changed file need a new process.
            # Do: Restart the gateway when it suits.
            self._log.warning("configuration.needs_restart", settings=restart)
        # Event configuration.reloaded: The changed file is in force for new calls.
        # Do: Nothing.
        self._log.info("configuration.reloaded", models=len(new.models), providers=len(new.providers))

    def _hold(self, running: Settings, new: Settings, *, is_new: bool) -> None:
        """Hold ``new`` back, but refuse at once the tokens that it denies."""
        denied = with_denials(running, new)
        if denied != running:
            self._gateway.reload(denied)
        if is_new:
            self._is_invalid = True
            # Event configuration.waits: Half of the `clients` or more are gone from the changed file, as if it had been
            # cut short. Nothing is changed, nor any call cancelled, until the same content was read again after
            # `wait_s` seconds; only what it denies holds at once.
            # Do: If that is meant, wait, or send SIGHUP. Else put the whole file back.
            self._log.warning(
                "configuration.waits",
                gone=lost_clients(running, new),
                clients=len(running.clients),
                wait_s=LOST_CLIENTS_S,
                effect="the running configuration stays until then",
                hint="if that is meant, wait, or send SIGHUP; else put the whole file back",
            )

    def _log_invalid(self, problem: str) -> None:
        self._is_invalid = True
        # Event configuration.invalid: The changed file is not accepted (`problem`). The running configuration stays.
        # Do: Correct the file. `holeshot check` tells before.
        self._log.error("configuration.invalid", problem=problem, effect="the running configuration stays")


def check_opens(settings: Settings) -> None:
    """Check that a process can start with these settings: only the opening of a provider shows some mistakes.

    Raises:
        ConfigurationError: it cannot; running processes would refuse them, too.

    """
    catalog, upstreams = load_catalog(), Upstreams()
    for name, provider in settings.providers.items():
        upstreams.open(name, provider, vendor_of(name, provider, catalog))


class Latest:
    """The configuration for a worker that starts now: the one the running workers have accepted. It logs nothing."""

    def __init__(
        self, settings: Settings, source: ConfigurationSource, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start with the running configuration and its source. ``clock``: monotonic, in seconds."""
        self.settings = settings
        self._doubts = Doubts(clock)
        self._source = source
        self._files = WatchedFiles(source.files)

    def look(self) -> None:
        """Read the configuration again if one of its files has changed."""
        if self._files.have_changed() or self._doubts.is_due():
            self.read()

    def renew(self) -> None:
        """Read the file again if a command is due to run again: a worker that starts later needs a valid key."""
        if self._source.references.is_due():
            self.read()

    def read(self, *, is_confirmed: bool = False) -> None:
        """Read the configuration again; if the new one cannot be read or is not accepted, the old one stays.

        ``is_confirmed``: its operator has asked for it.
        """
        with suppress(Exception):  # whatever a file contains: an error would end the workers' parent, and so them all
            new = taken_over(self.settings, self._source.load())
            check_opens(new)
            if not self._doubts.holds(self.settings, new, is_confirmed=is_confirmed):
                self.settings = new
        self._files.watch(self._source.files)
