"""Cookies of sessions: how long they are good, at which gateways, and who can make them."""

from typing import Any

import pytest

from gateway.access import Client
from gateway.access.sessions import LIFETIME_S, Sessions, presented, secret_of
from gateway.keys import IssuedKey, KeyTable
from gateway.settings import ClientRole, Settings

DIGEST, OTHER = b"d" * 32, b"o" * 32
NOW = 1_800_000_000.0


def table(**known: IssuedKey[Client]) -> KeyTable[Client]:
    """A table with keys by name: ``admin=Known(…)`` has DIGEST, anything else OTHER."""

    def make(*_: Any) -> Client:
        raise AssertionError

    made: KeyTable[Client] = KeyTable(make, {}, stored=False, unix_clock=lambda: NOW)
    made.known = {DIGEST if name == "admin" else OTHER: each for name, each in known.items()}
    return made


ADMIN = IssuedKey(Client(name="admin", role=ClientRole.ADMIN))


def sessions(keys: KeyTable[Client], now: float = NOW) -> Sessions:
    return Sessions(keys, lambda: now)


def test_a_cookie_is_good_for_twelve_hours() -> None:
    cookie = sessions(table(admin=ADMIN)).made(DIGEST, b"")
    for now, found in ((NOW, DIGEST), (NOW + LIFETIME_S - 1, DIGEST), (NOW + LIFETIME_S, None)):
        assert sessions(table(admin=ADMIN), now).digest([cookie], b"") == found


def test_another_gateway_with_another_clock_takes_it_too() -> None:
    """A gateway whose clock is early must not take a fresh cookie for one of the future."""
    cookie = sessions(table(admin=ADMIN)).made(DIGEST, b"")
    assert sessions(table(admin=ADMIN), NOW - 600).digest([cookie], b"") == DIGEST


def test_it_is_found_among_many_and_dies_with_its_key() -> None:
    keys = table(admin=ADMIN, guest=IssuedKey(Client(name="guest", role=ClientRole.VIEWER)))
    known, gateway = keys.known, sessions(keys)
    cookies = {digest: gateway.made(digest, b"") for digest in (DIGEST, OTHER)}
    assert {digest: gateway.digest([cookie], b"") for digest, cookie in cookies.items()} == {
        DIGEST: DIGEST,
        OTHER: OTHER,
    }
    keys.known = {OTHER: known[OTHER]}
    assert [gateway.digest([cookies[digest]], b"") for digest in (DIGEST, OTHER)] == [None, OTHER]


def test_a_plain_client_has_no_session() -> None:
    gateway = sessions(table(admin=IssuedKey(Client(name="app", role=ClientRole.CLIENT))))
    assert gateway.digest([gateway.made(DIGEST, b"")], b"") is None


def test_a_key_that_this_version_cannot_use_keeps_its_session() -> None:
    """So that its owner is told so, and not signed out."""
    gateway = sessions(table(admin=IssuedKey(None)))
    assert gateway.digest([gateway.made(DIGEST, b"")], b"") == DIGEST


def test_without_the_secret_the_hash_of_a_key_makes_no_cookie() -> None:
    gateway = sessions(table(admin=ADMIN))
    for forged in (b"", b"guess"):
        assert gateway.digest([gateway.made(DIGEST, forged)], b"the installation's") is None
    assert gateway.digest([gateway.made(DIGEST, b"the installation's")], b"the installation's") == DIGEST


def test_a_cookie_tells_neither_the_hash_nor_which_key_of_another_installation() -> None:
    gateway = sessions(table(admin=ADMIN))
    one, two = gateway.made(DIGEST, b"one"), gateway.made(DIGEST, b"two")
    assert one.partition(".")[0] != two.partition(".")[0]
    assert DIGEST.hex()[:8] not in one


@pytest.mark.parametrize(
    ("settings", "own_key", "secret"),
    [
        ({"database_url": "postgresql://u:of-the-database@h/d"}, "", b"of-the-database"),
        (
            {"database_url": "postgresql://u:x@h/d", "page": {"signing_key": "sixteen or more."}},
            "",
            b"sixteen or more.",
        ),
        ({"database_url": "postgresql://u@h/d"}, "", b""),
        ({}, "beside SQLite", b"beside SQLite"),
        ({"page": {"signing_key": "sixteen or more."}}, "beside SQLite", b"sixteen or more."),
    ],
)
def test_the_secret_is_the_installations(settings: dict[str, Any], own_key: str, secret: bytes) -> None:
    assert secret_of(Settings(**settings), own_key) == secret


@pytest.mark.parametrize(
    ("headers", "values"),
    [
        ([], []),
        (["a=b"], []),
        (["a=b; holeshot-session=x.1.y"], ["x.1.y"]),
        (["holeshot-session=x", "holeshot-session=y;holeshot-session"], ["x", "y", ""]),
        (["xholeshot-session=x; Holeshot-Session=x; holeshot-session-2=x"], []),
        ([f"holeshot-session={'x' * 101}"], []),
    ],
)
def test_cookies_are_read_as_browsers_write_them(headers: list[str], values: list[str]) -> None:
    assert presented(headers) == values
