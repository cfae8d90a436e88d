"""Leases: how far this process may use a quota. Without Redis, as far as its share of the limit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from gateway.limits.quota import Quota


class Leases(Protocol):
    """Decides how far quotas go; all amounts are in the unit of their limit."""

    @property
    def connected(self) -> bool:
        """Whether leases can be had; True where none are needed."""

    @property
    def sees_all(self) -> bool:
        """Whether no other process uses the same limits: what this one has used is all that was."""

    async def enlarge(self, short: Sequence[tuple[Quota, float]], patience_s: float) -> None:
        """Try to let each quota hold the amount given with it; wait for that no longer than ``patience_s``."""

    def keep(self, quota: Quota) -> None:
        """Keep the other processes informed about ``quota`` until its window ends; ``enlarge`` does so too."""

    def recollect(self, spent: Mapping[str, float]) -> None:
        """Set what was spent before the start, US dollars by the key of the quota."""

    async def start(self) -> None:
        """Start what runs in the background."""

    async def close(self) -> None:
        """Stop it, and give all leases back."""


class OwnShare:
    """The share of each limit that one of ``processes`` has which cannot talk to each other."""

    def __init__(self, processes: int, *, clock: Callable[[], float], unix_clock: Callable[[], float]) -> None:
        self._processes = processes
        self._clock = clock
        self._unix_clock = unix_clock
        self._spent: Mapping[str, float] = {}
        self._kept: dict[str, Quota] = {}

    connected = True

    @property
    def sees_all(self) -> bool:
        """Whether this is the only process."""
        return self._processes == 1

    async def enlarge(self, short: Sequence[tuple[Quota, float]], patience_s: float) -> None:  # noqa: ARG002 - no wait
        """Let each quota go as far as the share; within a window that stays the same."""
        for quota, _ in short:
            if quota.key not in self._kept:
                self._forget()
                self._kept[quota.key] = quota
                quota.elsewhere.used = self._spent.get(quota.key, 0.0)
            quota.share(self._processes, self._clock())

    def keep(self, quota: Quota) -> None:
        """Do nothing: there is nobody to inform."""

    def recollect(self, spent: Mapping[str, float]) -> None:
        """Set what was spent before the start, by the key of the quota."""
        self._spent = spent
        for quota in self._kept.values():
            quota.elsewhere.used = spent.get(quota.key, 0.0)
            quota.relimit(quota.limit)

    async def start(self) -> None:
        """Do nothing: there is nobody to ask."""

    async def close(self) -> None:
        """Do nothing: nothing was leased."""

    def _forget(self) -> None:
        unix_s = self._unix_clock()
        self._kept = {key: quota for key, quota in self._kept.items() if quota.window.ends_s > unix_s}
