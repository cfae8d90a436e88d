"""The published leaderboard: what the last ten minutes say about each deployment, losers included."""

from collections.abc import Iterable, Mapping
from math import isfinite

import msgspec

from gateway.steering.constants import PUBLISH_EVENTS
from gateway.steering.health import Condition, State
from gateway.steering.survival import dense, kaplan_meier, median_interval_s
from gateway.steering.tally import Tally, merged


class Row(msgspec.Struct, frozen=True):
    """One deployment. A figure that cannot be known yet is None."""

    deployment: str
    state: str  # "ok", "cooling 3.2 s", "open", "half-open", "out"
    score: float  # what the policy expects, in seconds: decayed, with its prior and the price of scarcity
    n: int  # attempts that ended with a first token or an error
    events: int  # first tokens
    censored: int  # attempts cut before theirs
    ttft_p50_ms: float | None  # Kaplan-Meier over first tokens and cut attempts
    ttft_p50_low_ms: float | None  # its 95 % interval
    ttft_p50_high_ms: float | None
    ttft_p95_ms: float | None
    ttft_p99_ms: float | None
    decode_tps: float | None
    error_rate: float | None
    win_share: float | None  # of the model's answered calls
    in_flight: int  # here, now
    biased: bool  # losers were cut before their first token: with correlated providers the quantiles are too low


class Leaderboard(msgspec.Struct, frozen=True):
    """One model: its deployments, those that may be asked first, by score."""

    model: str
    prompt_class: int  # the one the scores are for: the busiest
    deployments: tuple[Row, ...]


def rank(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the rows in the order in which the policy likes them."""
    return tuple(sorted(rows, key=lambda row: (row.state != State.OK, row.score, row.deployment)))


def row(deployment: str, tally: Tally, model_won: float, score_s: float, condition: Condition) -> Row:
    """Describe a deployment from its plain (undecayed) tally; ``model_won`` is the sum of the model's wins."""
    events = dense(merged(tally.events.values()))
    censored = dense(merged(tally.censored.values()))
    seen = round(sum(events))
    known = seen >= PUBLISH_EVENTS
    curve = kaplan_meier(events, censored)
    low_s, high_s = median_interval_s(events, censored)
    return Row(
        deployment=deployment,
        state=_state(condition),
        score=round(score_s, 4),
        n=round(tally.n),
        events=seen,
        censored=round(sum(censored)),
        ttft_p50_ms=_ms(curve.quantile_s(0.50)) if known else None,
        ttft_p50_low_ms=_ms(low_s) if known else None,
        ttft_p50_high_ms=_ms(high_s) if known else None,
        ttft_p95_ms=_ms(curve.quantile_s(0.95)) if known else None,
        ttft_p99_ms=_ms(curve.quantile_s(0.99)) if known else None,
        decode_tps=round(tally.tok / tally.sec, 1) if tally.sec > 0 else None,
        error_rate=round(tally.err / tally.n, 4) if tally.n else None,
        win_share=round(tally.won / model_won, 4) if model_won else None,
        in_flight=condition.in_flight,
        biased=any(censored),
    )


def busiest_class(tallies: Mapping[str, Tally]) -> int:
    """Return the prompt class with the most attempts; 0 when there were none."""
    attempts: dict[int, float] = {}
    for tally in tallies.values():
        for histograms in (tally.events, tally.censored):
            for prompt_class, histogram in histograms.items():
                attempts[prompt_class] = attempts.get(prompt_class, 0.0) + sum(histogram.values())
    return max(attempts, key=lambda prompt_class: attempts[prompt_class], default=0)


def _state(condition: Condition) -> str:
    if condition.state is State.COOLING:
        return f"{State.COOLING} {condition.cooling_s:.1f} s"
    return str(condition.state)


def _ms(seconds: float) -> float | None:
    return round(seconds * 1000, 1) if isfinite(seconds) else None
