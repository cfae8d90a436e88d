"""Samples: what one attempt adds to the board. The view ``samples`` of the ledger computes the same in SQL."""

from gateway.attempt_records import EXPLORING, AttemptRecord, AttemptStart, Outcome, Role, TokensSource, WinOn
from gateway.prompt_classes import PromptClass
from gateway.steering.constants import STALL_FROM_S
from gateway.steering.tally import Counts, Fields, censored_field, event_field, fields, spoken_field
from providers.errors import ErrorKind

CUT = frozenset({Outcome.LOST, Outcome.SUPERSEDED, Outcome.CLIENT_GONE})
BROKEN = frozenset({Outcome.FAILED, Outcome.TIMEOUT, Outcome.STALLED})

_NOBODYS = frozenset({ErrorKind.BAD_REQUEST, ErrorKind.NO_SUCH_API})

BURST_S = 0.020  # an answer that arrives within this time, or faster than any provider decodes, comes out of a buffer:
BURST_TPS = 5000.0  # its speed is null (docs/policy.md#measurement)


def of_token(start: AttemptStart, prompt_class: PromptClass, ttft_s: float) -> Counts:
    """Return the counts of a first token ``ttft_s`` seconds after the launch."""
    if not prompt_class.is_sampled:
        return {}
    ttft_s = round(ttft_s, 6)  # as in the ledger: both must use the same bucket
    return {event_field(start.deployment, prompt_class, ttft_s): 1.0}


def of_end(attempt: AttemptRecord, prompt_class: PromptClass) -> Counts:
    """Return the counts of an attempt's end. Those with ``win_on: sentence`` are counted twice.

    Cut before its first token it is censored at its age. A 429 is counted separately; the client's own fault and a
    missing API are not counted; any other error counts in ``n`` and ``err``.
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
        _count_quality(counts, attempt)
    outcome = attempt.outcome
    if outcome in BROKEN:
        names = fields(attempt.deployment)
        if attempt.error_kind == ErrorKind.RATE_LIMITED:
            counts[names.lim] = 1.0
        elif attempt.error_kind not in _NOBODYS:
            counts[names.n] = counts[names.err] = 1.0
    elif attempt.censored_at_ms is not None and outcome in CUT:
        name, age_s = attempt.deployment, attempt.censored_at_ms / 1000
        counts[censored_field(name, prompt_class, age_s)] = 1.0
    elif outcome is Outcome.WON or outcome in CUT:
        names = fields(attempt.deployment)
        counts[names.n] = 1.0
        if outcome is Outcome.WON:
            counts[names.won] = 1.0 if attempt.number else 0.0  # a probe of the gateway's own is nobody's win
            if attempt.itl_max_ms is not None and attempt.itl_max_ms > 1000 * STALL_FROM_S:
                counts[names.stall] = attempt.itl_max_ms / 1000 - STALL_FROM_S
        _count_speed(counts, names, attempt)
    return counts


def _count_spoken(counts: Counts, attempt: AttemptRecord, prompt_class: PromptClass) -> None:
    again = {field: spoken_field(field) for field in counts}
    counts.update({spoken: counts[field] for field, spoken in again.items() if spoken is not None})
    if attempt.token_ms is not None:  # the first token itself is counted when it comes
        counts[event_field(attempt.deployment, prompt_class, attempt.token_ms / 1000, kind="se")] = 1.0


def _count_quality(counts: Counts, attempt: AttemptRecord) -> None:
    names = fields(attempt.deployment)
    counts[names.judged] = 1.0
    if attempt.flaw is not None:
        counts[names.flawed] = 1.0


def _tell_apart(counts: Counts, attempt: AttemptRecord, prompt_class: PromptClass) -> None:
    """Add the counts for published quantiles: late launches, overtaken attempts, and the audited sample of these.

    In exploring races all are audited, so overtaken attempts count there like the others.
    """
    name, role = attempt.deployment, attempt.role
    token_s = None if attempt.token_ms is None else attempt.token_ms / 1000
    if not (role is Role.RACE or role in EXPLORING or (role is Role.PRIMARY and attempt.number == 1)):
        if token_s is not None:
            counts[event_field(name, prompt_class, token_s, kind="l")] = 1.0
        return
    outcome, cut_ms = attempt.outcome, attempt.censored_at_ms
    overtaken = outcome is Outcome.LOST if attempt.is_overtaken is None else attempt.is_overtaken
    explored = attempt.audited and (role in EXPLORING or (role is Role.PRIMARY and attempt.predicted_ms is None))
    if not overtaken or explored:
        if cut_ms is not None and outcome in CUT:
            counts[censored_field(name, prompt_class, cut_ms / 1000, kind="g")] = 1.0
        return
    names = fields(name)
    counts[names.over] = 1.0
    if attempt.audited and (outcome is Outcome.SUPERSEDED or outcome is Outcome.LOST or outcome in BROKEN):
        counts[names.aud] = 1.0
        if token_s is not None:
            counts[event_field(name, prompt_class, token_s, kind="ae")] = 1.0
        elif cut_ms is not None:
            counts[censored_field(name, prompt_class, cut_ms / 1000, kind="ac")] = 1.0


def _count_speed(counts: Counts, names: Fields, attempt: AttemptRecord) -> None:
    """Add tokens and seconds, of decoding and end to end, if the provider reported the tokens.

    If it did not, as for a watched loser, the tokens of decoding are estimates and are counted separately.
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
    elif tokens - (attempt.reasoning_tokens or 0) > 1 and _came_at_once(tokens, span_s):
        counts[names.ans] = counts[names.burst] = 1.0
    if tokens and attempt.last_token_ms > 0:
        counts[names.etok] = float(tokens)
        counts[names.esec] = attempt.last_token_ms / 1000


def _came_at_once(tokens: int, span_s: float) -> bool:
    return span_s < BURST_S or tokens - 1 > BURST_TPS * span_s
