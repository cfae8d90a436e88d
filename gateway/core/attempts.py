"""The records of attempts: their start, results and end, and the words for these.

Milliseconds are since the attempt's launch. ``calls.py`` has the rules for all records.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from gateway.core.columns import Column, Sql
from gateway.core.rules import BEATEN, BROKEN, CUT


class WinOn(StrEnum):
    """The event that wins: any meaningful delta, the first of the answer, a whole first clause, or a valid answer."""

    ANY = "any"
    ANSWER = "answer"
    SENTENCE = "sentence"
    VALID = "valid"


class Invalid(StrEnum):
    """The client's answer with ``win_on: valid`` if no answer is valid."""

    ERROR = "error"
    BEST = "best"  # the answer with the least flaw


class Role(StrEnum):
    """Why an attempt was launched."""

    PRIMARY = "primary"
    RACE = "race"
    HEDGE = "hedge"
    FAILOVER = "failover"
    FALLBACK = "fallback"  # of another model, beside a model with a late answer
    EXPLORE = "explore"
    PROBE = "probe"
    TAKEOVER = "takeover"  # to finish an answer begun by another attempt
    WHOLE = "whole"  # again at the same deployment, which refused to stream the answer
    API = "api"  # again at the same deployment, which refused the API of the request
    FORM = "form"  # again at the same deployment, without refused fields or with other values
    KEY = "key"  # again at the same deployment, with another of its provider's keys
    BARE = "bare"  # again at a deployment that refused reasoning, as no other is left: without the reasoning


class Narrowed(StrEnum):
    """Why fewer attempts started with a call than its mode, width and budget ask for.

    Of several reasons the first in this order is told. The values are public: headers, columns, metrics and events.
    """

    LIMITS = "limits"  # the client's limits or the fallback's leave too little for a fallback
    STATEFUL = "stateful"  # the request changes something at the provider, so it is never sent twice
    LONG_PROMPT = "long_prompt"  # beyond ``max_prompt_tokens``: hedged, not raced
    UNFIT = "unfit"  # other deployments cannot answer this request, or the request excludes them
    DIFFERS = "differs"  # other deployments are other models, and would not answer alike
    ORDERED = "ordered"  # the request wants the deployments one after the other, or only one
    COOLING = "cooling"  # other deployments pause after a 429, are broken or out
    CAPACITY = "max_in_flight"  # other deployments have no free seat
    RATE_LIMITS = "rate_limits"  # the rate limits of other deployments have no room for an extra attempt
    USD = "usd_per_day"
    USD_PER_CALL = "extra_usd_per_call"
    BUDGET = "budget"
    PROBE = "probe"  # the second attempt is a probe of a broken deployment
    NO_RIVAL_WORTH_IT = "no_rival_worth_it"  # no other is expected to save enough time for its cost

    def before(self, other: "Narrowed | None") -> "Narrowed":
        """Return which of the two reasons is told."""
        return self if other is None or _RANKS[self] < _RANKS[other] else other

    def in_words(self, who: str | None = None) -> str:
        """Return the reason as the end of a sentence; ``who``: deployments and verb, "a/x is", "a/x and b/x are"."""
        return _IN_WORDS[self].format(who=who or "other deployments are")


_RANKS = {reason: rank for rank, reason in enumerate(Narrowed)}
_IN_WORDS = {
    Narrowed.LIMITS: "limits of clients or models leave too little for a fallback",
    Narrowed.STATEFUL: "requests change something at the provider, so they are never sent twice",
    Narrowed.LONG_PROMPT: "prompts are longer than max_prompt_tokens",
    Narrowed.UNFIT: "other deployments cannot answer these requests",
    Narrowed.DIFFERS: "other deployments are other models, which would not answer alike",
    Narrowed.ORDERED: "requests want deployments one after the other, or the first alone",
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
REPEATING = frozenset({Role.KEY, Role.FORM})  # in the place of another attempt; counted with that attempt's role


class Outcome(StrEnum):
    """How an attempt ended."""

    WON = "won"
    LOST = "lost"  # cut by the claim before the winning token (``win_on``: mostly the first); censored at its age
    SUPERSEDED = "superseded"  # had the winning token, but another attempt had won
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
        """Set the flags as plain attributes, which are read several times a call."""
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
    IMPLAUSIBLE = "implausible"  # reported, but above the largest possible count, which is used instead


class AnswerKind(StrEnum):
    """The kind by which an answer is judged: rates of flaws are compared only within one kind."""

    PLAIN = "plain"  # text
    TOOLS = "tools"  # tools were offered
    JSON = "json"  # JSON was requested, with or without tools


class Flaw(StrEnum):
    """What is wrong with a complete answer without an error."""

    EMPTY = "empty"  # nothing, or only reasoning
    TRUNCATED = "truncated"  # cut off by a limit not set by the client, or without a finish reason
    BAD_TOOL_CALL = "bad_tool_call"  # arguments that are not JSON
    UNKNOWN_TOOL = "unknown_tool"  # a call of a tool outside the offered ones
    BAD_JSON = "bad_json"  # not JSON, or not an object although one was requested
    SCHEMA_MISS = "schema_miss"  # JSON against the requested schema
    REFUSAL = "refusal"  # a refusal by the model, or the provider's filter


class AttemptStart(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One upstream request at its launch."""

    id: Annotated[str, Column("A UUID.", sql=Sql.UUID, listed=True)]
    number: Annotated[
        int,
        Column(
            "1 for the first launched of its call, 0 for a probe of the gateway's own.", sql=Sql.SMALLINT, listed=True
        ),
    ]
    started_at: Annotated[datetime, Column("When the attempt was launched.")]
    role: Annotated[
        Role,
        Column(
            "Why the attempt was launched: `primary`, `race`, `hedge`, `failover`, `fallback`, `explore`, `probe`, "
            "`takeover`, `whole` (again, without streaming), `api` (again, in another API), `form` (again, "
            "without the part that its refusal named, or in another form), `key` (again, with another of the "
            "provider's keys) or `bare` (again, without reasoning that the deployment cannot read, as no other was "
            "left). What a fallback begins with after a failure is planned like any first attempt: `primary`.",
            traced=True,
            listed=True,
        ),
    ]
    provider: Annotated[str, Column("The provider that was asked.", listed=True)]
    deployment: Annotated[str, Column("The provider's model that was asked.", traced=True, listed=True)]
    launch_offset_ms: Annotated[
        float, Column("How long after the start of the call the attempt was launched.", listed=True)
    ]
    audited: Annotated[
        bool,
        Column(
            "Whether the attempt was drawn for an audit: if it lost, it ran on to its first token, so that its "
            "figures are not censored."
        ),
    ] = False
    model: Annotated[
        str | None,
        Column(
            "The configured model that the attempt ran for: after a fallback not the requested one; null: the call's."
        ),
    ] = None
    in_flight: Annotated[
        int | None,
        Column("Attempts that ran at this deployment when this one was launched, in this process.", traced=True),
    ] = None
    asked_tokens: int | None = None  # of the prompt, estimated
    continues: Annotated[str | None, Column("The attempt whose answer this attempt went on with.", sql=Sql.UUID)] = None
    is_extra: Annotated[
        bool | None,
        Column(
            "Whether another attempt of the call could still answer, or did, when this one was launched "
            "([`calls.extras`](#calls))."
        ),
    ] = None
    # the name under which the attempt counts for its deployment, with a client's own key
    learnt_as: str | None = None
    weight: float = 1.0  # the first tokens for which this one counts, if the deployment is as usual again
    sent_by: str | None = None  # the client, known before the end
    replaces: Annotated[
        str | None,
        Column(
            "The attempt whose request this one repeats at the same deployment; `role` says why.",
            sql=Sql.UUID,
            listed=True,
        ),
    ] = None
    counts_as: Annotated[
        Role | None,
        Column(
            "For the roles `key`, `form` and `bare`: the `role` as which the figures count. It is that of the attempt "
            "that was refused first; `failover` for `bare`, and for a primary that did not start with its call. Else "
            "null.",
        ),
    ] = None


class Unit(msgspec.Struct, frozen=True, gc=False):
    """How many of a unit were billed, and the price of one in US dollars; None: unknown."""

    n: int
    usd: float | None


IN_PROGRESS = "in_progress"
_BEGUN = frozenset({IN_PROGRESS, "queued"})  # the statuses of a response in the background
_ANSWERED = frozenset({Outcome.WON, Outcome.CLIENT_GONE})


class AttemptRecord(AttemptStart, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One finished attempt: its start and its results, a row of ``attempts``. Milliseconds are since the launch.

    The start's fields are given by place, ``*astuple(start)``: names for so many fields cost three times as much.
    """

    call_id: Annotated[str, Column("The id of the attempt's call.", sql=Sql.UUID, listed=True)]
    outcome: Annotated[
        Outcome,
        Column(
            "`won`, `lost` (cancelled before the token that wins, as [`win_on`](#calls) says), `superseded` (had "
            "that token), `failed`, `timeout`, `stalled`, `client_gone`, `interrupted`.",
            traced=True,
            listed=True,
        ),
    ]
    connect_ms: Annotated[float | None, Column("Null for a reused connection; else when it was made.", traced=True)] = (
        None
    )
    headers_ms: Annotated[
        float | None, Column("When the headers of the answer or the refusal came; null if none came.", traced=True)
    ] = None
    first_event_ms: Annotated[float | None, Column("When the first event came.", listed=True)] = None
    ttft_ms: Annotated[float | None, Column("First meaningful delta.", traced=True, listed=True)] = None
    ttft_answer_ms: Annotated[float | None, Column("First meaningful delta that is not reasoning.")] = None
    sentence_ms: Annotated[
        float | None, Column("Only with `win_on: sentence`: end of the first clause that can be spoken.")
    ] = None
    valid_ms: Annotated[
        float | None, Column("Only with `win_on: valid`: when the answer was known to be valid, or began with text.")
    ] = None
    last_token_ms: Annotated[float | None, Column("The last delta.", listed=True)] = None
    censored_at_ms: Annotated[
        float | None,
        Column('The age at which it was cancelled before its first token: "more than this".', traced=True, listed=True),
    ] = None
    status_code: Annotated[int | None, Column("The provider's status.", sql=Sql.SMALLINT)] = None
    error_kind: Annotated[str | None, Column("The kind of the attempt's error; null without one.", listed=True)] = None
    error_message: Annotated[
        str | None,
        Column(
            "What remains of the provider's message, at most 200 characters "
            "([more](../security.md#what-a-provider-says)).",
            is_distinct=True,
        ),
    ] = None
    prompt_tokens: Annotated[int | None, Column("Of the prompt. As the provider counted them, else estimated.")] = None
    completion_tokens: Annotated[
        int | None,
        Column("Of the answer with its reasoning. As the provider counted them, else estimated.", listed=True),
    ] = None
    reasoning_tokens: Annotated[int | None, Column("Of reasoning. As the provider counted them, else estimated.")] = (
        None
    )
    cached_tokens: Annotated[int | None, Column("Of the prompt, those read from the provider's prompt cache.")] = None
    cache_write_tokens: Annotated[
        int | None, Column("Of the prompt, those written to the provider's prompt cache.")
    ] = None
    tokens_source: Annotated[TokensSource | None, Column("Who counted the tokens: as of calls.")] = None
    reported_tokens: Annotated[
        int | None,
        Column(
            "The count that the provider reported, where it is more than can be (the context window, else 10 "
            "million; of a prompt that is text alone two for each byte and 32,768 more), or too few (none "
            "for a text, or one token for over 40 characters); then the most that can be, or an estimate, "
            "counts.",
            sql=Sql.BIGINT,
            traced=True,
        ),
    ] = None
    decode_tps: Annotated[
        float | None,
        Column(
            "Tokens after those of the first delta over the time since; null if meaningless (one chunk, all at once).",
            traced=True,
        ),
    ] = None
    e2e_tps: Annotated[float | None, Column("All tokens over the whole time; null if meaningless.")] = None
    itl_p50_ms: Annotated[
        float | None, Column("Gaps between chunks: half are shorter. Of more than 4,096 gaps a part is kept.")
    ] = None
    itl_p95_ms: Annotated[float | None, Column("Gaps between chunks: 95 % are shorter.")] = None
    itl_max_ms: Annotated[float | None, Column("The longest gap between chunks.", traced=True)] = None
    text_gap_max_ms: Annotated[
        float | None,
        Column(
            "The longest gap between two pieces of the answer's text with nothing else between them, less "
            "the time in which the client did not read. Null with fewer than two."
        ),
    ] = None
    speech_pause_ms: Annotated[
        float | None,
        Column(
            "Only with `win_on: sentence`: the longest time in which a listener had nothing left to hear, at "
            "15 characters a second. Of an attempt that went on behind others: since the call's first clause, "
            "with theirs and the silence at the seam, so the winner has the call's. Of one that broke off, was "
            "replaced or interrupted: until then."
        ),
    ] = None
    wasted_low_tokens: Annotated[
        int | None,
        Column(
            "Of an attempt that lost: the tokens that its provider has generated, at least: half of those "
            "received beyond 8, or what the provider stated; `completion_tokens` are those received."
        ),
    ] = None
    wasted_high_tokens: Annotated[
        int | None,
        Column(
            "The same at most: `max_tokens` or the longest answer of a model that may have thought unseen. Of "
            "one that does not think: twice those received and 32 more if the vendor stops when the connection "
            "is closed, else up to `max_tokens` or the model's most, or four times the winner's answer, or "
            "4,096."
        ),
    ] = None
    cost_usd: Annotated[
        float | None,
        Column(
            "The best figure; of a cancelled loser, less what its cache should have saved. Null without a "
            "known price. With a client's own key (`key_name` is `tenant`) that client pays: calls, sums and "
            "views leave it out.",
            traced=True,
        ),
    ] = None
    cost_is_lower_bound: Annotated[bool, Column("Whether the attempt cost at least `cost_usd`.")] = False
    cache_saved_usd: Annotated[
        float | None,
        Column("What reading the provider's prompt cache saved; of a cancelled loser, what it should have."),
    ] = None
    client: Annotated[str | None, Column("The same as of its call.")] = None
    api: Annotated[str | None, Column("The same as of its call; `probe` for the gateway's own probes.")] = None
    size_class: Annotated[int | None, Column("The same as of its call.", sql=Sql.SMALLINT)] = None
    win_on: Annotated[WinOn | None, Column("The same as of its call.")] = None
    token_ms: Annotated[
        float | None,
        Column("What wins the call: `ttft_ms`, `ttft_answer_ms`, `sentence_ms` or `valid_ms`.", listed=True),
    ] = None
    chars: Annotated[int | None, Column("Characters streamed: text, reasoning and the arguments of tool calls.")] = None
    chunks: Annotated[int | None, Column("Chunks with characters.")] = None
    first_chars: Annotated[int | None, Column("Characters in the first chunk that has any.")] = None
    finish_reason: Annotated[str | None, Column("In the provider's words.")] = None
    tool_calls: Annotated[
        int | None, Column("Tool calls in the answer; null if it is not complete, and for calls that are not raced.")
    ] = None
    tool_calls_valid: Annotated[
        bool | None, Column("Whether the arguments of all tool calls parse as JSON; null without any.")
    ] = None
    key_name: Annotated[
        str | None,
        Column(
            "Which of several keys: the name you gave it, else `…` and its last four characters, or its "
            "place, `#2`; `tenant`: a client's own."
        ),
    ] = None
    model_version: Annotated[str | None, Column("The model that answered, by the provider's words.")] = None
    system_fingerprint: Annotated[
        str | None,
        Column("The fingerprint of the model that answered, by the provider's words; of chat and completions only."),
    ] = None
    provider_request_id: Annotated[
        str | None, Column("The id that the provider's support needs.", is_distinct=True, traced=True)
    ] = None
    sends: Annotated[
        int | None,
        Column(
            "How often the request was written to a connection: 0 never; 2 if a reused connection was lost "
            "with it; null if unknown.",
            sql=Sql.SMALLINT,
        ),
    ] = None
    cost_low_usd: Annotated[float | None, Column("The least that the attempt cost.")] = None
    cost_high_usd: Annotated[
        float | None,
        Column(
            "The most that it cost. Where its usage was not told and its model may think unseen (its capability "
            "`reasoning` is not `false`), an answer as long as was asked for: `max_tokens`, or the model's longest. "
            "Limits count less of a call that its client left: as if nothing was thought unseen."
        ),
    ] = None
    is_overtaken: Annotated[bool | None, Column("Whether another attempt answered before this one's first token.")] = (
        None
    )
    overtaken_at_ms: Annotated[
        float | None, Column("The attempt's age when another one answered before this one's first token.", traced=True)
    ] = None
    would_take_over: Annotated[
        bool | None,
        Column(
            "Of a streamed winner: whether it was [so slow](../answers.md#a-stream-that-nearly-stops) for 5 "
            "s that another could have taken over."
        ),
    ] = None
    would_take_over_ms: Annotated[float | None, Column("The attempt's age when another could have taken over.")] = None
    is_kept: Annotated[
        bool | None,
        Column("Only with `race.keep_rival`: it ran on behind the winner; if it answered, its `outcome` is `won`."),
    ] = None
    predicted_ms: Annotated[
        float | None, Column("Of an overtaken primary: the time of its first token, as predicted.", traced=True)
    ] = None
    judged_as: Annotated[
        AnswerKind | None,
        Column(
            "Of a winner whose whole answer could be judged: what it was to be, `plain`, `tools` or `json`. "
            "Null for losers without a complete answer, for clients that left, and where it cannot be known "
            "(over 256 KB, a broken schema)."
        ),
    ] = None
    flaw: Annotated[
        Flaw | None,
        Column(
            "What is wrong with an answer that was judged; null if nothing: `empty`, `truncated` (not by the "
            "client's own limit), `bad_tool_call` (arguments that do not parse), `unknown_tool` (one that "
            "was not offered), `bad_json`, `schema_miss`, `refusal`.",
            traced=True,
        ),
    ] = None
    price: Annotated[Mapping[str, float] | None, Column("The price applied, JSON, US dollars per million tokens.")] = (
        None
    )
    tier_asked: Annotated[
        str | None,
        Column(
            "The tier of service that was asked for (`priority`, `flex`, …) by the request or the "
            "deployment's `extra_body`; null where none was and standard service answered."
        ),
    ] = None
    tier_served: Annotated[
        str | None, Column("The tier of service that the answer names; null as of `tier_asked`, and if it names none.")
    ] = None
    units_cost_usd: Annotated[
        float | None,
        Column("What `units` cost as far as that is known, a part of `cost_usd`; null where there are none."),
    ] = None
    units: Annotated[
        Mapping[str, Unit] | None,
        Column(
            "What was billed besides tokens of text: JSON, by unit (`web_search`, `audio_input`, "
            "`image_input`, `cache_write_1h`, `second`, …) how many (`n`), and the price of one in US "
            "dollars (`usd`, null if unknown). Null where there is nothing of the kind."
        ),
    ] = None
    itl: Annotated[
        Mapping[str, int] | None,
        Column(
            "Gaps between chunks: the number in each bucket, JSON, by the bucket's number; -56: below 0.085 "
            "ms, as of chunks of one read."
        ),
    ] = None
    thoughts_dropped: Annotated[
        Mapping[str, int] | None,
        Column(
            "Thoughts of earlier turns that its request had and its vendor did not show the model "
            "([why](../providers.md#histories)), as its answer told before the attempt ended: JSON, by the check that "
            "they failed how many: `prefix` (what stands before them was changed), `model`, `account`, `user` (it was "
            "another that made them) or `other`. Null where it told of none."
        ),
    ] = None
    retry_after_s: float | None = None  # of a 429 or 503; for the cool-down
    is_certain: bool = False  # no request can have caused the error: it holds for all clients
    headroom: float | None = None  # 0 to 1, the unused part of the provider's rate limit
    is_restricted: bool = False  # the request chose its deployments, so the attempt is no evidence of quality
    tier: str | None = None  # the tier that answered, as reported; "": standard service
    other_units: Mapping[str, int] | None = None  # the counts of ``units``, as reported
    stated_usd: float | None = None  # the cost, as reported
    limit_usd: float | None = None  # without a cost: the dollars counted by limits
    usual_high_usd: float | None = None  # the highest known cost if no unseen reasoning is billed

    @property
    def counted_high_usd(self) -> float | None:
        """The dollars counted by limits for an attempt that may go on and be billed unseen; None: not known."""
        high_usd, usual_usd = self.cost_high_usd, self.usual_high_usd
        return high_usd if high_usd is None or usual_usd is None else usual_usd

    @property
    def failed(
        self,
    ) -> Annotated[
        bool,
        Column(
            "Whether its provider failed: `outcome` is `failed`, `timeout` or `stalled`. A limit (429) and a "
            "refused request count.",
            may_be_null=True,
        ),
    ]:
        """Whether the attempt's provider failed."""
        return self.outcome in BROKEN

    @property
    def is_begun(self) -> bool:
        """Whether the answer runs on in the background: until its end only the bounds of its cost are known."""
        is_reported = self.tokens_source is TokensSource.REPORTED
        return self.finish_reason in _BEGUN and self.outcome in _ANSWERED and not is_reported
