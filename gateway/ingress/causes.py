"""Classifies why a model could not answer: it decides which fallback models are tried."""

import re

from gateway.errors import ApiError, NoDeploymentFits, NothingEnabled
from gateway.limits.errors import LimitReached
from gateway.race_failures import RaceFailed, RejectedByProvider
from gateway.settings.fallbacks import Cause

_CONTEXT = re.compile(
    r"context.{0,5}(length|window|size|limit)|maximum.{0,20}context|(prompt|input|request).{0,30}too (long|large)"
    r"|too many (input )?tokens|exceeds? .{0,40}token",
    re.IGNORECASE,
)
_CONTENT = re.compile(
    r"content.{0,3}(filter|policy|management)|responsible.?ai|safety (system|filter|setting|reason)"
    r"|moderation|flagged|blocked (by|for|due)",
    re.IGNORECASE,
)
_TOO_LARGE = 413


def cause_of(error: ApiError) -> Cause | None:
    """Return why a fallback may be tried after ``error``; None if it would fail as well, because the request is wrong.

    Vendors differ in codes and messages, so both are checked.
    """
    if isinstance(error, NoDeploymentFits):
        return Cause.CONTEXT if error.too_long else Cause.FAILED
    if isinstance(error, RejectedByProvider):
        said = f"{error.code_there or ''} {error.message}"
        if error.status_code == _TOO_LARGE or _CONTEXT.search(said):
            return Cause.CONTEXT
        return Cause.CONTENT_FILTER if _CONTENT.search(said) else None
    if isinstance(error, LimitReached):
        return Cause.FAILED if error.of_model else None
    return Cause.FAILED if isinstance(error, RaceFailed | NothingEnabled) else None
