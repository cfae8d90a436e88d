"""Why a model could not answer, as far as another one may be asked in its place."""

import re
from collections import deque
from collections.abc import Iterable, Iterator

from gateway.errors import ApiError, NoDeploymentFits, NothingEnabled, RaceFailed, RejectedByProvider
from gateway.fleet import Fleet
from gateway.settings.model import Cause

_CONTEXT = re.compile(
    r"context.{0,5}(length|window|size|limit)|maximum.{0,20}context|(prompt|input|request).{0,30}too (long|large)"
    r"|too many (input )?tokens|exceeds? .{0,40}token",
    re.IGNORECASE,
)
_CONTENT = re.compile(
    r"content.{0,3}(filter|policy|management)|responsible.?ai|safety|moderation|flagged|blocked", re.IGNORECASE
)
_TOO_LARGE = 413


def cause_of(error: ApiError) -> Cause | None:
    """Return why another model may be asked after ``error``, None where it would say the same: the request is wrong.

    Vendors word it in many ways, with and without a code: both are looked at.
    """
    if isinstance(error, NoDeploymentFits):
        return Cause.CONTEXT if error.too_long else Cause.FAILED
    if isinstance(error, RejectedByProvider):
        said = f"{error.code_there or ''} {error.message}"
        if error.status_code == _TOO_LARGE or _CONTEXT.search(said):
            return Cause.CONTEXT
        return Cause.CONTENT_FILTER if _CONTENT.search(said) else None
    return Cause.FAILED if isinstance(error, RaceFailed | NothingEnabled) else None


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
