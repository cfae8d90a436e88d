"""What came of a trial: used beside allowed, by arithmetic over what clients and the provider saw; and what is held."""

import math
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

import msgspec

from benchmarks.harness.replicas import Replicas
from benchmarks.harness.report import known_quantile
from benchmarks.limits.course import KILLED, Made, Phase
from benchmarks.limits.trials import MEAN_TOKENS as EXPECTED_AT_FIRST
from benchmarks.limits.trials import PARALLEL, PROMPT_TOKENS, REACHED_AT, Job, Trial, Use
from gateway.limits import USUAL

_QUERY = """
SELECT client, count(*), count(*) FILTER (WHERE error_kind = 'interrupted'),
       coalesce(sum(prompt_tokens + completion_tokens), 0), coalesce(sum(cost_usd), 0)
FROM calls WHERE client IS NOT NULL GROUP BY client
"""
UNREPORTED_S = 2 * USUAL.round_s  # a round may be late
NEAR_S = 0.5  # after the kill: calls over connections that had not yet noticed
NEARLY = 0.98  # of a limit, when it counts as reached
SLOW_MS = 10.0  # of added latency; most waits for a lease take less than the 50 ms they may take
TAIL = 0.25  # of a phase, at its end: how many calls ran in parallel after all
UNDERSHOOT = 0.02  # of a limit, in calm
_ROUNDING = 1e-6  # of sums of many small dollars


class Booked(msgspec.Struct, frozen=True):
    """The sums of one client's calls. ``interrupted``: they died with their replica."""

    calls: int = 0
    interrupted: int = 0
    tokens: int = 0
    usd: float = 0.0

    def of(self, limit: str) -> float:
        """Return what was used of a limit; of parallel calls only their number is known."""
        if limit == "tpm":
            return float(self.tokens)
        return self.usd if "usd" in limit else float(self.calls)


async def booked_by_client(installed: Replicas) -> dict[str, Booked]:
    return {client: Booked(*sums) for client, *sums in await installed.fetched(_QUERY)}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table. Amounts are in the unit of the limit; shares are of the limit."""

    situation: str
    limit: str
    amount: float | None
    asked: float  # of all calls
    used: float  # of those that were admitted, also if they broke off; the largest number at the same time
    whole: float  # of those that were answered whole
    lost: float  # at most of those that broke off
    in_ledger: float
    admitted: int
    refused: int
    failed: int  # neither answered nor refused
    died: int  # they broke off with their replica
    over: float | None  # share
    allowed: float | None  # share: what running calls used beyond the expected, and a dead replica did not report
    under: float | None  # share, at the end of the phase
    late_s: float | None  # how much later than it was asked for the limit was nearly used; None: never
    falsely_refused: int  # with room left
    last_falsely_s: float | None  # when the last of these was, seconds after the fault
    mean_parallel: float | None  # in the last part of the phase
    ideal_parallel: float | None  # of one gate that knows everything
    added_p50_ms: float | None  # to the first token of calls admitted before limits were to be reached
    added_p99_ms: float | None
    slow_share: float | None  # of these calls: more than ``SLOW_MS`` were added


def found(trial: Trial, phase: Phase, booked: Booked) -> Finding:
    """Return what came of ``trial``; ``booked`` is what the ledger says of its client."""
    made = sorted((each for each in phase.made if each.job.limit == trial.limit), key=attrgetter("sent_s"))
    admitted = [each for each in made if _is_admitted(each, phase)]
    refused = [each for each in made if each.is_refused]
    died = [each for each in made if each.use is None and not each.is_refused]
    limit, amount = trial.limit, trial.amount
    expected = Expected(limit, admitted)
    if limit == PARALLEL:
        used = float(most_parallel(_spans(admitted, phase), phase.began_s, phase.ended_s))
        at_end = float(most_parallel(_spans(admitted, phase), phase.ended_s - TAIL * phase.length_s, phase.ended_s))
        false = _parallel_in_vain(made, admitted, amount or 0.0)
    else:
        used = at_end = sum(use_of(each).of(limit) for each in admitted)
        false = _refused_in_vain(refused, admitted, expected, limit, amount)
    bound = 0.0 if limit == PARALLEL else overrun(admitted, expected, limit)
    if trial.situation.fault == "kill" and limit != PARALLEL:
        bound += unreported(admitted, phase, limit)
    early = [each for each in admitted if each.sent_s < phase.began_s + REACHED_AT * phase.length_s]
    added = [ms for each in early if (ms := _added_ms(each, phase)) is not None]
    return Finding(
        situation=trial.situation.name,
        limit=limit,
        amount=amount,
        asked=sum(each.job.use.of(limit) for each in made),
        used=used,
        whole=sum(each.use.of(limit) for each in admitted if each.use is not None),
        lost=sum(each.job.use.of(limit) for each in died),
        in_ledger=booked.of(limit),
        admitted=len(admitted),
        refused=len(refused),
        failed=sum(not _is_explained(each, trial, phase) for each in made),
        died=len(died),
        over=None if amount is None else max(0.0, used / amount - 1),
        allowed=None if amount is None else bound / amount,
        under=None if amount is None else max(0.0, 1 - at_end / amount),
        late_s=None if amount is None or limit == PARALLEL else _late_s(made, admitted, limit, amount),
        falsely_refused=len(false),
        last_falsely_s=max((each.ended_s - phase.fault_s for each in false), default=None),
        mean_parallel=_mean_parallel(admitted, phase) if limit == PARALLEL else None,
        ideal_parallel=_ideal_parallel(made, phase, amount or 0.0) if limit == PARALLEL else None,
        added_p50_ms=known_quantile(added, 0.5),
        added_p99_ms=known_quantile(added, 0.99),
        slow_share=sum(ms > SLOW_MS for ms in added) / len(added) if added else None,
    )


def use_of(made: Made) -> Use:
    """Return what an admitted call used; one that broke off at most what it was to use."""
    return made.use or made.job.use


class Expected:
    """What a gateway can expect of each call: the mean of the calls that had ended by then."""

    def __init__(self, limit: str, admitted: Sequence[Made]) -> None:
        self._by_number: dict[int, float] = {}
        total, count = 0.0, 0
        first = Use(PROMPT_TOKENS, round(EXPECTED_AT_FIRST)).of(limit)
        ends = iter(sorted(admitted, key=attrgetter("ended_s")))
        ended = next(ends, None)
        for each in admitted:
            while ended is not None and ended.ended_s <= each.sent_s:
                total, count = total + use_of(ended).of(limit), count + 1
                ended = next(ends, None)
            self._by_number[each.job.number] = total / count if count else first
        self.last = total / count if count else first

    def of(self, job: Job) -> float:
        """Return it for an admitted call."""
        return self._by_number[job.number]


def overrun(admitted: Sequence[Made], expected: Expected, limit: str) -> float:
    """Return what the calls in flight used beyond the expected: those at each replica's last admission."""
    last = {each.replica: each.sent_s for each in admitted}
    return sum(
        max(0.0, use_of(each).of(limit) - expected.of(each.job))
        for each in admitted
        if each.ended_s > last[each.replica]
    )


def unreported(admitted: Sequence[Made], phase: Phase, limit: str) -> float:
    """Return what the killed replica cannot have told anybody: the use of calls that ended just before, or died."""
    return sum(
        use_of(each).of(limit)
        for each in admitted
        if each.replica == KILLED and each.ended_s > phase.fault_s - UNREPORTED_S
    )


def most_parallel(spans: Sequence[tuple[float, float]], from_s: float, until_s: float) -> int:
    """Return the largest number of spans that overlap at an instant of an interval."""
    running = most = 0
    for at_s, change in sorted(_changes(spans)):
        running += change
        if from_s <= at_s < until_s:
            most = max(most, running)
    return most


def _changes(spans: Sequence[tuple[float, float]]) -> Iterator[tuple[float, int]]:
    for begin_s, end_s in spans:
        yield begin_s, 1
        yield end_s, -1


def _spans(admitted: Sequence[Made], phase: Phase) -> list[tuple[float, float]]:
    """Return when calls ran, as the provider saw it: a gateway's hold begins before that and ends after it."""
    seen = [phase.seen[each.job.number] for each in admitted if each.job.number in phase.seen]
    return [(each.arrived_s, each.ended_s) for each in seen if each.ended_s is not None]


def _is_admitted(made: Made, phase: Phase) -> bool:
    return made.use is not None or (made.status in {None, 200} and made.job.number in phase.seen)


def _is_explained(made: Made, trial: Trial, phase: Phase) -> bool:
    """Whether a call was answered, refused, or broke off with its replica, perhaps before that had read it."""
    near = made.sent_s <= phase.fault_s + NEAR_S and phase.fault_s < made.ended_s
    is_cut = trial.situation.fault == "kill" and made.replica == KILLED and near
    return made.use is not None or made.is_refused or is_cut


def _refused_in_vain(
    refused: Sequence[Made], admitted: Sequence[Made], expected: Expected, limit: str, amount: float | None
) -> list[Made]:
    """Return the calls that were refused with room for one more, however much those in flight were held for.

    Judged at the instant of the refusal's arrival; a call in flight counts with what it used or what was expected,
    whichever is more.
    """
    if amount is None:
        return list(refused)
    room = amount - 2 * expected.last  # one for this call, one for what estimates are off by
    events: list[tuple[float, int, float, Made | None]] = [(each.ended_s, 1, 0.0, each) for each in refused]
    for each in admitted:
        used, held = use_of(each).of(limit), expected.of(each.job)
        events += [(each.sent_s, 0, max(used, held), None), (each.ended_s, 2, used - max(used, held), None)]
    found, committed = [], 0.0
    for _, _, change, call in sorted(events, key=lambda event: event[:2]):
        committed += change
        if call is not None and committed <= room:
            found.append(call)
    return found


def _parallel_in_vain(made: Sequence[Made], admitted: Sequence[Made], amount: float) -> list[Made]:
    """Return the calls that were refused while fewer than the limit ran, as clients saw it: longer than they did."""
    events = [(each.sent_s, 0, 1, each) for each in admitted] + [(each.ended_s, 2, -1, each) for each in admitted]
    events += [(each.ended_s, 1, 0, each) for each in made if each.is_refused]
    found, running = [], 0
    for _, kind, change, call in sorted(events, key=lambda event: event[:2]):
        running += change
        if kind == 1 and running < amount:
            found.append(call)
    return found


def _late_s(made: Sequence[Made], admitted: Sequence[Made], limit: str, amount: float) -> float | None:
    asked_s = _reached_s(made, limit, NEARLY * amount)
    used_s = _reached_s(admitted, limit, NEARLY * amount)
    return None if asked_s is None or used_s is None else used_s - asked_s


def _reached_s(made: Sequence[Made], limit: str, amount: float) -> float | None:
    total = 0.0
    for each in made:
        total += each.job.use.of(limit)
        if total >= amount:
            return each.sent_s
    return None


def _mean_parallel(admitted: Sequence[Made], phase: Phase) -> float:
    from_s, until_s = phase.ended_s - TAIL * phase.length_s, phase.ended_s
    overlaps = (min(end_s, until_s) - max(begin_s, from_s) for begin_s, end_s in _spans(admitted, phase))
    return sum(max(0.0, overlap) for overlap in overlaps) / (until_s - from_s)


def _ideal_parallel(made: Sequence[Made], phase: Phase, amount: float) -> float:
    """Return how many calls would run on average behind one gate for these Poisson arrivals: Erlang's loss formula."""
    spans_s = [end_s - begin_s for begin_s, end_s in _spans(made, phase)]
    offered = len(made) / phase.length_s * (sum(spans_s) / len(spans_s) if spans_s else math.nan)
    lost = 1.0
    for places in range(1, int(amount) + 1):
        lost = offered * lost / (places + offered * lost)
    return offered * (1 - lost)


def _added_ms(made: Made, phase: Phase) -> float | None:
    """Return what was added to the first token, or None if there was none."""
    seen = phase.seen.get(made.job.number)
    if made.first_s is None or seen is None or seen.first_s is None:
        return None
    return ((made.first_s - made.sent_s) - (seen.first_s - seen.arrived_s)) * 1000


def missed(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield a sentence for each goal that is missed."""
    for each in findings:
        where = f"{each.situation}, {each.limit}"
        if each.over is not None and each.allowed is not None and each.over > each.allowed + _ROUNDING:
            yield f"{where}: overshoot {each.over:.2%}, more than {each.allowed:.2%}"
        if each.situation == "calm" and each.under is not None and each.under > UNDERSHOOT:
            yield f"{where}: undershoot {each.under:.2%}, more than {UNDERSHOOT:.0%}"
        if each.failed:
            yield f"{where}: {each.failed} calls were neither answered nor refused by a limit"
        if not _is_booked(each):
            yield f"{where}: the ledger has {each.in_ledger:g}, and {each.whole:g} were used by whole answers"


def _is_booked(finding: Finding) -> bool:
    """Whether the ledger has what whole answers used, and at most what broken ones did besides."""
    slack = _ROUNDING * finding.whole
    return finding.whole - slack <= finding.in_ledger <= finding.whole + finding.lost + slack
