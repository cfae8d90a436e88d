"""The records of attempts: their start, results and end, and the words for these.

Milliseconds are since the attempt's launch. ``calls.py`` has the rules for all records.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from gateway.core.rules import BEATEN, BROKEN, CUT


class WinOn(StrEnum):
    """What claims the win: any meaningful delta, the first of the answer, a whole first clause, or a valid answer."""

    ANY = "any"
    ANSWER = "answer"
    SENTENCE = "sentence"
    VALID = "valid"


class Invalid(StrEnum):
    """What the client has with ``win_on: valid`` if no answer is valid."""

    ERROR = "error"
    BEST = "best"  # the answer with the least flaw


class Role(StrEnum):
    """Why an attempt was launched."""

    PRIMARY = "primary"
    RACE = "race"
    HEDGE = "hedge"
    FAILOVER = "failover"
    FALLBACK = "fallback"  # of another model, beside those of a model whose answer is late
    EXPLORE = "explore"
    PROBE = "probe"
    TAKEOVER = "takeover"  # to finish an answer that another attempt has begun
    WHOLE = "whole"  # of the same deployment, which answers this request but refuses to stream the answer
    API = "api"  # of the same deployment, which takes this request but refused the API that it was asked in
    FORM = "form"  # of the same deployment, which named within its answer what it does not take of the request


class Narrowed(StrEnum):
    """Why fewer attempts started with a call than its mode, width and budget ask for.

    Of several reasons the first in this order is told. The values are public: headers, columns, metrics and events.
    """

    LIMITS = "limits"  # the client's limits or the fallback's leave too little for a fallback
    STATEFUL = "stateful"  # it changes something at the provider, so it is never sent twice
    LONG_PROMPT = "long_prompt"  # beyond ``max_prompt_tokens``: hedged, not raced
    UNFIT = "unfit"  # other deployments cannot answer this request, or it left them out
    COOLING = "cooling"  # others pause after a 429, are broken or out
    CAPACITY = "max_in_flight"  # others have no free seat
    RATE_LIMITS = "rate_limits"  # others' rate limits have no room for an extra attempt
    USD = "usd_per_day"
    USD_PER_CALL = "extra_usd_per_call"
    BUDGET = "budget"
    PROBE = "probe"  # the second attempt is a probe of a broken deployment
    NO_RIVAL_WORTH_IT = "no_rival_worth_it"  # no other is expected to save enough time for what it costs

    def before(self, other: "Narrowed | None") -> "Narrowed":
        """Return the one of the two that is told."""
        return self if other is None or _RANKS[self] < _RANKS[other] else other

    def in_words(self, who: str | None = None) -> str:
        """Return it as the end of a sentence; ``who`` are the deployments it is due to: "a/x is", "a/x and b/x are"."""
        return _IN_WORDS[self].format(who=who or "other deployments are")


_RANKS = {reason: rank for rank, reason in enumerate(Narrowed)}
_IN_WORDS = {
    Narrowed.LIMITS: "limits of clients or models leave too little for a fallback",
    Narrowed.STATEFUL: "requests change something at the provider, so they are never sent twice",
    Narrowed.LONG_PROMPT: "prompts are longer than max_prompt_tokens",
    Narrowed.UNFIT: "other deployments cannot answer these requests",
    Narrowed.COOLING: "{who} not available: after a 429, broken or out",
    Narrowed.CAPACITY: "other deployments have no free seat",
    Narrowed.RATE_LIMITS: "{who} rate-limited",
    Narrowed.USD: "usd_per_day is used up",
    Narrowed.USD_PER_CALL: "extra_usd_per_call is used up",
    Narrowed.BUDGET: "the budget for extra attempts is used up",
    Narrowed.PROBE: "second attempts probe a broken deployment",
    Narrowed.NO_RIVAL_WORTH_IT: "no other deployment is expected to save enough time",
}

EXPLORING = frozenset({Role.EXPLORE, Role.PROBE})  # launched to learn about their deployments


class Outcome(StrEnum):
    """How an attempt ended."""

    WON = "won"
    LOST = "lost"  # cut by the claim before the token that wins (``win_on``: mostly its first); censored at its age
    SUPERSEDED = "superseded"  # had that token, but another attempt had won
    FAILED = "failed"
    TIMEOUT = "timeout"  # connect, first-token or total timeout
    STALLED = "stalled"  # silence between events
    CLIENT_GONE = "client_gone"  # the client disconnected; censored if it had no first token
    INTERRUPTED = "interrupted"  # because of the gateway: it died, or lacked local resources

    was_cancelled_by_race: bool  # another attempt had won
    client_left: bool
    was_cut: bool  # either: the provider might have answered
    failed: bool  # the provider's failure
    is_error: bool  # failed, or interrupted
    was_sent: bool  # the provider surely had the whole prompt

    def __init__(self, value: str) -> None:
        """Set the flags as plain attributes: they are read several times a call."""
        self.was_cancelled_by_race = value in BEATEN
        self.client_left = value == "client_gone"
        self.was_cut = value in CUT
        self.failed = value in BROKEN
        self.is_error = self.failed or value == "interrupted"
        self.was_sent = value == "won" or self.was_cut


class TokensSource(StrEnum):
    """The source of a token count; the two are never mixed in one average."""

    REPORTED = "reported"
    ESTIMATED = "estimated"  # nothing was reported, or too few tokens for so much text
    IMPLAUSIBLE = "implausible"  # reported, but more than is possible: the largest possible count is used instead


class AnswerKind(StrEnum):
    """How an answer is judged: rates of flaws are compared only within one kind."""

    PLAIN = "plain"  # text
    TOOLS = "tools"  # tools were offered
    JSON = "json"  # JSON was requested, with or without tools


class Flaw(StrEnum):
    """What is wrong with a complete answer without an error."""

    EMPTY = "empty"  # nothing, or only reasoning
    TRUNCATED = "truncated"  # cut off by a limit that the client did not set, or without a finish reason
    BAD_TOOL_CALL = "bad_tool_call"  # arguments that are not JSON
    UNKNOWN_TOOL = "unknown_tool"  # a call of a tool that was not offered
    BAD_JSON = "bad_json"  # not JSON, or not an object although one was requested
    SCHEMA_MISS = "schema_miss"  # JSON that the requested schema does not allow
    REFUSAL = "refusal"  # a refusal by the model, or the provider's filter


class AttemptStart(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One upstream request at its launch."""

    id: str
    number: int  # 1 for the first one of its call
    started_at: datetime
    role: Role
    provider: str
    deployment: str
    launch_offset_ms: float  # since the call was received
    audited: bool = False  # watched after the claim if it loses, so that its figures are not censored
    model: str | None = None  # the model it runs for; after a fallback not the requested one
    in_flight: int | None = None  # running attempts of this deployment in this process
    asked_tokens: int | None = None  # of the prompt, estimated; not a column
    continues: str | None = None  # the attempt whose answer it finishes
    is_extra: bool | None = None  # another attempt of its call could still answer, or did; None: an older version's
    # Of an attempt with a client's own key: the name of what it shows of its deployment; not a column.
    learnt_as: str | None = None


class Unit(msgspec.Struct, frozen=True, gc=False):
    """How many of a unit were billed, and the price of one in US dollars; None: unknown."""

    n: int
    usd: float | None


IN_PROGRESS = "in_progress"
_BEGUN = frozenset({IN_PROGRESS, "queued"})  # the statuses of a response in the background
_ANSWERED = frozenset({Outcome.WON, Outcome.CLIENT_GONE})


class AttemptRecord(AttemptStart, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One finished attempt, its start and what came of it: a row of ``attempts``. Milliseconds are since its launch.

    The start's fields are given by place, ``*astuple(start)``: by name each of so many costs three times as much.
    """

    call_id: str
    outcome: Outcome
    connect_ms: float | None = None  # None if an open connection was reused
    headers_ms: float | None = None
    first_event_ms: float | None = None
    ttft_ms: float | None = None  # first meaningful delta
    ttft_answer_ms: float | None = None  # first meaningful delta that is not reasoning
    sentence_ms: float | None = None  # the end of the first clause that can be spoken; only with win_on: sentence
    valid_ms: float | None = None  # when it was known to be valid, or began with text; only with win_on: valid
    last_token_ms: float | None = None
    censored_at_ms: float | None = None  # its age if it was cut without a first token
    status_code: int | None = None
    error_kind: str | None = None
    error_message: str | None = None  # redacted
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None  # of the prompt: read from the provider's prompt cache
    cache_write_tokens: int | None = None  # of the prompt: written to it
    tokens_source: TokensSource | None = None
    reported_tokens: int | None = None  # by the provider, if they are implausible: more than can be, or too few
    decode_tps: float | None = None
    e2e_tps: float | None = None
    itl_p50_ms: float | None = None
    itl_p95_ms: float | None = None
    itl_max_ms: float | None = None
    text_gap_max_ms: float | None = None  # the longest between two pieces of text with nothing else between them
    speech_pause_ms: float | None = None  # the longest time a listener had nothing left to hear; win_on: sentence
    # Of an attempt that lost: the tokens of its answer that were generated for nothing, at least and at most.
    wasted_low_tokens: int | None = None
    wasted_high_tokens: int | None = None
    cost_usd: float | None = None
    cost_is_lower_bound: bool = False
    cache_saved_usd: float | None = None  # cached tokens at the price of input, minus their own price
    client: str | None = None
    api: str | None = None  # the call's ``endpoint``
    size_class: int | None = None  # 0, 1, 2: body <= 4 KB, <= 32 KB, larger
    win_on: WinOn | None = None
    token_ms: float | None = None  # what can win the call: ttft_ms, ttft_answer_ms, sentence_ms or valid_ms
    chars: int | None = None  # received: text, reasoning and the arguments of tool calls
    chunks: int | None = None  # with a meaningful delta
    first_chars: int | None = None  # the first meaningful delta's share of ``chars``
    finish_reason: str | None = None  # in the provider's words
    tool_calls: int | None = None  # number in the answer; None if the answer is not complete
    tool_calls_valid: bool | None = None  # whether the arguments of all are JSON; None without any
    key_name: str | None = None  # which of several keys: its name, "…" and its last four characters, or "#2"
    model_version: str | None = None  # the model that answered, as the provider reports it
    system_fingerprint: str | None = None  # as the provider reports it
    provider_request_id: str | None = None
    sends: int | None = None  # how often the request was sent: 2 if the first one was lost with a reused connection
    cost_low_usd: float | None = None  # lower and upper bound
    cost_high_usd: float | None = None
    is_overtaken: bool | None = None  # another attempt had won before its own first token was due
    overtaken_at_ms: float | None = None  # its age at that time
    would_take_over: bool | None = None  # a streaming winner: so slow that another deployment could have taken over
    would_take_over_ms: float | None = None  # its age at that time
    is_kept: bool | None = None  # it ran on behind the winner, to answer if that breaks (race.keep_rival)
    predicted_ms: float | None = None  # of an overtaken primary: the predicted time of its first token
    judged_as: AnswerKind | None = None  # of a winner whose complete answer could be judged
    flaw: Flaw | None = None  # None: none found, or not judged
    price: Mapping[str, float] | None = None  # the applied price: US dollars per million tokens
    # Of service: null where none was asked for and standard service answered.
    tier_asked: str | None = None  # "standard", "priority", …: by the request or the deployment's extra_body
    tier_served: str | None = None  # by the answer; null: not said
    units_cost_usd: float | None = None  # of ``units``, as far as their prices are known; a part of cost_usd
    units: Mapping[str, Unit] | None = None  # what is billed besides the counts above: searches, sound, an hour's cache
    itl: Mapping[str, int] | None = None  # gaps between chunks by number of the ledger's bucket, from -56
    retry_after_s: float | None = None  # of a 429 or 503; not a column, needed for the cool-down
    headroom: float | None = None  # 0 to 1, the unused part of the provider's rate limit; not a column
    is_restricted: bool = False  # the request chose its deployments, so it is no evidence of quality; not a column
    tier: str | None = None  # that served it, as reported; "": standard service; not a column
    other_units: Mapping[str, int] | None = None  # the counts of ``units``, as reported; not a column
    stated_usd: float | None = None  # what it cost, as reported; not a column
    limit_usd: float | None = None  # without a cost: what limits in dollars count; not a column

    @property
    def failed(self) -> bool:
        """Whether its provider failed."""
        return self.outcome in BROKEN

    @property
    def is_begun(self) -> bool:
        """Whether the answer runs on in the background: until its end only the bounds of its cost are known."""
        is_reported = self.tokens_source is TokensSource.REPORTED
        return self.finish_reason in _BEGUN and self.outcome in _ANSWERED and not is_reported
