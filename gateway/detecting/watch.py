"""Watches one metric of one deployment: whether a slowdown is open, and what ends it."""

from math import exp
from typing import TypeVar

from gateway.detecting.evidence import Evidence
from gateway.detecting.slowdowns import Change, Ending, Happened, Slowdown
from gateway.detecting.windows import DAY_S, WINDOW_S, Metric

SETTLED_S = 7 * DAY_S  # until then only what is twice as bad is told; after as long, what is new is usual
SILENT_S = DAY_S  # without calls
BACK = 6.0  # evidence that it is as usual again: e^6 : 1
_OTHER = TypeVar("_OTHER", bound="Watch")
_SURE = 1.96  # standard errors on each side: 95 %


class Watch:
    """Collects evidence that a metric got worse, and then that it is as usual again.

    Subclasses add windows; they say which evidence they collect in ``_evidence``.
    """

    def __init__(self, model: str, deployment: str, metric: Metric) -> None:
        self._key = (model, deployment, metric)
        self._evidence: list[Evidence] = []
        self._back = Evidence(0.0, BACK)
        self._last_s = 0  # begin of the newest window
        self._since_s = 0  # windows before count no more
        self.open: Slowdown | None = None

    def _copied(self, new: _OTHER) -> _OTHER:
        new._evidence = [one.copy() for one in self._evidence]  # noqa: SLF001 - the same class
        new._back = self._back.copy()  # noqa: SLF001 - likewise
        new._last_s, new._since_s, new.open = self._last_s, self._since_s, self.open  # noqa: SLF001 - likewise
        return new

    def began(self, slowdown: Slowdown) -> None:
        """Take notice of a slowdown that was seen elsewhere, or before a restart."""
        self.open = slowdown
        self._forget()

    def ended(self, at_s: int) -> None:
        """Take notice of its end."""
        self.open = None
        self._since_s = max(self._since_s, at_s)
        self._forget()

    def look_at(self, now_s: int) -> Change | None:
        """Return the end of a slowdown of which nothing more is heard, or that has become usual."""
        if self.open is None:
            return None
        last_s = max(self._last_s + WINDOW_S, self.open.noticed_s)
        if now_s - last_s >= SILENT_S:
            return self._end(last_s, Ending.NO_CALLS)
        if now_s - self.open.began_s >= SETTLED_S:
            return self._end(now_s, Ending.NEW_USUAL)
        return None

    def _counts(self, start_s: int) -> bool:
        """Return whether a window counts, and note it."""
        if start_s < self._since_s or (self.open is not None and start_s < self.open.noticed_s):
            return False
        self._last_s = max(self._last_s, start_s)
        return True

    def _begin(self, found: Evidence, noticed_s: int, log_ratio: float, error: float) -> Change:
        model, deployment, metric = self._key
        slowdown = Slowdown(
            model=model,
            deployment=deployment,
            metric=metric,
            began_s=noticed_s - WINDOW_S if found.since_s is None else found.since_s,
            noticed_s=noticed_s,
            ratio=exp(log_ratio),
            low=exp(log_ratio - _SURE * error),
            high=exp(log_ratio + _SURE * error),
            n=round(found.n),
        )
        self.began(slowdown)
        return Change(Happened.BEGAN, slowdown)

    def _is_back(self, start_s: int) -> Change | None:
        if not self._back.is_enough:
            return None
        return self._end(start_s if self._back.since_s is None else self._back.since_s, Ending.AS_USUAL)

    def _end(self, at_s: int, ending: Ending) -> Change | None:
        slowdown = self.open
        if slowdown is None:
            return None
        at_s = max(at_s, slowdown.noticed_s)
        self.ended(at_s)
        return Change(Happened.ENDED, slowdown, at_s, ending)

    def _forget(self) -> None:
        for one in (*self._evidence, self._back):
            one.forget()
