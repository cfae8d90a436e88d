"""Finds providers that count tokens differently: one that reports twice as many is paid twice, and looks faster."""

from collections.abc import Callable
from statistics import median

import structlog

from gateway.attempt_records import AttemptRecord, Outcome, TokensSource

ANSWERS = 20  # of a deployment, between comparisons
FAR_OFF = 1.6  # factor from the others' tokens per character, up or down
SHORTEST_CHARS = 40  # minimum of an answer that is used
KEPT = 1000  # answers; then older ones count half
TOLD_EVERY_S = 3600.0
USUAL_PER_CHAR = 0.25  # if only two can be compared, the one farther from this is suspected

_log = structlog.get_logger()


class UsageWatch:
    """Compares the reported tokens per character by model; logs a warning, once an hour, for one that is far off.

    ``clock`` is monotonic, seconds. ``on_far_off`` is called with model and deployment for each comparison that finds
    one far off. The view ``provider_errors`` does the same in the ledger, by the same rule.
    """

    def __init__(self, clock: Callable[[], float], on_far_off: Callable[[str, str], None] = lambda *_: None) -> None:
        self._clock = clock
        self._on_far_off = on_far_off
        self._stated: dict[str, dict[str, _Stated]] = {}  # by model and deployment
        self._told_at_s: dict[tuple[str, str], float] = {}

    def answered(self, model: str, attempt: AttemptRecord) -> None:
        """Add the attempt that answered a call."""
        tokens, chars = attempt.completion_tokens, attempt.chars
        counted = attempt.outcome is Outcome.WON and attempt.tokens_source is TokensSource.REPORTED
        if not (counted and tokens and chars and chars >= SHORTEST_CHARS) or attempt.reasoning_tokens:
            return  # reasoning that was not streamed has no characters
        by_deployment = self._stated.get(model) or self._stated.setdefault(model, {})
        stated = by_deployment.get(attempt.deployment) or by_deployment.setdefault(attempt.deployment, _Stated())
        stated.add(tokens, chars)
        if stated.answers % ANSWERS == 0:
            self._compare(model, attempt.deployment, stated.per_char)

    def _compare(self, model: str, deployment: str, per_char: float) -> None:
        others = [
            each.per_char
            for name, each in self._stated[model].items()
            if name != deployment and each.answers >= ANSWERS
        ]
        if not others:
            return
        usual = median(others)
        times = per_char / usual
        if max(times, 1 / times) <= FAR_OFF or (len(others) == 1 and _oddness(per_char) <= _oddness(usual)):
            return
        self._on_far_off(model, deployment)
        now_s, key = self._clock(), (model, deployment)
        if now_s - self._told_at_s.get(key, -TOLD_EVERY_S) >= TOLD_EVERY_S:
            self._told_at_s[key] = now_s
            _log.warning(
                "usage.far_off",
                model=model,
                deployment=deployment,
                times=round(times, 2),
                effect="costs and tok/s are computed from the tokens that the provider reports",
                hint="compare its usage with another provider's for the same text",
            )


class _Stated:
    """The reports of one deployment: tokens, and the characters of the same answers."""

    __slots__ = ("_chars", "_tokens", "answers")

    def __init__(self) -> None:
        self.answers = 0
        self._tokens = 0.0
        self._chars = 0.0

    def add(self, tokens: int, chars: int) -> None:
        if self.answers == KEPT:
            self.answers //= 2
            self._tokens /= 2
            self._chars /= 2
        self.answers += 1
        self._tokens += tokens
        self._chars += chars

    @property
    def per_char(self) -> float:
        return self._tokens / self._chars


def _oddness(per_char: float) -> float:
    return max(per_char / USUAL_PER_CHAR, USUAL_PER_CHAR / per_char)
