"""Who is asked after a model that could not answer."""

from collections import deque
from collections.abc import Iterable, Iterator

from gateway.errors import ApiError
from gateway.fleet import Fleet
from gateway.ingress.causes import cause_of


class Successors:
    """The models that may be asked after one that could not answer, each once.

    First those of the request, whatever the cause, then those configured for it.
    """

    def __init__(self, fleet: Fleet, asked: str, wanted: Iterable[str]) -> None:
        self._fleet = fleet
        self._wanted = deque(wanted)
        self._tried = {asked}

    def forget_wanted(self) -> None:
        """Leave the request's own to the provider, which sees to them."""
        self._wanted.clear()

    def after(self, error: ApiError, failed: str) -> Iterator[str]:
        """Yield who may be asked after the model ``failed`` ended in ``error``; whoever was yielded was tried."""
        cause = cause_of(error)
        if cause is None:
            return
        model = self._fleet.models.get(failed)
        configured = [each.model for each in model.fallbacks if cause in each.causes] if model is not None else []
        for name in [*self._wanted, *configured]:
            if name not in self._tried:
                self._tried.add(name)
                yield name
