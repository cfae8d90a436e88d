"""The published leaderboard: figures of each deployment from plain counts over a fixed window, losers included.

Nothing is decayed and no prior is used, so that the ledger's rows give the same figures: the view ``leaderboard``
computes them in SQL.
"""

from collections.abc import Collection, Iterable, Mapping
from math import inf, isfinite
from typing import Annotated, Literal

import msgspec

from gateway.core.old_names import WithOldNames, formerly
from gateway.core.prompt_classes import PromptClass, answer_class, encoded_class, spoken_class
from gateway.core.race_failures import SkippedDeployment
from gateway.core.terminal_text import counted
from gateway.steering.constants import (
    BUFFERED_ANSWERS,
    LEAST_AUDITS,
    PUBLISH_EVENTS,
    SLOT_S,
    SLOTS_KEPT,
)
from gateway.steering.counts import Counts, Tally, add_counts, merged, read_tallies
from gateway.steering.estimates import Standings
from gateway.steering.health import Condition, Health, HealthState, OwnHealths, Trouble
from gateway.steering.narrowing import Narrowing
from gateway.steering.survival import AuditedCounts, Quantile, audited_quantiles, dense, quantiles, wilson

# The published times: quantiles of TTFT, or of the first sentence, and the number of attempts behind them.


class Times(msgspec.Struct, frozen=True):
    """Quantiles of the compared time, and the attempts from which they are computed."""

    events: int
    censored: int
    audited: int
    is_fair: bool  # the audited represent all overtaken ones
    quantiles: tuple[Quantile, ...]  # p50, p95, p99; infinite if unknown

    @property
    def is_biased(self) -> bool:
        """Whether the quantiles are too high: some attempts were cut, and too few audited."""
        return not self.is_fair and self.censored > 0


def published_times(tally: Tally) -> Times:
    """Return the times of a tally's attempts."""
    events, censored = dense(merged(tally.events.values())), dense(merged(tally.censored.values()))
    fair = _audited_counts(tally, events)
    is_fair = fair.audited >= LEAST_AUDITS
    return Times(
        events=round(sum(events)),
        censored=round(sum(censored)),
        audited=round(sum(fair.audited_events) + sum(fair.audited_censored)),
        is_fair=is_fair,
        quantiles=_published_audited(fair) if is_fair else _published(events, censored),
    )


def _audited_counts(tally: Tally, events: list[float]) -> AuditedCounts:
    late = dense(merged(tally.late_events.values()))
    audited = dense(merged(tally.audited_events.values()))
    own = [max(0.0, n_all - other - more) for n_all, other, more in zip(events, late, audited, strict=True)]
    return AuditedCounts(
        events=own,
        censored=dense(merged(tally.fair_censored.values())),
        overtaken=max(tally.over, tally.aud),
        audited=tally.aud,
        audited_events=audited,
        audited_censored=dense(merged(tally.audited_censored.values())),
    )


def _published_audited(fair: AuditedCounts) -> tuple[Quantile, ...]:
    if round(sum(fair.events) + sum(fair.audited_events)) < PUBLISH_EVENTS:
        return (_UNKNOWN,) * len(_SHARES)
    return audited_quantiles(fair, _SHARES)


def _published(events: list[float], censored: list[float]) -> tuple[Quantile, ...]:
    if round(sum(events)) < PUBLISH_EVENTS:
        return (_UNKNOWN,) * len(_SHARES)
    return quantiles(events, censored, _SHARES)


_SHARES = (0.50, 0.95, 0.99)
_UNKNOWN = Quantile(inf, inf, inf)


MOST_HELD = 20  # clients that are named of one deployment
WINDOW_S = SLOT_S * SLOTS_KEPT  # all slots of the board; the last half-minute is incomplete


class Row(WithOldNames, frozen=True):
    """One deployment. Unknown figures are None; with the ledger as source, so are those only a gateway knows."""

    rank: int | None  # by TTFT: the median, then the p95; not the policy's order
    deployment: str
    state: str | None  # "ok", "failing", "cooling 3.2 s", "open", "half-open", "out"
    reason: str | None  # why the state is not ok: the last error, if known
    headroom: float | None  # 0 to 1, the expected unused part of the provider's rate limit
    score: float | None  # the policy's prediction in seconds: decayed, with prior and scarcity price
    n: int  # attempts that ended with a first token or an error
    n_first_token: int  # first tokens
    n_censored: int  # attempts cut before a first token
    n_rate_limited: int  # 429s
    n_audited: int  # a random sample of the overtaken attempts, watched until their first token
    basis: Literal["all", "audited"]  # the attempts whose TTFT is published
    is_biased: bool  # the quantiles are too high: some attempts were cut, and too few audited
    ttft_p50_ms: float | None  # Kaplan-Meier, or audited ones representing all overtaken; with its 95 % interval
    ttft_p50_low_ms: float | None
    ttft_p50_high_ms: float | None
    ttft_p95_ms: float | None
    ttft_p95_low_ms: float | None
    ttft_p95_high_ms: float | None
    ttft_p99_ms: float | None
    ttft_p99_low_ms: float | None
    ttft_p99_high_ms: float | None
    n_sentence: int  # first clauses that could be spoken, with win_on: sentence; their times are also TTFTs
    sentence_p50_ms: float | None  # from the launch to the end of the first clause: quantiles like those of the TTFT
    sentence_p95_ms: float | None
    is_sentence_biased: bool  # as ``is_biased``
    decode_mean_tps: float | None  # tokens after the first / their seconds, all answers pooled
    e2e_mean_tps: float | None  # tokens / seconds since the launch, likewise
    is_buffered: (
        bool  # answers come at once out of a buffer: decode_mean_tps is meaningless, e2e_mean_tps is used for ranks
    )
    speed_rank: int | None
    error_rate: float | None
    win_share: float | None  # of the model's answered calls
    n_judged: int  # winners' complete answers that could be judged
    flaw_rate: float | None  # of these, with a 95 % interval: empty, truncated, bad calls or JSON, refusals
    flaw_low_rate: float | None
    flaw_high_rate: float | None
    in_flight: int | None  # of this replica, now
    probed_s_ago: float | None  # if this replica's last attempt there was a probe of its own
    held: tuple[str, ...] = ()  # what single clients have met there; only their own calls avoid the deployment
    refuses: tuple[str, ...] = ()  # of requests, by its refusals of the last day: fields, values, orders of roles, APIs
    events: Annotated[int, formerly("n_first_token")] = 0
    censored: Annotated[int, formerly("n_censored")] = 0
    rate_limited: Annotated[int, formerly("n_rate_limited")] = 0
    audited: Annotated[int, formerly("n_audited")] = 0
    biased: Annotated[bool, formerly("is_biased")] = False
    sentences: Annotated[int, formerly("n_sentence")] = 0
    sentence_biased: Annotated[bool, formerly("is_sentence_biased")] = False
    decode_tps: Annotated[float | None, formerly("decode_mean_tps")] = None
    e2e_tps: Annotated[float | None, formerly("e2e_mean_tps")] = None
    buffered: Annotated[bool, formerly("is_buffered")] = False
    judged: Annotated[int, formerly("n_judged")] = 0
    flaw_rate_low: Annotated[float | None, formerly("flaw_low_rate")] = None
    flaw_rate_high: Annotated[float | None, formerly("flaw_high_rate")] = None


class Leaderboard(msgspec.Struct, frozen=True):
    """One model: its deployments in the policy's order of preference, or by rank."""

    model: str
    window_s: float  # attempts launched within so many seconds
    prompt_class: int  # of the scores, by ``encoded_class``: the class with the most attempts
    deployments: tuple[Row, ...]
    narrowed: Narrowing | None = None  # most of its calls have fewer attempts than asked for, as this process sees it


class WindowCounts(msgspec.Struct, frozen=True):
    """The plain counts of one model over the published window."""

    tallies: Mapping[str, Tally]
    buffered: frozenset[str]
    won: float

    @property
    def busiest_class(self) -> PromptClass:
        """The prompt class with the most attempts; short prompts for answers if there are none."""
        attempts: dict[PromptClass, float] = {}
        for tally in self.tallies.values():
            spoken_tally = tally.spoken or Tally()
            for every, of_spoken in ((tally.events, spoken_tally.events), (tally.censored, spoken_tally.censored)):
                for prompt_class, histogram in every.items():
                    n, n_heard = sum(histogram.values()), sum(of_spoken.get(prompt_class, {}).values())
                    attempts[prompt_class] = attempts.get(prompt_class, 0.0) + n - n_heard
                    if n_heard:
                        class_of_spoken = spoken_class(prompt_class)
                        attempts[class_of_spoken] = attempts.get(class_of_spoken, 0.0) + n_heard
        return max(attempts, key=lambda prompt_class: attempts[prompt_class], default=_SHORT)


def read_window(slots: Mapping[int, Mapping[str, float]]) -> WindowCounts:
    """Sum the slots of one model."""
    total: Counts = {}
    for counts in slots.values():
        add_counts(total, counts)
    tallies = read_tallies(total)
    return WindowCounts(tallies, _buffered(slots), won=sum(tally.won for tally in tallies.values()))


def row(
    deployment: str,
    window: WindowCounts,
    *,
    score_s: float | None = None,
    condition: Condition | None = None,
    trouble: Trouble | None = None,
    probed_s_ago: float | None = None,
    held: tuple[str, ...] = (),
) -> Row:
    """Return the row of a deployment; ``rank`` adds the ranks."""
    tally = window.tallies.get(deployment) or Tally()
    first, sentence = published_times(tally), published_times(tally.spoken or Tally())
    p50, p95, p99 = first.quantiles
    flaws = wilson(tally.flawed, tally.judged)
    return Row(
        rank=None,
        deployment=deployment,
        state=state_of(condition) if condition is not None else None,
        reason=str(trouble) if trouble and condition is not None and condition.told is not HealthState.OK else None,
        headroom=round(condition.headroom, 3) if condition is not None else None,
        score=round(score_s, 4) if score_s is not None else None,
        n=round(tally.n),
        n_first_token=first.events,
        n_censored=first.censored,
        n_rate_limited=round(tally.lim),
        n_audited=first.audited,
        basis="audited" if first.is_fair else "all",
        is_biased=first.is_biased,
        ttft_p50_ms=_ms(p50.value_s),
        ttft_p50_low_ms=_ms(p50.low_s),
        ttft_p50_high_ms=_ms(p50.high_s),
        ttft_p95_ms=_ms(p95.value_s),
        ttft_p95_low_ms=_ms(p95.low_s),
        ttft_p95_high_ms=_ms(p95.high_s),
        ttft_p99_ms=_ms(p99.value_s),
        ttft_p99_low_ms=_ms(p99.low_s),
        ttft_p99_high_ms=_ms(p99.high_s),
        n_sentence=sentence.events,
        sentence_p50_ms=_ms(sentence.quantiles[0].value_s),
        sentence_p95_ms=_ms(sentence.quantiles[1].value_s),
        is_sentence_biased=sentence.is_biased,
        decode_mean_tps=round(tally.tok / tally.sec, 1) if tally.sec > 0 else None,
        e2e_mean_tps=round(tally.etok / tally.esec, 1) if tally.esec > 0 else None,
        is_buffered=deployment in window.buffered,
        speed_rank=None,
        error_rate=round(tally.err / tally.n, 4) if tally.n else None,
        win_share=round(tally.won / window.won, 4) if window.won else None,
        n_judged=round(tally.judged),
        flaw_rate=round(tally.flawed / tally.judged, 4) if tally.judged else None,
        flaw_low_rate=round(flaws[0], 4) if tally.judged else None,
        flaw_high_rate=round(flaws[1], 4) if tally.judged else None,
        in_flight=condition.in_flight if condition is not None else None,
        probed_s_ago=probed_s_ago,
        held=held,
    )


def of_gateway(
    model: str,
    deployments: Iterable[str],
    window: WindowCounts,
    *,
    standings: Standings,
    healths: Mapping[str, Health],
    now_s: float,
    narrowed: Narrowing | None = None,
    own: OwnHealths | None = None,
) -> Leaderboard:
    """Return the leaderboard of a running gateway: counts, and its predictions and deployments' health."""
    rows = []
    for name in deployments:
        health = healths.get(name) or Health()
        condition = health.condition(now_s)
        score_s = standings.of(name).score_s + condition.price_s
        probed_s_ago = round(now_s - health.launched_at_s, 1) if health.is_probed else None
        own_row = row(
            name,
            window,
            score_s=score_s,
            condition=condition,
            trouble=health.trouble,
            probed_s_ago=probed_s_ago,
            held=() if own is None else _held(own.at(name), now_s),
        )
        rows.append(own_row)
    return Leaderboard(model, WINDOW_S, encoded_class(window.busiest_class), rank(rows), narrowed)


def _held(met: Mapping[str, Health], now_s: float) -> tuple[str, ...]:
    """Return in words what single clients have met at a deployment; of many the first."""
    lines = [f"{client}: {words}" for client, health in met.items() if (words := _in_words(health, now_s)) is not None]
    more = len(lines) - MOST_HELD
    return (*lines[:MOST_HELD], f"and {counted(more, 'other')}") if more > 0 else tuple(lines)


def _in_words(health: Health, now_s: float) -> str | None:
    """Return what one client has met, without what its requests may have led the provider to say."""
    condition, strikes = health.condition(now_s), int(health.strikes)
    state = state_of(condition)
    if condition.state is HealthState.OK and condition.trial_in_s is None:
        if not strikes:
            return None
        state = f"{counted(strikes, 'failure')} in a row"
    return state if health.trouble is None else f"{state}, {health.trouble.head}"


def of_counts(model: str, slots: Mapping[int, Mapping[str, float]], window_s: float) -> Leaderboard:
    """Return the leaderboard from the ledger's counts, without a running gateway."""
    window = read_window(slots)
    return Leaderboard(
        model, window_s, encoded_class(window.busiest_class), rank(row(name, window) for name in window.tallies)
    )


def rank(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the rows with ranks, those out last, in the policy's order of preference if known, else by rank."""
    rows = tuple(rows)
    by_ttft = [each for each in rows if each.ttft_p50_ms is not None]
    by_ttft.sort(key=lambda each: (_is_out(each), each.ttft_p50_ms, _last(each.ttft_p95_ms), each.deployment))
    by_speed = [each for each in rows if _speed(each) is not None]
    by_speed.sort(key=lambda each: (_is_out(each), -(_speed(each) or 0.0), each.deployment))
    ranks = {each.deployment: place for place, each in enumerate(by_ttft, start=1)}
    speed_ranks = {each.deployment: place for place, each in enumerate(by_speed, start=1)}
    ranked = (
        msgspec.structs.replace(each, rank=ranks.get(each.deployment), speed_rank=speed_ranks.get(each.deployment))
        for each in rows
    )
    return tuple(sorted(ranked, key=_sort_key))


def _buffered(slots: Mapping[int, Mapping[str, float]]) -> frozenset[str]:
    """Return the deployments whose answers are buffered: at least half of the last 20, newest slots first."""
    answers: dict[str, float] = {}
    bursts: dict[str, float] = {}
    for slot in sorted(slots, reverse=True):
        counts = slots[slot]
        for field, amount in counts.items():
            if field.endswith("|ans"):
                name = field.removesuffix("|ans")
                if answers.get(name, 0.0) < BUFFERED_ANSWERS:
                    answers[name] = answers.get(name, 0.0) + amount
                    bursts[name] = bursts.get(name, 0.0) + counts.get(f"{name}|burst", 0.0)
    return frozenset(name for name, count in answers.items() if count >= PUBLISH_EVENTS and bursts[name] >= count / 2)


def _speed(row: Row) -> float | None:
    return row.e2e_mean_tps if row.is_buffered else row.decode_mean_tps


def _sort_key(row: Row) -> tuple[bool, float, float, str]:
    return row.state not in {HealthState.OK, None}, _last(row.score), _last(row.rank), row.deployment


def _is_out(row: Row) -> bool:
    """Whether the deployment is broken, refuses the key or does not know the model: it comes after all others."""
    return row.state in {HealthState.OPEN, HealthState.HALF_OPEN, HealthState.OUT}


def _last(value: float | None) -> float:
    return inf if value is None else value


def state_of(condition: Condition) -> str:
    """Return a deployment's state as text; for a cool-down with the remaining time."""
    if condition.state is HealthState.COOLING:
        return f"{HealthState.COOLING} {condition.cooling_s:.1f} s"
    return str(condition.told)


def _ms(seconds: float) -> float | None:
    return round(seconds * 1000, 1) if isfinite(seconds) else None


_SHORT = answer_class(0)


# The deployments that calls do not use, with reasons: for the errors of failed calls.


def not_asked(
    healths: Mapping[str, Health],
    deployments: Iterable[str],
    asked: Collection[str],
    now_s: float,
    *,
    on_trial: bool = False,
) -> tuple[SkippedDeployment, ...]:
    """Return which of ``deployments``, without those ``asked``, are out, cooling down or broken, and why."""
    reasons = []
    for name in deployments:
        health = healths.get(name)
        if health is None or name in asked:
            continue
        condition = health.condition(now_s)
        state = condition.told if on_trial else condition.state
        if state is HealthState.OK or state is HealthState.FAILING:
            continue
        reason = state_of(condition)
        if health.trouble is not None:
            reason += f": {health.trouble.for_others}"
        cause = None if health.trouble is None else health.trouble.in_words
        kind = None if health.trouble is None else health.trouble.kind
        reasons.append(
            SkippedDeployment(name, reason, state is HealthState.OUT, state is not HealthState.COOLING, cause, kind)
        )
    return tuple(reasons)
