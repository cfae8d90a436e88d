"""Credentials that expire, or whose files change: fetched in a thread, and renewed in time, so that no call waits."""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from providers.refusals import CERTAIN, ErrorKind, UpstreamError

EARLY_S = 300.0  # before the end: time for several tries
PAUSE_S = 5.0  # between two fetches, at least: after a failure, or if credentials expire very soon
LOOK_S = 10.0  # between two looks at the clock, and at the files that credentials come from
_LONGEST_PAUSE_S = 60.0  # after several failures
_FORGET_S = 60.0  # the least time between two searches for the source, after refusals

_T = TypeVar("_T")


class FetchedCredentials(msgspec.Struct, Generic[_T], frozen=True):
    """Credentials, and their expiry as Unix time in seconds; None: they never expire."""

    credentials: _T
    ends_at_s: float | None


class CredentialSource(Protocol[_T]):
    """Where credentials come from. Called in a thread, by one at a time; may raise any exception."""

    def fetch(self) -> FetchedCredentials[_T]:
        """Return credentials that are valid now."""

    def has_changed(self) -> bool:
        """Whether the files that the last ones came from have others now."""

    def forget(self) -> None:
        """Forget the source of the credentials, too: the provider refuses what it leads to."""


FileStates = tuple[tuple[int, ...] | None, ...]


def file_states(paths: Iterable[Path]) -> FileStates:
    """Return what changes with these files; None for one that is not there."""
    return tuple(map(_state_of, paths))


def _state_of(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.expanduser().stat()
    except (OSError, RuntimeError):  # no file, or no home
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


class Renewal(Generic[_T]):
    """Keeps valid credentials. Its owner closes it; the first request for them starts it, or ``begin``."""

    def __init__(
        self,
        source: CredentialSource[_T],
        *,
        failed: Callable[[Exception], str],  # the message for the operator
        wall_clock: Callable[[], float] = time.time,
        pause_s: float = PAUSE_S,
        look_s: float = LOOK_S,
    ) -> None:
        self._source = source
        self._look_s = look_s
        self._forget_at_s = -inf  # of the loop's clock: not before
        self._is_refused = False
        self._failed = failed
        self._wall_clock = wall_clock
        self._pause_s = pause_s
        self._held: FetchedCredentials[_T] | None = None
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
            raise UpstreamError(ErrorKind.PROVIDER_AUTH, self._error or caller, caller=caller, findings=CERTAIN)
        return held.credentials

    def refused(self) -> None:
        """Fetch again soon, as the provider has refused the present credentials."""
        self._is_refused = True
        self._hurry.set()

    async def aclose(self) -> None:
        """Stop renewing."""
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _renew(self) -> None:
        failures, loop = 0, asyncio.get_running_loop()
        while True:
            try:
                if self._is_refused and loop.time() >= self._forget_at_s:
                    self._forget_at_s = loop.time() + _FORGET_S
                    await asyncio.to_thread(self._source.forget)
                self._is_refused = False
                self._held = await asyncio.to_thread(self._source.fetch)
                self._error, failures = None, 0
            except Exception as error:  # noqa: BLE001 - a library raises what it likes; the operator is told
                self._error, failures = self._failed(error), failures + 1
            self._fetched.set()
            await asyncio.sleep(min(self._pause_s * 2.0 ** max(failures - 1, 0), _LONGEST_PAUSE_S))
            while not failures and (rest_s := self._rest_s()) > 0 and not self._hurry.is_set():
                with suppress(TimeoutError):
                    # In pieces: a timer stands still while the machine is suspended.
                    await asyncio.wait_for(self._hurry.wait(), min(rest_s, self._look_s))
                if await asyncio.to_thread(self._source.has_changed):
                    break
            self._hurry.clear()

    def _rest_s(self) -> float:
        """Return the seconds until the credentials have to be renewed."""
        ends_at_s = self._held.ends_at_s if self._held is not None else 0.0
        return inf if ends_at_s is None else ends_at_s - EARLY_S - self._wall_clock()

    def _has_ended(self, held: FetchedCredentials[_T]) -> bool:
        return held.ends_at_s is not None and self._wall_clock() >= held.ends_at_s
