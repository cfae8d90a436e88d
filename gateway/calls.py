"""The records that the rooms hand each other of a call, and who wants to know. ``attempt_records.py`` has its attempts.

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

from gateway.attempt_records import AnswerKind, AttemptRecord, AttemptStart, TokensSource, WinOn
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
