"""When sources ask the database: seldom, and not while the database is known not to answer."""

import asyncio
from collections.abc import Callable, Collection, Sequence

from gateway.alerts.alert import AlertCondition, AlertKind, Source, SourceUnavailable

PATIENT_S = 1.0  # how long to wait for an answer; other problems are reported meanwhile


class CachedSource:
    """Reads ``source`` at most every ``every_s`` seconds, and caches its conditions or its failure."""

    def __init__(self, source: Source, *, every_s: float, clock: Callable[[], float]) -> None:
        self._source = source
        self._every_s = every_s
        self._clock = clock
        self._read_at_s: float | None = None
        self._cached: Sequence[AlertCondition] | None = None

    @property
    def kinds(self) -> Collection[AlertKind]:
        """The kinds of the source."""
        return self._source.kinds

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return the source's conditions, from the cache if the source was read recently."""
        if self._read_at_s is None or self._clock() - self._read_at_s >= self._every_s:
            self._read_at_s = self._clock()
            self._cached = None
            self._cached = await self._source.conditions()
        if self._cached is None:
            raise SourceUnavailable("it could not say a moment ago")
        return self._cached


class PatientSource:
    """Asks ``source``, which asks the database; other sources do not wait if no answer comes.

    ``is_away``: whether the database is known not to answer.
    """

    def __init__(self, source: Source, is_away: Callable[[], bool], *, patient_s: float = PATIENT_S) -> None:
        self._source = source
        self._is_away = is_away
        self._patient_s = patient_s
        self._asking: asyncio.Task[Sequence[AlertCondition]] | None = None
        self._latest: Sequence[AlertCondition] | None = None

    @property
    def kinds(self) -> Collection[AlertKind]:
        """The kinds of the source."""
        return self._source.kinds

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return the source's conditions; of a slow source the last ones, and the new ones the next time."""
        if self._is_away():
            raise SourceUnavailable("the database does not answer")
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask(), name="alerts.ask")
        done, _ = await asyncio.wait({self._asking}, timeout=self._patient_s)
        if done:
            asked, self._asking = self._asking, None
            self._latest = None
            self._latest = asked.result()
        if self._latest is None or self._is_away():
            raise SourceUnavailable("the database does not answer yet")
        return self._latest

    async def aclose(self) -> None:
        """End a question that has no answer yet."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self) -> Sequence[AlertCondition]:
        return await self._source.conditions()
