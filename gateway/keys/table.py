"""The keys in force, of the file and of the database: one dict, which every change replaces as a whole."""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from gateway.core.errors import ClientDisconnected, CutByExpiry, CutByRevocation, InvalidRequest
from gateway.core.log import get_logger
from gateway.keys.stored import StoredKey, client_settings, fields_of
from gateway.settings import ClientSettings

C = TypeVar("C")
Ended = Mapping[bytes, type[ClientDisconnected]]  # the digest of a key → the error with which its calls are cut


class IssuedKey(msgspec.Struct, Generic[C], frozen=True):
    """A key that was given to a client."""

    client: C | None  # None: this version cannot use the client's settings
    ends_at: float | None = None  # seconds since 1970; None: never
    id: str | None = None  # the id of the key's row; None: the key is in the file

    def has_ended(self, unix_s: float) -> bool:
        """Whether the key has expired at ``unix_s``, in seconds since 1970, so that it is refused."""
        return self.ends_at is not None and unix_s >= self.ends_at


class KeyTable(Generic[C]):
    """Every key in force by its digest, as ``known``. ``make`` creates a client from its name and settings.

    ``on_ended`` is called with the keys that are no longer in force, so that their calls are cut.
    """

    def __init__(
        self,
        make: Callable[[str, ClientSettings], C],
        clients: Mapping[str, ClientSettings],
        *,
        stored: bool,
        unix_clock: Callable[[], float],
    ) -> None:
        """Start with the clients of the file. ``stored``: there are others in the database, not read yet."""
        self.known: Mapping[bytes, IssuedKey[C]] = {}
        self.clients = clients  # those of the file
        self.is_required = True  # whether a request needs a key; otherwise every program on this machine is admitted
        self.is_loaded = not stored  # whether the clients of the database have been read
        self.on_ended: Callable[[Ended], None] = lambda _: None
        self.on_changed: Callable[[], None] = lambda: None
        self.of_tokens: Callable[[], Ended] = dict  # the tokens that have ended, by their hash
        self._stored = stored
        self._make = make
        self._unix_clock = unix_clock
        self._rows: dict[str, Sequence[StoredKey]] = {}  # the database's rows, by the client's name
        self._known_stored: dict[bytes, IssuedKey[C]] = {}  # without clients of the file
        self._ends: list[tuple[float, bytes]] = []  # a heap, of keys that will end
        self._shadowed: set[str] = set()
        self.use_file(clients)

    @property
    def next_end(self) -> float | None:
        """When the next key ends, in seconds since 1970; None if none will."""
        return self._ends[0][0] if self._ends else None

    @property
    def names(self) -> Collection[str]:
        """The names of all clients, of the file and of the database."""
        return {**self.clients, **self._rows}.keys()

    @property
    def holders(self) -> Iterator[C]:
        """The clients, each once for each of its keys; once if only tokens name it."""
        yield from (known.client for known in self.known.values() if known.client is not None)
        yield from (self._make(name, each) for name, each in self.clients.items() if not each.key_sha256)

    def named(self, name: str) -> IssuedKey[C] | None:
        """Return the client of this name, until its own end; None if there is none."""
        settings = self.clients.get(name)
        if settings is not None:
            return IssuedKey(self._make(name, settings), _seconds(settings.expires))
        rows = self._rows.get(name)
        known = self._known_stored.get(bytes.fromhex(rows[-1].sha256)) if rows else None
        return None if known is None or not rows else IssuedKey(known.client, _seconds(rows[-1].expires_at))

    def use_file(self, clients: Mapping[str, ClientSettings]) -> None:
        """Replace the clients of the file."""
        self.clients = clients
        self._known_stored = {}
        for name, rows in self._rows.items():
            self._know(name, rows)
        self._replace()

    def learn(self, changed: Mapping[str, Sequence[StoredKey]]) -> None:
        """Store the keys of clients in the database, by name: all that are not revoked, the newest last.

        They are in force after ``use_rows``, so that a table of thousands can be stored in parts.
        """
        for name, rows in changed.items():
            for row in self._rows.pop(name, ()):
                self._known_stored.pop(bytes.fromhex(row.sha256), None)
            if rows:
                self._rows[name] = rows
                self._know(name, rows)

    def use_rows(self) -> None:
        """Put the stored keys in force: all keys of the database have been passed to ``learn``."""
        self.is_loaded = True
        self._replace()

    def end_expired(self) -> None:
        """Report the keys that have ended since the last time."""
        now = self._unix_clock()
        ended: dict[bytes, type[ClientDisconnected]] = {}
        while self._ends and self._ends[0][0] <= now:
            ended[heapq.heappop(self._ends)[1]] = CutByExpiry
        if ended:
            self.on_ended({**self.of_tokens(), **ended})

    def _know(self, name: str, rows: Sequence[StoredKey]) -> None:
        """Add the keys of a client in the database, unless the file has a client of this name."""
        if name in self.clients:
            if name not in self._shadowed:
                self._shadowed.add(name)
                # Event keys.shadowed: A client is in the file and in the database. The one in the file is used.
                # Do: Remove it from the file, or revoke the one in the database.
                get_logger().warning(
                    "keys.shadowed", client=name, effect="the file has a client of this name too, and wins"
                )
            return
        self._shadowed.discard(name)
        client: C | None = None
        try:
            client = self._make(name, client_settings(fields_of(rows[-1])))
        except InvalidRequest as error:
            # Event keys.unusable: This version cannot use the settings of a client in the database. Its calls get 503.
            # Do: Correct what `problem` names, or upgrade this replica.
            get_logger().error(
                "keys.unusable", client=name, problem=error.message, effect="its calls are refused with 503"
            )
        for row in rows:
            self._known_stored[bytes.fromhex(row.sha256)] = IssuedKey(client, _seconds(row.ends_at), row.id)

    def _replace(self) -> None:
        """Put the new table in force, and report the keys that it no longer has."""
        before, now = self.known, self._unix_clock()
        self.known = {**self._known_stored, **dict(self._of_file())}
        self.is_required = self._stored or bool(self.clients)
        ended: dict[bytes, type[ClientDisconnected]] = {
            digest: CutByRevocation for digest in before if digest not in self.known
        }
        ended |= self.of_tokens()
        ends = [(known.ends_at, digest) for digest, known in self.known.items() if known.ends_at is not None]
        ended |= {digest: CutByExpiry for end, digest in ends if end <= now}
        ends += [
            (each.expires.timestamp(), b"")  # no key: only tokens name this client
            for each in self.clients.values()
            if each.expires is not None and not each.key_sha256
        ]
        self._ends = [each for each in ends if each[0] > now]
        heapq.heapify(self._ends)
        if ended:
            self.on_ended(ended)
        self.on_changed()

    def _of_file(self) -> Iterable[tuple[bytes, IssuedKey[C]]]:
        for name, settings in self.clients.items():
            client = self._make(name, settings)
            for digest in settings.key_sha256:
                yield bytes.fromhex(digest), IssuedKey(client, _seconds(settings.expires))


def _seconds(instant: datetime | None) -> float | None:
    """Return an instant in seconds since 1970."""
    return None if instant is None else instant.timestamp()
