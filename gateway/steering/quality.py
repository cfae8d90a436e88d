"""Quality: which deployments answer worse than their peers, by a sequential test of judged answers. Pure.

A race favours whoever starts first, also one whose answers are broken. Each winner's answer is judged elsewhere; here a
deployment's flaws are held against those of the model's other deployments for the same kind of answer (plain, tools,
JSON), which see other prompts of the same sort by chance. The null hypothesis is that it fails as often as they do, p0;
the alternative p1 = max(3 p0, p0 + 5 %), at most 90 %. CUSUM (Page 1954): the log likelihood ratio of p1 against p0 is
summed up, never below 0; above ``FLAW_ALARM`` the deployment is demoted for such calls, which are then sent there only
as a last resort, or to see whether it has recovered. In the mean this happens to a healthy one once in e^h answers at
most. Back it comes when the answers since then say p0 twenty times as likely as p1.

p0 is not known but estimated: it is the upper end of the peers' interval, so that few answers of theirs accuse nobody,
and where all are flawed alike nobody is demoted. Demoted ones are no peers. The test assumes that flaws come
independently: many refusals of one client's prompts that all hit one deployment are taken for its fault. Each replica
tests what it sees itself: of several, each needs the answers, and for a while some demote and others do not.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from math import log, sqrt

import msgspec

from gateway.calls import AnswerKind, Flaw
from gateway.steering.constants import (
    FLAW_ALARM,
    FLAW_RATE_MIN,
    FLAW_RATE_Z,
    FLAWED_RATE_MAX,
    FLAWED_STEP,
    FLAWED_TIMES,
    QUALITY_MEMORY,
    RESTORED_ODDS,
)

_NAMES = {AnswerKind.PLAIN: "plain answers", AnswerKind.TOOLS: "answers with tools", AnswerKind.JSON: "JSON answers"}


class _Record(msgspec.Struct):
    """One deployment's answers of one kind."""

    judged: float = 0.0  # lately: what its peers are held against
    flawed: float = 0.0
    evidence: float = 0.0  # log likelihood ratio that it is worse; while it is demoted, that it is as good
    since: int = 0  # answers since the evidence last was nothing
    flaws: Counter[Flaw] = msgspec.field(default_factory=Counter)  # in these
    is_demoted: bool = False

    def count(self, flaw: Flaw | None) -> None:
        if self.judged >= QUALITY_MEMORY:
            self.judged, self.flawed = self.judged / 2, self.flawed / 2
        self.judged += 1.0
        self.since += 1
        if flaw is not None:
            self.flawed += 1.0
            self.flaws[flaw] += 1

    def begin(self, *, is_demoted: bool) -> None:
        """Begin another test. What is counted from here on is what it is as a peer when it comes back."""
        self.evidence, self.since, self.is_demoted = 0.0, 0, is_demoted
        self.flaws.clear()
        if is_demoted:
            self.judged = self.flawed = 0.0


class Change(msgspec.Struct, frozen=True):
    """A deployment was demoted for a kind of answer, or is back."""

    is_demoted: bool
    reason: str


class Quality:
    """The tests of all deployments, as one replica sees them."""

    def __init__(self, alarm: float = FLAW_ALARM) -> None:
        """Demote where the log likelihood ratio passes ``alarm``."""
        self._alarm = alarm
        self._records: dict[tuple[str, AnswerKind], dict[str, _Record]] = {}  # by model and kind, then deployment
        self._demoted: dict[tuple[str, AnswerKind], dict[str, str]] = {}  # likewise, with the reason; none are empty

    def demoted(self, model: str, kind: AnswerKind) -> Mapping[str, str] | None:
        """Return the deployments that are a last resort for such calls, and why; None if there are none."""
        return self._demoted.get((model, kind))

    def judged(self, model: str, kind: AnswerKind, deployment: str, flaw: Flaw | None) -> Change | None:
        """Take a judged answer; return what changes by it."""
        key = (model, kind)
        records = self._records.setdefault(key, {})
        record = records.get(deployment)
        if record is None:
            record = records[deployment] = _Record()
        record.count(flaw)
        peers = [each for name, each in records.items() if name != deployment and not each.is_demoted]
        p0 = _upper_rate(sum(each.flawed for each in peers), sum(each.judged for each in peers))
        p1 = min(FLAWED_RATE_MAX, max(FLAWED_TIMES * p0, p0 + FLAWED_STEP))
        if p1 <= p0:
            return None  # too little is known of the peers, or they are hardly ever right themselves
        worse = log(p1 / p0) if flaw is not None else log((1.0 - p1) / (1.0 - p0))
        record.evidence = max(0.0, record.evidence + (-worse if record.is_demoted else worse))
        if not record.is_demoted and record.evidence == 0.0:
            record.since = 0
            record.flaws.clear()
        if record.evidence < (log(RESTORED_ODDS) if record.is_demoted else self._alarm):
            return None
        return self._change(key, deployment, record, peers)

    def keep(self, models: Collection[str]) -> None:
        """Forget all models but these."""
        self._records = {key: found for key, found in self._records.items() if key[0] in models}
        self._demoted = {key: found for key, found in self._demoted.items() if key[0] in models}

    def _change(
        self, key: tuple[str, AnswerKind], deployment: str, record: _Record, peers: Collection[_Record]
    ) -> Change:
        if record.is_demoted:
            reason = f"answers are as good as its peers': {record.flaws.total()} of {record.since} flawed since"
            demoted = self._demoted[key]
            del demoted[deployment]
            self._demoted[key] = dict(demoted)  # another object, for who has kept the one before
            if not demoted:
                del self._demoted[key]
        else:
            reason = _reason(key[1], record, peers)
            self._demoted[key] = {**self._demoted.get(key, {}), deployment: reason}
        record.begin(is_demoted=not record.is_demoted)
        return Change(record.is_demoted, reason)


def _upper_rate(flawed: float, judged: float) -> float:
    """Return the upper end of the interval of a rate (Wilson); 1 where nothing is known."""
    if judged <= 0.0:
        return 1.0
    share, z2_n = flawed / judged, FLAW_RATE_Z**2 / judged
    upper = (share + z2_n / 2 + sqrt(z2_n * (share * (1.0 - share) + z2_n / 4))) / (1.0 + z2_n)
    return min(1.0, max(FLAW_RATE_MIN, upper))


def _reason(kind: AnswerKind, record: _Record, peers: Collection[_Record]) -> str:
    flaw, _ = record.flaws.most_common(1)[0]
    rate = sum(each.flawed for each in peers) / sum(each.judged for each in peers)
    return (
        f"answers fail more often than its peers': {record.flaws.total()} of {record.since} {_NAMES[kind]}, "
        f"mostly {flaw}; peers {rate:.1%}"
    )
