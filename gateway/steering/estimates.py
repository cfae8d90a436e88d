"""Standings: the policy's predictions for the next call of one model and prompt size, by deployment."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from math import inf
from operator import add, mul
from typing import TypeVar

import msgspec

from gateway.core.prompt_classes import Effort, Measured, MeasuredApi, Spoken
from gateway.steering.constants import (
    ANSWER_PRIOR,
    AT_ONCE_TPS,
    BUCKETS,
    COLD_EVENTS,
    EFFORT_ALIKE,
    ERROR_PRIOR,
    EXPECTED_FROM_EVENTS,
    FIXED_PRIOR_EVENTS,
    FIXED_PRIOR_MEDIAN_S,
    FIXED_PRIOR_SIGMA,
    HEDGE_SHARE,
    KNOWN_EVENTS,
    LATE_FACTOR,
    LATE_QUANTILE,
    LATE_UNKNOWN_S,
    MEAN_CAP_S,
    NEAR,
    PRIOR_EVENTS,
    RESCUE_FACTOR,
    RESCUE_MIN_S,
    RESCUE_UNKNOWN_S,
    SPEED_KNOWN_S,
    SPEED_PRIOR,
    STALL_PRIOR,
    SUCCESS_FLOOR,
)
from gateway.steering.counts import OUTPUT_TOKENS, REQUESTS, Evidence, bucket, lognormal_masses, merged
from gateway.steering.survival import Curve, Mean, RaceOfTwo, dense, kaplan_meier, shift_of


class Estimate(msgspec.Struct, frozen=True):
    """The predictions for one deployment and one prompt size."""

    events: float  # the deployment's own first tokens, decayed, without the prior
    curve: Curve  # attempt TTFT, for a prompt of the reference size
    q95_s: float
    beyond_s: tuple[float, ...]  # by bucket: the expected time of a first token that has not come by the bucket's end
    score_s: float  # restricted mean TTFT / probability of success; lower is better
    usual_q95_s: float = inf  # from the memory of hours
    usual_p50_s: float = inf  # from the memory of hours; infinite below ``KNOWN_EVENTS``
    usual_events: float = 0.0  # first tokens on which the usual figures are based
    slower_lately: bool = False  # whether the p50 was lately clearly above the usual one
    error_rate: float = 0.01  # probability that the next attempt fails
    decode_tps: float = 60.0  # tokens per second after the first
    speed_known: bool = False  # whether enough decoding was measured to hold a low speed against the deployment
    stall_s: float = 0.0  # seconds of silence within an answer, beyond the usual
    mean: Mean = Mean(0.0, 0.0)  # the mean of ``curve``
    usual: Curve | None = None  # from the memory of hours
    scale: float = 1.0  # the factor of this prompt size on the times of ``curve``
    answered: Curve | None = None  # of the attempts that answered, without the fixed prior; None: none ever did
    answered_events: float = 0.0  # first tokens behind ``answered``: of all deployments, if its own are few
    is_borrowed: bool = False  # figures are those of calls with another effort; such calls may have to think longer

    def sized(self, scale: float) -> "Estimate":
        """Return the estimate for prompts whose size multiplies times by ``scale``."""
        succeeds = max(SUCCESS_FLOOR, 1.0 - self.error_rate)
        return msgspec.structs.replace(
            self,
            scale=scale,
            q95_s=self.q95_s * scale / self.scale,
            score_s=self.mean.at(scale) / succeeds,
            usual_q95_s=self.usual_q95_s * scale / self.scale,
            usual_p50_s=self.usual_p50_s * scale / self.scale,
        )

    @property
    def well_q95_s(self) -> float:
        """The q95 of TTFT while the deployment is healthy: the smaller of the recent and the usual one.

        Infinite if the recent q95 is borrowed.
        """
        return inf if self.is_borrowed else min(self.q95_s, self.usual_q95_s)

    @property
    def is_known(self) -> bool:
        """Whether the model's first tokens are enough to tell when one is late."""
        return not self.is_borrowed and max(self.events, self.answered_events) >= KNOWN_EVENTS

    @property
    def is_unheard(self) -> bool:
        """Whether nothing has ever answered, here or at the model's other deployments, whatever was asked of them."""
        return self.answered is None and not self.is_borrowed

    @property
    def hangs_s(self) -> float:
        """The age at which an attempt without a first token counts as hanging, in seconds: another is asked beside it.

        Twice the q95. But at most three times the q90 of attempts that answer, or the 7.3 s of an unknown deployment if
        these are more: beyond that some hang, or a few are late. A borrowed age is at least these 7.3 s.
        """
        most_s = max(RESCUE_UNKNOWN_S, LATE_FACTOR * self.answered_s(LATE_QUANTILE))
        least_s = RESCUE_UNKNOWN_S if self.is_borrowed else RESCUE_MIN_S
        return max(least_s, min(RESCUE_FACTOR * self.q95_s, most_s))

    @property
    def overdue_s(self) -> float:
        """The age at which the model is late if this deployment is its primary, in seconds: another model is asked.

        Three times the q90 of attempts that answer: where one in twenty hangs, the q95 would be useless. While little
        is known, at least ``LATE_UNKNOWN_S``.
        """
        return max(RESCUE_MIN_S if self.is_known else LATE_UNKNOWN_S, LATE_FACTOR * self.answered_s(LATE_QUANTILE))

    def quantile_s(self, q: float) -> float:
        """Return the time by which a share ``q`` has its first token, in seconds."""
        return self.curve.quantile_s(q) * self.scale

    def answered_s(self, q: float) -> float:
        """Return the time by which a share ``q`` of those attempts that answer has a first token; 0 if none ever did.

        An attempt that was cut counts as longer than its age, but only as long as first tokens that have come: hangs
        must not teach patience.
        """
        curve = self.answered
        if curve is None:
            if self.events < KNOWN_EVENTS:
                return 0.0
            curve = self.curve
        return curve.quantile_s(q * curve.reached[-1]) * self.scale

    def later_than(self, seconds: float) -> float:
        """Return the share of first tokens that come later than ``seconds``."""
        return self.curve.later_than(seconds / self.scale)

    def late_s(self, goal_s: float) -> float:
        """Return how much later than ``goal_s`` a first token is on average, in seconds."""
        return self.curve.late_s(goal_s / self.scale) * self.scale

    def expected_s(self, age_s: float) -> float:
        """Return the expected time to first token of an attempt that has none at ``age_s``, in seconds.

        For a deployment with few samples the result is only slightly later than ``age_s``: such a curve is mostly the
        prior's long tail.
        """
        if self.events < EXPECTED_FROM_EVENTS:
            return age_s * LEAST_REMAINDER
        return max(age_s * LEAST_REMAINDER, self.beyond_s[bucket(age_s / self.scale)] * self.scale)

    def slower_than(self, floor_tps: float) -> bool:
        """Whether the deployment is known to decode more slowly; False if unmeasured, so that it is tried."""
        return self.speed_known and self.decode_tps < floor_tps


class Standings(msgspec.Struct, frozen=True):
    """One model and prompt size: estimates by deployment, and one for unknown deployments."""

    estimates: Mapping[str, Estimate]
    unseen: Estimate
    answer_tokens: float = ANSWER_PRIOR[0]  # n_hat: output tokens per call of this model
    _beside: dict[tuple[str, str, int], RaceOfTwo] = {}  # computed on demand, for all prompt sizes
    _late: dict[tuple[str, str, int, float, float], RaceOfTwo] = {}
    _left: dict[tuple[str, float], tuple[Curve, float]] = {}  # computed on demand, like ``_beside``
    _earlier_s: dict[tuple[str, str], float] = {}
    _weighed: dict[str, tuple[float, ...]] = {}

    def of(self, deployment: str) -> Estimate:
        """Return the estimate of ``deployment``."""
        return self.estimates.get(deployment, self.unseen)

    def sized(self, scales: Mapping[str, float], other: float) -> "Standings":
        """Return the standings for prompts whose size has these factors; ``other`` is for unknown deployments."""
        estimates = {name: each.sized(scales.get(name, other)) for name, each in self.estimates.items()}
        return msgspec.structs.replace(self, estimates=estimates, unseen=self.unseen.sized(other))

    def with_those_of(self, other: "Standings", deployments: Iterable[str]) -> "Standings":
        """Return these standings with the estimates of ``deployments`` from another class of calls."""
        estimates = {**self.estimates, **{name: other.of(name) for name in deployments}}
        return Standings(estimates, self.unseen, self.answer_tokens)

    def beside(self, primary: str, racer: str, factor: float = 1.0) -> RaceOfTwo:
        """Return the expected result of a race of the two, in seconds at the reference size.

        ``factor`` multiplies the racer's times, if prompt size and load slow it down more than the primary.
        """
        key = primary, racer, shift_of(factor)
        cached = self._beside.get(key)
        if cached is None:
            cached = self._beside[key] = self.of(racer).curve.times(factor).beside(self.of(primary).curve)
        return cached

    def earlier_s(self, one: str, other: str) -> float:
        """Return the mean of the earlier first token of the two, in seconds at the reference size.

        As of ``beside``, for less: E[min] = E[T] + E[T of other] - E[max], times of at most 30 s.
        """
        key = (one, other) if one < other else (other, one)
        cached_s = self._earlier_s.get(key)
        if cached_s is None:
            mine, its = self.of(one), self.of(other)
            weighed = self._weighed.get(one)
            if weighed is None:
                weighed = self._weighed[one] = mine.curve.weighed()
            later_s = MEAN_CAP_S - sum(map(mul, weighed, its.curve.reached))
            cached_s = self._earlier_s[key] = mine.mean.at(1.0) + its.mean.at(1.0) - later_s
        return cached_s

    def beside_late(
        self, primary: str, racer: str, factor: float = 1.0, come: float = 1.0 - HEDGE_SHARE, more_s: float = 0.0
    ) -> tuple[RaceOfTwo, float]:
        """Return the result with a racer that starts late, and the primary's mean alone; both from the late start.

        The racer starts when a share ``come`` of the primary's first tokens would have arrived, and this call's has
        not. ``more_s``: if ends of answers are compared, by how many seconds the racer's answer takes longer than the
        primary's after its first token; below 0 shorter.
        """
        left = self._left.get((primary, come))
        if left is None:
            whole = self.of(primary).curve
            curve = whole.left_at(come) if come else whole
            left = self._left[primary, come] = curve, curve.mean().at(1.0)
        key = primary, racer, shift_of(factor), come, more_s
        cached = self._late.get(key)
        if cached is None:
            mine, its = self.of(racer).curve.times(factor), left[0]
            mine, its = (mine.plus(more_s), its) if more_s > 0 else (mine, its.plus(-more_s)) if more_s else (mine, its)
            cached = self._late[key] = mine.beside(its)
        return cached, left[1] + max(0.0, -more_s)


class Usual(msgspec.Struct, frozen=True):
    """The usual figures of one deployment, or of the whole model, from the memory of hours."""

    curve: Curve
    events: float = 0.0  # first tokens on which it is based
    decode_tps: float = SPEED_PRIOR[0] / SPEED_PRIOR[1]
    speed_known: bool = False
    stall_s: float = 0.0
    answered: Curve | None = None  # of the attempts that answered; None: none ever did
    answered_events: float = 0.0  # first tokens on which it is based


class Usuals(msgspec.Struct, frozen=True):
    """The usual figures of a model's deployments, and of an unknown one."""

    of: Mapping[str, Usual]
    unseen: Usual
    classes: tuple[Measured, ...]  # whose first tokens they are
    is_borrowed: bool = False  # from other classes, which may think less


def usuals(scales: Sequence[Mapping[str, Evidence]], lately: Mapping[str, Evidence], measured: Measured) -> Usuals:
    """Compute the usual figures from the evidence of the longer time scales, the longest first.

    Each histogram gets 4 additional events, distributed as on the previous scale. The first scale's come from the pool
    of all the model's deployments (all scales and ``lately``), and the pool has 2 events of a fixed lognormal. So a
    deployment with few samples is judged by its past, and a new deployment by its peers, not by luck.
    """
    return finished(usuals_in_steps(scales, lately, measured))


def usuals_in_steps(
    scales: Sequence[Mapping[str, Evidence]], lately: Mapping[str, Evidence], measured: Measured
) -> Generator[None, None, Usuals]:
    """Do the same, one deployment at a time."""
    every = [each for scale in (*scales, lately) for each in scale.values()]
    classes, is_borrowed = _classes(every, measured)
    events, censored = _seen(every, classes)
    answered_events = sum(events)
    answered = kaplan_meier(events, censored) if answered_events else None
    unseen = Usual(kaplan_meier(_pool(events, censored), _NONE), answered=answered, answered_events=answered_events)
    yield
    usual_of: dict[str, Usual] = {}
    for evidences in scales:
        for name, evidence in evidences.items():
            before = usual_of.get(name, unseen)
            usual_of[name] = _topped_up(evidence, classes, before)
            yield
    return Usuals(usual_of, unseen, classes, is_borrowed)


def _classes(every: Sequence[Evidence], measured: Measured) -> tuple[tuple[Measured, ...], bool]:
    """Return the classes whose first tokens predict those of ``measured``, and whether these tokens may be too quick.

    An effort is a class of its own once ten of its first tokens are known, and the model takes clearly more or less
    time with this effort than with others. So a model that does not think is known as soon as without classes. First
    clauses and first tokens are counted apart once ten of the kind are known: figures from before the start mix both.
    """
    if isinstance(measured, MeasuredApi) and measured is not MeasuredApi.ANSWERS:
        return (measured,), False
    alike, unlike = (_SPOKEN, _ANSWERS) if isinstance(measured, Spoken) else (_ANSWERS, _SPOKEN)
    own, own_cut = _seen(every, (measured,))
    others, others_cut = _seen(every, tuple(each for each in alike if each is not measured))
    if sum(own) + sum(others) < KNOWN_EVENTS and any(_seen(every, unlike)[0]):
        return (*alike, *unlike), False
    if not sum(others):
        return (measured,), False
    if sum(own) < KNOWN_EVENTS:
        return alike, measured not in _LITTLE
    mine, theirs = kaplan_meier(own, own_cut), kaplan_meier(others, others_cut)
    is_alike = all(
        1 / EFFORT_ALIKE
        < mine.quantile_s(q * mine.reached[-1]) / theirs.quantile_s(q * theirs.reached[-1])
        < EFFORT_ALIKE
        for q in (0.5, LATE_QUANTILE)
    )
    return (alike if is_alike else (measured,)), False


def _seen(every: Sequence[Evidence], classes: tuple[Measured, ...]) -> tuple[list[float], list[float]]:
    """Return first tokens, and attempts cut without one, by bucket."""
    return (
        dense(merged(each.events[name] for each in every for name in classes if name in each.events)),
        dense(merged(each.censored[name] for each in every for name in classes if name in each.censored)),
    )


_Result = TypeVar("_Result")


def finished(steps: Generator[None, None, _Result]) -> _Result:
    """Run ``steps`` to the end; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result


def standings(
    lately: Mapping[str, Evidence],
    usual: Usuals | None = None,
    api: Measured = MeasuredApi.ANSWERS,
    answer_tokens: float = ANSWER_PRIOR[0],
) -> Standings:
    """Estimate every deployment of a model from recent evidence, with 4 additional events from ``usual``.

    Without ``usual``, it is computed from ``lately``.
    """
    return finished(standings_in_steps(lately, usual or usuals((), lately, api), api, answer_tokens))


def standings_in_steps(
    lately: Mapping[str, Evidence], usual: Usuals, measured: Measured, answer_tokens: float
) -> Generator[None, None, Standings]:
    """Do the same, one deployment at a time."""
    estimates: dict[str, Estimate] = {}
    for name in {**lately, **usual.of}:
        estimates[name] = _estimate(lately.get(name, _NOTHING), measured, usual.of.get(name, usual.unseen), usual)
        yield
    return Standings(estimates, _estimate(_NOTHING, measured, usual.unseen, usual), answer_tokens)


def answer_tokens(counts: Mapping[str, float]) -> float:
    """Return n_hat, the expected output tokens of the model's next answer, from its decayed counts."""
    prior_tokens, prior_answers = ANSWER_PRIOR
    return (counts.get(OUTPUT_TOKENS, 0.0) + prior_tokens * prior_answers) / (counts.get(REQUESTS, 0.0) + prior_answers)


def error_rate(ended: float, failed: float) -> float:
    """Return the probability that the next attempt fails: (failed + 0.05) / (ended + 5)."""
    errors, n = ERROR_PRIOR
    return (failed + errors) / (ended + n)


def decode_tps(evidence: Evidence, usual_tps: float = SPEED_PRIOR[0] / SPEED_PRIOR[1]) -> float:
    """Return the expected decode speed, tokens per second: (tok + 2) / (sec + 2 / usual).

    Estimated tokens are used while the provider has reported hardly any, as for watched losers. If most answers come
    at once out of a buffer, there is no wait after the first token.
    """
    if evidence.ans >= COLD_EVENTS and evidence.burst >= evidence.ans / 2:
        return AT_ONCE_TPS
    tokens = SPEED_PRIOR[0]
    seconds = tokens / usual_tps
    if evidence.sec >= SPEED_KNOWN_S:
        return (evidence.tok + tokens) / (evidence.sec + seconds)
    return (evidence.tok + evidence.gtok + tokens) / (evidence.sec + evidence.gsec + seconds)


def _pool(events: Sequence[float], censored: Sequence[float]) -> list[float]:
    """Return the model's first tokens at all deployments, by bucket, scaled to the weight of a prior."""
    prior = lognormal_masses(FIXED_PRIOR_MEDIAN_S, FIXED_PRIOR_SIGMA)
    curve = kaplan_meier(
        [n_events + FIXED_PRIOR_EVENTS * share for n_events, share in zip(events, prior, strict=True)], censored
    )
    return _prior(curve, prior)


def _prior(curve: Curve, otherwise: Sequence[float]) -> list[float]:
    """Return a curve as counts by bucket, scaled to the weight of a prior, without the part it never reached."""
    masses: Sequence[float] = curve.masses()
    total = sum(masses)
    if total <= 0:  # nearly all were cut, so the first tokens are negligible
        masses, total = otherwise, sum(otherwise)
    return [PRIOR_EVENTS * mass / total for mass in masses]


def _topped_up(evidence: Evidence, classes: tuple[Measured, ...], before: Usual) -> Usual:
    prior = _prior(before.curve, before.curve.masses())
    events, censored = _seen((evidence,), classes)
    curve = kaplan_meier(list(map(add, events, prior)), censored)
    own = sum(events)
    answered = before.answered
    if own:
        before_events = [] if answered is None else _prior(answered, answered.masses())
        answered = kaplan_meier(list(map(add, events, before_events)) if before_events else events, censored)
    is_known = evidence.sec + evidence.gsec >= SPEED_KNOWN_S
    return Usual(
        curve,
        events=own,
        answered=answered,
        answered_events=max(own, before.answered_events),
        decode_tps=decode_tps(evidence, before.decode_tps),
        speed_known=is_known or before.speed_known,
        stall_s=(evidence.stall + before.stall_s * STALL_PRIOR) / (evidence.won + STALL_PRIOR),
    )


def _estimate(evidence: Evidence, measured: Measured, usual: Usual, of: Usuals) -> Estimate:
    now = _topped_up(evidence, of.classes, usual)
    fails = error_rate(*evidence.attempts(measured))
    succeeds = max(SUCCESS_FLOOR, 1.0 - fails)
    mean = now.curve.mean()
    is_known = usual.events >= KNOWN_EVENTS
    usual_p50_s = usual.curve.quantile_s(0.5) if is_known else inf
    return Estimate(
        events=now.events,
        curve=now.curve,
        q95_s=now.curve.quantile_s(0.95),
        beyond_s=now.curve.expected_beyond_s(),
        score_s=mean.at(1.0) / succeeds,
        usual_q95_s=usual.curve.quantile_s(0.95),
        usual_p50_s=usual_p50_s,
        usual_events=usual.events,
        slower_lately=is_known and now.curve.quantile_s(0.5) > NEAR * usual_p50_s,
        error_rate=fails,
        decode_tps=now.decode_tps,
        speed_known=now.speed_known,
        stall_s=now.stall_s,
        mean=mean,
        usual=usual.curve,
        answered=now.answered,
        answered_events=now.answered_events,
        is_borrowed=of.is_borrowed,
    )


_NOTHING = Evidence()
_ANSWERS: tuple[Measured, ...] = (MeasuredApi.ANSWERS, *Effort)
_SPOKEN: tuple[Measured, ...] = tuple(Spoken)
_LITTLE = frozenset({Effort.LOW, Spoken.LOW})  # the effort that takes the least time
_NONE = (0.0,) * BUCKETS
LEAST_REMAINDER = 1.02  # of an age beyond all samples
