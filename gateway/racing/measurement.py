"""What is measured of one attempt while it streams, and the figures made of it.

The definitions, and when a figure is null, are in docs/policy.md#measurement. Times are monotonic seconds; one
timestamp is taken per read, so deltas that arrive together share it.
"""

from array import array
from bisect import bisect_left, bisect_right
from math import inf

import msgspec

from gateway.attempt_records import TokensSource
from gateway.racing.tool_calls import ToolCalls
from gateway.steering.constants import BUCKETS
from gateway.steering.histogram import ROUNDING, edge_s
from providers.dialects.chunk import Chunk
from providers.usage import Usage, completed

CHARS_PER_TOKEN = 4  # the usual rule of thumb, for answers whose provider reports no usage
BURST_S = 0.020  # deltas that all arrive within this come out of a buffer: their speed says nothing
BURST_TPS = 5000.0  # likewise: faster than any provider decodes
MOST_GAPS = 4096  # kept of one answer: 32 kB
LEAST_BUCKET = -56  # of the ledger's, from 0.078 ms; shorter gaps, and those of no time, count in it too
ONE_EACH = 0.1  # so far apart, as a share, may tokens and chunks be where each chunk is a token
SUMMARY_CHARS_PER_TOKEN = 2  # fewer streamed characters per reasoning token: only a summary was streamed

# Of the buckets from the least to the last: where each ends, and its number as JSON has it.
_UPPER_EDGES_S = (*(edge_s(number - ROUNDING) for number in range(LEAST_BUCKET + 1, BUCKETS)), inf)
_NAMES = tuple(str(number) for number in range(LEAST_BUCKET, BUCKETS))


class Tokens(msgspec.Struct, frozen=True):
    """Token counts of one attempt and where they come from."""

    prompt: int | None
    completion: int | None
    reasoning: int | None
    cached: int | None
    cache_write: int | None
    source: TokensSource


class Gaps(msgspec.Struct, frozen=True):
    """The gaps between an answer's meaningful chunks: two quantiles, the longest, and all of them counted."""

    p50_ms: float
    p95_ms: float
    max_ms: float
    counts: dict[str, int]  # by number of the ledger's bucket


def milliseconds(seconds: float) -> float:
    """Return ``seconds`` as milliseconds, to the microsecond; rounding to digits would take four times as long."""
    return round(seconds * 1_000_000) / 1000


class Measurement:
    """The running measurement of one attempt, from its launch."""

    __slots__ = (
        "_longest_gap_s",
        "answer_at",
        "answer_id",
        "chars",
        "connect_ms",
        "finish_reason",
        "first_at",
        "first_chars",
        "first_chunks",
        "first_event_at",
        "gaps",
        "headers_at",
        "last_at",
        "meaningful",
        "model_version",
        "reasoning_chars",
        "refused",
        "started",
        "together",
        "tool_calls",
        "usage",
    )

    def __init__(self, started: float) -> None:
        self.started = started
        self.connect_ms: float | None = None
        self.headers_at: float | None = None
        self.first_event_at: float | None = None
        self.first_at: float | None = None  # first meaningful delta
        self.answer_at: float | None = None  # first that is not reasoning
        self.last_at: float | None = None
        self.meaningful = 0  # chunks with a meaningful delta
        self.chars = 0
        self.first_chunks = 0  # of them, those that came in the same instant as the first
        self.first_chars = 0
        self.reasoning_chars = 0
        self.gaps = array("d")  # between those that did not come together
        self.together = 0  # gaps of no time at all
        self._longest_gap_s = 0.0  # of those that are not among ``gaps`` any more
        self.usage: Usage | None = None
        self.model_version: str | None = None  # what answers, and the answer's id, as the provider says
        self.answer_id: str | None = None
        self.finish_reason: str | None = None
        self.tool_calls: ToolCalls | None = None
        self.refused = False

    def event(self, chunk: Chunk, now: float) -> None:
        """Take one event that arrived at ``now``."""
        if self.first_event_at is None:
            self.first_event_at = now
        if chunk.usage is not None:
            self.usage = chunk.usage if self.usage is None else completed(chunk.usage, self.usage)
        self._note(chunk)
        if not chunk.meaningful:
            return
        self.meaningful += 1
        self.chars += chunk.text_chars
        if chunk.reasoning:
            self.reasoning_chars += chunk.text_chars
        if chunk.answer and self.answer_at is None:
            self.answer_at = now
        if self.first_at is None:
            self.first_at = now
        else:
            self._gap(now)
        if now == self.first_at:
            self.first_chunks += 1
            self.first_chars += chunk.text_chars
        self.last_at = now

    def _note(self, chunk: Chunk) -> None:
        """Keep what an event says besides text."""
        if chunk.model is not None and self.model_version is None:
            self.model_version, self.answer_id = chunk.model, chunk.id
        if chunk.finish_reason is not None:
            self.finish_reason = chunk.finish_reason
        if chunk.tools or chunk.names:
            if self.tool_calls is None:
                self.tool_calls = ToolCalls()
            self.tool_calls.add(chunk.tools)
            self.tool_calls.named(chunk.names)
        if chunk.refused:
            self.refused = True

    def plain(self, number: int, chars: int, now: float) -> None:
        """Take so many events that add ``chars`` of text in all, about, and arrived together; not the first ones."""
        self.meaningful += number
        self.chars += chars
        if self.answer_at is None:
            self.answer_at = now
        if now == self.first_at:
            self.first_chunks += number
            self.first_chars += chars
        self._gap(now)
        self.together += number - 1
        self.last_at = now

    def since_start_ms(self, instant: float | None) -> float | None:
        """Return ``instant`` as milliseconds from the launch."""
        if instant is None:
            return None
        return round((instant - self.started) * 1_000_000) / 1000  # as ``milliseconds`` does, ten times an attempt

    def tokens(self) -> Tokens | None:
        """Return the token counts: the provider's own, or an estimate from the characters; None before any answer."""
        usage = self.usage
        if usage is not None and usage.completion_tokens is not None:
            return Tokens(
                usage.prompt_tokens,
                usage.completion_tokens,
                usage.reasoning_tokens,
                usage.cached_tokens,
                usage.cache_write_tokens,
                TokensSource.REPORTED,
            )
        if not self.meaningful:
            return None
        estimate = -(-self.chars // CHARS_PER_TOKEN) or self.meaningful
        return Tokens(usage.prompt_tokens if usage else None, estimate, None, None, None, TokensSource.ESTIMATED)

    def decode_tps(self, tokens: Tokens | None) -> float | None:
        """Return (n - n_first) / (t_last - t_first), tokens per second, or None where that would say nothing.

        n_first are the tokens that were there with the first: a chunk may hold many.
        """
        if tokens is None or tokens.completion is None or self.first_at is None or self.last_at is None:
            return None
        n = tokens.completion
        if tokens.reasoning:
            if not self.reasoning_chars:
                n -= tokens.reasoning  # thought in silence before the first delta
            elif self.reasoning_chars < tokens.reasoning * SUMMARY_CHARS_PER_TOKEN:
                return None
        span_s = self.last_at - self.first_at
        if n <= 1 or self.meaningful < 2 or span_s < BURST_S:  # noqa: PLR2004 - a gap has two ends
            return None
        tps = (n - self._first_tokens(n)) / span_s
        return None if tps > BURST_TPS else round(tps, 3)

    def _first_tokens(self, n: int) -> float:
        """Return how many of ``n`` tokens came first: as many as chunks if each is one token, else by characters."""
        if abs(self.meaningful - n) <= n * ONE_EACH or not self.chars:
            return max(1, min(self.first_chunks, n))
        return n * self.first_chars / self.chars

    def e2e_tps(self, tokens: Tokens | None) -> float | None:
        """Return n / (t_last - t_start), tokens per second."""
        if tokens is None or not tokens.completion or self.last_at is None or self.last_at <= self.started:
            return None
        return round(tokens.completion / (self.last_at - self.started), 3)

    def itl(self) -> Gaps | None:
        """Return the figures of the gaps between meaningful chunks; None without any. Sorts them once for all."""
        if not self.gaps:
            return None
        ordered, none = sorted(self.gaps), self.together
        last = len(ordered) + none - 1
        p50_s, p95_s = (ordered[at - none] if at >= none else 0.0 for at in (round(last * 0.5), round(last * 0.95)))
        longest_s = max(ordered[-1], self._longest_gap_s)
        return Gaps(milliseconds(p50_s), milliseconds(p95_s), milliseconds(longest_s), _counts(ordered, none))

    def _gap(self, now: float) -> None:
        """Note the gap that ends ``now``; of an endless stream's not all, the last ones more than those before."""
        self.gaps.append(now - (self.last_at or now))
        if len(self.gaps) > MOST_GAPS:
            self._longest_gap_s = max(self._longest_gap_s, *self.gaps)
            self.gaps, self.together = self.gaps[::2], self.together // 2


def _counts(ordered: list[float], together: int) -> dict[str, int]:
    """Return how many of the ``ordered`` gaps, seconds, fall into each bucket; ``together`` more are of no time.

    One look for each bucket that has any, not for each gap.
    """
    at = bisect_left(ordered, _UPPER_EDGES_S[0])
    counts = {_NAMES[0]: at + together} if at + together else {}
    while at < len(ordered):
        number = bisect_right(_UPPER_EDGES_S, ordered[at])
        after = bisect_left(ordered, _UPPER_EDGES_S[number], at + 1)
        counts[_NAMES[number]] = after - at
        at = after
    return counts
