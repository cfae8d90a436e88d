"""The keys of a gateway: those of the file, and with ``keys: database`` also those of the database."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Generic, TypeVar

import structlog

from gateway.key_errors import ClientNotFound, KeyConflict, KeysUnreachable
from gateway.keys.expiry import Expiry
from gateway.keys.key import is_name
from gateway.keys.shown import shown_all
from gateway.keys.store import Change, Decide, KeyStore
from gateway.keys.table import KeyTable
from gateway.keys.uses import Uses
from gateway.keys.watch import KeyWatch
from gateway.settings.model import ClientSettings

C = TypeVar("C")
RETRY_S = 2  # the database is asked each second
IN_THE_FILE = (
    "keys are in the configuration file (keys: file): set `keys: database` and restart the gateway to make, change and"
    " revoke them at run time"
)


class Keys(Generic[C]):
    """Who has which key: ``table`` for admission, and changes for administrators.

    ``used`` is called with the id of a key of the database that was used.
    """

    def __init__(
        self,
        make: Callable[[str, ClientSettings], C],
        clients: Mapping[str, ClientSettings],
        store: KeyStore | None,
        *,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
        utc_now: Callable[[], datetime],
    ) -> None:
        """Begin with the clients of the file; ``store`` is None if there are no others. ``make`` is the table's."""
        self.table: KeyTable[C] = KeyTable(make, clients, stored=store is not None, unix_clock=unix_clock)
        self.unix_clock = unix_clock
        self.utc_now = utc_now
        self._store = store
        self._watch = None if store is None else KeyWatch(store, self.table, clock)
        self._uses = None if store is None else Uses(store, utc_now)
        self._expiry = Expiry(self.table, unix_clock)
        self.used: Callable[[str], None] = (lambda _: None) if self._uses is None else self._uses.ids.add

    @property
    def stale_s(self) -> float:
        """For how many seconds the database has not said what it has; 0 if it has lately, and for keys of a file."""
        return 0.0 if self._watch is None else self._watch.stale_s

    async def start(self) -> None:
        """Read the keys of the database, for at most some seconds, and see changes from now on."""
        self.table.on_changed = self._expiry.arm
        self._expiry.arm()
        if self._watch is not None:
            await self._watch.start()
        if self._uses is not None:
            self._uses.start()

    async def close(self) -> None:
        """Stop, and write when keys were used last."""
        self.table.on_changed = lambda: None
        self._expiry.close()
        if self._watch is not None:
            await self._watch.close()
        if self._uses is not None:
            await self._uses.close()
        if self._store is not None:
            await self._store.aclose()

    def readiness(self) -> dict[str, Any] | None:
        """Return what a health check says of the keys in the database; None if they are in the file."""
        if self._watch is None:
            return None
        return {
            "loaded": self.table.is_loaded,
            "stale_s": round(self._watch.stale_s, 1),
            "clients": self._watch.clients,
        }

    @property
    def are_stored(self) -> bool:
        """Whether keys are in the database too, and can be changed at run time."""
        return self._store is not None

    def configured(self) -> list[dict[str, Any]]:
        """Return the clients of the file with their keys, as JSON."""
        return shown_all(self.table.clients, (), self.utc_now())

    async def listed(self, *, revoked: bool = False) -> list[dict[str, Any]]:
        """Return every client with its keys, as JSON; with ``revoked`` also keys that were revoked.

        Raises:
            KeyConflict: keys are in the file.
            KeysUnreachable: the database does not answer.

        """
        with _discreet():
            rows = await self._demanded().listed(revoked=revoked)
        return shown_all(self.table.clients, rows, self.utc_now())

    async def change(self, name: str, decide: Decide, *, who: str) -> Change:
        """Carry out a change, which is in force here at once, elsewhere within two seconds.

        Raises:
            KeyConflict: keys, or this client, are in the file.
            KeysUnreachable: the database does not answer; the change may have been made.
            ApiError: that of ``decide``.

        """
        store = self._demanded()
        check_not_configured(name, self.table.clients)
        if not is_name(name):
            raise ClientNotFound(f"no client can be called {name!r}")
        with _discreet():
            change = await store.change(name, decide, who=who, at=self.utc_now())
        structlog.get_logger().info(f"keys.{change.action}", client=name, by=who)
        if self._watch is not None:
            try:
                await self._watch.look()
            except KeysUnreachable as error:
                structlog.get_logger().warning("keys.change_not_seen", client=name, problem=error.message)
        return change

    def _demanded(self) -> KeyStore:
        if self._store is None:
            raise KeyConflict(IN_THE_FILE)
        return self._store


def check_not_configured(name: str, clients: Collection[str]) -> None:
    """Check that a client is not one of the file.

    Raises:
        KeyConflict: it is.

    """
    if name in clients:
        raise KeyConflict(f"the client {name!r} is in the configuration file, which wins: change it there")


@contextmanager
def _discreet() -> Iterator[None]:
    """Leave the database's address out of what an administrator is told over HTTP."""
    try:
        yield
    except KeysUnreachable as error:
        structlog.get_logger().warning("keys.unreachable", problem=error.message)
        raise KeysUnreachable(
            "the database does not answer, so keys can be neither listed nor changed; calls go on, and the gateway's"
            " log says why",
            headers={"retry-after": str(RETRY_S)},
        ) from error
