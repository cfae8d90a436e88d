"""When sources that ask the database are asked: seldom, and not while it is known not to answer."""

from collections.abc import Callable, Collection, Sequence

from gateway.alerts.alert import AlertKind, Condition, Source, SourceUnavailable


class CachedSource:
    """Reads ``source`` at most every ``every_s`` seconds, and caches its conditions or its failure."""

    def __init__(self, source: Source, *, every_s: float, clock: Callable[[], float]) -> None:
        self._source = source
        self._every_s = every_s
        self._clock = clock
        self._read_at_s: float | None = None
        self._cached: Sequence[Condition] | None = None

    @property
    def kinds(self) -> Collection[AlertKind]:
        """The kinds of the source."""
        return self._source.kinds

    async def conditions(self) -> Sequence[Condition]:
        """Return the source's conditions, from the cache if they were read recently."""
        if self._read_at_s is None or self._clock() - self._read_at_s >= self._every_s:
            self._read_at_s = self._clock()
            self._cached = None
            self._cached = await self._source.conditions()
        if self._cached is None:
            raise SourceUnavailable("it could not say a moment ago")
        return self._cached


class PatientSource:
    """Reads ``source``, which asks the database, unless that is known not to answer: others would wait for it."""

    def __init__(self, source: Source, is_away: Callable[[], bool]) -> None:
        self._source = source
        self._is_away = is_away

    @property
    def kinds(self) -> Collection[AlertKind]:
        """The kinds of the source."""
        return self._source.kinds

    async def conditions(self) -> Sequence[Condition]:
        """Return the source's conditions."""
        if self._is_away():
            raise SourceUnavailable("the database does not answer")
        return await self._source.conditions()
