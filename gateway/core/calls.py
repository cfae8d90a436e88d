"""The records of calls, and the protocol of their recorders. ``attempts.py`` has the records of attempts.

Everything here is frozen and has no behaviour but a call's ``repr``. Times within a call are milliseconds since it was
fully received (calls) or since the launch (attempts), on the monotonic clock; instants are UTC. An unknown figure is
``None``, never zero: gateway/steering/RULES.md#measurement has the rules.

Records are ``gc=False``: their values are plain and form no cycles, and thousands may wait for a database. In the
spool's JSON they are without what is unknown or usual: half of an attempt's fields.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import msgspec

from gateway.core.attempts import AnswerKind, AttemptRecord, AttemptStart, Invalid, Narrowed, TokensSource, WinOn
from gateway.core.ids import TraceContext
from gateway.core.modes import Mode as Mode  # noqa: PLC0414 - a call's word, which the command line imports alone
from gateway.core.prompt_classes import PromptClass
from gateway.core.rules import has_failed
from providers import MaskedRecord
from providers.dialects import PIVOT, Dialect, Lasting


class Objective(StrEnum):
    """What is optimised for a call."""

    AUTO = "auto"  # by the request: reading for streamed chat; completion for whole answers, tools and JSON schemas
    FIRST_TOKEN = "first_token"  # noqa: S105 - a token of text
    READING = "reading"  # text arrives before it is read: TTFT + n * max(0, 1 / (tok/s) - 1 / reading_tok_s)
    COMPLETION = "completion"  # the earliest whole answer: TTFT + n / (tok/s)
    COST = "cost"  # the cheapest that meets ttft_ms and min_tok_s; raced only if it may miss them


class CallKind(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of a call in advance and predicts the length of its answer."""

    endpoint: str = PIVOT.endpoint
    structured: bool = False  # tools are offered, or JSON is requested
    max_tokens: int | None = None
    client: str | None = None
    tags: Mapping[str, str] = {}
    prompt_tokens: int = 0  # estimated


class Level(msgspec.Struct, frozen=True, gc=False):
    """An owner of limits that a call counts against: its key, the key's team, or its end user.

    ``whose`` begins the error message: "this key". ``is_of_body``: known from the body, so nothing is held before that.
    """

    owner: str
    whose: str
    limits: Mapping[str, float]
    is_of_body: bool = False


TENANT = "tenant"  # the name in the ledger of every key that a client brings


class Maker(msgspec.Struct, frozen=True):
    """Who made an answer, or reasoning that only its maker can read."""

    deployment: str
    key_name: str | None = None  # None: its provider has only one
    tenant: str | None = None  # the digest of a client's own key; None: the operator's

    def key_at(self, provider: str) -> str | None:
        """Return the name of its key, if it is one of this provider's."""
        return self.key_name if self.deployment.partition("/")[0] == provider else None


class Stamp(MaskedRecord, frozen=True):
    """What a call keeps whichever model is asked: its id, times and trace, and the tags and accounts it counts in."""

    id: str
    received_at: float  # monotonic seconds, when the body was complete
    started_at: datetime
    tags: Mapping[str, str]
    levels: Sequence[Level] = ()  # whose limits it counts against: its key, then the team and the end user
    trace: TraceContext | None = None  # None: calls are not traced


class Call(Stamp, frozen=True, kw_only=True):
    """One client request: what is sent upstream, and what the ledger records of it."""

    client: str | None
    model: str
    asked_model: str | None = None  # the model in the request, if ``model`` is a fallback of it
    endpoint: str  # as in ``rules.RACED``, or "embeddings", …
    dialect: Dialect = PIVOT  # of the client
    streamed: bool
    mode: Mode
    objective: Objective  # resolved; never auto
    win_on: WinOn
    sentence_words: int = 0  # win_on sentence: so many words can be spoken, even if their sentence has not ended
    invalid: Invalid = Invalid.ERROR  # win_on valid: what the client gets if no answer is valid
    prompt_class: PromptClass
    prompt_tokens: int  # estimated from the size of the body
    inline_bytes: int | None = None  # of the body, if the whole prompt is text in it; else unknown
    size_tokens: int | None = None  # the size by which times are compared; None: ``prompt_tokens``
    wants_usage: bool  # the client itself asked for usage in the stream
    fields: Mapping[str, msgspec.Raw]  # the body's top level, without the gateway's own fields
    wordings: Mapping[str, Mapping[str, msgspec.Raw]] = {}  # deployment → what is sent instead, if it differs
    dropped: Mapping[str, tuple[str, ...]] = {}  # deployment → fields that are left out for it
    spoken: Mapping[str, Dialect] = {}  # deployment → the dialect of what is sent to it, if it is not the usual one
    lowered: Mapping[str, tuple[str, ...]] = {}  # deployment → limits that are lowered to the longest it allows
    models: Mapping[str, str] = {}  # deployment → its model, if that is a fallback which may continue the answer
    headers: Mapping[str, str]  # the client's headers that may go upstream
    replica: str
    region: str | None
    request_id: str | None = None  # the client's x-request-id
    stateful: bool = False  # changes something at the provider: never sent twice
    kind: CallKind | None = None  # None: the answer does not consist of tokens
    answer_kind: AnswerKind = AnswerKind.PLAIN
    deadline_ms: float | None = None  # for the first token, since ``received_at``
    profile: str | None = None  # the racing profile, named by the request, its client or its model
    runs_on: bool = False  # in the background: its answer is only the beginning of one
    key_name: str | None = None  # the only key of the provider that has what the request names
    # Its digest, the same in every turn: prompt caches belong to keys. None: a provider's keys take turns.
    conversation: bytes | None = None
    cache_key: msgspec.Raw | None = None  # of its session, for vendors that take a ``prompt_cache_key``; None: has none
    marks: Mapping[str, Lasting] = {}  # deployment → what of the prompt it is told to cache, as its client says nothing
    is_restricted: bool = False  # the request restricts or orders the deployments
    maker: Maker | None = None  # of the newest reasoning in the conversation; None: unknown, or there is none

    @property
    def deadline_at(self) -> float | None:
        """The deadline for the first token, in monotonic seconds; None: there is none."""
        return None if self.deadline_ms is None else self.received_at + self.deadline_ms / 1000

    def shown(self) -> Iterator[tuple[str, object]]:
        """Yield the fields of its ``repr``: neither texts, nor the values of headers and tags."""
        yield "id", self.id
        yield "client", self.client
        yield "model", self.model
        yield "endpoint", self.endpoint
        yield "streamed", self.streamed
        yield "fields", sorted(self.fields)
        yield "headers", sorted(self.headers)


class CallHead(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What of a call is known at its start, and is in its row at its end."""

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
    request_id: str | None = None  # the client's id of the request
    deadline_ms: float | None = None  # for the first token, from the request or its model's ``ttft_ms``
    profile: str | None = None


class CallStart(CallHead, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The start of a call, with the attempts launched at once: what remains of it if the gateway dies."""

    attempts: tuple[AttemptStart, ...]


class CallRecord(CallHead, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One finished call: a row of ``calls``, with its attempts."""

    answered_model: str | None = None  # the fallback that answered; None: the requested model
    launched: int  # attempts started
    extras: int | None = None  # of them, those that started while another one could still answer
    # What mode, width and budget would have launched at the start, at the model that was asked last; None: not raced.
    width_asked: int | None = None
    narrowed: Narrowed | None = None  # why fewer attempts were launched than that, or a later extra one was not
    takeover: str | None = None  # of an answer that broke: "finished" or "rescued" by another deployment, or why not
    takeovers: int | None = None  # how often another deployment continued the answer
    first_was_invalid: bool | None = None  # win_on valid: of the answer that began first; None: it was cut before
    winner_attempt_id: str | None
    status_code: int  # sent to the client; 499 if it disconnected
    error_kind: str | None
    ttft_ms: float | None
    total_ms: float
    overhead_ms: float | None  # the gateway's share of the time to the first byte
    held_ms: float | None = None  # how long the winner's first token was held back; None: it was not
    held_for: str | None = None  # the deployment that it waited for
    held_gain_ms: float | None = None  # predicted: how much less time that deployment takes after its first token
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None  # winner and losers, as far as known; without those that a client's own key paid for
    duplicate_cost_usd: float | None = None  # what racing added: a part of it
    cache_saved_usd: float | None = None  # the winner's
    api: str | None = None  # ``endpoint``
    size_class: int | None = None  # 0, 1, 2: body <= 4 KB, <= 32 KB, larger
    tokens_source: TokensSource | None = None
    finish_reason: str | None = None  # the winner's
    max_tokens: int | None = None  # requested
    temperature: float | None = None  # requested
    tools: int | None = None  # number of tools the client offered
    tool_calls: int | None = None  # number of tool calls in the answer
    tool_calls_valid: bool | None = None
    is_empty: bool | None = None  # nothing was answered
    is_truncated: bool | None = None  # the answer stopped at a token limit, or broke off
    cost_low_usd: float | None = None  # lower and upper bound, of all attempts
    cost_high_usd: float | None = None
    duplicate_cost_low_usd: float | None = None  # added by racing
    duplicate_cost_high_usd: float | None = None
    abandoned_cost_low_usd: float | None = None  # of answers cut because their client disconnected
    abandoned_cost_high_usd: float | None = None
    # When the first token would have come without racing: the primary's, or the winner's if it was launched after the
    # primary's failure. None: the primary was overtaken; if it was audited, its attempt's row has the time.
    alone_ms: float | None = None
    alone_predicted_ms: float | None = None  # the same for an overtaken primary, as predicted at that age
    alone_age_ms: float | None = None  # age of the primary when it was overtaken
    deadline_met: bool | None = None  # None: there was none, or the call ended before it because of its client
    dropped: tuple[str, ...] = ()  # fields that were left out for the winner, in the client's spelling
    attempts: tuple[AttemptRecord, ...] = ()
    kind: CallKind | None = None  # not a column; the expected lengths of answers need it
    trace: TraceContext | None = None  # not a column; None: calls are not traced

    @property
    def failed(self) -> bool:
        """Whether it ended with an error that was not its client's own fault."""
        return has_failed(self.status_code, self.error_kind)


def whole_cost_usd(record: CallRecord) -> float | None:
    """Return what a call cost the operator and its client together; None: nothing of it is known."""
    known = [attempt.cost_usd for attempt in record.attempts if attempt.cost_usd is not None]
    return sum(known) if known else None


class HourlySum(msgspec.Struct, frozen=True, gc=False):
    """The number of attempts of one kind at one deployment of a model, in one hour or five minutes."""

    model: str
    deployment: str
    size_class: int
    unix_s: float  # the middle of that period
    metric: str  # "ttft", "tps" (decode; of ``bucket``), "n" (answered or failed) or "err"
    bucket: int  # eight per octave, from 10 ms, or 10 tok/s
    n: float


class Spent(msgspec.Struct, frozen=True, gc=False):
    """What the calls of one client to one model have cost in the present UTC day and month, US dollars."""

    client: str | None
    model: str
    day_usd: float
    month_usd: float
    extra_usd: float = 0.0  # of the day's: what racing added, also by attempts for a fallback
    model_usd: float = 0.0  # the day's of all attempts for this model, also as a fallback; only where client is None
    lost_usd: float = 0.0  # the same of attempts that lost a race


class Recorder(Protocol):
    """Receives the events of calls: ledger, leaderboard, metrics and log, combined in ``gateway/app/recorders.py``.

    Every method is synchronous and fast, and should not raise. First tokens and ends are reported a little later, when
    the bytes that clients wait for are written: ``ago_s`` is how many seconds ago the event was.
    """

    def call_started(self, start: CallStart) -> None:
        """A call starts: called before anything is sent upstream."""

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        """An attempt of ``call`` is launched; ``attempt_ended`` follows for every one."""

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """An attempt has its first token (by the model's ``win_on``), ``ttft_s`` seconds after its launch."""

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        """An attempt has ended, for any reason; a loser's end comes before its call's."""

    def call_finished(self, record: CallRecord) -> None:
        """A call has ended: called before the last byte goes to the client."""

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        """An audited loser has ended after its call, for ``model``, was recorded: its row follows the call's.

        ``duplicate_usd`` is what racing added with it, as far as its cost is known: all of it, or nothing.
        """
