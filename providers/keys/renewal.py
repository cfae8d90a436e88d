"""Credentials that expire: fetched in a thread, and renewed in the background in time, so that no call waits."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Generic, TypeVar

import msgspec

from providers.refusals import ErrorKind, UpstreamError

EARLY_S = 300.0  # before the end: time for several tries
PAUSE_S = 5.0  # between two fetches, at least: after a failure, or if credentials expire very soon
_LONGEST_PAUSE_S = 60.0  # after several failures, and between two checks of the clock

_T = TypeVar("_T")


class Fetched(msgspec.Struct, Generic[_T], frozen=True):
    """Credentials, and their expiry as Unix time in seconds; None: they never expire."""

    credentials: _T
    ends_at_s: float | None


class Renewal(Generic[_T]):
    """Keeps valid credentials. Its owner closes it; the first request for them starts it, or ``begin``."""

    def __init__(
        self,
        fetch: Callable[[], Fetched[_T]],  # called in a thread; may raise any exception
        *,
        failed: Callable[[Exception], str],  # the message for the operator
        wall_clock: Callable[[], float] = time.time,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._fetch = fetch
        self._failed = failed
        self._wall_clock = wall_clock
        self._pause_s = pause_s
        self._held: Fetched[_T] | None = None
        self._error: str | None = None  # of the last fetch
        self._task: asyncio.Task[None] | None = None
        self._fetched = asyncio.Event()  # a fetch has ended, successfully or not
        self._hurry = asyncio.Event()

    def begin(self) -> None:
        """Start to fetch and renew in the background; without effect if that runs already."""
        if self._task is None:
            self._task = asyncio.create_task(self._renew(), name="renew-credentials")

    async def current(self) -> _T:
        """Return valid credentials. Waits only for the very first ones, or new ones after the machine was suspended.

        Raises:
            UpstreamError: they cannot be had (provider_auth).

        """
        if (held := self._held) is not None and not self._has_ended(held):
            return held.credentials
        self.begin()
        if held is not None and self._error is None:  # they expired while the machine was suspended
            self._held = None
            self._fetched.clear()
            self._hurry.set()
        await self._fetched.wait()
        if (held := self._held) is None or self._has_ended(held):
            caller = "has no valid credentials"
            raise UpstreamError(ErrorKind.PROVIDER_AUTH, self._error or caller, caller=caller, is_certain=True)
        return held.credentials

    def refused(self) -> None:
        """Fetch again soon, as the provider has refused these."""
        self._hurry.set()

    async def aclose(self) -> None:
        """Stop renewing."""
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _renew(self) -> None:
        failures = 0
        while True:
            try:
                self._held = await asyncio.to_thread(self._fetch)
                self._error, failures = None, 0
            except Exception as error:  # noqa: BLE001 - a library raises what it likes; the operator is told
                self._error, failures = self._failed(error), failures + 1
            self._fetched.set()
            await asyncio.sleep(min(self._pause_s * 2.0 ** max(failures - 1, 0), _LONGEST_PAUSE_S))
            while not failures and (rest_s := self._rest_s()) > 0 and not self._hurry.is_set():
                with suppress(TimeoutError):
                    # In pieces: a timer stands still while the machine is suspended.
                    await asyncio.wait_for(self._hurry.wait(), min(rest_s, _LONGEST_PAUSE_S))
            self._hurry.clear()

    def _rest_s(self) -> float:
        """Return the seconds until the credentials have to be renewed."""
        ends_at_s = self._held.ends_at_s if self._held is not None else 0.0
        return inf if ends_at_s is None else ends_at_s - EARLY_S - self._wall_clock()

    def _has_ended(self, held: Fetched[_T]) -> bool:
        return held.ends_at_s is not None and self._wall_clock() >= held.ends_at_s
