"""A lack of local resources (descriptors, ports, memory) is no provider's fault: it is logged, not counted."""

from collections.abc import Callable
from math import inf

import structlog

from gateway.attempt_records import AttemptRecord

TOLD_EVERY_S = 10.0  # a line for each attempt would be too many

_log = structlog.get_logger(__name__)


class Shortage:
    """Counts the attempts that failed for lack of local resources, and logs them together."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._attempts = 0  # since the last line
        self._told_at_s = -inf

    def hit(self, attempt: AttemptRecord) -> None:
        """Count an attempt that ended with ``local_resources``; log it unless that was done recently."""
        self._attempts += 1
        now_s = self._clock()
        if now_s < self._told_at_s + TOLD_EVERY_S:
            return
        _log.error(
            "gateway.out_of_resources",
            error=attempt.error_message,
            attempts=self._attempts,
            hint="raise the limit on open files (ulimit -n, LimitNOFILE=), or send this machine fewer calls",
        )
        self._told_at_s, self._attempts = now_s, 0
