"""How changes in the database come into force, and what happens while it is away."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.typing import EventDict

from gateway.core.errors import CutByRevocation, KeysUnreachable
from gateway.keys import Ended, KeyTable, changes, client_settings, keys
from gateway.keys.keys import FULL_READ_S, LOG_EVERY_S, STALE_S, KeyUses, KeyWatch
from gateway.settings import ClientSettings
from tests.patience import PATIENCE_S
from tests.unit.keys.given import NOW, Clock, digest, key
from tests.unit.keys.memory_key_store import MemoryKeyStore


class Watched:
    """A store, a table that follows it, and the time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryKeyStore()
        self.bugs: list[Exception] = []  # which one look each meets
        self.table: KeyTable[str] = KeyTable(self._make, {}, stored=True, unix_clock=self.clock)
        self.watch = KeyWatch(self.store, self.table, self.clock)
        self.ended: dict[bytes, Any] = {}
        self.table.on_ended = self._note

    async def create(self, number: int, name: str = "app") -> None:
        decide = changes.created(
            name, client_settings({}), key(number), key_id=f"id-{number}", who="tests", at=self.clock.utc()
        )
        await self.store.change(name, decide, who="tests", at=NOW)

    async def revoke(self, name: str = "app") -> None:
        await self.store.change(name, changes.revoked(name, at=self.clock.utc()), who="tests", at=NOW)

    def has(self, *numbers: int) -> bool:
        return self.table.known.keys() == {digest(number) for number in numbers}

    def _make(self, name: str, settings: ClientSettings) -> str:
        del settings
        if self.bugs:
            raise self.bugs.pop()
        return name

    def _note(self, ended: Ended) -> None:
        self.ended |= ended


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def logged() -> Iterator[list[EventDict]]:
    with structlog.testing.capture_logs() as entries:
        yield entries


async def test_what_is_made_and_revoked_is_seen_at_the_next_look(watched: Watched) -> None:
    await watched.watch.look()
    assert watched.table.is_loaded
    await watched.create(1)
    await watched.create(2, "other")
    await watched.watch.look()
    assert watched.has(1, 2)

    await watched.revoke()
    await watched.watch.look()
    assert watched.has(2)
    assert watched.ended == {digest(1): CutByRevocation}
    assert watched.watch.clients == 1


async def test_only_what_has_changed_is_read_again(watched: Watched) -> None:
    await watched.create(1)
    await watched.watch.look()
    before = watched.table.known
    await watched.watch.look()
    assert watched.table.known is before  # nothing has changed, so nothing was made again

    await watched.create(2, "other")
    await watched.watch.look()
    assert watched.has(1, 2)
    assert watched.store.full_reads == 1


async def test_a_change_by_hand_is_seen_within_a_minute(watched: Watched) -> None:
    await watched.create(1)
    await watched.create(2, "other")
    await watched.watch.look()
    watched.store.by_hand("id-1", revoked_at=NOW)
    watched.store.by_hand("id-2", role="admin", settings={"max_width": 1})
    await watched.watch.look()
    assert watched.has(1, 2)

    watched.clock.move(FULL_READ_S)
    await watched.watch.look()
    assert watched.has(2)
    assert watched.ended == {digest(1): CutByRevocation}


@pytest.mark.parametrize("turns", range(12))
async def test_a_look_that_is_cancelled_forgets_no_change(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr(keys, "COMPARED_AT_ONCE", 1)
    for number in range(3):
        await watched.create(number, f"client-{number}")
    await watched.watch.look()
    watched.store.by_hand("id-2", revoked_at=NOW)
    watched.clock.move(FULL_READ_S)
    look = asyncio.create_task(watched.watch.look())
    for _ in range(turns):
        await asyncio.sleep(0)
    look.cancel()  # an administrator hangs up
    await asyncio.wait({look})

    watched.clock.move(FULL_READ_S)
    await watched.watch.look()
    assert watched.has(0, 1)


async def test_reading_everything_again_makes_nothing_again_that_is_as_it_was(watched: Watched) -> None:
    await watched.create(1)
    await watched.watch.look()
    before = watched.table.known
    watched.store.by_hand("id-1", last_used_at=NOW)
    watched.clock.move(FULL_READ_S)
    await watched.watch.look()

    assert watched.store.full_reads == 2
    assert watched.table.known is before


async def test_a_database_that_was_put_back_is_read_as_a_whole(watched: Watched) -> None:
    await watched.create(1)
    rows, version = dict(watched.store.stored), 1
    await watched.create(2, "other")
    await watched.watch.look()

    watched.store.restored(rows, version)
    await watched.watch.look()

    assert watched.has(1)
    assert watched.ended == {digest(2): CutByRevocation}


async def test_a_thousand_clients_are_in_force_all_at_once(watched: Watched) -> None:
    for number in range(1000):
        await watched.create(number, f"client-{number}")
    seen: list[int] = []
    watched.table.on_changed = lambda: seen.append(len(watched.table.known))
    await watched.watch.look()

    assert seen == [1000]


async def test_while_the_database_is_away_known_keys_stay_and_it_is_said_loudly_but_seldom(
    watched: Watched, logged: list[EventDict]
) -> None:
    await watched.create(1)
    await watched.watch._try_to_look()
    watched.store.away = True
    for _ in range(int(LOG_EVERY_S) + 2):
        await watched.watch._try_to_look()
        watched.clock.move(1)

    assert watched.has(1)
    assert watched.watch.stale_s == LOG_EVERY_S + 2
    assert [(entry["event"], entry["log_level"]) for entry in logged] == [("keys.stale", "warning")] * 2
    assert "known so far stay in force" in logged[0]["effect"]

    watched.store.away = False
    await watched.watch._try_to_look()
    assert watched.watch.stale_s == 0
    assert [entry["event"] for entry in logged][2:] == ["keys.fresh_again"]


async def test_a_moment_without_an_answer_is_not_stale(watched: Watched) -> None:
    await watched.watch.look()
    watched.clock.move(STALE_S)

    assert watched.watch.stale_s == 0


async def test_before_the_first_answer_nothing_is_loaded_and_the_log_says_what_that_means(
    watched: Watched, logged: list[EventDict]
) -> None:
    watched.store.away = True
    with pytest.raises(KeysUnreachable):
        await watched.watch.look()
    await watched.watch._try_to_look()

    assert not watched.table.is_loaded
    assert "503" in logged[0]["effect"]


async def test_changes_are_looked_for_again_and_again_until_it_is_closed(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "POLL_S", 0.001)
    await watched.watch.start()
    changed = asyncio.Event()
    watched.table.on_changed = changed.set
    await watched.create(1)
    await changed.wait()
    await watched.watch.close()

    assert watched.has(1)
    assert len(asyncio.all_tasks()) == 1


async def test_a_bug_in_one_look_is_not_the_end_of_looking(watched: Watched, logged: list[EventDict]) -> None:
    await watched.create(1)
    watched.bugs = [RuntimeError("a bug")]
    await watched.watch._try_to_look()
    assert [entry["event"] for entry in logged] == ["keys.watch_failed"]
    await watched.watch._try_to_look()

    assert watched.has(1)


async def test_looking_ends_though_the_database_takes_the_cancellation_for_an_error(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()
    looks = 0

    class Connecting(MemoryKeyStore):
        async def version(self) -> int:
            nonlocal looks
            looks += 1
            if looks == 2:  # the first is before it polls
                asked.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError as cancelled:
                    raise KeysUnreachable("the database does not answer") from cancelled
            return 0

    monkeypatch.setattr(keys, "POLL_S", 0.0)
    watch = KeyWatch(Connecting(), watched.table, watched.clock)
    await watch.start()
    await asked.wait()
    async with asyncio.timeout(PATIENCE_S):
        await watch.close()
    assert looks == 2
    assert len(asyncio.all_tasks()) == 1


async def test_uses_are_written_in_one_batch_and_kept_while_the_database_is_away() -> None:
    store = MemoryKeyStore()
    uses = KeyUses(store, lambda: NOW)
    use = uses.ids.add
    for each in ("a", "b", "a"):
        use(each)
    store.away = True
    await uses.write()
    use("c")
    store.away = False
    await uses.write()
    await uses.write()
    use("d")
    await uses.close()

    assert store.uses == [{"a", "b", "c"}, {"d"}]
