"""One simulated attempt, and the record that the gateway would make of it (``gateway/racing/attempt.py``)."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from benchmarks.steering.fleet import Answer
from benchmarks.steering.traffic import Request
from gateway.core.attempts import AnswerKind, AttemptRecord, AttemptStart, Flaw, Outcome, TokensSource
from gateway.racing.measurement import BURST_S
from providers import ErrorKind

if TYPE_CHECKING:
    from benchmarks.steering.timeline import Timer

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)  # nobody in here reads the date
TIMEOUTS = frozenset({ErrorKind.TTFT_TIMEOUT})


class Attempt:
    """One upstream request under way."""

    __slots__ = (
        "answer",
        "launched_at_s",
        "overtaken_at_s",
        "predicted_s",
        "record",
        "request",
        "start",
        "timers",
        "token_at_s",
        "watched",
    )

    def __init__(self, request: Request, start: AttemptStart, answer: Answer, launched_at_s: float) -> None:
        self.request = request
        self.start = start
        self.answer = answer
        self.launched_at_s = launched_at_s
        self.token_at_s: float | None = None
        self.record: AttemptRecord | None = None
        self.overtaken_at_s: float | None = None  # of an audited primary: its age then, and what was predicted
        self.predicted_s: float | None = None
        self.watched = False
        self.timers: list[Timer] = []

    def tokens(self, now_s: float, outcome: Outcome) -> int:
        """Return how many tokens have come, and are paid for."""
        if self.token_at_s is None:
            return 0
        if outcome is Outcome.WON or self.answer.tok_s is None:
            return self.request.answer_tokens
        sending_s = max(0.0, now_s - self.token_at_s - self.answer.stall_s)
        sent = 1 + int(sending_s * self.answer.tok_s + 1e-6)
        return min(self.request.answer_tokens, sent)

    def finished(self, now_s: float, outcome: Outcome, tokens: int) -> AttemptRecord:
        """Return the record of the attempt as it ended. Only a whole answer comes with the provider's own count."""
        answer, start = self.answer, self.start
        ttft_ms = None if self.token_at_s is None else (self.token_at_s - self.launched_at_s) * 1000
        span_s = answer.stall_s + (tokens - 1) / answer.tok_s if tokens > 1 and answer.tok_s is not None else 0.0
        broke = outcome in {Outcome.FAILED, Outcome.TIMEOUT}
        cut = outcome is Outcome.LOST and self.token_at_s is None
        whole = outcome is Outcome.WON
        return AttemptRecord(
            **msgspec.structs.asdict(start),
            call_id=str(self.request.index),
            outcome=outcome,
            ttft_ms=ttft_ms,
            token_ms=ttft_ms,
            last_token_ms=None if ttft_ms is None else ttft_ms + span_s * 1000,
            censored_at_ms=(now_s - self.launched_at_s) * 1000 if cut else None,
            error_kind=answer.error if broke else None,
            retry_after_s=answer.retry_after_s if broke else None,
            headroom=answer.headroom,
            prompt_tokens=self.request.prompt_tokens if whole else None,
            completion_tokens=tokens or None,
            tokens_source=TokensSource.REPORTED if whole else TokensSource.ESTIMATED,
            decode_tps=(tokens - 1) / span_s if span_s >= BURST_S else None,
            itl_max_ms=1000 * max(answer.stall_s, span_s / tokens) if span_s else None,
            overtaken_at_ms=None if self.overtaken_at_s is None else self.overtaken_at_s * 1000,
            predicted_ms=None if self.predicted_s is None else self.predicted_s * 1000,
            judged_as=AnswerKind.PLAIN if whole else None,
            flaw=Flaw.TRUNCATED if whole and answer.is_flawed else None,
        )
