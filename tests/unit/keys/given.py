"""Keys and instants that tests of keys have in common."""

from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.keys import NewKey, StoredKey, client_settings, new_key
from gateway.settings import ClientSettings

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Clock:
    """Unix time, and UTC, that stand still until a test moves them."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now.timestamp()

    def utc(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def key(number: int = 0) -> NewKey:
    """Return the same key for the same number."""
    return new_key(lambda length: number.to_bytes(length, "big"))


def digest(number: int) -> bytes:
    return bytes.fromhex(key(number).sha256)


def row(number: int, name: str = "app", **values: Any) -> StoredKey:
    """Return the row of key ``number``; later numbers are newer."""
    made = key(number)
    fields = {
        "id": f"id-{number:06}",
        "name": name,
        "sha256": made.sha256,
        "hint": made.hint,
        "role": "client",
        "settings": {},
        "created_at": NOW + timedelta(seconds=number),
        "created_by": "tests",
    }
    return StoredKey(**{**fields, **values})


def settings(*numbers: int, **fields: Any) -> ClientSettings:
    """Return a client of the file with the keys of these numbers."""
    return client_settings(fields, [key(number).sha256 for number in numbers])
