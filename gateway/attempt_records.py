"""The records of attempts: how each began, what it did and how it ended, with the words for it.

Milliseconds count from the attempt's launch. ``calls.py`` says what holds for all records.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec


class WinOn(StrEnum):
    """Which delta claims the win: any meaningful one, or the first that belongs to the answer (not reasoning)."""

    ANY = "any"
    ANSWER = "answer"


class Role(StrEnum):
    """Why an attempt was launched."""

    PRIMARY = "primary"
    RACE = "race"
    HEDGE = "hedge"
    FAILOVER = "failover"
    EXPLORE = "explore"
    PROBE = "probe"


EXPLORING = frozenset({Role.EXPLORE, Role.PROBE})  # launched to learn about their deployments


class Outcome(StrEnum):
    """How an attempt ended."""

    WON = "won"
    LOST = "lost"  # cut by the claim before its own first token; censored at its age
    SUPERSEDED = "superseded"  # had its first token, was overtaken all the same
    FAILED = "failed"
    TIMEOUT = "timeout"  # connect, first token or total clock
    STALLED = "stalled"  # silence between events
    CLIENT_GONE = "client_gone"  # the client hung up; censored likewise when it had no first token
    INTERRUPTED = "interrupted"  # the gateway's own doing: it died under it, or lacked what asking anybody takes


class TokensSource(StrEnum):
    """Where a token count comes from; the two are never mixed in one average."""

    REPORTED = "reported"
    ESTIMATED = "estimated"


class AnswerKind(StrEnum):
    """What an answer is judged as: each kind fails in its own ways, so rates of flaws are compared within one."""

    PLAIN = "plain"  # text
    TOOLS = "tools"  # tools were offered
    JSON = "json"  # JSON was asked for, whether or not tools were offered too


class Flaw(StrEnum):
    """What is wrong with a whole answer that came without an error."""

    EMPTY = "empty"  # nothing but thoughts, at most
    TRUNCATED = "truncated"  # cut off by a limit that the client did not set, or ended without a finish reason
    BAD_TOOL_CALL = "bad_tool_call"  # arguments that are no JSON
    UNKNOWN_TOOL = "unknown_tool"  # a call of a tool that was not offered
    BAD_JSON = "bad_json"  # no JSON, or no object where one was asked for
    SCHEMA_MISS = "schema_miss"  # JSON that is not what the asked schema allows
    REFUSAL = "refusal"  # a refusal by the model, or the provider's filter


class AttemptStart(msgspec.Struct, frozen=True, gc=False):
    """One upstream request as it is launched."""

    id: str
    number: int  # 1 for the first launched of its call
    started_at: datetime
    role: Role
    provider: str
    deployment: str
    launch_offset_ms: float  # since the call was received
    audited: bool = False  # watched beyond the claim if it loses, so that its figures are not censored
    model: str | None = None  # that it runs for: after a fallback not the one the client named
    in_flight: int | None = None  # attempts of this deployment that were under way in this process
    asked_tokens: int | None = None  # of the prompt, estimated; not a column


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One finished attempt: a row of ``attempts``. Milliseconds count from the attempt's launch."""

    id: str
    call_id: str
    number: int
    started_at: datetime
    role: Role
    provider: str
    deployment: str
    launch_offset_ms: float
    outcome: Outcome
    audited: bool = False
    connect_ms: float | None = None  # None when a kept connection was reused
    headers_ms: float | None = None
    first_event_ms: float | None = None
    ttft_ms: float | None = None  # first meaningful delta
    ttft_answer_ms: float | None = None  # first meaningful delta that is not reasoning
    last_token_ms: float | None = None
    censored_at_ms: float | None = None  # age when cut without a first token
    status_code: int | None = None
    error_kind: str | None = None
    error_message: str | None = None  # redacted
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None  # of the prompt's: read from the provider's prompt cache
    cache_write_tokens: int | None = None  # of the prompt's: written to it
    tokens_source: TokensSource | None = None
    decode_tps: float | None = None
    e2e_tps: float | None = None
    itl_p50_ms: float | None = None
    itl_p95_ms: float | None = None
    itl_max_ms: float | None = None
    cost_usd: float | None = None
    cost_is_lower_bound: bool = False
    cache_saved_usd: float | None = None  # cached tokens at the price of input, less their own
    model: str | None = None  # that it ran for: after a fallback not the one the client named
    client: str | None = None
    api: str | None = None  # the call's ``endpoint``
    size_class: int | None = None  # 0, 1, 2: body <= 4 KB, <= 32 KB, larger
    win_on: WinOn | None = None
    token_ms: float | None = None  # the first token that the call is won on: ttft_ms or ttft_answer_ms
    chars: int | None = None  # streamed to us: of text, reasoning and the arguments of tool calls
    chunks: int | None = None  # with a meaningful delta
    first_chars: int | None = None  # the first meaningful delta's share of ``chars``
    finish_reason: str | None = None  # as the provider says it
    tool_calls: int | None = None  # that the answer asks for; None where the answer is not whole
    tool_calls_valid: bool | None = None  # the arguments of all of them parse as JSON; None without any
    key_name: str | None = None  # which of the provider's several keys: its name, "…" and its last four, or "#2"
    model_version: str | None = None  # what the provider says has answered
    provider_request_id: str | None = None
    in_flight: int | None = None  # at the launch, other attempts at this deployment in this process
    sends: int | None = None  # how often the request was sent: 2 after a kept connection was lost with it
    cost_low_usd: float | None = None  # what it cost at least, and at most
    cost_high_usd: float | None = None
    is_overtaken: bool | None = None  # another attempt had won by the time its own first token was due
    overtaken_at_ms: float | None = None  # its age then
    predicted_ms: float | None = None  # of an overtaken primary: when its first token was to be expected
    judged_as: AnswerKind | None = None  # of a winner whose whole answer could be judged
    flaw: Flaw | None = None  # None: none found, or not judged
    price: Mapping[str, float] | None = None  # that was applied: US dollars per million tokens
    itl: Mapping[str, int] | None = None  # gaps between chunks by number of the ledger's bucket, from -56
    retry_after_s: float | None = None  # what a 429 or 503 asked for; not a column, the cool-down needs it
    headroom: float | None = None  # 0 to 1, what the provider's rate limit still leaves; not a column either
    asked_tokens: int | None = None  # of the prompt, estimated before it was sent; nor is this
    is_narrowed: bool = False  # the request chose its deployments: no evidence of their quality; nor is this
