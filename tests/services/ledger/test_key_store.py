"""Clients' keys in the two databases: what is stored, two writers at once, and a database that hangs."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from gateway.core.errors import ClientNotFound, InvalidRequest, KeyConflict, KeysUnreachable
from gateway.core.ids import new_id
from gateway.keys import KeyChange, NewKey, StoredKey, changes, client_settings, new_key
from gateway.ledger import SqlKeyStore, database, downgrade, key_store, migrate, queries
from tests.patience import PATIENCE_S
from tests.support.relay import Relay

NOW = datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


class Desk:
    """Makes and changes keys in a store, as an administrator does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = SqlKeyStore(url)
        self.at = NOW

    async def create(self, name: str, **fields: Any) -> NewKey:
        key = new_key()
        self.at += timedelta(seconds=1)
        decide = changes.created(name, client_settings(fields), key, key_id=new_id(), who="ann", at=self.at)
        await self.store.change(name, decide, who="ann", at=self.at)
        return key

    async def patch(self, name: str, **patch: Any) -> KeyChange:
        return await self.store.change(name, changes.changed(name, patch, client_settings), who="bob", at=self.at)

    async def rotate(self, name: str, grace_s: float = 0) -> NewKey:
        key = new_key()
        self.at += timedelta(seconds=1)
        decide = changes.rotated(name, key, grace_s=grace_s, key_id=new_id(), who="bob", at=self.at)
        await self.store.change(name, decide, who="bob", at=self.at)
        return key

    async def revoke(self, name: str) -> KeyChange:
        return await self.store.change(name, changes.revoked(name, at=self.at), who="bob", at=self.at)

    async def audit(self) -> list[tuple[Any, ...]]:
        return (await queries.run(self.url, "select who, action, name from key_changes order by id")).rows


@pytest.fixture
async def desk(ledger_url: str) -> AsyncIterator[Desk]:
    desk = Desk(ledger_url)
    yield desk
    await desk.store.aclose()


def names(rows: Sequence[StoredKey]) -> list[str]:
    return sorted(row.name for row in rows)


async def test_a_key_is_read_as_it_was_stored(desk: Desk) -> None:
    key = await desk.create("app", role="viewer", expires="2030-06-01", require={"zdr": True}, models=["m"])

    [row] = await desk.store.rows()

    assert (row.name, row.sha256, row.hint, row.role) == ("app", key.sha256, key.hint, "viewer")
    assert row.settings == {"require": {"zdr": True}, "models": ["m"]}
    assert row.expires_at == datetime(2030, 6, 1, tzinfo=UTC)
    assert (row.created_at, row.created_by, row.retires_at, row.revoked_at) == (desk.at, "ann", None, None)
    assert await desk.store.listed() == [row]


async def test_each_change_is_a_version_and_a_row_of_who_did_what(desk: Desk) -> None:
    assert await desk.store.version() == 0
    await desk.create("app")
    first = await desk.store.version()
    await desk.patch("app", max_width=1)
    await desk.rotate("app", grace_s=60)
    await desk.revoke("app")

    assert await desk.store.version() > first > 0
    assert await desk.audit() == [
        ("ann", "created", "app"),
        ("bob", "changed", "app"),
        ("bob", "rotated", "app"),
        ("bob", "revoked", "app"),
    ]


async def test_what_has_changed_since_a_version_is_read_alone_and_revoked_keys_too(desk: Desk) -> None:
    await desk.create("app")
    await desk.create("other")
    await desk.create("third")
    version = await desk.store.version()
    assert await desk.store.rows(version) == []

    await desk.revoke("app")
    await desk.patch("other", max_width=1)

    changed = await desk.store.rows(version)
    assert names(changed) == ["app", "other"]
    assert [row.revoked_at is not None for row in sorted(changed, key=lambda row: row.name)] == [True, False]
    assert names(await desk.store.rows()) == ["other", "third"]
    assert names(await desk.store.listed(revoked=True)) == ["app", "other", "third"]


async def test_a_change_that_is_refused_leaves_no_trace(desk: Desk) -> None:
    await desk.create("app")
    before = (await desk.store.rows(), await desk.audit())
    with pytest.raises(KeyConflict):
        await desk.create("app")
    with pytest.raises(InvalidRequest):
        await desk.patch("app", max_width=99)
    with pytest.raises(ClientNotFound):
        await desk.revoke("nobody")

    assert (await desk.store.rows(), await desk.audit()) == before


async def test_a_name_is_free_again_when_its_keys_are_revoked(desk: Desk) -> None:
    await desk.create("app")
    await desk.revoke("app")
    key = await desk.create("app")

    [row] = await desk.store.rows()
    assert row.sha256 == key.sha256


async def test_of_two_who_take_a_name_at_once_one_gets_it(desk: Desk) -> None:
    other = Desk(desk.url)
    try:
        found = await asyncio.gather(
            *(each.create("app") for each in (desk, other) for _ in range(5)), return_exceptions=True
        )
    finally:
        await other.store.aclose()

    assert [type(each) for each in found if not isinstance(each, NewKey)] == [KeyConflict] * 9
    assert names(await desk.store.rows()) == ["app"]


async def test_of_two_who_change_a_client_at_once_neither_is_lost(desk: Desk) -> None:
    await desk.create("app")
    other = Desk(desk.url)
    try:
        await asyncio.gather(desk.patch("app", max_width=1), other.patch("app", adhoc=True))
        await asyncio.gather(desk.rotate("app", grace_s=60), other.rotate("app", grace_s=60))
    finally:
        await other.store.aclose()

    rows = await desk.store.rows()
    assert [row.settings for row in rows] == [{"max_width": 1, "adhoc": True}] * 3
    assert sorted(row.retires_at is None for row in rows) == [False, False, True]


async def test_versions_become_visible_in_their_order(postgres_url: str) -> None:
    """A reader that has seen a version has seen every change before it: a later id never comes first."""
    desk, other = Desk(postgres_url), Desk(postgres_url)
    connection = await asyncpg.connect(postgres_url)
    try:
        async with connection.transaction():
            await connection.execute("select pg_advisory_xact_lock(hashtext('holeshot.keys'))")
            waiting = asyncio.create_task(desk.create("first"))
            while not await connection.fetchval("select count(*) from pg_locks where not granted"):
                assert not waiting.done()
            assert await other.store.version() == 0
            await connection.execute(
                "insert into key_changes (at, who, action, name) values (now(), 'me', 'changed', 'x')"
            )
        await waiting
    finally:
        await connection.close()
        await desk.store.aclose()
        await other.store.aclose()
    rows = (await queries.run(postgres_url, "select name from key_changes order by id")).rows
    assert rows == [("x",), ("first",)]


async def test_uses_are_noted_and_are_no_change(desk: Desk) -> None:
    await desk.create("app")
    await desk.create("other")
    rows = {row.name: row for row in await desk.store.listed()}
    version = await desk.store.version()
    await desk.store.note_uses([rows["app"].id], NOW)
    await desk.store.note_uses([rows["app"].id, new_id()], NOW - timedelta(hours=1))  # a slow replica
    await desk.store.note_uses([], NOW)

    after = {row.name: row.last_used_at for row in await desk.store.listed()}
    assert after == {"app": NOW, "other": None}
    assert await desk.store.version() == version
    assert all(row.last_used_at is None for row in await desk.store.rows())


async def test_replicas_note_uses_of_the_same_keys_without_waiting_for_each_other(postgres_url: str) -> None:
    desk = Desk(postgres_url)
    await desk.create("app")
    await desk.create("other")
    ids = [row.id for row in await desk.store.rows()]
    connection = await asyncpg.connect(postgres_url)
    try:
        async with connection.transaction():
            await connection.execute("update client_keys set last_used_at = now() where name = 'app'")
            await desk.store.note_uses(ids, NOW)  # it would wait for a deadlock otherwise
    finally:
        await connection.close()
    used = {row.name: row.last_used_at for row in await desk.store.listed()}
    await desk.store.aclose()
    assert used["other"] == NOW
    assert used["app"] not in (None, NOW)


async def test_thousands_of_keys_are_read_in_pages(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_store, "READ_AT_ONCE", 3)
    for number in range(7):
        await desk.create(f"app-{number}")

    assert names(await desk.store.rows()) == [f"app-{number}" for number in range(7)]


async def test_no_secret_is_in_either_table(desk: Desk) -> None:
    keys = [await desk.create("app"), await desk.rotate("app", grace_s=60)]
    await desk.patch("app", max_width=1)
    await desk.revoke("app")
    stored = [(await queries.run(desk.url, f"select * from {table}")).rows for table in ("client_keys", "key_changes")]

    for key in keys:
        assert key.text not in repr(stored)
        assert key.text.removeprefix("hs-")[:16] not in repr(stored)
        assert key.sha256 not in repr(stored[1])


async def test_without_the_tables_it_says_what_is_missing(ledger_url: str) -> None:
    await downgrade(ledger_url, "base")
    store = SqlKeyStore(ledger_url)
    with pytest.raises(KeysUnreachable, match="key_changes"):
        await store.version()
    await store.aclose()


async def test_a_file_that_was_deleted_is_away_and_a_new_one_is_found(sqlite_url: str) -> None:
    desk = Desk(sqlite_url)
    await desk.create("app")
    _delete(sqlite_url)
    with pytest.raises(KeysUnreachable, match="deleted or replaced"):
        await desk.store.version()
    await migrate(sqlite_url)

    assert await desk.store.rows() == []
    await desk.store.aclose()


def _delete(sqlite_url: str) -> None:
    for each in Path(str(make_url(sqlite_url).database)).parent.glob("ledger.db*"):
        each.unlink()


@pytest.mark.parametrize("connected", [True, False], ids=["while it is used", "before it is connected"])
async def test_a_database_that_hangs_holds_nobody_up(
    relayed_url: str, relay: Relay, connected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "COMMAND_TIMEOUT_S", 3600.0)  # it is not the driver that gives up
    desk = Desk(relayed_url)
    if connected:
        await desk.create("before")
    monkeypatch.setattr(key_store, "TIMEOUT_S", 0.3)
    relay.hang()
    async with asyncio.timeout(PATIENCE_S):
        for ask in (desk.store.version, desk.store.rows, desk.store.listed):
            with pytest.raises(KeysUnreachable, match="did not answer within"):
                await ask()
        with pytest.raises(KeysUnreachable):
            await desk.create("meanwhile")
        with pytest.raises(KeysUnreachable):
            await desk.store.note_uses([new_id()], NOW)
    monkeypatch.setattr(key_store, "TIMEOUT_S", PATIENCE_S)
    relay.resume()
    await desk.create("after")
    assert "after" in names(await desk.store.rows())
    monkeypatch.setattr(key_store, "TIMEOUT_S", 0.3)
    relay.hang()
    async with asyncio.timeout(PATIENCE_S):
        await desk.store.aclose()


async def test_a_writer_that_dies_in_the_middle_blocks_the_next_one_for_seconds_only(
    postgres_url: str, relayed_url: str, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, other = Desk(relayed_url), Desk(postgres_url)
    await desk.create("app")

    def hang(_: Sequence[StoredKey]) -> KeyChange:
        relay.hang()
        return changes.revoked("app", at=NOW)(_)

    monkeypatch.setattr(key_store, "TIMEOUT_S", 1.0)  # of the one that hangs, here and at the server
    with pytest.raises(KeysUnreachable):
        await desk.store.change("app", hang, who="ann", at=NOW)
    monkeypatch.setattr(key_store, "TIMEOUT_S", PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await other.patch("app", max_width=1)
                break
            except KeysUnreachable:  # the lock of the one that hangs: the server gives it back by itself
                continue
    relay.resume()
    assert [row.settings for row in await other.store.rows()] == [{"max_width": 1}]
    await desk.store.aclose()
    await other.store.aclose()


async def test_ten_thousand_keys_are_read_without_holding_up_the_event_loop(sqlite_url: str) -> None:
    """What is counted are the turns that others have meanwhile, not milliseconds."""
    desk = Desk(sqlite_url)
    await desk.create("app")
    [row] = await desk.store.rows()
    values = [
        (new_id(), f"app-{number}", f"{number:064x}", row.hint, "client", "{}", "2030-01-01 00:00:00", "ann", 1)
        for number in range(10_000)
    ]
    with closing(sqlite3.connect(str(make_url(sqlite_url).database))) as connection:
        connection.executemany(
            "insert into client_keys (id, name, sha256, hint, role, settings, created_at, created_by, change_id)"
            " values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )
        connection.commit()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    rows = await desk.store.rows()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await desk.store.aclose()
    assert len(rows) == 10_001
    assert turns >= 20
