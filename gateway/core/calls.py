"""The records of calls, and the protocol of their recorders. ``attempts.py`` has the records of attempts.

All types here are frozen, without behaviour except a call's ``repr`` and rendering. Times within a call are
milliseconds on the monotonic clock: since the call was fully received (calls), or since the launch (attempts). Instants
are UTC. An unknown figure is ``None``, never zero: gateway/steering/RULES.md#measurement has the rules.

A field with a ``Column`` in its annotation is a column of its table, and shown where the ``Column`` says
(``columns.py``). Other fields are in the spool alone.

Records are ``gc=False``: their values are plain and form no cycles, and thousands may wait for a database. The spool's
JSON leaves out unknown and usual values: half of an attempt's fields.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Protocol

import msgspec

from gateway.core.attempts import AnswerKind, AttemptRecord, AttemptStart, Invalid, Narrowed, TokensSource, WinOn
from gateway.core.columns import Column, Sql
from gateway.core.ids import TraceContext
from gateway.core.modes import Mode as Mode  # noqa: PLC0414 - a call's word, which the command line imports alone
from gateway.core.prompt_classes import PromptClass
from gateway.core.rules import has_failed
from providers import Apart, MaskedRecord
from providers.dialects import PIVOT, Dialect, LastingPart


class Objective(StrEnum):
    """The aim of a call."""

    AUTO = "auto"  # by the request: reading for streamed chat; completion for whole answers, tools and JSON schemas
    FIRST_TOKEN = "first_token"  # noqa: S105 - a token of text
    READING = "reading"  # text arrives before the reader needs it: TTFT + n * max(0, 1 / (tok/s) - 1 / reading_tok_s)
    COMPLETION = "completion"  # the earliest whole answer: TTFT + n / (tok/s)
    COST = "cost"  # the cheapest deployment within ttft_ms and min_tok_s; raced only if it may miss these


class CallKind(msgspec.Struct, frozen=True, gc=False):
    """The facts known before a call that predict the length of its answer."""

    endpoint: str = PIVOT.endpoint
    structured: bool = False  # tools are offered, or JSON is requested
    max_tokens: int | None = None
    client: str | None = None
    tags: Mapping[str, str] = {}
    prompt_tokens: int = 0  # estimated


class Level(msgspec.Struct, frozen=True, gc=False):
    """An owner of limits that a call counts against: the call's key, the key's team, or the end user.

    ``whose``: the beginning of the error message: "this key". ``is_of_body``: known from the body, so nothing is
    reserved before the body has come.
    """

    owner: str
    whose: str
    limits: Mapping[str, float]
    is_of_body: bool = False
    zone: str = "UTC"  # the zone of the limits' hours, days, weeks and months


TENANT = "tenant"  # the ledger's name for every key brought by a client


class Maker(msgspec.Struct, frozen=True):
    """The maker of an answer, or of reasoning that only the maker can read."""

    deployment: str
    key_name: str | None = None  # None: the provider has one key
    tenant: str | None = None  # the digest of a client's own key; None: the operator's
    account: str | None = None  # the vendor's account, by a digest; None: not known
    made: bool = False  # the gateway saw the making; else the maker was only sent the reasoning, and has answered
    same_as: str | None = None  # the deployment's model, if the deployment's name does not say so

    @property
    def model(self) -> str:
        """The name of the model: as the settings name it, else the provider's name."""
        return self.same_as or self.deployment.partition("/")[2]

    def key_at(self, provider: str) -> str | None:
        """Return the name of the maker's key, if the key is one of this provider's."""
        return self.key_name if self.deployment.partition("/")[0] == provider else None


class RenderedRequest(MaskedRecord, frozen=True):
    """The request as sent to one deployment, where it differs, with the changes that the client is told."""

    fields: Mapping[str, msgspec.Raw] | None = None  # None: the client's own
    spoken: Dialect | None = None  # the dialect of the sent request; None: the usual one
    dropped: tuple[str, ...] = ()  # fields left out
    lowered: tuple[str, ...] = ()  # limits lowered to the deployment's longest answer
    apart: Apart | None = None  # the request for keys that cannot read the reasoning
    marks: LastingPart | None = None  # the part of the prompt marked for the cache, if the client marks nothing
    model: str | None = None  # the model asked, if it is a fallback that may continue the answer

    def shown(self) -> Iterator[tuple[str, object]]:
        """Yield the fields of the ``repr``: no texts."""
        yield "fields", None if self.fields is None else sorted(self.fields)
        yield "dropped", self.dropped
        yield "lowered", self.lowered


AS_ASKED = RenderedRequest()


class CallRequest(MaskedRecord, frozen=True, kw_only=True):
    """A request as read by race and ledger, and as sent to the model."""

    dialect: Dialect = PIVOT  # of the client
    model: str  # as named by the client; a fallback may be asked in its place
    fields: Mapping[str, msgspec.Raw]  # the body's top level, without the gateway's own fields; empty for a form
    added: frozenset[str] = frozenset()  # the ``fields`` that the gateway has set, not the client
    stream: bool = False
    wants_usage: bool = True  # in the stream; dialects that always send usage ignore this
    stateful: bool = False  # changes something at the provider: never sent twice
    runs_on: bool = False  # in the background: the answer is only the beginning of one

    def shown(self) -> Iterator[tuple[str, object]]:
        """Yield the fields of the ``repr``: no texts."""
        yield "model", self.model
        yield "stream", self.stream
        yield "fields", sorted(self.fields)


class Envelope(MaskedRecord, frozen=True, gc=False):
    """The facts about a request besides the body: of the connection and the headers."""

    headers: Mapping[str, str] = {}  # that may go upstream
    request_id: str | None = None  # the client's x-request-id


class Caller(MaskedRecord, frozen=True, gc=False):
    """The sender of a call, whichever model is asked: the call's id, times and trace, its tags and accounts."""

    id: str
    received_at: float  # monotonic seconds, when the body was complete
    started_at: datetime
    replica: str
    region: str | None = None
    client: str | None = None
    envelope: Envelope = Envelope()
    tags: Mapping[str, str] = {}
    levels: Sequence[Level] = ()  # the owners of limits: the key, then the team and the end user
    trace: TraceContext | None = None  # None: calls are not traced

    def shown(self) -> Iterator[tuple[str, object]]:
        """Yield the fields of the ``repr``: neither tags nor headers."""
        yield "id", self.id
        yield "client", self.client


class Decision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How requests of one shape are sent to one model: everything that depends neither on prompts nor on the time.

    Decisions are kept (gateway/api/shapes.py), so a decision must not contain one request's own facts.
    """

    model: str
    endpoint: str  # as in ``rules.RACED``, or "embeddings", …
    mode: Mode
    objective: Objective  # resolved; never auto
    win_on: WinOn = WinOn.ANY
    sentence_words: int = 0  # win_on sentence: words after which a voice can begin before the sentence ends
    invalid: Invalid = Invalid.ERROR  # win_on valid: the client's answer if no answer is valid
    answer_kind: AnswerKind = AnswerKind.PLAIN


class CallTraits(MaskedRecord, frozen=True, gc=False):
    """One request's own facts at the model: size, deadline, conversation."""

    prompt_class: PromptClass
    prompt_tokens: int  # estimated from the size of the body
    inline_bytes: int | None = None  # of the body, if the whole prompt is text in the body; else unknown
    size_tokens: int | None = None  # the size by which times are compared; None: ``prompt_tokens``
    kind: CallKind | None = None  # None: the answer does not consist of tokens
    deadline_ms: float | None = None  # for the first token, since ``received_at``
    profile: str | None = None  # the racing profile, named by the request, its client or its model
    key_name: str | None = None  # the only key of the provider with access to things named in the request
    # A digest, the same in every turn: prompt caches belong to keys. None: a provider's keys take turns.
    conversation: bytes | None = None
    cache_key: msgspec.Raw | None = None  # the session's, for vendors with ``prompt_cache_key``; None: no session
    is_restricted: bool = False  # the request restricts or orders the deployments
    maker: Maker | None = None  # of the newest reasoning in the conversation; None: unknown, or no reasoning
    makers: frozenset[Maker] = frozenset()  # of all reasoning, as far as this process knows the makers


class Call(MaskedRecord, frozen=True):
    """One client request for one model: the fields sent upstream, and the facts for the ledger.

    Only the ``decision`` is shared with other calls: no other field could show one request's data to another.
    """

    request: CallRequest
    caller: Caller
    decision: Decision
    traits: CallTraits
    rendered: Mapping[str, RenderedRequest] = {}  # deployment → the request as sent there, if changed

    @property
    def deadline_at(self) -> float | None:
        """The deadline for the first token, in monotonic seconds; None without a deadline."""
        return None if self.traits.deadline_ms is None else self.caller.received_at + self.traits.deadline_ms / 1000

    def sent_to(self, deployment: str) -> Mapping[str, msgspec.Raw]:
        """Return the fields sent to ``deployment``."""
        fields = self.rendered.get(deployment, AS_ASKED).fields
        return self.request.fields if fields is None else fields

    def rendered_as(self, deployment: str, **changed: Any) -> "Call":
        """Return the call with ``changed`` fields in the rendering for ``deployment``."""
        former = self.rendered.get(deployment, AS_ASKED)
        rendered = {**self.rendered, deployment: msgspec.structs.replace(former, **changed)}
        return msgspec.structs.replace(self, rendered=rendered)

    def shown(self) -> Iterator[tuple[str, object]]:
        """Yield the fields of the ``repr``: neither texts, nor the values of headers and tags."""
        yield "id", self.caller.id
        yield "client", self.caller.client
        yield "model", self.decision.model
        yield "endpoint", self.decision.endpoint
        yield "streamed", self.request.stream
        yield "fields", sorted(self.request.fields)
        yield "headers", sorted(self.caller.envelope.headers)


class CallHead(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The facts known at a call's start, which are in its row at the end. Each field names its place in ``Call``."""

    id: Annotated[
        str,
        Column("A UUID that sorts by time (`x-holeshot-call-id`).", of="caller.id", sql=Sql.UUID, listed=True),
    ]
    started_at: Annotated[datetime, Column("When the call was received.", of="caller.started_at", listed=True)]
    client: Annotated[
        str | None,
        Column("The client of the key; null without keys.", of="caller.client", logged=True, traced=True, listed=True),
    ]
    model: Annotated[str, Column("The model that the client named.", of="request.model", listed=True)]
    endpoint: Annotated[
        str,
        Column("The API: `chat.completions`, `messages`, `embeddings`, …", of="decision.endpoint", traced=True),
    ]
    streamed: Annotated[bool, Column("Whether the answer was requested as a stream.", of="request.stream", listed=True)]
    mode: Annotated[
        Mode,
        Column(
            "How the call was run: `single`, `race`, `hedge` or `auto`.", of="decision.mode", traced=True, listed=True
        ),
    ]
    objective: Annotated[
        Objective, Column("What the call was optimised for; `auto` is resolved.", of="decision.objective")
    ]
    prompt_class: Annotated[
        int,
        Column(
            "As `size_class`, plus 3 or 6 where the request asks for little or much "
            "[effort](../policy.md#effort), plus ten times the number of an API that is not raced.",
            of="traits.prompt_class.number",
            sql=Sql.SMALLINT,
        ),
    ]
    tags: Annotated[Mapping[str, str], Column("The call's tags, JSON.", of="caller.tags", sql=Sql.JSONB, listed=True)]
    replica: Annotated[str, Column("The replica that served the call.", of="caller.replica", listed=True)]
    region: Annotated[str | None, Column("The region where the call was served.", of="caller.region", traced=True)]
    win_on: Annotated[
        WinOn,
        Column(
            "What wins: `any` delta, the first of the `answer`, its first `sentence`, or a `valid` answer.",
            of="decision.win_on",
        ),
    ] = WinOn.ANY
    request_id: Annotated[
        str | None,
        Column(
            "The client's id of the request (`x-request-id`).",
            of="caller.envelope.request_id",
            is_distinct=True,
            logged=True,
            traced=True,
            listed=True,
        ),
    ] = None
    deadline_ms: Annotated[
        float | None,
        Column(
            "When the first token was wanted, as the request or the model's `ttft_ms` says.", of="traits.deadline_ms"
        ),
    ] = None
    profile: Annotated[str | None, Column("The profile under which the call was raced.", of="traits.profile")] = None


class CallStart(CallHead, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The start of a call, with the attempts launched at once: all that remains if the gateway dies."""

    attempts: tuple[AttemptStart, ...]


class CallRecord(CallHead, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One finished call with its attempts: a row of ``calls``."""

    answered_model: Annotated[
        str | None, Column("The fallback that answered; null if none did.", logged=True, traced=True, listed=True)
    ] = None
    launched: Annotated[int, Column("Attempts started.", sql=Sql.SMALLINT, traced=True, listed=True)]
    extras: Annotated[
        int | None,
        Column(
            "Attempts that started while another one of the call could still answer, or did: racers, hedges, "
            "rescues, fallbacks beside a late model, rivals of a silent stream. What replaces a failed "
            "attempt is none, unless a third one runs.",
            sql=Sql.SMALLINT,
            listed=True,
        ),
    ] = None
    width_asked: Annotated[
        int | None,
        Column(
            "With how many attempts the call's mode, width and budget would start, at the model that was asked "
            "last; null where nothing is raced.",
            sql=Sql.SMALLINT,
            traced=True,
            listed=True,
        ),
    ] = None
    narrowed: Annotated[
        Narrowed | None,
        Column(
            "Why there were fewer attempts than `width_asked`, or a later extra one was refused; null if "
            "nothing stood in the way: `limits` (a fallback was kept out), `stateful`, `long_prompt`, "
            "`unfit`, `differs`, `ordered`, `cooling`, `max_in_flight`, `rate_limits`, `usd_per_day`, "
            "`extra_usd_per_call`, `budget`, `probe` or `no_rival_worth_it` "
            "([what each means](../policy.md#fewer-attempts)).",
            logged=True,
            traced=True,
            listed=True,
        ),
    ] = None
    takeover: Annotated[
        str | None,
        Column(
            "Of a streamed answer that broke where `takeover` is on: `finished` by another deployment, "
            "`rescued` by one as it [nearly stopped](../answers.md#a-stream-that-nearly-stops), or why not "
            "(`nobody` continues, those asked `failed` to, the client had `left`, it was `too_long`, or what "
            "kept it from being continued: `tools`, `reasoning`, `kind_of_error`, …: "
            "[takeover](../answers.md#when))."
        ),
    ] = None
    takeovers: Annotated[
        int | None, Column("How often another deployment went on with the answer.", sql=Sql.SMALLINT)
    ] = None
    first_was_invalid: Annotated[
        bool | None,
        Column(
            "Only with `win_on: valid`: whether the answer that began first has a flaw; null if it was cancelled "
            "before that was known."
        ),
    ] = None
    winner_attempt_id: Annotated[str | None, Column("The attempt that answered; null if none did.", sql=Sql.UUID)]
    status_code: Annotated[
        int, Column("The status that the client got; 499 if the client disconnected.", sql=Sql.SMALLINT, listed=True)
    ]
    error_kind: Annotated[
        str | None, Column("The kind of error; null without one.", logged=True, traced=True, listed=True)
    ]
    ttft_ms: Annotated[float | None, Column("When the first token came; null without one.", traced=True, listed=True)]
    total_ms: Annotated[float, Column("When the call ended; null if the gateway died.", may_be_null=True, listed=True)]
    overhead_ms: Annotated[
        float | None,
        Column("The gateway's own share of the time until the first byte; null where there was none.", traced=True),
    ]
    held_ms: Annotated[
        float | None,
        Column(
            "How long the winner's first token was held back (`race.hold`): a part of `ttft_ms`. Null if the token was "
            "not held back."
        ),
    ] = None
    held_for: Annotated[str | None, Column("The deployment that the winner's first token waited for.")] = None
    held_gain_ms: Annotated[
        float | None,
        Column(
            "How much sooner the deployment of `held_for` was to end after its first token, as the plan "
            "predicted (under `reading`: how much less a reader would wait)."
        ),
    ] = None
    prompt_tokens: Annotated[
        int | None,
        Column("The winner's, else those of the first attempt that was sent the prompt.", traced=True, listed=True),
    ] = None
    completion_tokens: Annotated[int | None, Column("The winner's, reasoning too.", traced=True, listed=True)] = None
    reasoning_tokens: Annotated[int | None, Column("Of `completion_tokens`, those of reasoning.")] = None
    cached_tokens: Annotated[int | None, Column("Of `prompt_tokens`, read from the provider's prompt cache.")] = None
    cache_write_tokens: Annotated[int | None, Column("Of `prompt_tokens`, written to the provider's prompt cache.")] = (
        None
    )
    cost_usd: Annotated[
        float | None,
        Column(
            "Of all attempts, the best figure. An attempt that was refused or never sent cost nothing. Null "
            "without a known price.",
            traced=True,
            listed=True,
        ),
    ] = None
    duplicate_cost_usd: Annotated[
        float | None,
        Column(
            "The part that racing added: its losers, and where one overtook a primary that had the "
            "conversation in its cache, what that would have saved, which is in the winner's cost.",
            traced=True,
            listed=True,
        ),
    ] = None
    cache_saved_usd: Annotated[float | None, Column("What reading the provider's prompt cache saved the winner.")] = (
        None
    )
    api: Annotated[str | None, Column("Another name of `endpoint`.")] = None
    size_class: Annotated[int | None, Column("0, 1, 2: body of up to 4 KB, 32 KB, more.", sql=Sql.SMALLINT)] = None
    tokens_source: Annotated[
        TokensSource | None,
        Column(
            "`reported` by the provider, `estimated` from characters (nothing was reported, or too little "
            "for so much text), or `implausible`: more was reported than can be, and the most that can be "
            "counts ([`attempts.reported_tokens`](#attempts)); its cost is of an answer as long as the "
            "request or the model allows.",
            listed=True,
        ),
    ] = None
    finish_reason: Annotated[str | None, Column("The winner's, in the provider's words.")] = None
    max_tokens: Annotated[int | None, Column("The longest answer that the request allows; null if not set.")] = None
    temperature: Annotated[float | None, Column("The temperature in the request; null if not set.")] = None
    tools: Annotated[int | None, Column("Tools that the request offers; null if not set.")] = None
    tool_calls: Annotated[int | None, Column("Tool calls in the answer.")] = None
    tool_calls_valid: Annotated[
        bool | None, Column("Whether the arguments of all tool calls parse as JSON; null without any.")
    ] = None
    is_empty: Annotated[bool | None, Column("Whether the answer was empty.")] = None
    is_truncated: Annotated[bool | None, Column("Whether the answer stopped at a token limit, or broke off.")] = None
    cost_low_usd: Annotated[
        float | None,
        Column(
            "The least that all attempts cost: zero of one that failed before its first token, or was cancelled "
            "before its headers came."
        ),
    ] = None
    cost_high_usd: Annotated[
        float | None, Column("The most that all attempts cost, with what may have been thought unseen.")
    ] = None
    duplicate_cost_low_usd: Annotated[float | None, Column("The least that racing added.")] = None
    duplicate_cost_high_usd: Annotated[float | None, Column("The most that racing added.")] = None
    abandoned_cost_low_usd: Annotated[
        float | None, Column("The least cost of attempts that were cancelled because their client had left.")
    ] = None
    abandoned_cost_high_usd: Annotated[
        float | None, Column("The most cost of attempts that were cancelled because their client had left.")
    ] = None
    alone_ms: Annotated[
        float | None,
        Column(
            "When the first token would have come without racing, as measured: the primary's, or the winner's if "
            "that was launched after the primary had failed. Null if the primary was overtaken; if it was audited, "
            "its attempt has the time. `race_value` uses this figure.",
            traced=True,
        ),
    ] = None
    alone_predicted_ms: Annotated[
        float | None, Column("The same for an overtaken primary, as predicted when it was overtaken.")
    ] = None
    alone_age_ms: Annotated[float | None, Column("The primary's age when it was overtaken.")] = None
    deadline_met: Annotated[
        bool | None,
        Column(
            "Whether the first token came by `deadline_ms`. A call that failed has missed it. Null for a "
            "request that was wrong itself (4xx), and if the client left before its deadline without a token.",
            traced=True,
        ),
    ] = None
    dropped: Annotated[
        tuple[str, ...],
        Column(
            "Fields that were left out for the winner, in the client's spelling, and thoughts that the vendor did not "
            "show the model, by their place in the request; JSON, null if none.",
            sql=Sql.JSONB,
            may_be_null=True,
        ),
    ] = ()
    attempts: tuple[AttemptRecord, ...] = ()
    kind: CallKind | None = None  # for the expected lengths of answers
    trace: TraceContext | None = None  # of the call's spans; None: calls are not traced

    @property
    def failed(
        self,
    ) -> Annotated[
        bool,
        Column(
            "Whether the call ended with an error that was not the client's own fault: a 5xx, a 424, a 429, or a "
            "stream that broke; no other 4xx, and no client that left.",
            may_be_null=True,
        ),
    ]:
        """Whether the call ended with an error that is not the client's own fault."""
        return has_failed(self.status_code, self.error_kind)


def whole_cost_usd(record: CallRecord) -> float | None:
    """Return the cost of a call for the operator and the client together; None: unknown."""
    costs_usd = [attempt.cost_usd for attempt in record.attempts if attempt.cost_usd is not None]
    return sum(costs_usd) if costs_usd else None


class HourlySum(msgspec.Struct, frozen=True, gc=False):
    """The number of attempts of one kind at one deployment of a model, in one hour or five minutes."""

    model: str
    deployment: str
    size_class: int
    unix_s: float  # the middle of the period
    metric: str  # "ttft", "tps" (decode; of ``bucket``), "n" (answered or failed) or "err"
    bucket: int  # eight per octave, from 10 ms, or 10 tok/s
    n: float


class Spent(msgspec.Struct, frozen=True, gc=False):
    """The cost of racing one client's calls to one model in the present UTC day, US dollars."""

    client: str | None
    model: str
    day_usd: float  # of all calls of that day
    extra_usd: float = 0.0  # added by racing, also by attempts for a fallback
    lost_usd: float = 0.0  # of this model's attempts that lost a race; only where client is None


class LimitUse(msgspec.Struct, frozen=True, gc=False):
    """The use of limits by an owner since an instant: a client, a team, an end user, or a model."""

    since_s: float  # Unix seconds; -inf: ever
    usd: float
    tokens: float = 0.0
    client: str | None = None
    team: str | None = None  # of calls with these tags
    end_user: str | None = None  # the hash of the end user's name
    model: str | None = None  # of all clients, also as a fallback


class NearLimit(msgspec.Struct, frozen=True, gc=False):
    """A limit in dollars that is nearly used up: the owner, the name, and the window in the owner's zone."""

    owner: str
    name: str
    window: str
    starts_s: float  # Unix seconds; -inf: a total's
    ends_s: float  # inf: a total's
    zone: str
    used_usd: float
    limit_usd: float


class Recorder(Protocol):
    """Receives the events of calls: ledger, leaderboard, metrics and log, combined in ``gateway/app/recorders.py``.

    Every method is synchronous and fast, and should not raise. First tokens and ends are reported a little later, after
    the bytes for waiting clients are written: ``ago_s`` is the age of the event in seconds.
    """

    def call_started(self, start: CallStart) -> None:
        """A call starts: called before anything is sent upstream."""

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        """An attempt of ``call`` is launched; ``attempt_ended`` follows for every one."""

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """An attempt has its first token (by the model's ``win_on``), ``ttft_s`` seconds after the launch."""

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        """An attempt has ended, for any reason. A loser's end comes before the call's."""

    def call_finished(self, record: CallRecord) -> None:
        """A call has ended: called before the last byte goes to the client."""

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        """An audited loser has ended after the call, for ``model``, was recorded: its row follows the call's.

        ``duplicate_usd``: the cost of racing including the loser, as far as known: all of it, or nothing.
        """
