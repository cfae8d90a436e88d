"""The times that are published: quantiles of what attempts are compared by, and the attempts that they rest on."""

from math import inf

import msgspec

from gateway.steering.constants import LEAST_AUDITS, PUBLISH_EVENTS
from gateway.steering.fair import Fair, fair_quantiles
from gateway.steering.intervals import Quantile, quantiles
from gateway.steering.survival import dense
from gateway.steering.tally import Tally, merged


class Times(msgspec.Struct, frozen=True):
    """The times of what attempts are compared by, and the attempts that they rest on."""

    events: int
    censored: int
    audited: int
    is_fair: bool  # the audited stand for all overtaken ones
    quantiles: tuple[Quantile, ...]  # p50, p95, p99; infinite if unknown

    @property
    def is_biased(self) -> bool:
        """Whether the quantiles are too high: some attempts were cut, and too few audited."""
        return not self.is_fair and self.censored > 0


def published_times(tally: Tally) -> Times:
    """Return the times of a tally's attempts."""
    events, censored = dense(merged(tally.events.values())), dense(merged(tally.censored.values()))
    fair = _fair(tally, events)
    is_fair = fair.audited >= LEAST_AUDITS
    return Times(
        events=round(sum(events)),
        censored=round(sum(censored)),
        audited=round(sum(fair.audited_events) + sum(fair.audited_censored)),
        is_fair=is_fair,
        quantiles=_published_fair(fair) if is_fair else _published(events, censored),
    )


def _fair(tally: Tally, events: list[float]) -> Fair:
    late = dense(merged(tally.late_events.values()))
    audited = dense(merged(tally.audited_events.values()))
    own = [max(0.0, seen - other - more) for seen, other, more in zip(events, late, audited, strict=True)]
    return Fair(
        events=own,
        censored=dense(merged(tally.fair_censored.values())),
        overtaken=max(tally.over, tally.aud),
        audited=tally.aud,
        audited_events=audited,
        audited_censored=dense(merged(tally.audited_censored.values())),
    )


def _published_fair(fair: Fair) -> tuple[Quantile, ...]:
    if round(sum(fair.events) + sum(fair.audited_events)) < PUBLISH_EVENTS:
        return (_UNKNOWN,) * len(_SHARES)
    return fair_quantiles(fair, _SHARES)


def _published(events: list[float], censored: list[float]) -> tuple[Quantile, ...]:
    if round(sum(events)) < PUBLISH_EVENTS:
        return (_UNKNOWN,) * len(_SHARES)
    return quantiles(events, censored, _SHARES)


_SHARES = (0.50, 0.95, 0.99)
_UNKNOWN = Quantile(inf, inf, inf)
