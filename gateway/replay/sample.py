"""The sample of calls that can be replayed, and the weight of each.

Without racing a call's first attempt, its *lead*, would have run alone. The time of its first token is known if no
other attempt overtook it, or if the call was drawn for an audit. So calls whose lead was overtaken and cut are left
out, and audited ones represent them: those that were overtaken at about the same age, which for a race is the time of
the winner (post-stratification).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from math import sqrt
from random import Random
from typing import TypeAlias

from msgspec import Struct

from gateway.replay.rows import CAP_MS, ReplayedCall, Try

# The time to the first token by deployment, from attempts that were launched with their call. A loser that was cut is
# represented by the audited ones: they are a random sample of all that were overtaken (docs/steering.md). Kaplan-Meier
# estimates from the cut ages are 10 to 30 % too high, as attempts of one call depend on each other.

LEAST_SEEN = 30  # first tokens; a deployment with fewer is left out


class Margin(Struct, frozen=True):
    """The distribution of one deployment's first tokens, of attempts that did not fail."""

    values_ms: Sequence[float]  # sorted
    reached: Sequence[float]  # the share up to and with each
    failure_rate: float
    failed_ms: Sequence[float]  # ages at which attempts failed, at least one

    def share(self, ms: float) -> float:
        """Return the share of first tokens up to ``ms``, never 0 or 1: half an attempt is left at either end."""
        values, reached = self.values_ms, self.reached
        below, upto = bisect_left(values, ms), bisect_right(values, ms)
        least = reached[below - 1] if below else 0.0
        most = reached[upto - 1] if upto else 0.0
        edge = 0.5 / len(values)
        return min(1.0 - edge, max(edge, (least + most) / 2))

    def quantile_ms(self, share: float) -> float:
        """Return the time by which ``share`` of the attempts have their first token."""
        return self.values_ms[min(len(self.values_ms) - 1, bisect_left(self.reached, share - 1e-12))]

    @property
    def mean_ms(self) -> float:
        """The mean, with failures as ``CAP_MS``."""
        total = below = 0.0
        for value, upto in zip(self.values_ms, self.reached, strict=True):
            total += value * (upto - below)
            below = upto
        return (1 - self.failure_rate) * total + self.failure_rate * CAP_MS


class Audits(Struct):
    """The attempts of one deployment, in usual calls, that were overtaken, and those of them that were measured on."""

    overtaken: float = 0.0  # in calls of the ledger
    measured: float = 0.0  # measured to their first token
    count: int = 0  # rows of these
    attempts: float = 0.0  # launched with their call

    @property
    def each(self) -> float:
        """How many overtaken attempts a measured one represents."""
        return self.overtaken / self.measured if self.measured else 0.0


def audits(calls: Sequence[ReplayedCall], times: Sequence[float]) -> dict[str, Audits]:
    """Count audits by deployment; call n counts ``times[n]`` times."""
    found: dict[str, Audits] = {}
    for call, often in zip(calls, times, strict=True):
        if learns(call):
            continue
        for each in call.tries:
            if not each.starts_with_call:
                continue
            known = found.setdefault(each.deployment, Audits())
            known.attempts += often
            if each.overtaken_ms is None:
                continue
            known.overtaken += often
            if each.audited and is_known(each):
                known.measured += often
                known.count += 1
    return found


def margins(calls: Sequence[ReplayedCall], times: Sequence[float], known: Mapping[str, Audits]) -> dict[str, Margin]:
    """Return the distribution of each deployment with enough first tokens."""
    seen: dict[str, list[tuple[float, float]]] = {}
    failed: dict[str, list[tuple[float, float]]] = {}
    for call, often in zip(calls, times, strict=True):
        for each, weight in _represented(call, often, known) if often else ():
            if (ms := each.seen_ms) is not None:
                seen.setdefault(each.deployment, []).append((ms, weight))
            elif each.failed:
                failed.setdefault(each.deployment, []).append((each.failed_ms or 0.0, weight))
    return {
        deployment: _margin(pairs, failed.get(deployment, []))
        for deployment, pairs in seen.items()
        if len(pairs) >= LEAST_SEEN
    }


def _represented(call: ReplayedCall, often: float, known: Mapping[str, Audits]) -> Iterator[tuple[Try, float]]:
    """Yield the attempts of a call that represent those of their deployment, each with its weight."""
    learning = learns(call)
    for each in call.tries:
        if not (each.starts_with_call or each.is_learning):
            continue
        if each.overtaken_ms is None or (learning and is_known(each)):
            yield each, often
        elif each.audited and not learning:
            yield each, often * known[each.deployment].each


def _margin(pairs: list[tuple[float, float]], failed: Sequence[tuple[float, float]]) -> Margin:
    pairs.sort()
    total = sum(weight for _, weight in pairs)
    failures = sum(weight for _, weight in failed)
    upto = [weight / total for weight in accumulate(weight for _, weight in pairs)]
    return Margin([ms for ms, _ in pairs], upto, failures / (failures + total), [ms for ms, _ in failed] or [0.0])


def learns(call: ReplayedCall) -> bool:
    """Whether an attempt was launched to learn: then all are measured, and none represents others."""
    return any(each.is_learning for each in call.tries)


def is_known(each: Try) -> bool:
    """Whether an attempt's first token or failure is known."""
    return each.seen_ms is not None or each.failed


LEAST_IN_STRATUM = 20  # audited calls
MOST_AGES = 12  # strata of one lead's deployment in one part of the window
LEAST_IN_TIME = 150  # audited calls in a part of the window; it is split as the audited share may have changed
MOST_TIMES = 4
_Overtaken: TypeAlias = tuple[float, ReplayedCall, Try]  # the lead's age then


class Stratum(Struct):
    """Calls with a lead at one deployment that were overtaken at about the same age."""

    start: int  # its audited calls, in the sample
    end: int
    overtaken: float  # calls of the ledger that they represent
    rows: float  # the number of rows behind that figure


class Sample(Struct):
    """The calls to replay. The first ``free`` represent only themselves, then come the strata."""

    calls: Sequence[ReplayedCall]
    leads: Sequence[Try | None]  # None: all its attempts are left out, or it had none
    free: int
    strata: Sequence[Stratum]
    unknown: float  # the share of calls whose lead was overtaken, and that no audited call represents

    def weights(self, times: Sequence[float] | None = None, random: Random | None = None) -> list[float]:
        """Return how many calls of the ledger each represents; in a resample call n counts ``times[n]`` times."""
        found = [call.weight for call in self.calls]
        if times is not None:
            found = [weight * often for weight, often in zip(found, times, strict=True)]
        for each in self.strata:
            total = each.overtaken
            if random is not None:
                total *= max(0.0, 1 + random.gauss(0, 1) / sqrt(each.rows))
            known = sum(found[each.start : each.end])
            factor = total / known if known else 0.0
            found[each.start : each.end] = [weight * factor for weight in found[each.start : each.end]]
        return found


def sampled(calls: Sequence[ReplayedCall], without: Collection[str] = ()) -> Sample:
    """Return the calls to replay, leaving out the providers ``without``."""
    free: list[tuple[ReplayedCall, Try | None]] = []
    overtaken: dict[str, list[_Overtaken]] = {}
    for call in calls:
        lead = next((each for each in call.tries if each.starts_with_call and each.provider not in without), None)
        if lead is None or lead.overtaken_ms is None or (learns(call) and is_known(lead)):
            free.append((call, lead))
        elif not learns(call):
            overtaken.setdefault(lead.deployment, []).append((lead.overtaken_ms, call, lead))
    chosen, strata, unknown = list(free), [], 0.0
    for _, those in sorted(overtaken.items()):
        audited = sum(_is_measured(lead) for _, _, lead in those)
        if not audited:
            unknown += sum(call.weight for _, call, _ in those)
            continue
        those.sort(key=lambda each: each[1].started_s)
        for part in _parted(those, min(MOST_TIMES, audited // LEAST_IN_TIME)):
            part.sort(key=lambda each: each[0])
            measured = sum(_is_measured(lead) for *_, lead in part)
            for alike in _parted(part, min(MOST_AGES, measured // LEAST_IN_STRATUM)):
                start = len(chosen)
                chosen += [(call, lead) for _, call, lead in alike if _is_measured(lead)]
                strata.append(Stratum(start, len(chosen), sum(call.weight for _, call, _ in alike), len(alike)))
    known = sum(call.weight for call, _ in free) + sum(each.overtaken for each in strata)
    whole = known + unknown
    return Sample(
        [call for call, _ in chosen],
        [lead for _, lead in chosen],
        len(free),
        strata,
        unknown / whole if whole else 0.0,
    )


def _is_measured(lead: Try) -> bool:
    return lead.audited and is_known(lead)


def _parted(those: list[_Overtaken], parts: int) -> list[list[_Overtaken]]:
    """Split ordered calls into parts with about the same number of audited ones."""
    if parts <= 1:
        return [those]
    audited = sum(_is_measured(lead) for *_, lead in those)
    starts = {round(audited * part / parts) for part in range(1, parts)}  # after so many audited ones
    found: list[list[_Overtaken]] = [[]]
    seen = 0
    for each in those:
        if _is_measured(each[2]):
            if seen in starts:
                found.append([])
            seen += 1
        found[-1].append(each)
    return found


# Whether the ledger has enough audits, and how many are missing.

LEAST_AUDITS = 30  # of a model, for its median
AUDITS_FOR_TAIL = 500  # of each deployment, for p95 and beyond: then p95 is within 10 %
LEADING = 0.05  # share of the calls; a deployment with less does not matter
UNSEEN = 0.01  # share of the calls in which an attempt was cut without an audit: fewer cannot move p95 much
MOSTLY = 0.8  # share of overtaken attempts: if so many were measured, p95 is about as precise as with all
LEAST_CALLS = 100
_DAY_S = 86_400.0


class AuditNeed(Struct, frozen=True):
    """The audits of one deployment."""

    deployment: str
    audits: int  # losers that were measured to their first token
    more: int  # audits that p95 still needs; 0: enough
    days: float | None  # until then, at the present rate; None: never
    audit_share: float | None  # the share with which that takes a week; None: none is enough


def needs(calls: Sequence[ReplayedCall], window_s: float) -> list[AuditNeed]:
    """Return the audits of each deployment that is launched with at least ``LEADING`` of the calls.

    ``calls`` must have every audited call of the ``window_s`` seconds, or the present rate is too low.
    """
    counted = audits(calls, [call.weight for call in calls])
    whole = sum(call.weight for call in calls)
    # Audits are drawn by call, not by deployment: a deployment's share differs from this by chance alone.
    is_mostly_seen = sum(each.measured for each in counted.values()) >= MOSTLY * sum(
        each.overtaken for each in counted.values()
    )
    found = []
    for deployment, each in sorted(counted.items()):
        if each.attempts < LEADING * whole:
            continue
        unseen = max(0.0, each.overtaken - each.measured)
        more = 0 if is_mostly_seen or unseen <= UNSEEN * whole else max(0, AUDITS_FOR_TAIL - each.count)
        days = share = None
        if more and each.measured:
            days = more / (each.measured * _DAY_S / window_s)
        if more and each.overtaken:
            weekly = each.overtaken * 7 * _DAY_S / window_s
            share = more / weekly if more <= weekly else None
        found.append(AuditNeed(deployment, each.count, more, days, share))
    return found
