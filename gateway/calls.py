"""The records the rooms hand each other: what one call was, what each of its attempts did, and who wants to know.

Everything here is frozen and free of behaviour. Times within a call are milliseconds from the instant it was fully
received (calls) or launched (attempts), measured on the monotonic clock; instants are UTC. A figure that cannot be
known is ``None``, never zero: docs/policy.md#measurement has the rules.

Records are ``gc=False``: their values are plain and never form a cycle, and thousands of them may wait for a database.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import msgspec

from gateway.prompt_classes import PromptClass
from providers.dialects.dialect import Dialect
from providers.dialects.index import PIVOT


class Mode(StrEnum):
    """How a call is run; ``auto`` lets the policy choose under the budget."""

    SINGLE = "single"
    RACE = "race"
    HEDGE = "hedge"
    AUTO = "auto"


class Objective(StrEnum):
    """What a call is to be good at."""

    AUTO = "auto"  # by the request: streamed chat reading; whole answers, tools and JSON schemas completion
    FIRST_TOKEN = "first_token"  # noqa: S105 - a token of text
    READING = "reading"  # text is there when its reader wants it: TTFT + n * max(0, 1 / (tok/s) - 1 / reading_tok_s)
    COMPLETION = "completion"  # the whole answer soonest: TTFT + n / (tok/s)
    COST = "cost"  # the cheapest that meets ttft_ms and min_tok_s; raced only when it looks like missing them


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


class Kind(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of a call before it is answered that tells how long its answer may be."""

    endpoint: str = PIVOT.endpoint
    structured: bool = False  # tools are offered, or JSON is asked for
    max_tokens: int | None = None
    client: str | None = None
    tags: Mapping[str, str] = {}
    prompt_tokens: int = 0  # estimated


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One client request, understood: what to ask upstream, and what the ledger will say of it."""

    id: str
    received_at: float  # monotonic seconds, when the body was complete
    started_at: datetime
    client: str | None
    model: str
    asked_model: str | None = None  # the one the client named, where ``model`` is a fallback of it
    endpoint: str  # "chat.completions", "completions", "messages", "responses", "embeddings", …
    dialect: Dialect = PIVOT  # that the client speaks
    streamed: bool
    mode: Mode
    objective: Objective  # never auto: resolved
    win_on: WinOn
    prompt_class: PromptClass
    prompt_tokens: int  # estimated from the size of the body
    wants_usage: bool  # the client itself asked for usage in the stream
    fields: Mapping[str, msgspec.Raw]  # the body's top level, without what is the gateway's own
    wordings: Mapping[str, Mapping[str, msgspec.Raw]] = {}  # what is sent instead, by deployment, where that differs
    dropped: Mapping[str, tuple[str, ...]] = {}  # what of it a deployment is not told, by the deployment's name
    headers: Mapping[str, str]  # those of the client's that may go upstream
    tags: Mapping[str, str]
    replica: str
    region: str | None
    request_id: str | None = None  # what the client calls its request, x-request-id
    stateful: bool = False  # leaves something behind at the provider: never sent twice
    kind: Kind | None = None  # None: no answer of so many tokens is asked for
    answer_kind: AnswerKind = AnswerKind.PLAIN
    deadline_ms: float | None = None  # when the first token is wanted, since ``received_at``
    is_narrowed: bool = False  # the request says itself which of the deployments may answer, or in which order


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


class CallStart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call as it begins, with the attempts launched at once: what is known of it if the gateway dies now."""

    id: str
    started_at: datetime
    client: str | None
    model: str
    endpoint: str  # "chat.completions", "embeddings"
    streamed: bool
    mode: Mode
    objective: Objective
    prompt_class: int  # by ``encoded_class``
    tags: Mapping[str, str]
    replica: str
    region: str | None
    win_on: WinOn = WinOn.ANY
    request_id: str | None = None  # what the client calls its request
    deadline_ms: float | None = None  # when the first token is wanted, since the call was received
    attempts: tuple[AttemptStart, ...]


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One finished call: a row of ``calls``, with its attempts."""

    id: str
    started_at: datetime
    client: str | None
    model: str
    endpoint: str
    streamed: bool
    mode: Mode
    objective: Objective
    prompt_class: int  # by ``encoded_class``
    replica: str
    region: str | None
    win_on: WinOn = WinOn.ANY
    request_id: str | None = None  # what the client calls its request
    answered_model: str | None = None  # the fallback that answered; None: the model that was asked for
    launched: int  # attempts started
    winner_attempt_id: str | None
    status_code: int  # what the client was answered; 499 when it hung up
    error_kind: str | None
    ttft_ms: float | None
    total_ms: float
    overhead_ms: float | None  # the gateway's own share of the time to the first byte
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None  # winner and losers, as far as known
    duplicate_cost_usd: float | None = None  # the losers' share of it
    cache_saved_usd: float | None = None  # the winner's, as its tokens are
    api: str | None = None  # ``endpoint``
    size_class: int | None = None  # 0, 1, 2: body <= 4 KB, <= 32 KB, larger
    tokens_source: TokensSource | None = None
    finish_reason: str | None = None  # the winner's
    max_tokens: int | None = None  # asked for
    temperature: float | None = None  # asked for
    tools: int | None = None  # that the client offered
    tool_calls: int | None = None  # that the answer asks for
    tool_calls_valid: bool | None = None
    is_empty: bool | None = None  # answered with nothing
    is_truncated: bool | None = None  # the answer stopped at a limit of tokens, or broke off
    cost_low_usd: float | None = None  # of all attempts, at least and at most
    cost_high_usd: float | None = None
    duplicate_cost_low_usd: float | None = None  # what racing added
    duplicate_cost_high_usd: float | None = None
    abandoned_cost_low_usd: float | None = None  # answers that nobody took to the end: of clients that hung up
    abandoned_cost_high_usd: float | None = None
    # When the first token would have come without racing: the primary's own, or the winner's if launched when that had
    # failed. None: the primary was overtaken; of an audited one its attempt's row tells.
    alone_ms: float | None = None
    alone_predicted_ms: float | None = None  # the same for an overtaken primary, as predicted at that age
    alone_age_ms: float | None = None  # of the primary, since its launch, when it was overtaken
    deadline_ms: float | None = None  # when the first token was wanted, by the request or its model's ``ttft_ms``
    deadline_met: bool | None = None  # None: there was none, or the call ended before it for its client's reasons
    dropped: tuple[str, ...] = ()  # what of the request was left out for the winner, as the client wrote it
    tags: Mapping[str, str]
    attempts: tuple[AttemptRecord, ...] = ()
    kind: Kind | None = None  # not a column; the expected lengths of answers need it


class HourlySum(msgspec.Struct, frozen=True, gc=False):
    """How many attempts of one deployment at one model there were in one hour or five minutes, of one kind."""

    model: str
    deployment: str
    size_class: int
    unix_s: float  # the middle of that time
    metric: str  # "ttft", "tps" (decode; of ``bucket``), "n" (answered or failed) or "err"
    bucket: int  # eight to an octave, from 10 ms, or 10 tok/s
    n: float


class Recorder(Protocol):
    """Who hears of calls while they run: ledger, leaderboard, metrics and log, wired together by ``app.py``.

    Every method is synchronous, quick and never raises: it runs on the hot path.
    """

    def call_started(self, start: CallStart) -> None:
        """Hear of a call at its first launch, before anything is sent upstream."""

    def attempt_started(self, model: str, start: AttemptStart) -> None:
        """Hear of each launch; ``attempt_ended`` follows for every one."""

    def first_token(self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float) -> None:
        """Hear of an attempt's first token (by the model's ``win_on``), ``ttft_s`` seconds after its launch."""

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord) -> None:
        """Hear of an attempt's end, whatever it was; a loser's comes before its call's."""

    def call_finished(self, record: CallRecord) -> None:
        """Hear of the call's end, before the last byte goes to the client."""

    def attempt_audited(self, attempt: AttemptRecord) -> None:
        """Hear of an audited loser that ended after its call was recorded: its row follows the call's."""
