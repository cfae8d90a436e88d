"""Samples: what one attempt adds to the board, and those that are held back while their deployment may be failing."""

from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from math import log

from gateway.core.attempts import EXPLORING, AttemptRecord, AttemptStart, Outcome, Role, TokensSource, WinOn
from gateway.core.prompt_classes import PromptClass
from gateway.core.rules import STEPS
from gateway.steering.clientele import Blame
from gateway.steering.constants import (
    DOUBTED_KEPT,
    HAIR,
    KNOWN_EVENTS,
    LEFT_ALONE,
    LEFT_UNKNOWN_S,
    PRIOR_EVENTS,
    SILENCE,
    STALL_FROM_S,
    STRIKES,
    UNANSWERED,
)
from gateway.steering.counts import Counts, Fields, bucket, censored_field, event_field, fields, spoken_field
from gateway.steering.estimates import Estimate
from gateway.steering.health import late_s
from providers import About, ErrorKind, kinds

# What one attempt adds to the board. The view ``samples`` of the ledger computes the same in SQL.

# Errors that count against no deployment: the client's own, a missing API (its other APIs work), one of several keys
# or forms.
NOT_COUNTED = kinds(lambda facts: facts.about in {About.REQUEST, About.API, About.STEP})
BURST_S = 0.020  # an answer that arrives within this time, or faster than any provider decodes, comes out of a buffer:
BURST_TPS = 5000.0  # its speed is null (gateway/steering/RULES.md#measurement)


def of_token(start: AttemptStart, prompt_class: PromptClass, ttft_s: float) -> Counts:
    """Return the counts of a first token ``ttft_s`` seconds after the launch."""
    if not prompt_class.is_sampled:
        return {}
    ttft_s = round(ttft_s, 6)  # as in the ledger: both must use the same bucket
    return {event_field(start.deployment, prompt_class, ttft_s): 1.0}


def of_end(attempt: AttemptRecord, prompt_class: PromptClass) -> Counts:
    """Return the counts of an attempt's end. Attempts with ``win_on: sentence`` are counted twice.

    An attempt cut before its first token is censored at its age. A 429 is counted separately; the client's own error
    and a missing API are not counted; any other error counts in ``n`` and ``err``.
    """
    if not prompt_class.is_sampled:
        return {}
    counts = _of_end(attempt, prompt_class)
    if attempt.win_on is WinOn.SENTENCE:
        _count_spoken(counts, attempt, prompt_class)
    return counts


def _of_end(attempt: AttemptRecord, prompt_class: PromptClass) -> Counts:
    counts: Counts = {}
    _tell_apart(counts, attempt, prompt_class)
    if attempt.judged_as is not None:
        names = fields(attempt.deployment)
        counts[names.judged] = 1.0
        if attempt.flaw is not None:
            counts[names.flawed] = 1.0
    outcome = attempt.outcome
    if outcome.failed:
        names = fields(attempt.deployment)
        if attempt.error_kind == ErrorKind.RATE_LIMITED:
            counts[names.lim] = 1.0
        elif attempt.error_kind not in NOT_COUNTED:
            counts[names.n] = counts[names.err] = 1.0
    elif attempt.censored_at_ms is not None and outcome.was_cut:
        name, age_s = attempt.deployment, attempt.censored_at_ms / 1000
        counts[censored_field(name, prompt_class, age_s)] = 1.0
    elif outcome is Outcome.WON or outcome.was_cut:
        names = fields(attempt.deployment)
        counts[names.n] = 1.0
        if outcome is Outcome.WON:
            counts[names.won] = 1.0 if attempt.number else 0.0  # the gateway's own probes are not wins
            if attempt.itl_max_ms is not None and attempt.itl_max_ms > 1000 * STALL_FROM_S:
                counts[names.stall] = attempt.itl_max_ms / 1000 - STALL_FROM_S
        _count_speed(counts, names, attempt)
    return counts


def _count_spoken(counts: Counts, attempt: AttemptRecord, prompt_class: PromptClass) -> None:
    again = {field: spoken_field(field) for field in counts}
    counts.update({spoken: counts[field] for field, spoken in again.items() if spoken is not None})
    if attempt.token_ms is not None:  # the first token itself is counted when it comes
        counts[event_field(attempt.deployment, prompt_class, attempt.token_ms / 1000, kind="se")] = 1.0


def _tell_apart(counts: Counts, attempt: AttemptRecord, prompt_class: PromptClass) -> None:
    """Add the counts for published quantiles: late launches, overtaken attempts, and the audited sample of these.

    In exploring races all losers are audited, so overtaken attempts count there like the others.
    """
    name, role, counts_as = attempt.deployment, attempt.role, attempt.counts_as
    token_s = None if attempt.token_ms is None else attempt.token_ms / 1000
    is_first = role is Role.PRIMARY and attempt.number == 1
    if counts_as is not None:  # the attempt repeats the request of a refused one that counts so
        role, is_first = counts_as, counts_as is Role.PRIMARY
    if not (role is Role.RACE or role in EXPLORING or is_first):
        if token_s is not None:
            counts[event_field(name, prompt_class, token_s, kind="l")] = 1.0
        return
    if attempt.error_kind in STEPS:  # the refusal of a key or a form alone is no sample
        return
    outcome, cut_ms = attempt.outcome, attempt.censored_at_ms
    overtaken = outcome is Outcome.LOST if attempt.is_overtaken is None else attempt.is_overtaken
    explored = attempt.audited and (role in EXPLORING or (role is Role.PRIMARY and attempt.predicted_ms is None))
    if not overtaken or explored:
        if cut_ms is not None and outcome.was_cut:
            counts[censored_field(name, prompt_class, cut_ms / 1000, kind="g")] = 1.0
        return
    names = fields(name)
    counts[names.over] = 1.0
    if attempt.audited and (outcome.was_cancelled_by_race or outcome.failed):
        counts[names.aud] = 1.0
        if token_s is not None:
            counts[event_field(name, prompt_class, token_s, kind="ae")] = 1.0
        elif cut_ms is not None:
            counts[censored_field(name, prompt_class, cut_ms / 1000, kind="ac")] = 1.0


def _count_speed(counts: Counts, names: Fields, attempt: AttemptRecord) -> None:
    """Add tokens and seconds, of decoding and end to end, if the provider reported the tokens.

    If the provider reports none, as for a loser that is read on, tokens of decoding are estimates, counted separately.
    """
    if attempt.tokens_source is None or attempt.ttft_ms is None or attempt.last_token_ms is None:
        return
    decode_tps, span_s = attempt.decode_tps, (attempt.last_token_ms - attempt.ttft_ms) / 1000
    if attempt.tokens_source is not TokensSource.REPORTED:
        if decode_tps is not None:
            counts[names.gtok] = decode_tps * span_s
            counts[names.gsec] = span_s
        return
    tokens = attempt.completion_tokens or 0
    if decode_tps is not None:
        counts[names.tok] = decode_tps * span_s
        counts[names.sec] = span_s
        counts[names.ans] = 1.0
    elif tokens - (attempt.reasoning_tokens or 0) > 1 and (span_s < BURST_S or tokens - 1 > BURST_TPS * span_s):
        counts[names.ans] = counts[names.burst] = 1.0
    if tokens and attempt.last_token_ms > 0:
        counts[names.etok] = float(tokens)
        counts[names.esec] = attempt.last_token_ms / 1000


# Samples held back while a deployment may be failing: they count if the deployment recovers, and are dropped if not.

_LEAST_SHARE = 0.01  # this share of attempts at least takes longer than any age: a single one proves nothing


class _Suspect:
    """One deployment since its last timely first token."""

    def __init__(self) -> None:
        self.held_back: deque[tuple[str, str, float]] = deque()  # model, field, time
        self.leavers: list[str | None] = []  # clients that left after waiting too long
        self.silence = 0.0  # -ln of the probability of so much silence, as of ``SILENCE``
        self.unanswered = 0  # late attempts, while the deployment's times are unknown
        self.met = Blame()  # the clients of these attempts


class SuspectSamples:
    """Samples that may belong to a fault, by deployment. ``count`` adds a model's counts at a Unix time."""

    def __init__(self, count: Callable[[str, Counts, float], None]) -> None:
        self._count = count
        self._suspects: dict[str, _Suspect] = {}

    def hold_back(self, model: str, deployment: str, field: str, unix_s: float) -> None:
        """Hold a sample back; of too many the oldest one is counted."""
        held_back = self._of(deployment).held_back
        held_back.append((model, field, unix_s))
        if len(held_back) > DOUBTED_KEPT:
            model, field, unix_s = held_back.popleft()
            self._count(model, {field: 1.0}, unix_s)

    def is_silent(self, deployment: str, estimate: Estimate, client: str | None, age_s: float) -> bool:
        """Whether the deployment is silent: so many attempts cut at such ages without a first token are very unlikely.

        Each loser adds -ln of the chance that this deployment's first token takes clearly longer than the loser's age.
        That is little, as losers are cut early: about 0.1 if a tenth of first tokens come sooner. A loser of a usual
        age adds nothing: it may have lost by a hair.
        """
        if estimate.usual is None or estimate.is_borrowed or estimate.usual_events < KNOWN_EVENTS:
            return False
        below = bucket(age_s / HAIR) - 1
        sooner = estimate.usual.reached[below] if below >= 0 else 0.0
        sooner -= PRIOR_EVENTS / (PRIOR_EVENTS + estimate.usual_events)  # the prior's part: others may be faster
        suspect = self._of(deployment)
        suspect.met.by_client[client] = 1.0
        suspect.silence -= log(max(_LEAST_SHARE, 1.0 - max(0.0, sooner)))
        return suspect.silence >= SILENCE

    def left(self, deployment: str, estimate: Estimate, client: str | None, age_s: float) -> str | None:
        """Count a client that left without a first token after ``age_s`` seconds; return the reason if it is a fault.

        Only clients that waited clearly longer than usual count. If several clients left, the breaker opens after as
        many of them as of failures; if one client left alone (without ``clients`` all are one), or if the deployment is
        unknown, after three times as many.
        """
        is_known = not estimate.is_borrowed and max(estimate.events, estimate.usual_events) >= KNOWN_EVENTS
        if age_s < (late_s(estimate.well_q95_s) if is_known else LEFT_UNKNOWN_S):
            return None
        suspect = self._of(deployment)
        leavers = suspect.leavers
        leavers.append(client)
        suspect.met.add(client)
        if len(leavers) < (STRIKES if is_known and len(set(leavers)) > 1 else LEFT_ALONE):
            return None
        return f"{len(leavers)} clients left before a first token"

    def hangs(self, deployment: str, client: str | None) -> bool:
        """Count a late attempt at a deployment without known times; return whether that is a fault."""
        suspect = self._of(deployment)
        suspect.unanswered += 1
        suspect.met.add(client)
        return suspect.unanswered >= UNANSWERED

    def met(self, deployment: str) -> Blame:
        """Return the clients that have met the deployment's silence since its last timely first token."""
        return self._of(deployment).met

    def confirm(self, deployment: str) -> None:
        """Count the samples held back: the deployment is healthy."""
        suspect = self._suspects.pop(deployment, None)
        for model, field, unix_s in suspect.held_back if suspect is not None else ():
            self._count(model, {field: 1.0}, unix_s)

    def drop(self, deployment: str) -> None:
        """Discard the samples held back: they belong to a fault, not to the deployment's usual times."""
        self._suspects.pop(deployment, None)

    def forget_others(self, deployments: AbstractSet[str]) -> None:
        """Forget all deployments except these."""
        self._suspects = {name: each for name, each in self._suspects.items() if name in deployments}

    def _of(self, deployment: str) -> _Suspect:
        return self._suspects.get(deployment) or self._suspects.setdefault(deployment, _Suspect())
