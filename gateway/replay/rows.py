"""The rows that a replay reads: calls with their attempts. Times are milliseconds."""

from collections.abc import Sequence

from msgspec import Struct

CAP_MS = 30_000.0  # longer times, and first tokens that never came, count as this: audits end then


class Try(Struct, gc=False):
    """One attempt. Its times are since its launch."""

    deployment: str
    provider: str
    role: str
    offset_ms: float  # of its launch, since the call was received
    audited: bool = False  # measured to its first token if it loses
    token_ms: float | None = None
    cut_ms: float | None = None  # its age when it was cut without a first token
    overtaken_ms: float | None = None  # its age when another one won, before its own first token
    failed: bool = False  # without a first token
    failed_ms: float | None = None  # its age then, where it is known
    decode_tps: float | None = None
    cost_usd: float | None = None
    cost_low_usd: float | None = None
    cost_high_usd: float | None = None
    price: tuple[float, float] | None = None  # of a million prompt and answer tokens, US dollars
    won: bool = False

    @property
    def starts_with_call(self) -> bool:
        """Whether the attempt was launched with its call, not because others were late or had failed."""
        return self.role in {"primary", "race"}

    @property
    def is_learning(self) -> bool:
        """Whether the attempt was launched to measure its deployment; its call is not part of the random sample."""
        return self.role in {"explore", "probe"}

    @property
    def seen_ms(self) -> float | None:
        """When its first token came, at most ``CAP_MS``, which is also for audits without one; None if unknown."""
        if self.token_ms is not None:
            return min(self.token_ms, CAP_MS)
        return CAP_MS if self.cut_ms is not None and self.cut_ms >= CAP_MS - 500 else None


class ReplayedCall(Struct, gc=False):
    """One call with its attempts, in the order of their launches."""

    started_s: float  # Unix time
    tries: Sequence[Try]
    ttft_ms: float | None = None
    total_ms: float | None = None
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    weight: float = 1.0  # how many calls of the ledger it stands for
    left: bool = False  # its client left before the first token
