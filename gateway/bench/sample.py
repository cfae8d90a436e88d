"""One request of a bench and what was measured of it: a line of the journal. No text of prompt or answer."""

import msgspec


class Key(msgspec.Struct, frozen=True, order=True):
    """Which request of the plan it is."""

    round: int  # 0, 1, …; -1: warm-up
    concurrency: int
    deployment: str
    kind: str  # the class of the prompt
    number: int  # 0, 1, … of those of its class in the round


class Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finished request. Milliseconds since it was sent; the figures are those of the ledger's ``attempts``."""

    key: Key
    sitting: int  # 0 for the first start of the bench, 1 after it was resumed once
    began_s: float  # Unix time
    total_ms: float | None = None  # the last token; None if there was none
    ended_ms: float  # the end of the exchange, also of a failed one
    connect_ms: float | None = None  # None: an open connection was used
    ttft_ms: float | None = None
    ttft_answer_ms: float | None = None
    decode_tps: float | None = None
    e2e_tps: float | None = None
    itl_p50_ms: float | None = None
    itl_p95_ms: float | None = None
    itl_max_ms: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    tokens_source: str | None = None
    finish_reason: str | None = None
    in_flight: int = 1  # requests of this bench at this deployment when it was sent, itself included
    as_asked: bool | None = None  # JSON that parses, a tool call with valid arguments; None: not asked for, or cut off
    cost_usd: float | None = None
    cost_high_usd: float | None = None  # at most
    error_kind: str | None = None
    status_code: int | None = None
