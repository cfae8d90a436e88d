"""Which calls can be replayed, and how many each stands for.

Without racing a call's first attempt, its *lead*, would have run alone. When that would have had its first token is
known if nobody overtook it, and if the call was drawn for an audit. So calls whose lead was overtaken and cut are left
out, and the audited ones stand for them: those that were overtaken at about the same age, which for a race is the time
of the winner (post-stratification).
"""

from collections.abc import Collection, Sequence
from math import sqrt
from random import Random
from typing import TypeAlias

from msgspec import Struct

from gateway.replay.margins import is_told, learns
from gateway.replay.rows import Call, Try

LEAST_IN_STRATUM = 20  # audited calls
MOST_AGES = 12  # strata of one lead at one time
LEAST_IN_TIME = 150  # audited calls: the window is parted only then, as the share that is audited may have changed
MOST_TIMES = 4
_Overtaken: TypeAlias = tuple[float, Call, Try]  # the lead's age then


class Stratum(Struct):
    """Calls of one lead that were overtaken at about the same age."""

    start: int  # its audited calls, in the sample
    end: int
    overtaken: float  # calls of the ledger for which they stand
    rows: float  # and rows behind that figure


class Sample(Struct):
    """The calls to be replayed. The first ``free`` stand for themselves, then come the strata."""

    calls: Sequence[Call]
    leads: Sequence[Try | None]  # None: all its attempts are left out, or it had none
    free: int
    strata: Sequence[Stratum]
    unknown: float  # the share of calls whose lead was overtaken, with nobody to stand for them

    def weights(self, times: Sequence[float] | None = None, random: Random | None = None) -> list[float]:
        """Return how many calls of the ledger each stands for; in a resample call n counts ``times[n]`` times."""
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


def sampled(calls: Sequence[Call], without: Collection[str] = ()) -> Sample:
    """Return the calls to be replayed if the providers ``without`` had not been there."""
    free: list[tuple[Call, Try | None]] = []
    overtaken: dict[str, list[_Overtaken]] = {}
    for call in calls:
        lead = next((each for each in call.tries if each.starts_with_call and each.provider not in without), None)
        if lead is None or lead.overtaken_ms is None or (learns(call) and is_told(lead)):
            free.append((call, lead))
        elif not learns(call):
            overtaken.setdefault(lead.deployment, []).append((lead.overtaken_ms, call, lead))
    chosen, strata, unknown = list(free), [], 0.0
    for _, those in sorted(overtaken.items()):
        audited = sum(_is_watched(lead) for _, _, lead in those)
        if not audited:
            unknown += sum(call.weight for _, call, _ in those)
            continue
        those.sort(key=lambda each: each[1].started_s)
        for part in _parted(those, min(MOST_TIMES, audited // LEAST_IN_TIME)):
            part.sort(key=lambda each: each[0])
            for alike in _parted(part, min(MOST_AGES, sum(_is_watched(lead) for *_, lead in part) // LEAST_IN_STRATUM)):
                start = len(chosen)
                chosen += [(call, lead) for _, call, lead in alike if _is_watched(lead)]
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


def _is_watched(lead: Try) -> bool:
    return lead.audited and is_told(lead)


def _parted(those: list[_Overtaken], parts: int) -> list[list[_Overtaken]]:
    """Part calls, which are in order, so that each part has about as many audited ones."""
    if parts <= 1:
        return [those]
    audited = sum(_is_watched(lead) for *_, lead in those)
    starts = {round(audited * part / parts) for part in range(1, parts)}  # after so many audited ones
    found: list[list[_Overtaken]] = [[]]
    seen = 0
    for each in those:
        if _is_watched(each[2]):
            if seen in starts:
                found.append([])
            seen += 1
        found[-1].append(each)
    return found
