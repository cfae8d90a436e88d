"""Strangers: connections on which no request has been admitted yet, by address, longest silent first."""

from collections.abc import Hashable, Iterable
from typing import Generic, Protocol, TypeVar

LOOKS = 64  # at the longest silent ones, for one that is idle; then the longest silent is chosen all the same


class Stranger(Protocol):
    """What can be chosen."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way on it."""


T = TypeVar("T", bound=Stranger)


class Strangers(Generic[T]):
    """Who they are. An address of None is nobody's: such strangers are counted in all, and not by address."""

    def __init__(self) -> None:
        self._addresses: dict[T, Hashable | None] = {}
        self._by_address: dict[Hashable, dict[T, None]] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def address(self, one: T) -> Hashable | None:
        """Return where it comes from, if it is known, and not nobody's."""
        return self._addresses.get(one)

    def number_from(self, address: Hashable) -> int:
        """Return how many come from there."""
        return len(self._by_address.get(address, ()))

    def add(self, one: T, address: Hashable | None) -> None:
        """Take one in as the least silent; one that is known already may have another address now."""
        self.discard(one)
        self._addresses[one] = address
        if address is not None:
            self._by_address.setdefault(address, {})[one] = None

    def discard(self, one: T) -> None:
        """Forget one, if it is known."""
        address = self._addresses.pop(one, None)
        if address is not None:
            same = self._by_address[address]
            del same[one]
            if not same:
                del self._by_address[address]

    def heard(self, one: T) -> None:
        """Note that one has said something: it is the least silent now."""
        if one in self._addresses:
            self.add(one, self._addresses[one])

    def longest_silent(self, address: Hashable | None = None) -> T | None:
        """Return whom to cut, of all or of those from ``address``: the longest silent, rather an idle one."""
        among: Iterable[T] = self._addresses if address is None else self._by_address.get(address, ())
        first = None
        for number, one in enumerate(among):
            if one.is_idle:
                return one
            first = one if first is None else first
            if number == LOOKS:
                break
        return first
