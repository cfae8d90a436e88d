"""Standings: what the policy predicts for the next call of one model and size of prompt, per deployment."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from operator import add
from typing import Protocol

import msgspec

from gateway.prompt_classes import MeasuredApi
from gateway.steering.constants import (
    ANSWER_PRIOR,
    AT_ONCE_TPS,
    BUCKETS,
    COLD_EVENTS,
    ERROR_PRIOR,
    EXPECTED_FROM_EVENTS,
    FIXED_PRIOR_EVENTS,
    FIXED_PRIOR_MEDIAN_S,
    FIXED_PRIOR_SIGMA,
    PRIOR_EVENTS,
    SPEED_KNOWN_S,
    SPEED_PRIOR,
    STALL_PRIOR,
    SUCCESS_FLOOR,
)
from gateway.steering.evidence import Evidence
from gateway.steering.histogram import bucket, lognormal_masses
from gateway.steering.survival import Curve, Mean, dense, kaplan_meier
from gateway.steering.tally import OUTPUT_TOKENS, REQUESTS, merged


class Estimate(msgspec.Struct, frozen=True):
    """What is expected of one deployment, for prompts of one size."""

    events: float  # its own first tokens, decayed; the prior is not among them
    curve: Curve  # attempt TTFT, as of a prompt of the reference size
    q95_s: float
    beyond_s: tuple[float, ...]  # by bucket: the first token expected of who has none at the bucket's end, likewise
    score_s: float  # restricted mean TTFT over the chance of success; lower is better
    usual_s: float = inf  # the same by what is remembered of hours
    usual_q95_s: float = inf
    usual_events: float = 0.0  # that this rests on
    error_rate: float = 0.01  # chance that the next attempt fails
    decode_tps: float = 60.0  # tokens per second after the first
    speed_known: bool = False  # enough decoding was watched to hold it against the deployment
    stall_s: float = 0.0  # of silence within an answer, beyond what is usual
    mean: Mean = Mean(0.0, 0.0)  # of ``curve``
    usual: Curve | None = None  # as remembered of hours
    usual_mean: Mean = Mean(0.0, 0.0)
    scale: float = 1.0  # by which a prompt of this size multiplies the times of ``curve``

    def sized(self, scale: float) -> "Estimate":
        """Return the estimate for prompts whose size multiplies times by ``scale``."""
        succeeds = max(SUCCESS_FLOOR, 1.0 - self.error_rate)
        return msgspec.structs.replace(
            self,
            scale=scale,
            q95_s=self.q95_s * scale / self.scale,
            score_s=self.mean.at(scale) / succeeds,
            usual_s=self.usual_mean.at(scale) / succeeds,
            usual_q95_s=self.usual_q95_s * scale / self.scale,
        )

    @property
    def well_q95_s(self) -> float:
        """The q95 of TTFT while the deployment is well: lately it may not have been."""
        return min(self.q95_s, self.usual_q95_s)

    def quantile_s(self, q: float) -> float:
        """Return the time by which a share ``q`` has its first token, in seconds."""
        return self.curve.quantile_s(q) * self.scale

    def later_than(self, seconds: float) -> float:
        """Return the share of first tokens that come later than ``seconds``."""
        return self.curve.later_than(seconds / self.scale)

    def late_s(self, goal_s: float) -> float:
        """Return by how much a first token is later than ``goal_s`` on average, in seconds."""
        return self.curve.late_s(goal_s / self.scale) * self.scale

    def expected_s(self, age_s: float) -> float:
        """Return when the first token is to be expected of an attempt that has none at ``age_s``, in seconds.

        Of a deployment that is hardly known next to nothing is expected: its curve is mostly the prior's wide tail.
        """
        if self.events < EXPECTED_FROM_EVENTS:
            return age_s * _LEAST_REMAINDER
        return max(age_s * _LEAST_REMAINDER, self.beyond_s[bucket(age_s / self.scale)] * self.scale)

    def slower_than(self, floor_tps: float) -> bool:
        """Tell whether it is known to decode more slowly. Who never won was never timed, and gets the chance."""
        return self.speed_known and self.decode_tps < floor_tps


class Standings(msgspec.Struct, frozen=True):
    """One model and size of prompt: estimates by deployment, and the one for those never seen."""

    estimates: Mapping[str, Estimate]
    unseen: Estimate
    answer_tokens: float = ANSWER_PRIOR[0]  # n_hat: output tokens per call of this model
    _beside: dict[str, dict[str, float]] = {}  # by the best: made when it is asked for, for all sizes of prompt

    def of(self, deployment: str) -> Estimate:
        """Return the estimate of ``deployment``."""
        return self.estimates.get(deployment, self.unseen)

    def sized(self, scales: Mapping[str, float], other: float) -> "Standings":
        """Return the standings for prompts whose size multiplies times so; ``other`` is for deployments unseen."""
        estimates = {name: each.sized(scales.get(name, other)) for name, each in self.estimates.items()}
        return Standings(estimates, self.unseen.sized(other), self.answer_tokens, self._beside)

    def beside(self, best: str, names: Iterable[str]) -> Mapping[str, float]:
        """Return the score of each of ``names`` in a race against ``best``, seconds, for prompts of the reference size.

        That is E[min(TTFT, TTFT of the best)] over the chance of success: what comes late does not matter there.
        """
        known = self._beside.setdefault(best, {})
        for name in names:
            if name not in known:
                each = self.of(name)
                succeeds = max(SUCCESS_FLOOR, 1.0 - each.error_rate)
                known[name] = each.curve.beside_s(self.of(best).curve) / succeeds
        return known


class Usual(msgspec.Struct, frozen=True):
    """What is usual of one deployment, or of the whole model: how it answered over hours."""

    curve: Curve
    events: float = 0.0  # first tokens that it rests on
    decode_tps: float = SPEED_PRIOR[0] / SPEED_PRIOR[1]
    speed_known: bool = False
    stall_s: float = 0.0


class Usuals(msgspec.Struct, frozen=True):
    """What is usual of a model's deployments, and of one that nothing is known of."""

    of: Mapping[str, Usual]
    unseen: Usual


def usuals(scales: Sequence[Mapping[str, Evidence]], lately: Mapping[str, Evidence], api: MeasuredApi) -> Usuals:
    """Return what is usual, from what is known on each longer scale of time, the longest first.

    Each histogram is topped up with 4 events spread as on the scale before, and the first as the model's deployments
    together answer (the pool, of all scales and of ``lately``), which has 2 events of a fixed lognormal: a deployment
    with few samples is judged by what it was before, and one that is new like its peers, not by luck.
    """
    pool = _pool([each for scale in (*scales, lately) for each in scale.values()], api)
    unseen = Usual(kaplan_meier(pool, _NONE))
    found: dict[str, Usual] = {}
    for evidences in scales:
        for name, evidence in evidences.items():
            before = found.get(name, unseen)
            found[name] = _topped_up(evidence, api, before)
    return Usuals(found, unseen)


def standings(
    lately: Mapping[str, Evidence],
    usual: Usuals | None = None,
    api: MeasuredApi = MeasuredApi.ANSWERS,
    answer_tokens: float = ANSWER_PRIOR[0],
) -> Standings:
    """Estimate every deployment of a model from what happened lately, topped up with 4 events as usual.

    Without ``usual`` nothing is known but this.
    """
    usual = usual or usuals((), lately, api)
    names = {**lately, **usual.of}
    estimates = {name: _estimate(lately.get(name, _NOTHING), api, usual.of.get(name, usual.unseen)) for name in names}
    return Standings(estimates, _estimate(_NOTHING, api, usual.unseen), answer_tokens)


def answer_tokens(counts: Mapping[str, float]) -> float:
    """Return n_hat, the expected output tokens of the model's next answer, from its decayed counts."""
    prior_tokens, prior_answers = ANSWER_PRIOR
    return (counts.get(OUTPUT_TOKENS, 0.0) + prior_tokens * prior_answers) / (counts.get(REQUESTS, 0.0) + prior_answers)


class Attempts(Protocol):
    """Attempts, and how many of them failed."""

    n: float
    err: float


def error_rate(attempts: Attempts) -> float:
    """Return the chance that the next attempt fails: (err + 0.05) / (n + 5)."""
    errors, n = ERROR_PRIOR
    return (attempts.err + errors) / (attempts.n + n)


def decode_tps(evidence: Evidence, usual_tps: float = SPEED_PRIOR[0] / SPEED_PRIOR[1]) -> float:
    """Return the expected decode speed, tokens per second: (tok + 2) / (sec + 2 / usual).

    Guessed tokens stand in while the provider has counted hardly any: a loser, watched for a while, never tells. Of one
    whose answers mostly come at once, out of a buffer, nothing is to be waited for after the first token.
    """
    if evidence.ans >= COLD_EVENTS and evidence.burst >= evidence.ans / 2:
        return AT_ONCE_TPS
    tokens = SPEED_PRIOR[0]
    seconds = tokens / usual_tps
    if evidence.sec >= SPEED_KNOWN_S:
        return (evidence.tok + tokens) / (evidence.sec + seconds)
    return (evidence.tok + evidence.gtok + tokens) / (evidence.sec + evidence.gsec + seconds)


def _pool(evidences: Sequence[Evidence], api: MeasuredApi) -> list[float]:
    """Return how the model answers, all deployments together, as counts by bucket that sum to the weight of a prior."""
    prior = lognormal_masses(FIXED_PRIOR_MEDIAN_S, FIXED_PRIOR_SIGMA)
    events = dense(merged(each.events.get(api, {}) for each in evidences))
    censored = dense(merged(each.censored.get(api, {}) for each in evidences))
    curve = kaplan_meier(
        [seen + FIXED_PRIOR_EVENTS * share for seen, share in zip(events, prior, strict=True)], censored
    )
    return _prior(curve, prior)


def _prior(curve: Curve, otherwise: Sequence[float]) -> list[float]:
    """Return a curve as counts by bucket that sum to the weight of a prior, what it never reached left out."""
    masses: Sequence[float] = curve.masses()
    total = sum(masses)
    if total <= 0:  # so much was cut that no first token counts beside it
        masses, total = otherwise, sum(otherwise)
    return [PRIOR_EVENTS * mass / total for mass in masses]


def _topped_up(evidence: Evidence, api: MeasuredApi, before: Usual) -> Usual:
    prior = _prior(before.curve, before.curve.masses())
    events, cut = evidence.events.get(api), evidence.censored.get(api)
    curve = kaplan_meier(list(map(add, dense(events or {}), prior)), dense(cut) if cut else _NONE)
    known = evidence.sec + evidence.gsec >= SPEED_KNOWN_S
    return Usual(
        curve,
        events=sum(events.values()) if events else 0.0,
        decode_tps=decode_tps(evidence, before.decode_tps),
        speed_known=known or before.speed_known,
        stall_s=(evidence.stall + before.stall_s * STALL_PRIOR) / (evidence.won + STALL_PRIOR),
    )


def _estimate(evidence: Evidence, api: MeasuredApi, usual: Usual) -> Estimate:
    now = _topped_up(evidence, api, usual)
    fails = error_rate(evidence)
    succeeds = max(SUCCESS_FLOOR, 1.0 - fails)
    mean, usual_mean = now.curve.mean(), usual.curve.mean()
    return Estimate(
        events=sum(evidence.events.get(api, {}).values()),
        curve=now.curve,
        q95_s=now.curve.quantile_s(0.95),
        beyond_s=now.curve.expected_beyond_s(),
        score_s=mean.at(1.0) / succeeds,
        usual_s=usual_mean.at(1.0) / succeeds,
        usual_q95_s=usual.curve.quantile_s(0.95),
        usual_events=usual.events,
        error_rate=fails,
        decode_tps=now.decode_tps,
        speed_known=now.speed_known,
        stall_s=now.stall_s,
        mean=mean,
        usual=usual.curve,
        usual_mean=usual_mean,
    )


_NOTHING = Evidence()
_NONE = (0.0,) * BUCKETS
_LEAST_REMAINDER = 1.02  # of an age beyond all that was seen
