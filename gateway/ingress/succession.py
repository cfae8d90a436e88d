"""The models that a call tries in turn: the one it names, then its fallbacks."""

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
    from gateway.settings.fallbacks import Cause

FALLBACK = "x-holeshot-fallback"  # the model that was used instead of the requested one

# Builds the call for a model; the second argument is the same call as built for the first model.
Enter = Callable[[str, Call | None], Entry]


class Succession:
    """The current model of a call, and the next one. Each model is tried once.

    After a failure the order is: the request's own fallbacks, for any cause; the fallbacks configured for the first
    model and this cause; the fallbacks configured for these.
    """

    def __init__(
        self, fleet: Fleet, asked: str, wanted: Sequence[str], enter: Enter, *, may_fall_back: bool = True
    ) -> None:
        """Build the call for the model ``asked``, or for the first usable fallback.

        ``wanted`` are the request's own fallbacks. ``enter`` must not refer to this object: it would be a cycle.

        Raises:
            ApiError: no model can be used.

        """
        self.response_headers: dict[str, str] = {}  # besides those of the answer
        self._fleet = fleet
        self._wanted = wanted
        self._enter = enter
        self._may_fall_back = may_fall_back
        self._tried = {asked}
        self._failed: list[tuple[str, Cause]] = []  # models that could not answer, with the cause
        self._first_call: Call | None = None  # its id and times are kept by the calls for fallbacks
        try:
            self.entry = enter(asked, None)
            self._tell(self.entry)
        except ApiError as error:
            found = self._after(error, asked)
            if found is None:
                raise
            self.entry = found
        self._first_call = self.entry.call

    def advance(self, error: ApiError) -> bool:
        """Move on to the next model after ``error``; return whether there is one."""
        following = self._after(error, self.entry.model.name)
        if following is not None:
            self.entry = following
        return following is not None

    def _after(self, error: ApiError, failed: str) -> Entry | None:
        """Build the call for the first usable fallback of the model ``failed``; None if there is none."""
        for name in self._names(error, failed):
            if name in self._tried:
                continue
            self._tried.add(name)
            try:
                entry = self._enter(name, self._first_call)
            except ApiError:
                continue
            self._tell(entry)
            self.response_headers[FALLBACK] = name
            return entry
        return None

    def _names(self, error: ApiError, failed: str) -> Iterator[str]:
        cause = cause_of(error)
        if cause is None or not self._may_fall_back:
            return
        if self._first_call is None or not is_passed_on(self.entry.model):  # else OpenRouter handles the request's own
            yield from self._wanted
        self._failed.append((failed, cause))
        for name, why in self._failed:  # the whole list of the first model before those of its fallbacks
            model = self._fleet.models.get(name)
            if model is not None:
                yield from (each.model for each in model.fallbacks if why in each.causes)

    def _tell(self, entry: Entry) -> None:
        self.response_headers.clear()
        self.response_headers.update(entry.response_headers)
        if entry.plan.explanation is not None:
            self.response_headers[PLAN_HEADER] = written(entry.plan.explanation)
