"""A source that is dear to ask, asked at most once in a while."""

from collections.abc import Callable, Collection, Sequence

from gateway.alerts.condition import Condition, Kind, Source, SourceUnavailable


class Seldom:
    """Repeats what ``source`` said less than ``every_s`` seconds ago; a failure is repeated as well."""

    def __init__(self, source: Source, *, every_s: float, clock: Callable[[], float]) -> None:
        self._source = source
        self._every_s = every_s
        self._clock = clock
        self._asked_at_s: float | None = None
        self._said: Sequence[Condition] | None = None

    @property
    def kinds(self) -> Collection[Kind]:
        """Those of the source."""
        return self._source.kinds

    async def conditions(self) -> Sequence[Condition]:
        """Return what the source says, or has said."""
        if self._asked_at_s is None or self._clock() - self._asked_at_s >= self._every_s:
            self._asked_at_s = self._clock()
            self._said = None
            self._said = await self._source.conditions()
        if self._said is None:
            raise SourceUnavailable("it could not say a moment ago")
        return self._said
