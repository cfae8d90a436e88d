"""Resources at providers and the client of each, in the ledger: a restart forgets none of them, also without Redis.

On disk a name is a keyed hash of the name and of the client. It is written by way of the spool, as rows are. A process
looks a name up in SQL if the process does not know it: after a restart, or where another process gave the name to the
client. For resources whose end the gateway itself asks for, the name is beside the hash, sealed.
"""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b, sha256
from itertools import islice
from os import urandom
from typing import TYPE_CHECKING, Final
from uuid import UUID

from sqlalchemy import select, update

from gateway.core.calls import CallRecord
from gateway.core.errors import NamesUnreachable
from gateway.core.records import StoredName, Unended
from gateway.ledger.connections import Database, OwnConnection
from gateway.ledger.database import CLOSE_TIMEOUT_S
from gateway.ledger.ends import kept_end
from gateway.ledger.errors import LedgerError
from gateway.ledger.tables import stored_names

if TYPE_CHECKING:
    from gateway.ledger.writer import Ledger

WITHIN_S = 3.0  # of a query
ADOPTED_WITHIN_S = 3.0  # a moment after the start, the rows that a dead process had spooled are in SQL
MOST_AT_ONCE = 500  # names in one query; SQLite takes 32,766 values
MOST_IN_AN_ENTRY = 100  # about 20 KB of the spool
AWAY: Final = ""  # in place of a row, which is never empty: the database did not answer
_NONCE_BYTES = 12


class LedgerNames:
    """Names, and what is known of each, for ``ttl_s`` seconds. ``secret`` keys the hashes.

    ``seal``: the secret that seals names; empty: names are not sealed.
    """

    def __init__(
        self,
        ledger: "Ledger",
        database: Database,
        secret: bytes,
        *,
        kind: str,
        ttl_s: Callable[[], float],
        seal: bytes = b"",
    ) -> None:
        """``kind``: a namespace. Does not connect before the first query.

        Raises:
            DatabaseUrlError: the URL is invalid.

        """
        self._ledger = ledger
        self._database = OwnConnection(database, NamesUnreachable)
        self._key = sha256(b"holeshot names" + secret).digest()
        self._kind = kind.encode()
        self._ttl_s = ttl_s
        self._seal = sha256(b"holeshot sealed names" + seal).digest() if seal else b""
        self._wanted: dict[str, asyncio.Future[str | None]] = {}  # names of the next query
        self._looking = asyncio.Lock()

    def tell(self, client: str | None, names: Iterable[str], known: str) -> None:
        """Store ``known`` for each of the names that ``client`` was given; all are on disk when this returns."""
        until = self._now() + timedelta(seconds=self._ttl_s())
        rows = (
            StoredName(id=self._hashed(client, name), expires_at=until, client=client, known=known) for name in names
        )
        while some := tuple(islice(rows, MOST_IN_AN_ENTRY)):
            self._ledger.named(some)

    def tell_running(self, client: str | None, name: str, known: str) -> None:
        """Store ``known`` for a response that still runs, with the name sealed, so that ``unended`` returns it."""
        row, until = self._hashed(client, name), self._now() + timedelta(seconds=self._ttl_s())
        sealed = self._sealed(row, name)
        self._ledger.named((StoredName(id=row, expires_at=until, client=client, known=known, sealed=sealed),))

    async def ask(self, client: str | None, name: str) -> str | None:
        """Return what is known of a name; None: nothing. Names that are asked for at the same time share a query.

        Raises:
            NamesUnreachable: the database cannot be reached.

        """
        answer = await self._asked(self._hashed(client, name))
        if answer == AWAY:
            raise NamesUnreachable(
                "the ledger's database does not answer, which knows what lies at providers: try again in a moment",
                headers={"retry-after": "1"},
            )
        return answer

    async def take(
        self, client: str | None, name: str, row_of: Callable[[str], CallRecord | None]
    ) -> CallRecord | None:
        """Forget a name and return the row that ``row_of`` makes of what is known; only one of all callers gets it.

        None: nothing is known, or ``row_of`` returned None. The same transaction keeps the row beside the name until
        ``Ledger.adopt`` finds it among the calls: so the row is written, however soon this process is killed.

        Raises:
            NamesUnreachable: the database cannot be reached.

        """
        row = stored_names.c
        is_there = (row.id == self._hashed(client, name), row.known != "", row.expires_at > self._instant())
        try:
            async with asyncio.timeout(WITHIN_S):
                await self._ledger.adopted()
                if self._ledger.pending:  # the name may be among these entries
                    await self._ledger.flush()
        except (LedgerError, TimeoutError) as error:
            raise NamesUnreachable(str(error)) from error
        async with self._database.open(WITHIN_S, writes=True) as connection:
            stored: str | None = await connection.scalar(select(row.known).where(*is_there))
            written = None if stored is None else row_of(stored)
            if written is None:
                return None
            ended = {"known": "", "sealed": None, "ask_at": None, "ended": kept_end(written)}
            update_made = await connection.execute(update(stored_names).where(*is_there).values(ended))
            await connection.commit()
        return written if update_made.rowcount == 1 else None

    async def unended(self) -> list[Unended]:
        """Return the newest responses that some process left running, without an end so far.

        Raises:
            NamesUnreachable: the database cannot be reached.

        """
        await self._ledger.adopted()
        try:
            async with asyncio.timeout(WITHIN_S):
                rows = await self._ledger.unended()
        except (LedgerError, TimeoutError) as error:
            raise NamesUnreachable(str(error)) from error
        return [Unended(row.id, row.client, row.known, self._opened(row.id, row.sealed or "")) for row in rows]

    async def claim(self, row: str, for_s: float) -> bool:
        """Return whether this process, of all, is to ask for the end of the running response ``row``, for ``for_s``.

        Raises:
            NamesUnreachable: the database cannot be reached.

        """
        named, now = stored_names.c, self._now()
        is_free = named.ask_at.is_(None) | (named.ask_at <= self._instant())
        until = self._database.instant(now + timedelta(seconds=for_s))
        claiming = (
            update(stored_names)
            .where(named.id == row, named.sealed.is_not(None), named.known != "", is_free)
            .values(ask_at=until)
        )
        async with self._database.open(WITHIN_S, writes=True) as connection:
            claimed = await connection.execute(claiming)
            await connection.commit()
        return claimed.rowcount == 1

    async def is_unended(self, row: str) -> bool:
        """Return whether the response ``row`` has no end so far.

        Raises:
            NamesUnreachable: the database cannot be reached.

        """
        named = stored_names.c
        runs = (named.id == row, named.sealed.is_not(None), named.known != "", named.expires_at > self._instant())
        async with self._database.open(WITHIN_S) as connection:
            return await connection.scalar(select(named.id).where(*runs)) is not None

    async def leave(self, row: str) -> None:
        """Stop asking for the end of a response that the provider does not know; its client may still ask.

        Raises:
            NamesUnreachable: the database cannot be reached.

        """
        async with self._database.open(WITHIN_S, writes=True) as connection:
            statement = update(stored_names).where(stored_names.c.id == row).values(sealed=None, ask_at=None)
            await connection.execute(statement)
            await connection.commit()

    async def aclose(self) -> None:
        """Close the connection; a server that hangs delays this only briefly."""
        await self._database.aclose(CLOSE_TIMEOUT_S)

    async def _asked(self, hashed: str) -> str | None:
        answer = self._wanted.get(hashed)
        if answer is None:
            answer = self._wanted[hashed] = asyncio.get_running_loop().create_future()
        while not answer.done():
            async with self._looking:  # the first to come asks for all names that wait by then
                if not answer.done():
                    await asyncio.sleep(0)  # for callers in the same turn of the loop
                    batch = [*islice(self._wanted, MOST_AT_ONCE)]
                    makers = await self._look(batch)
                    for each in batch:
                        self._wanted.pop(each).set_result(AWAY if makers is None else makers.get(each))
        return answer.result()

    async def _look(self, names: Sequence[str]) -> dict[str, str] | None:
        """Return what is known, by hashed name; None: no answer of the database, or it lacks spooled rows."""
        if self._ledger.is_away:
            return None
        try:
            async with asyncio.timeout(ADOPTED_WITHIN_S):
                await self._ledger.adopted()
        except TimeoutError:
            return None
        row = stored_names.c
        query = select(row.id, row.known).where(row.id.in_(names), row.known != "", row.expires_at > self._instant())
        try:
            async with self._database.open(WITHIN_S) as connection:
                return {str(name): str(maker) for name, maker in await connection.execute(query)}
        except NamesUnreachable:
            return None

    def _sealed(self, row: str, name: str) -> str:
        """Return ``name``, encrypted and bound to its row; empty without a key."""
        if not self._seal:
            return ""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - 5 MB that few need

        nonce = urandom(_NONCE_BYTES)
        return b64encode(nonce + AESGCM(self._seal).encrypt(nonce, name.encode(), row.encode())).decode()

    def _opened(self, row: str, sealed: str) -> str | None:
        """Return the name that ``_sealed`` was given; None: sealed with another key, or not sealed."""
        if not sealed or not self._seal:
            return None
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - likewise
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - likewise

        try:
            raw = b64decode(sealed, validate=True)
            return AESGCM(self._seal).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], row.encode()).decode()
        except (InvalidTag, ValueError):
            return None

    def _now(self) -> datetime:
        return self._ledger.clock.now()

    def _instant(self) -> datetime:
        return self._database.instant(self._now())

    def _hashed(self, client: str | None, name: str) -> str:
        """Return the keyed hash of a client and a name; the client's length keeps all pairs apart."""
        prefix = "-" if client is None else f"{len(client)}:{client}"
        scoped = f"{prefix}{name}".encode(errors="replace")
        digest = blake2b(scoped, digest_size=16, key=self._key, person=self._kind)
        return str(UUID(bytes=digest.digest()))
