"""Which keys are in force, and which have just ended."""

from datetime import timedelta
from typing import Any

import pytest
import structlog

from gateway.core.errors import CutByExpiry, CutByRevocation
from gateway.keys import Ended, KeyTable
from gateway.settings import ClientSettings
from tests.unit.keys.given import NOW, Clock, digest, row, settings


class Table(KeyTable[tuple[str, ClientSettings]]):
    """A table of names and settings that keeps what it was told of ended keys."""

    def __init__(self, clients: dict[str, ClientSettings] | None = None, *, stored: bool = True) -> None:
        self.clock = Clock()
        self.ended: dict[bytes, Any] = {}
        super().__init__(lambda name, each: (name, each), clients or {}, stored=stored, unix_clock=self.clock)
        self.on_ended = self._note

    def has(self, *numbers: int) -> bool:
        return self.known.keys() == {digest(number) for number in numbers}

    def client(self, number: int) -> tuple[str, ClientSettings]:
        found = self.known[digest(number)].client
        assert found is not None
        return found

    def use(self, **changed: Any) -> None:
        self.learn(changed)
        self.use_rows()

    def taken_ended(self) -> dict[bytes, Any]:
        ended, self.ended = self.ended, {}
        return ended

    def _note(self, ended: Ended) -> None:
        self.ended |= ended


def test_without_clients_and_database_nobody_needs_a_key() -> None:
    table = Table(stored=False)

    assert (table.is_required, table.is_loaded) == (False, True)
    table.use_file({"app": settings(1)})
    assert table.is_required


def test_with_a_database_everybody_needs_one_whatever_it_holds() -> None:
    table = Table()

    assert table.is_required
    table.use_rows()
    assert table.is_required
    assert table.has()


def test_every_key_of_a_client_is_known_in_the_file_and_in_the_database() -> None:
    table = Table({"dashboard": settings(1, 2)})
    table.use(app=[row(3), row(4)])

    assert table.has(1, 2, 3, 4)
    assert (table.client(2)[0], table.client(3)[0]) == ("dashboard", "app")
    assert (table.known[digest(1)].id, table.known[digest(3)].id) == (None, "id-000003")


def test_the_newest_row_says_what_a_client_may_do() -> None:
    table = Table()
    table.use(app=[row(1, settings={"max_width": 1}), row(2, settings={"max_width": 5}, role="viewer")])

    assert table.client(1) == table.client(2)
    assert (table.client(1)[1].max_width, table.client(1)[1].role) == (5, "viewer")


def test_on_equal_names_the_file_wins_and_the_log_says_so_once() -> None:
    table = Table({"app": settings(1)})
    with structlog.testing.capture_logs() as logged:
        table.use(app=[row(2)])
        table.use(app=[row(2), row(3)])

    assert table.has(1)
    assert [entry["event"] for entry in logged] == ["keys.shadowed"]


def test_a_client_that_the_file_gives_up_is_the_databases_again() -> None:
    table = Table({"app": settings(1), "other": settings(9)})
    table.use(app=[row(2)])
    table.use_file({"other": settings(9)})

    assert table.has(2, 9)
    assert table.taken_ended() == {digest(1): CutByRevocation}


def test_the_same_key_in_both_is_the_files() -> None:
    table = Table({"filed": settings(1)})
    table.use(app=[row(1), row(2)])

    assert table.client(1)[0] == "filed"
    table.use(app=[])
    assert table.has(1)
    assert table.taken_ended() == {digest(2): CutByRevocation}


def test_revoked_and_removed_keys_have_ended_and_no_others() -> None:
    table = Table({"filed": settings(1, 2)})
    table.use(app=[row(3), row(4)], other=[row(5)])
    assert table.taken_ended() == {}

    table.use(app=[row(4)])
    assert table.taken_ended() == {digest(3): CutByRevocation}
    table.use_file({"filed": settings(2)})
    assert table.taken_ended() == {digest(1): CutByRevocation}
    table.use(other=[])
    assert table.taken_ended() == {digest(5): CutByRevocation}
    assert table.has(2, 4)


def test_keys_end_at_their_instant_each_once() -> None:
    table = Table({"filed": settings(1, expires=NOW + timedelta(seconds=20))})
    table.use(app=[row(2, retires_at=NOW + timedelta(seconds=10)), row(3)])
    assert table.next_end == table.clock() + 10

    table.clock.move(10)
    table.end_expired()
    assert table.taken_ended() == {digest(2): CutByExpiry}
    assert table.next_end == table.clock() + 10
    table.clock.move(10)
    table.end_expired()
    table.end_expired()
    assert table.taken_ended() == {digest(1): CutByExpiry}
    # They are still known, so that the answer can say that they have expired.
    assert (table.next_end, table.has(1, 2, 3)) == (None, True)


def test_an_end_that_is_moved_into_the_past_is_one() -> None:
    table = Table()
    table.use(app=[row(1)])
    table.use(app=[row(1, expires_at=NOW - timedelta(seconds=1))])

    assert table.taken_ended() == {digest(1): CutByExpiry}


def test_an_end_that_is_moved_away_is_none() -> None:
    table = Table()
    table.use(app=[row(1, expires_at=NOW + timedelta(seconds=1))])
    table.use(app=[row(1)])
    table.clock.move(5)
    table.end_expired()

    assert table.taken_ended() == {}
    assert table.next_end is None


def test_what_is_learned_counts_only_once_all_is() -> None:
    table = Table()
    table.learn({"app": [row(1)]})
    before = (len(table.known), table.is_loaded)

    table.learn({"other": [row(2)]})
    table.use_rows()
    assert table.has(1, 2)
    assert (before, table.is_loaded) == ((0, False), True)


@pytest.mark.parametrize("settings", [{"from_a_later_version": 1}, {"max_width": "wide"}])
def test_a_client_whose_settings_are_not_understood_is_known_and_has_none(settings: dict[str, Any]) -> None:
    table = Table()
    with structlog.testing.capture_logs() as logged:
        table.use(app=[row(1, settings=settings)], other=[row(2)])

    assert table.known[digest(1)].client is None
    assert table.client(2)[0] == "other"
    [entry] = logged
    assert (entry["event"], entry["client"]) == ("keys.unusable", "app")
    assert next(iter(settings)) in entry["problem"]


def test_one_of_ten_thousand_keys_is_found_by_its_hash_alone() -> None:
    """No key is compared with another one: a lookup hashes the digest, and compares what lies at that place."""
    table = Table()
    table.learn({f"client-{number}": [row(number, f"client-{number}")] for number in range(10_000)})
    table.use_rows()
    compared = 0

    class Counted(bytes):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

        __hash__ = bytes.__hash__

    for number in (0, 5_000, 9_999):
        assert table.known.get(Counted(digest(number))) is not None
    assert table.known.get(Counted(digest(10_000))) is None
    assert compared <= 4
