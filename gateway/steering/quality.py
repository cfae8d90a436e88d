"""Quality: which deployments answer worse than their peers, by a sequential test of judged answers. Pure.

A race favours the fastest start, even if the answers are broken. Each winner's answer is judged elsewhere. Here a
deployment's flaws are compared with those of the model's other deployments for the same kind of answer (plain, tools,
JSON), which get similar prompts at random. Null hypothesis: the deployment fails at the peers' rate p0. Alternative:
p1 = max(3 p0, p0 + 5 %), at most 90 %. For example, with peers at 2 % the alternative is 7 %. CUSUM (Page 1954): the
log likelihood ratio of p1 against p0 is summed, never below 0. Above ``FLAW_ALARM`` the deployment is demoted for such
calls: they are sent there only as a last resort, or to test the deployment's recovery. On average a healthy deployment
is demoted at most once in e^h answers. A demoted deployment returns when the answers since its demotion are twenty
times likelier under p0 than under p1.

p0 is estimated as the upper end of the peers' interval: few answers of peers cannot accuse a deployment, and if all
have flaws none is demoted. Demoted deployments are not peers.

The test assumes independent flaws. But flaws of one client depend on each other: its requests may be impossible to
answer, and by chance, or because of prompt caches, go to one deployment. So one client's answers add at most
``FLAW_CLIENT_SHARE`` of the alarm: a demotion takes three clients, or both if there are two, and a single client harms
no other. Clients are counted until they make up ``FLAW_CLIENTS_OF`` of the latest answers. The limit never raises an
additional alarm.
Answers to requests that chose their deployments are ignored. Each replica tests its own answers, so for a while some
may demote and others not.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from math import log, sqrt

import msgspec

from gateway.core.attempts import AnswerKind, Flaw
from gateway.steering.clientele import Clientele, bounded
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

    judged: float = 0.0  # recent answers, for the comparison with its peers
    flawed: float = 0.0
    evidence: float = 0.0  # log likelihood ratio that the deployment is worse; while it is demoted, as good
    shares: dict[str | None, float] = msgspec.field(default_factory=dict)  # by client; their sum is the evidence
    since: int = 0  # answers since the evidence was 0
    flaws: Counter[Flaw] = msgspec.field(default_factory=Counter)  # among these
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
        """Start a new test. A demoted deployment's counts restart too: they represent it as a peer when it returns."""
        self.evidence, self.since, self.is_demoted = 0.0, 0, is_demoted
        self.flaws.clear()
        self.shares.clear()
        if is_demoted:
            self.judged = self.flawed = 0.0

    def accuse(self, client: str | None, worse: float, most: float) -> None:
        """Add evidence that the deployment is worse; no client's share may exceed ``most``, which can change."""
        if worse <= 0.0 and not self.shares:
            self.evidence = 0.0
        else:
            self.shares[client] = self.shares.get(client, 0.0) + worse
            self.shares = bounded(self.shares, most)
            self.evidence = sum(self.shares.values())
        if self.evidence <= 0.0:
            self.begin(is_demoted=False)

    def excuse(self, better: float) -> None:
        """Add evidence that a demoted deployment is as good as its peers."""
        self.evidence = max(0.0, self.evidence + better)


class _Group(msgspec.Struct):
    """The deployments of one model with one kind of answer (JSON, tools), and the clients of such answers."""

    records: dict[str, _Record] = msgspec.field(default_factory=dict)  # by deployment
    clients: Clientele = msgspec.field(default_factory=Clientele)


class QualityChange(msgspec.Struct, frozen=True):
    """A deployment was demoted for a kind of answer, or has returned."""

    is_demoted: bool
    reason: str


class Quality:
    """The tests of all deployments, in one replica."""

    def __init__(self, alarm: float = FLAW_ALARM) -> None:
        """``alarm`` is the log likelihood ratio above which a deployment is demoted."""
        self._alarm = alarm
        self._groups: dict[tuple[str, AnswerKind], _Group] = {}  # by model and kind
        self._demoted: dict[tuple[str, AnswerKind], dict[str, str]] = {}  # likewise, with the reason; never empty

    def demoted(self, model: str, kind: AnswerKind) -> Mapping[str, str] | None:
        """Return the deployments that are used last for such calls, with reasons; None if there are none."""
        return self._demoted.get((model, kind))

    def judged(
        self, model: str, kind: AnswerKind, deployment: str, flaw: Flaw | None, client: str | None = None
    ) -> QualityChange | None:
        """Add a judged answer to ``client`` (None if clients are not distinguished); return the change it causes."""
        key = (model, kind)
        group = self._groups.get(key) or self._groups.setdefault(key, _Group())
        group.clients.count(client)
        record = group.records.get(deployment) or group.records.setdefault(deployment, _Record())
        record.count(flaw)
        if flaw is None and not record.shares and not record.is_demoted:  # nearly always: no evidence, and no change
            record.begin(is_demoted=False)
            return None
        peers = [each for name, each in group.records.items() if name != deployment and not each.is_demoted]
        p0 = _upper_rate(sum(each.flawed for each in peers), sum(each.judged for each in peers))
        p1 = min(FLAWED_RATE_MAX, max(FLAWED_TIMES * p0, p0 + FLAWED_STEP))
        if p1 <= p0:
            return None  # too little is known about the peers, or they are mostly wrong too
        worse = log(p1 / p0) if flaw is not None else log((1.0 - p1) / (1.0 - p0))
        if record.is_demoted:
            record.excuse(-worse)
        else:
            record.accuse(client, worse, self._alarm * group.clients.share())
        if record.evidence < (log(RESTORED_ODDS) if record.is_demoted else self._alarm):
            return None
        return self._change(key, deployment, record, peers)

    def keep(self, models: Collection[str], deployments: Collection[str]) -> None:
        """Forget all other models and deployments."""
        self._groups = {key: group for key, group in self._groups.items() if key[0] in models}
        for group in self._groups.values():
            group.records = {name: record for name, record in group.records.items() if name in deployments}
        left = {
            key: {name: reason for name, reason in demotion.items() if name in deployments}
            for key, demotion in self._demoted.items()
            if key[0] in models
        }
        self._demoted = {key: demotion for key, demotion in left.items() if demotion}

    def _change(
        self, key: tuple[str, AnswerKind], deployment: str, record: _Record, peers: Collection[_Record]
    ) -> QualityChange:
        if record.is_demoted:
            reason = f"answers are as good as its peers': {record.flaws.total()} of {record.since} flawed since"
            demoted = self._demoted[key]
            del demoted[deployment]
            self._demoted[key] = dict(demoted)  # a new object, as others may hold the old one
            if not demoted:
                del self._demoted[key]
        else:
            reason = _reason(key[1], record, peers)
            self._demoted[key] = {**self._demoted.get(key, {}), deployment: reason}
        record.begin(is_demoted=not record.is_demoted)
        return QualityChange(record.is_demoted, reason)


def _upper_rate(flawed: float, judged: float) -> float:
    """Return the upper end of the interval of a rate (Wilson); 1 if nothing is known."""
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
