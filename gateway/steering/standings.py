"""Standings: what the policy predicts for the next call of one model and prompt class, per deployment."""

from collections.abc import Mapping
from operator import add

import msgspec

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
from gateway.steering.histogram import bucket, lognormal_masses
from gateway.steering.survival import Curve, dense, kaplan_meier
from gateway.steering.tally import OUTPUT_TOKENS, REQUESTS, Tally, merged


class Estimate(msgspec.Struct, frozen=True):
    """What is expected of one deployment."""

    events: float  # its own first tokens, decayed; the prior is not among them
    curve: Curve  # attempt TTFT
    q95_s: float
    beyond_s: tuple[float, ...]  # by bucket: the first token expected of who has none at the bucket's end
    score_s: float  # restricted mean TTFT over the chance of success; lower is better
    error_rate: float = 0.01  # chance that the next attempt fails
    decode_tps: float = 60.0  # tokens per second after the first
    speed_known: bool = False  # enough decoding was watched to hold it against the deployment
    stall_s: float = 0.0  # of silence within an answer, beyond what is usual

    def expected_s(self, age_s: float) -> float:
        """Return when the first token is to be expected of an attempt that has none at ``age_s``, in seconds.

        Of a deployment that is hardly known next to nothing is expected: its curve is mostly the prior's wide tail.
        """
        if self.events < EXPECTED_FROM_EVENTS:
            return age_s * _LEAST_REMAINDER
        return max(age_s * _LEAST_REMAINDER, self.beyond_s[bucket(age_s)])

    def slower_than(self, floor_tps: float) -> bool:
        """Tell whether it is known to decode more slowly. Who never won was never timed, and gets the chance."""
        return self.speed_known and self.decode_tps < floor_tps


class Standings(msgspec.Struct, frozen=True):
    """One model and prompt class: estimates by deployment, and the one for those never seen."""

    estimates: Mapping[str, Estimate]
    unseen: Estimate
    answer_tokens: float = ANSWER_PRIOR[0]  # n_hat: output tokens per call of this model

    def of(self, deployment: str) -> Estimate:
        """Return the estimate of ``deployment``."""
        return self.estimates.get(deployment, self.unseen)


def standings(tallies: Mapping[str, Tally], prompt_class: int, answer_tokens: float = ANSWER_PRIOR[0]) -> Standings:
    """Estimate every deployment of a model from its weighted tallies.

    Each histogram is topped up with 4 events spread as the model's deployments together answer (the pool), and the pool
    with 2 of a fixed lognormal: a deployment with few samples is judged like its peers, not by luck.
    """
    pool = _pool(tallies, prompt_class)
    estimates = {name: _estimate(tally, prompt_class, pool) for name, tally in tallies.items()}
    return Standings(estimates, _estimate(Tally(), prompt_class, pool), answer_tokens)


def answer_tokens(counts: Mapping[str, float]) -> float:
    """Return n_hat, the expected output tokens of the model's next answer, from its decayed counts."""
    prior_tokens, prior_answers = ANSWER_PRIOR
    return (counts.get(OUTPUT_TOKENS, 0.0) + prior_tokens * prior_answers) / (counts.get(REQUESTS, 0.0) + prior_answers)


def error_rate(tally: Tally) -> float:
    """Return the chance that the next attempt fails: (err + 0.05) / (n + 5)."""
    errors, attempts = ERROR_PRIOR
    return (tally.err + errors) / (tally.n + attempts)


def decode_tps(tally: Tally) -> float:
    """Return the expected decode speed: (tok + 2) / (sec + 1/30) tokens per second.

    Guessed tokens stand in while the provider has counted hardly any: a loser, watched for a while, never tells. Of one
    whose answers mostly come at once, out of a buffer, nothing is to be waited for after the first token.
    """
    if tally.ans >= COLD_EVENTS and tally.burst >= tally.ans / 2:
        return AT_ONCE_TPS
    tokens, seconds = SPEED_PRIOR
    if tally.sec >= SPEED_KNOWN_S:
        return (tally.tok + tokens) / (tally.sec + seconds)
    return (tally.tok + tally.gtok + tokens) / (tally.sec + tally.gsec + seconds)


def _pool(tallies: Mapping[str, Tally], prompt_class: int) -> list[float]:
    """Return how the model answers, all deployments together, as shares of buckets that sum to 1."""
    prior = lognormal_masses(FIXED_PRIOR_MEDIAN_S[min(prompt_class, len(FIXED_PRIOR_MEDIAN_S) - 1)], FIXED_PRIOR_SIGMA)
    events = dense(merged(tally.events.get(prompt_class, {}) for tally in tallies.values()))
    censored = dense(merged(tally.censored.get(prompt_class, {}) for tally in tallies.values()))
    masses = kaplan_meier(
        [seen + FIXED_PRIOR_EVENTS * share for seen, share in zip(events, prior, strict=True)], censored
    ).masses()
    total = sum(masses)
    if total <= 0:  # so much was cut that no first token counts beside it
        masses, total = list(prior), sum(prior)
    return [PRIOR_EVENTS * mass / total for mass in masses]


def _estimate(tally: Tally, prompt_class: int, pool: list[float]) -> Estimate:
    own = tally.events.get(prompt_class, {})
    cut = tally.censored.get(prompt_class)
    curve = kaplan_meier(list(map(add, dense(own), pool)), dense(cut) if cut else _NONE)
    fails = error_rate(tally)
    return Estimate(
        events=sum(own.values()),
        curve=curve,
        q95_s=curve.quantile_s(0.95),
        beyond_s=curve.expected_beyond_s(),
        score_s=curve.mean_s() / max(SUCCESS_FLOOR, 1.0 - fails),
        error_rate=fails,
        decode_tps=decode_tps(tally),
        speed_known=tally.sec + tally.gsec >= SPEED_KNOWN_S,
        stall_s=tally.stall / (tally.won + STALL_PRIOR),
    )


_NONE = (0.0,) * BUCKETS
_LEAST_REMAINDER = 1.02  # of an age beyond all that was seen
