"""A call's entries, one after the other: for the model it names, then for those asked where that could not answer."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from gateway.calls import Call
from gateway.errors import ApiError
from gateway.fleet.fleet import Fleet
from gateway.ingress.causes import cause_of
from gateway.ingress.entry import Entry
from gateway.ingress.plan_header import PLAN_HEADER, written
from gateway.ingress.preferences.provider_preferences import is_passed_on

if TYPE_CHECKING:
    from gateway.settings.model import Cause

FALLBACK = "x-holeshot-fallback"  # the model that was asked in place of the one the request names

# Returns the call as it is for a model; the second argument is the same call as it was for the first one.
Enter = Callable[[str, Call | None], Entry]


class Succession:
    """Whose turn it is to answer a call. Each model is asked once.

    In place of one that could not answer come the request's own, whatever the cause, then those configured for it, then
    those configured for these.
    """

    def __init__(
        self, fleet: Fleet, asked: str, wanted: Sequence[str], enter: Enter, *, may_fall_back: bool = True
    ) -> None:
        """Enter the model that was ``asked`` for, or whoever may be asked in its place when it cannot answer at all.

        ``wanted`` are the request's own. ``enter`` must not know the holder of this: nothing would end the circle.

        Raises:
            ApiError: nobody can be asked.

        """
        self.told: dict[str, str] = {}  # headers for the client besides those of the answer
        self._fleet = fleet
        self._wanted = wanted
        self._enter = enter
        self._may_fall_back = may_fall_back
        self._tried = {asked}
        self._failed: list[tuple[str, Cause]] = []  # models that could not answer, and why
        self._first_call: Call | None = None  # whose id and times every further one keeps
        try:
            self.entry = enter(asked, None)
            self._tell(self.entry)
        except ApiError as error:
            found = self._after(error, asked)
            if found is None:
                raise
            self.entry = found
        self._first_call = self.entry.call

    def goes_on(self, error: ApiError) -> bool:
        """Go on to the next model after the current one ended in ``error``; return whether there is one."""
        following = self._after(error, self.entry.model.name)
        if following is not None:
            self.entry = following
        return following is not None

    def _after(self, error: ApiError, failed: str) -> Entry | None:
        """Enter the first that can answer of those that may be asked after the model ``failed`` ended in ``error``."""
        for name in self._names(error, failed):
            if name in self._tried:
                continue
            self._tried.add(name)
            try:
                entry = self._enter(name, self._first_call)
            except ApiError:
                continue
            self._tell(entry)
            self.told[FALLBACK] = name
            return entry
        return None

    def _names(self, error: ApiError, failed: str) -> Iterator[str]:
        cause = cause_of(error)
        if cause is None or not self._may_fall_back:
            return
        if self._first_call is None or not is_passed_on(self.entry.model):  # or its provider sees to the request's own
            yield from self._wanted
        self._failed.append((failed, cause))
        for name, why in self._failed:  # the first one's list to its end, before those of its fallbacks
            model = self._fleet.models.get(name)
            if model is not None:
                yield from (each.model for each in model.fallbacks if why in each.causes)

    def _tell(self, entry: Entry) -> None:
        self.told.clear()
        self.told.update(entry.told)
        if entry.plan.explanation is not None:
            self.told[PLAN_HEADER] = written(entry.plan.explanation)
