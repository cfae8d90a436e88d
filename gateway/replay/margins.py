"""How long each deployment takes to its first token, from attempts that were launched with their call.

A loser that was cut is represented by the audited ones: they are a random sample of all that were overtaken
(docs/steering.md). What Kaplan-Meier would make of the cut ages is 10 to 30 % too high, as attempts of one call depend
on each other.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from gateway.replay.rows import CAP_MS, Call, Try

LEAST_SEEN = 30  # first tokens, below which nothing is said about a deployment


class Margin(Struct, frozen=True):
    """The distribution of one deployment's first tokens, of attempts that did not fail."""

    values_ms: Sequence[float]  # sorted
    reached: Sequence[float]  # the share up to and with each
    failure_rate: float
    failed_ms: Sequence[float]  # ages at which attempts failed, at least one

    def share(self, ms: float) -> float:
        """Return the share of first tokens until ``ms``, never 0 or 1: half an attempt is left at either end."""
        values, reached = self.values_ms, self.reached
        below, upto = bisect_left(values, ms), bisect_right(values, ms)
        least = reached[below - 1] if below else 0.0
        most = reached[upto - 1] if upto else 0.0
        edge = 0.5 / len(values)
        return min(1.0 - edge, max(edge, (least + most) / 2))

    def quantile_ms(self, share: float) -> float:
        """Return the time until which ``share`` have their first token."""
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
    """Of one deployment, the attempts of usual calls that were overtaken, and those of them that were watched on."""

    overtaken: float = 0.0  # in calls of the ledger
    watched: float = 0.0
    count: int = 0  # watched ones among the rows
    attempts: float = 0.0  # launched with their call

    @property
    def each(self) -> float:
        """How many overtaken attempts a watched one stands for."""
        return self.overtaken / self.watched if self.watched else 0.0


def audits(calls: Sequence[Call], times: Sequence[float]) -> dict[str, Audits]:
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
            if each.audited and is_told(each):
                known.watched += often
                known.count += 1
    return found


def margins(calls: Sequence[Call], times: Sequence[float], known: Mapping[str, Audits]) -> dict[str, Margin]:
    """Return the distribution of each deployment of which enough is seen."""
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


def _represented(call: Call, often: float, known: Mapping[str, Audits]) -> Iterator[tuple[Try, float]]:
    """Yield the attempts of a call that represent others of their deployment, with how many each."""
    learning = learns(call)
    for each in call.tries:
        if not (each.starts_with_call or each.is_learning):
            continue
        if each.overtaken_ms is None or (learning and is_told(each)):
            yield each, often
        elif each.audited and not learning:
            yield each, often * known[each.deployment].each


def _margin(pairs: list[tuple[float, float]], failed: Sequence[tuple[float, float]]) -> Margin:
    pairs.sort()
    total = sum(weight for _, weight in pairs)
    failures = sum(weight for _, weight in failed)
    upto = [weight / total for weight in accumulate(weight for _, weight in pairs)]
    return Margin([ms for ms, _ in pairs], upto, failures / (failures + total), [ms for ms, _ in failed] or [0.0])


def learns(call: Call) -> bool:
    """Whether an attempt was launched to learn: then all are watched, and none represents others."""
    return any(each.is_learning for each in call.tries)


def is_told(each: Try) -> bool:
    """Whether it is known what became of an attempt."""
    return each.seen_ms is not None or each.failed
