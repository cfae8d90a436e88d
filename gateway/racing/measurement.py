"""Measures one attempt while it streams, and computes its figures.

The definitions, and when a figure is null, are in docs/policy.md#measurement. Times are monotonic seconds; one
timestamp is taken per read, so deltas that arrive together share it.
"""

import msgspec

from gateway.attempt_records import TokensSource, WinOn
from gateway.racing.gaps import Gaps
from gateway.racing.tool_calls import ToolCalls
from providers.capabilities import Capabilities
from providers.dialects.chunk import Chunk
from providers.usage import Usage, completed

MOST_TOKENS = 10_000_000  # of a prompt or an answer, where no context window is known
CHARS_PER_TOKEN = 4  # rule of thumb, if the provider reports no usage
BURST_S = 0.020  # if all deltas arrive within this time they were buffered, so their speed is meaningless
BURST_TPS = 5000.0  # likewise: no provider decodes faster
ONE_EACH = 0.1  # tolerated difference between the numbers of tokens and chunks, as a share, if each chunk is a token
SUMMARY_CHARS_PER_TOKEN = 2  # with fewer streamed characters per reasoning token, only a summary was streamed


class Tokens(msgspec.Struct, frozen=True):
    """The token counts of one attempt and their source."""

    prompt: int | None
    completion: int | None
    reasoning: int | None
    cached: int | None
    cache_write: int | None
    source: TokensSource


class Reported:
    """What an answer's events report besides text: its usage, its model, how it ended, its tool calls."""

    __slots__ = ("answer_id", "finish_reason", "model_version", "refused", "tool_calls", "usage")

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.model_version: str | None = None  # the model and the answer's id, as reported by the provider
        self.answer_id: str | None = None
        self.finish_reason: str | None = None
        self.tool_calls: ToolCalls | None = None
        self.refused = False

    def note(self, chunk: Chunk) -> None:
        """Keep what one event reports."""
        if chunk.usage is not None:
            self.usage = chunk.usage if self.usage is None else completed(chunk.usage, self.usage)
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


class Measurement:
    """The measurement of one attempt, from its launch."""

    __slots__ = (
        "answer_at",
        "chars",
        "connect_ms",
        "first_at",
        "first_chars",
        "first_chunks",
        "first_event_at",
        "gaps",
        "headers_at",
        "last_at",
        "meaningful",
        "most_tokens",
        "pause_s",
        "reasoning_chars",
        "reported",
        "spoken_at",
        "started",
        "valid_at",
    )

    def __init__(self, started: float, most_tokens: int = MOST_TOKENS) -> None:
        """``most_tokens``: more of a prompt or an answer cannot be true."""
        self.started = started
        self.most_tokens = most_tokens
        self.connect_ms: float | None = None
        self.headers_at: float | None = None
        self.first_event_at: float | None = None
        self.first_at: float | None = None  # first meaningful delta
        self.answer_at: float | None = None  # first delta that is not reasoning
        self.spoken_at: float | None = None  # end of the first clause; only looked for with win_on: sentence
        self.valid_at: float | None = None  # when it was known to be valid; only looked for with win_on: valid
        self.pause_s: float | None = None  # of speech: the longest time without anything left to hear
        self.last_at: float | None = None
        self.meaningful = 0  # chunks with a meaningful delta
        self.chars = 0
        self.first_chunks = 0  # of them, those that arrived together with the first
        self.first_chars = 0
        self.reasoning_chars = 0
        self.gaps = Gaps()
        self.reported = Reported()

    def event(self, chunk: Chunk, now: float) -> None:
        """Record one event that arrived at ``now``."""
        if self.first_event_at is None:
            self.first_event_at = now
        self.reported.note(chunk)
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
            self.gaps.add(now - (self.last_at or now))
        if now == self.first_at:
            self.first_chunks += 1
            self.first_chars += chunk.text_chars
        self.last_at = now

    def plain(self, number: int, chars: int, now: float) -> None:
        """Record ``number`` events with about ``chars`` of text in all that arrived together; not the first ones."""
        self.meaningful += number
        self.chars += chars
        if self.answer_at is None:
            self.answer_at = now
        if now == self.first_at:
            self.first_chunks += number
            self.first_chars += chars
        self.gaps.add(now - (self.last_at or now))
        self.gaps.together += number - 1
        self.last_at = now

    def claims_at(self, win_on: WinOn) -> float | None:
        """Return when it had what may win the call; None before that."""
        match win_on:
            case WinOn.ANY:
                return self.first_at
            case WinOn.ANSWER:
                return self.answer_at
            case WinOn.SENTENCE:
                return self.spoken_at
            case WinOn.VALID:
                return self.valid_at

    def since_start_ms(self, instant: float | None) -> float | None:
        """Return ``instant`` as milliseconds from the launch."""
        if instant is None:
            return None
        return round((instant - self.started) * 1_000_000) / 1000  # as ``milliseconds`` does, ten times an attempt

    @property
    def tokens_so_far(self) -> int:
        """The number of tokens that have arrived: as ``tokens`` estimates it, or more if the provider reports more."""
        usage = self.reported.usage
        estimate = -(-self.chars // CHARS_PER_TOKEN) or self.meaningful
        return estimate if usage is None else max(estimate, usage.completion_tokens or 0)

    def tokens(self) -> Tokens | None:
        """Return the token counts: the provider's, or an estimate from the characters; None if there is no answer."""
        usage = self.reported.usage
        if usage is not None and usage.completion_tokens is not None:
            usage, source = plausible(usage, self.most_tokens)
            return Tokens(
                usage.prompt_tokens,
                usage.completion_tokens,
                usage.reasoning_tokens,
                usage.cached_tokens,
                usage.cache_write_tokens,
                source,
            )
        if not self.meaningful:
            return None
        estimate = -(-self.chars // CHARS_PER_TOKEN) or self.meaningful
        prompt = None if usage is None or usage.prompt_tokens is None else min(usage.prompt_tokens, self.most_tokens)
        return Tokens(prompt, estimate, None, None, None, TokensSource.ESTIMATED)

    def decode_tps(self, tokens: Tokens | None) -> float | None:
        """Return (n - n_first) / (t_last - t_first), tokens per second; None if it would be meaningless.

        n_first is the number of tokens that arrived with the first: a chunk may contain many.
        """
        if tokens is None or tokens.completion is None or self.first_at is None or self.last_at is None:
            return None
        n = tokens.completion
        if tokens.reasoning:
            if not self.reasoning_chars:
                n -= tokens.reasoning  # reasoning that was not streamed, before the first delta
            elif self.reasoning_chars < tokens.reasoning * SUMMARY_CHARS_PER_TOKEN:
                return None
        span_s = self.last_at - self.first_at
        if n <= 1 or self.meaningful < 2 or span_s < BURST_S:  # noqa: PLR2004 - a gap has two ends
            return None
        tps = (n - self._first_tokens(n)) / span_s
        return None if tps > BURST_TPS else round(tps, 3)

    def _first_tokens(self, n: int) -> float:
        """Return how many of ``n`` tokens arrived first: one per chunk if each is one token, else by characters."""
        if abs(self.meaningful - n) <= n * ONE_EACH or not self.chars:
            return max(1, min(self.first_chunks, n))
        return n * self.first_chars / self.chars

    def e2e_tps(self, tokens: Tokens | None) -> float | None:
        """Return n / (t_last - t_start), tokens per second."""
        if tokens is None or not tokens.completion or self.last_at is None or self.last_at <= self.started:
            return None
        return round(tokens.completion / (self.last_at - self.started), 3)


def most_tokens(capabilities: Capabilities) -> int:
    """Return how many tokens a prompt or an answer can have at most: the context window, if it is known."""
    window = capabilities.context_tokens
    return MOST_TOKENS if not window else min(MOST_TOKENS, window + (capabilities.max_output_tokens or 0))


def plausible(usage: Usage, most: int) -> tuple[Usage, TokensSource]:
    """Return ``usage`` with no count above ``most``, and whether one was."""
    prompt, answer = usage.prompt_tokens or 0, usage.completion_tokens or 0
    parts = usage.reasoning_tokens or 0, usage.cached_tokens or 0, usage.cache_write_tokens or 0
    if prompt <= most and answer <= most and max(parts) <= most:
        return usage, TokensSource.REPORTED
    counts = {name: getattr(usage, name) for name in usage.__struct_fields__}
    bounded = {name: None if count is None else min(count, most) for name, count in counts.items()}
    return Usage(**bounded), TokensSource.IMPLAUSIBLE
