"""Samples: what one attempt adds to the board. The view ``samples`` of the ledger says the same in SQL."""

from gateway.calls import AttemptRecord, AttemptStart, Outcome, Role, TokensSource
from gateway.steering.tally import CALLS, RACED, Counts, censored_field, event_field
from providers.errors import ErrorKind

CUT = frozenset({Outcome.LOST, Outcome.SUPERSEDED, Outcome.CLIENT_GONE})
BROKEN = frozenset({Outcome.FAILED, Outcome.TIMEOUT, Outcome.STALLED})

BURST_S = 0.020  # an answer that arrives within this, or faster than any provider decodes, comes out of a buffer:
BURST_TPS = 5000.0  # its speed is null (STEERING, section 2)


def of_token(start: AttemptStart, prompt_class: int, ttft_s: float) -> Counts:
    """Return what a first token adds, ``ttft_s`` seconds after the attempt's launch."""
    ttft_s = round(ttft_s, 6)  # as the ledger has it: both must find the same bucket
    counts = {event_field(start.deployment, prompt_class, ttft_s): 1.0}
    if start.audited:
        counts[event_field(start.deployment, prompt_class, ttft_s, audited=True)] = 1.0
    return counts


def of_end(attempt: AttemptRecord, prompt_class: int) -> Counts:
    """Return what the end of an attempt adds.

    Cut before its first token it is censored at its age. A 429 is only counted as such, the client's own fault not at
    all; any other error counts in ``n`` and ``err``.
    """
    name = attempt.deployment
    counts = _call(attempt)
    if attempt.outcome in BROKEN:
        if attempt.error_kind == ErrorKind.RATE_LIMITED:
            counts[f"{name}|lim"] = 1.0
        elif attempt.error_kind != ErrorKind.BAD_REQUEST:
            counts |= {f"{name}|n": 1.0, f"{name}|err": 1.0}
    elif attempt.outcome in CUT and attempt.censored_at_ms is not None:
        age_s = attempt.censored_at_ms / 1000
        counts[censored_field(name, prompt_class, age_s)] = 1.0
        if attempt.audited:
            counts[censored_field(name, prompt_class, age_s, audited=True)] = 1.0
    elif attempt.outcome is Outcome.WON or attempt.outcome in CUT:
        counts |= {f"{name}|n": 1.0, **_speed(attempt)}
        if attempt.outcome is Outcome.WON:
            counts[f"{name}|won"] = 1.0
    return counts


def _call(attempt: AttemptRecord) -> Counts:
    """Return the call a first attempt stands for, or its race when the second ran from the start."""
    if attempt.number == 1:
        return {CALLS: 1.0}
    return {RACED: 1.0} if attempt.number == 2 and attempt.role in _FROM_THE_START else {}  # noqa: PLR2004 - the second


def _speed(attempt: AttemptRecord) -> Counts:
    """Return tokens and seconds, of decoding and end to end, as far as the provider itself counted the tokens.

    Where it did not, as for a loser watched for some tokens, those of decoding are guesses, and kept apart.
    """
    name, tokens = attempt.deployment, attempt.completion_tokens
    if attempt.tokens_source is None or attempt.ttft_ms is None or attempt.last_token_ms is None:
        return {}
    counts: Counts = {}
    span_s = (attempt.last_token_ms - attempt.ttft_ms) / 1000
    if attempt.tokens_source is TokensSource.ESTIMATED:
        if attempt.decode_tps is not None:
            counts = {f"{name}|gtok": attempt.decode_tps * span_s, f"{name}|gsec": span_s}
        return counts
    if attempt.decode_tps is not None:
        counts |= {f"{name}|tok": attempt.decode_tps * span_s, f"{name}|sec": span_s, f"{name}|ans": 1.0}
    elif (tokens or 0) - (attempt.reasoning_tokens or 0) > 1 and _came_at_once(tokens or 0, span_s):
        counts |= {f"{name}|ans": 1.0, f"{name}|burst": 1.0}
    if tokens and attempt.last_token_ms > 0:
        counts |= {f"{name}|etok": float(tokens), f"{name}|esec": attempt.last_token_ms / 1000}
    return counts


def _came_at_once(tokens: int, span_s: float) -> bool:
    return span_s < BURST_S or tokens - 1 > BURST_TPS * span_s


_FROM_THE_START = frozenset({Role.RACE, Role.EXPLORE})
