"""Strangers: connections without an admitted request, by address, the longest silent first."""

from collections.abc import Hashable, Iterable
from typing import Generic, Protocol, TypeVar

LOOKS = 64  # among the longest silent ones an idle one is preferred; so many are checked


class Stranger(Protocol):
    """A connection that can be selected."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is running on it."""


T = TypeVar("T", bound=Stranger)


class Strangers(Generic[T]):
    """All strangers. Those with the address None count in the total only."""

    def __init__(self) -> None:
        self._addresses: dict[T, Hashable | None] = {}
        self._by_address: dict[Hashable, dict[T, None]] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def address(self, one: T) -> Hashable | None:
        """Return its address; None if it is unknown or has none."""
        return self._addresses.get(one)

    def number_from(self, address: Hashable) -> int:
        """Return the number of strangers from ``address``."""
        return len(self._by_address.get(address, ()))

    def add(self, one: T, address: Hashable | None) -> None:
        """Add a stranger as the least silent; a known one may have another address now."""
        self.discard(one)
        self._addresses[one] = address
        if address is not None:
            self._by_address.setdefault(address, {})[one] = None

    def discard(self, one: T) -> None:
        """Remove a stranger, if it is known."""
        address = self._addresses.pop(one, None)
        if address is not None:
            same = self._by_address[address]
            del same[one]
            if not same:
                del self._by_address[address]

    def mark_active(self, one: T) -> None:
        """Record data from a stranger: it is the least silent now."""
        if one in self._addresses:
            self.add(one, self._addresses[one])

    def longest_silent(self, address: Hashable | None = None) -> T | None:
        """Return the one to cut, of all or of those from ``address``: the longest silent, preferably an idle one."""
        among: Iterable[T] = self._addresses if address is None else self._by_address.get(address, ())
        first = None
        for number, one in enumerate(among):
            if one.is_idle:
                return one
            first = one if first is None else first
            if number == LOOKS:
                break
        return first
