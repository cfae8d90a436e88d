"""The keys of a gateway: of the file, and with ``keys: database`` also of the database."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, urlsplit

from gateway.core.errors import ClientNotFound, KeyConflict, KeysUnreachable
from gateway.core.log import get_logger
from gateway.core.tasks import end_if_cancelled
from gateway.keys.stored import Decide, KeyChange, KeyStore, StoredKey, each_shown, is_name
from gateway.keys.table import KeyTable
from gateway.settings import ClientSettings

# Watches the keys in the database: a change in the database is in force in this process within about a second.

POLL_S = 1.0
STALE_S = 5.0  # without an answer for longer than this, the keys count as stale
LOG_EVERY_S = 300.0  # between two log lines about stale keys
FULL_READ_S = 60.0  # between two complete reads, which find changes made by hand with SQL
LEARNED_AT_ONCE = 100  # clients: about two milliseconds; then the event loop runs other tasks
COMPARED_AT_ONCE = 1000  # rows or clients: also about two milliseconds


class KeyWatch:
    """Keeps ``table`` in step with the database, from ``start`` to ``close``."""

    def __init__(self, store: KeyStore, table: KeyTable[Any], clock: Callable[[], float]) -> None:
        self._store = store
        self._table = table
        self._clock = clock
        self._known: dict[str, dict[str, StoredKey]] = {}  # rows, by the client's name and the key's id
        self._changed: set[str] = set()  # clients whose keys the table does not have yet
        self._version: int | None = None
        self._read_at = clock()  # when the database answered last; before its first answer: the start
        self._full_at = clock()
        self._logged_at: float | None = None  # when stale keys were last logged
        self._looking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def stale_s(self) -> float:
        """Seconds since the database last answered; 0 up to ``STALE_S``."""
        silent_s = self._clock() - self._read_at
        return silent_s if silent_s > STALE_S else 0.0

    @property
    def clients(self) -> int:
        """The number of clients in the database."""
        return len(self._known)

    async def start(self) -> None:
        """Read the keys, and poll for changes from now on. A database that does not answer is no error."""
        await self._try_to_look()
        self._task = asyncio.get_running_loop().create_task(self._poll(), name="keys.watch")

    async def close(self) -> None:
        """Stop polling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look(self) -> None:
        """Read the changes since the last time, and put them in force.

        Raises:
            KeysUnreachable: the database does not answer.

        """
        async with self._looking:
            version = await self._store.version()
            now = self._clock()
            is_full = self._version is None or version < self._version or now - self._full_at >= FULL_READ_S
            if is_full:
                await self._compare(await self._store.rows())
                self._full_at = now
            elif version != self._version:
                self._update(await self._store.rows(self._version))
            self._version, self._read_at = version, self._clock()
            await self._learn()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            await self._try_to_look()
            end_if_cancelled()

    async def _try_to_look(self) -> None:
        try:
            await self.look()
        except KeysUnreachable as error:
            self._log_stale(error.message)
        except Exception:  # noqa: BLE001 - a bug in one round must not stop all later ones
            # Event keys.watch_failed: One look for changed keys failed. The next one follows.
            # Do: It is a bug: report it with the trace.
            get_logger().exception("keys.watch_failed")
        else:
            if self._logged_at is not None:
                self._logged_at = None
                # Event keys.fresh_again: The keys can be read from the database again.
                # Do: Nothing.
                get_logger().info("keys.fresh_again", clients=self.clients)

    def _log_stale(self, problem: str) -> None:
        now = self._clock()
        if self._logged_at is None or now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            effect = (
                "the keys known so far stay in force; changes are not seen"
                if self._table.is_loaded
                else "keys of the database are refused with 503 until they can be read"
            )
            # Event keys.stale: The keys could not be read from the database for `silent_s`. Known keys stay valid;
            # changes are not seen. After a start, keys of the database get 503.
            # Do: Make the database reachable.
            get_logger().warning("keys.stale", problem=problem, silent_s=round(now - self._read_at, 1), effect=effect)

    async def _compare(self, rows: Sequence[StoredKey]) -> None:
        """Replace all by ``rows``, and note the clients that have changed."""
        fresh: dict[str, dict[str, StoredKey]] = {}
        for start in range(0, len(rows), COMPARED_AT_ONCE):
            for row in rows[start : start + COMPARED_AT_ONCE]:
                fresh.setdefault(row.name, {})[row.id] = row
            await asyncio.sleep(0)
        before = self._known
        names = [*fresh, *(name for name in before if name not in fresh)]
        for start in range(0, len(names), COMPARED_AT_ONCE):
            some = names[start : start + COMPARED_AT_ONCE]
            self._changed.update(name for name in some if before.get(name) != fresh.get(name))
            await asyncio.sleep(0)
        self._known = fresh  # last: if cancelled before, the changed clients must be found again

    def _update(self, rows: Iterable[StoredKey]) -> None:
        """Replace the changed ``rows``, and note their clients."""
        for row in rows:
            self._changed.add(row.name)
            keys = self._known.setdefault(row.name, {})
            keys[row.id] = row
            if row.revoked_at is not None:
                del keys[row.id]
            if not keys:
                del self._known[row.name]

    async def _learn(self) -> None:
        """Put the keys of the changed clients in force, all at once."""
        if not self._changed and self._table.is_loaded:
            return
        changed = list(self._changed)
        for start in range(0, len(changed), LEARNED_AT_ONCE):
            self._table.learn({name: self._in_order(name) for name in changed[start : start + LEARNED_AT_ONCE]})
            await asyncio.sleep(0)
        self._table.use_rows()
        self._changed.clear()  # last: if cancelled before, nothing is in force yet

    def _in_order(self, name: str) -> list[StoredKey]:
        return sorted(self._known.get(name, {}).values(), key=_age)


def _age(row: StoredKey) -> tuple[Any, str]:
    return row.created_at, row.id


# Which keys were used: kept in memory, and written to the database once a minute in one batch.

WRITE_S = 60.0


class KeyUses:
    """The ids of the keys that were used since the last write. ``ids`` is always the same set object."""

    def __init__(self, store: KeyStore, utc_now: Callable[[], datetime]) -> None:
        self.ids: set[str] = set()
        self._store = store
        self._utc_now = utc_now
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to write the uses regularly."""
        self._task = asyncio.get_running_loop().create_task(self._repeat(), name="keys.uses")

    async def close(self) -> None:
        """Write the uses that are not written yet, and stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.write()

    async def write(self) -> None:
        """Write the uses of keys; while the database does not answer, they are kept for the next time."""
        if not self.ids:
            return
        ids = frozenset(self.ids)
        self.ids.clear()
        try:
            await self._store.note_uses(ids, self._utc_now())
        except KeysUnreachable:  # the watch has logged it
            self.ids.update(ids)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(WRITE_S)
            try:
                await self.write()
            except Exception:  # noqa: BLE001 - a bug in one round must not stop all later ones
                # Event keys.uses_not_written: When keys were last used could not be written.
                # Do: It is a bug: report it with the trace.
                get_logger().exception("keys.uses_not_written")
            end_if_cancelled()


# Ends keys at their instant, with one timer: for the one that ends next.

LONGEST_S = 60.0  # then the wall clock is read again: it may have been set, or the machine suspended


class Expiry:
    """Calls ``table.end_expired`` when the table's next key ends, from ``arm`` to ``close``."""

    def __init__(self, table: KeyTable[Any], unix_clock: Callable[[], float]) -> None:
        self._table = table
        self._unix_clock = unix_clock
        self._timer: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        """Set the timer, also after each change of the table."""
        self.close()
        if (end := self._table.next_end) is not None:
            wait_s = min(max(0.0, end - self._unix_clock()), LONGEST_S)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._fire)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._table.end_expired()
        self.arm()


C = TypeVar("C")
RETRY_S = 2  # the database is polled each second
GOOGLES = "/v1beta/"  # where the paths of Google's API begin
SHARED = ("/v1/models", "/v1/decisions")  # paths of other APIs too, where its newer SDKs have theirs
_MAY_HAVE_KEY = (GOOGLES, *SHARED, "/v1/interactions")


def key_in(address: str) -> str:
    """Return the key in the query of a path of Google's API, whose clients may send it there; "" if there is none."""
    if "key=" not in address or not address.startswith(_MAY_HAVE_KEY):
        return ""
    return next((value for name, value in parse_qsl(urlsplit(address).query) if name == "key"), "")


IN_THE_FILE = (
    "keys are in the configuration file (keys: file): set `keys: database` and restart the gateway to make, change and"
    " revoke them at run time"
)


class Keys(Generic[C]):
    """The clients' keys: ``table`` for admission, and changes for administrators.

    ``used`` is called with the id of each used key of the database.
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
        """Start with the clients of the file; ``store`` is None if there are no others. ``make``: see ``KeyTable``."""
        self.table: KeyTable[C] = KeyTable(make, clients, stored=store is not None, unix_clock=unix_clock)
        self.unix_clock = unix_clock
        self.utc_now = utc_now
        self._store = store
        self._watch = None if store is None else KeyWatch(store, self.table, clock)
        self._uses = None if store is None else KeyUses(store, utc_now)
        self._expiry = Expiry(self.table, unix_clock)
        self.on_changed: Callable[[], None] = lambda: None  # the table is another
        self.used: Callable[[str], None] = (lambda _: None) if self._uses is None else self._uses.ids.add

    @property
    def stale_s(self) -> float:
        """Seconds since the database last answered; 0 if it answered recently, or if keys are in the file only."""
        return 0.0 if self._watch is None else self._watch.stale_s

    async def start(self) -> None:
        """Read the keys of the database, for at most some seconds, and poll for changes from now on."""
        self.table.on_changed = self._changed
        self._expiry.arm()
        if self._watch is not None:
            await self._watch.start()
        if self._uses is not None:
            self._uses.start()

    def _changed(self) -> None:
        self._expiry.arm()
        self.on_changed()

    async def close(self) -> None:
        """Stop, and write the last uses of keys."""
        self.table.on_changed = lambda: None
        self._expiry.close()
        if self._watch is not None:
            await self._watch.close()
        if self._uses is not None:
            await self._uses.close()
        if self._store is not None:
            await self._store.aclose()

    def readiness(self) -> dict[str, Any] | None:
        """Return the health check's information about keys in the database; None if they are in the file."""
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

    def configured(self) -> Iterator[dict[str, Any]]:
        """Return the clients of the file with their keys, as JSON, each made when it is asked for."""
        return each_shown(self.table.clients, (), self.utc_now())

    async def listed(self, *, revoked: bool = False) -> Iterator[dict[str, Any]]:
        """Return every client with its keys, as JSON; with ``revoked`` also keys that were revoked.

        Raises:
            KeyConflict: keys are in the file.
            KeysUnreachable: the database does not answer.

        """
        with _hiding_address():
            rows = await self._required_store().listed(revoked=revoked)
        return each_shown(self.table.clients, rows, self.utc_now())

    async def change(self, name: str, decide: Decide, *, who: str) -> KeyChange:
        """Carry out a change, which is in force here at once, elsewhere within two seconds.

        Raises:
            KeyConflict: keys, or this client, are in the file.
            KeysUnreachable: the database does not answer; the change may have been made.
            ApiError: that of ``decide``.

        """
        store = self._required_store()
        check_not_configured(name, self.table.clients)
        if not is_name(name):
            raise ClientNotFound(f"no client can be called {name!r}")
        with _hiding_address():
            change = await store.change(name, decide, who=who, at=self.utc_now())
        # Event keys.changed: An admin (`by`) changed a client.
        # Do: Nothing.
        # Event keys.created: An admin (`by`) made a client.
        # Do: Nothing.
        # Event keys.revoked: An admin (`by`) revoked a client's keys.
        # Do: Nothing.
        # Event keys.rotated: An admin (`by`) replaced a client's key.
        # Do: Nothing.
        get_logger().info(f"keys.{change.action}", client=name, by=who)
        if self._watch is not None:
            try:
                await self._watch.look()
            except KeysUnreachable as error:
                # Event keys.change_not_seen: A changed key could not be read back at once.
                # Do: Nothing.
                get_logger().warning("keys.change_not_seen", client=name, problem=error.message)
        return change

    def _required_store(self) -> KeyStore:
        if self._store is None:
            raise KeyConflict(IN_THE_FILE)
        return self._store


def check_not_configured(name: str, clients: Collection[str]) -> None:
    """Check that a client is not in the file.

    Raises:
        KeyConflict: it is.

    """
    if name in clients:
        raise KeyConflict(f"the client {name!r} is in the configuration file, which wins: change it there")


@contextmanager
def _hiding_address() -> Iterator[None]:
    """Replace database errors by one without the database's address, for administrators over HTTP."""
    try:
        yield
    except KeysUnreachable as error:
        # Event keys.unreachable: A request to `/admin/keys` failed because the database does not answer.
        # Do: Make the database reachable, and repeat the change if it was not made.
        get_logger().warning("keys.unreachable", problem=error.message)
        raise KeysUnreachable(
            "the database does not answer, so keys can be neither listed nor changed; calls go on, and the gateway's"
            " log says why",
            headers={"retry-after": str(RETRY_S)},
        ) from error
