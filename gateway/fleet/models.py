"""A model as calls see it: a public name, the deployments behind it, and how they are raced."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import inf
from types import MappingProxyType
from typing import TypeVar

import msgspec

from gateway.core.calls import Call
from gateway.core.errors import InvalidRequest
from gateway.fleet.tenants import has_account, is_of_account
from gateway.settings import (
    DEAR_FALLBACK,
    FallbackAfter,
    FallbackSettings,
    ModelSettings,
    Profile,
    RaceSettings,
    TakeoverSettings,
    model_identity,
)
from providers import (
    MASK,
    UNKNOWN,
    UNKNOWN_MODEL,
    Api,
    Capabilities,
    Kind,
    LearntFacts,
    MaskedRecord,
    Price,
    Traits,
    Upstream,
    UpstreamError,
    has_several_keys,
    unforced,
)
from providers.dialects import (
    DIALECTS,
    PIVOT,
    Dialect,
    Habits,
    ParameterNames,
    Seal,
    SystemPrompt,
    Way,
    habits_by_dialect,
    raw_json,
)

# A deployment as calls see it: one model at one provider, with timeouts, price and capabilities.


class Clocks(msgspec.Struct, frozen=True):
    """The four timeouts of one deployment, resolved. Seconds.

    The first token of an answer that may begin with a tool call may need ``first_call_s``: some servers send a call
    only when the call is complete. There a silence without any sign of life may last ``silent_call_s``. Both count only
    if they are longer.
    """

    connect_s: float
    ttft_s: float
    stall_s: float
    total_s: float | None
    first_call_s: float = 0.0
    silent_call_s: float = 0.0


_FORMATS = ("response_format", "stream_format", "encoding_format")  # fields with the format of short calls' answers

_UNKNOWN_HABITS = MappingProxyType(habits_by_dialect(Habits(may_think=True, reads_bills=False), UNKNOWN_MODEL, None))


class Deployment(MaskedRecord, frozen=True):
    """One model at one provider, ready to use."""

    name: str
    provider: str
    model: str  # the provider's name for the model
    upstream: Upstream
    clocks: Clocks
    price: Price | None
    bills_after_disconnect: bool | None  # whether the whole answer is billed after a disconnect; None: unknown
    extra_body: Mapping[str, msgspec.Raw]
    upstream_stream: bool
    max_in_flight: int | None = None  # the smaller of the limits of this process and of all processes
    capabilities: Capabilities = UNKNOWN
    apis: frozenset[Api] = frozenset((PIVOT.name,))
    speaks: tuple[Dialect, ...] = (PIVOT,)  # dialects of its APIs; others are translated to the first
    drop_params: bool = False
    adapts_forced: bool = True  # a forced tool that the model does not take is asked for in another way
    drops_unfit: bool = False  # the model can be asked to drop thoughts that no longer fit the text before them
    is_newest_version: bool = False  # the operator asks for the newest version of Anthropic's API
    extra_headers: tuple[tuple[str, str], ...] = ()  # names in lower case
    weight: float = 1.0
    canary: float | None = None
    vendor: str | None = None  # the provider's name in the catalog
    continues: tuple[Way, ...] | None = None  # the ways of continuing another's answer; None: no way is known
    traits: Traits = UNKNOWN_MODEL  # what the model is and takes
    seal: Seal | None = None  # of the account, for reasoning that the model encrypts
    habits: Mapping[str, Habits] = _UNKNOWN_HABITS  # by dialect: how the model is asked in that dialect
    dropped: Mapping[str, frozenset[str]] = {}  # by dialect, fields that the vendor or the model answers with an error
    refuses_storing: bool = False  # in Responses: refuses ``store: true``
    compacts: bool = True  # in Responses: may make a conversation shorter, in an item of its own
    functions_only: bool = False  # in Responses: takes no other tools
    lacks_schemas: bool = False  # the vendor refuses JSON schemas
    cache_keys: frozenset[str] = frozenset()  # the dialects in which the vendor takes a ``prompt_cache_key``
    # The value of ``store`` for a request that says nothing of it; None: no value. The vendor, or the operator,
    # decides.
    store: msgspec.Raw | None = None
    stores_own: bool = False  # also in the vendor's own API, in which requests otherwise pass unchanged
    conversations: bool | None = None  # the vendor keeps conversations; None: a server without a row in the catalog
    stores: bool = False  # the vendor is known to keep a response that says ``store: true``
    keeps: bool = False  # the vendor keeps prompts, unless a request says ``store: false``
    marks_from: int | None = None  # tokens of a prompt's beginning from which a cache mark is set; None: never
    is_free: bool = False  # the operator has set a price of 0, or the vendor charges nothing
    states_cost: bool = False  # answers say what they cost, and the operator has set no prices
    zdr: bool | None = None
    region: str | None = None
    quantization: str | None = None
    hardware: str | None = None
    same_as: str | None = None  # the name of the model behind the deployment's name, if the two differ
    whole: Mapping[str, tuple[str, ...]] = {}  # by parameter, the values with which the vendor does not stream
    addresses: re.Pattern[str] | None = None  # the operator's addresses, which no client reads
    listed: Price | None = None  # the known prices, if the price of input or output is unknown
    tenant: str | None = None  # the digest of the client's own key that is used; None: the operator's key
    learnt_as: str | None = None  # the name of the facts that this key shows; None: the deployment's name
    learnt: LearntFacts | None = None  # taught by refusals of the provider's models; None: no facts are kept
    acts: bool = False  # the model, or a field that the operator adds to requests, runs something at the provider
    searches: bool = False  # that is a search of the web
    may_have: tuple[Dialect, ...] | None = None  # more dialects to try after a refusal; None: the operator named all

    @property
    def account(self) -> str | None:
        """The account at the vendor: of the provider's keys, or of a client's own key."""
        return None if self.seal is None else self.seal.whose

    def with_key(self, upstream: Upstream, digest: str, learnt: LearntFacts | None = None) -> "Deployment":
        """Return the deployment with the ``upstream`` of a client's own key, without the operator's headers and fields.

        ``learnt``: the facts that refusals have taught with that key.
        """
        body = self.extra_body
        return msgspec.structs.replace(
            self,
            upstream=upstream,
            tenant=digest,
            learnt_as=f"{self.name}\x1f{digest}",
            learnt=learnt,
            seal=None if self.seal is None else self.seal.of(digest),
            extra_headers=tuple(each for each in self.extra_headers if not is_of_account(*each)),
            extra_body={name: raw for name, raw in body.items() if not has_account({name: msgspec.json.decode(raw)})},
        )

    def shown(self) -> Iterable[tuple[str, object]]:
        """Yield only the deployment's name for the ``repr``: its headers may be secrets."""
        yield "name", self.name

    def is_same_model(self, other: "Deployment") -> bool:
        """Whether both are declared to be one model: by ``same_as``, or by names that mean the same."""
        return model_identity(self.same_as or self.model) == model_identity(other.same_as or other.model)

    @property
    def identity(self) -> tuple[object, ...]:
        """The model and the formats of its answers: deployments of the same identity answer alike."""
        return model_identity(self.same_as or self.model), *[self.extra_body.get(name) for name in _FORMATS]

    def hide_addresses(self, error: UpstreamError) -> None:
        """Make the message of ``error`` fit for the caller, who must not read the operator's addresses."""
        error.message, pattern = error.caller or error.message, self.addresses
        if pattern is not None:
            error.message = pattern.sub(MASK, error.message)
            if error.body is not None:
                error.body = pattern.sub(MASK, error.body.decode(errors="replace")).encode()

    def spoken_to(self, dialect: Dialect) -> Dialect:
        """Return the dialect in which the deployment gets requests in ``dialect``: the same one, if it has that API."""
        return dialect if dialect in self.speaks else self.speaks[0]

    def spoken_in(self, call: Call) -> Dialect:
        """Return the dialect in which the deployment gets a ``call``."""
        if call.rendered and (rendered := call.rendered.get(self.name)) is not None and rendered.spoken is not None:
            return rendered.spoken
        dialect = call.request.dialect
        return dialect if dialect in self.speaks else self.speaks[0]

    @property
    def remembers_in(self) -> LearntFacts | None:
        """Where a refusal is remembered: apart from all others if a client's own key was used."""
        return self.learnt if self.tenant is None else self.upstream.learnt

    def asked_in(self, dialect: Dialect, *, tools: bool, client: str | None) -> Dialect:
        """Return the dialect in which the deployment gets requests of ``client`` in ``dialect``.

        This depends on where its model takes ``tools``, and on what refusals have taught.
        """
        usual, learnt = dialect if dialect in self.speaks else self.speaks[0], self.learnt
        # In its own API a request stays if its model can do without thinking: here it is unknown whether the model is
        # to think.
        if tools and (only := self.traits.tools_in) and (usual is not dialect or not self.traits.rests):
            usual = next((each for each in self.speaks if each.name == only), usual)
        if learnt is None or not learnt.steers:
            return usual
        return DIALECTS.get(learnt.instead_of(self.model, usual.name, tools=tools, client=client), usual)

    def refused_tools(self, dialect: Dialect, *, client: str | None) -> Mapping[str, str]:
        """Return the types of tools that refusals in ``dialect`` have named, each with the dialect to ask in."""
        learnt = self.learnt
        return {} if learnt is None or not learnt.steers else learnt.tools_in(self.model, dialect.name, client)

    def as_learnt(self, client: str | None) -> "Deployment":
        """Return the deployment with traits that refusals have taught: whether a call of a tool can be forced."""
        learnt = self.learnt
        known = () if learnt is None else learnt.of(self.model, client)
        refused = [fact for fact in known if fact.kind is Kind.CALL]
        if not refused:
            return self
        return self.unforced(forbids=not any(fact.field for fact in refused))

    def unforced(self, *, forbids: bool) -> "Deployment":
        """Return the deployment with a model that refused to be forced to call a tool, as ``providers.unforced``."""
        traits = unforced(self.traits, forbids=forbids)
        habits = {
            name: msgspec.structs.replace(each, takes_forced=traits.takes_forced, forbids_calls=forbids)
            for name, each in self.habits.items()
        }
        return msgspec.structs.replace(self, traits=traits, habits=habits)

    def others(self, offered: str | None) -> tuple[Dialect, ...]:
        """Return the dialects to try after a refusal; first the dialect that the refusal has ``offered``.

        An API that the vendor's catalog row does not name is tried only if the refusal offers it, unless there is no
        row.
        """
        offers = () if offered is None else (DIALECTS[offered],)
        known = (*self.speaks, *(offers if self.may_have is not None else ()), *(self.may_have or ()))
        able = dict.fromkeys(each for each in (*offers, *known) if each in known and each.untranslated is None)
        return tuple(able)

    def way_to_continue(self, dialect: Dialect) -> Way | None:
        """Return the way of continuing answers to requests in ``dialect``; None: no way is known."""
        continuing = self.spoken_to(dialect).continuing
        if continuing is None:
            return None
        return next((way for way in self.continues or () if way in continuing.ways), None)

    def can_continue(self, dialect: Dialect) -> bool:
        """Whether the deployment is known to continue another's answers to requests in ``dialect``."""
        return self.spoken_to(dialect).continues_by_itself or self.way_to_continue(dialect) is not None


# A model's configured request parameters: defaults, maximums and a system prefix. The configuration uses chat's
# names; a request is changed in its own dialect, only at its top level.

_LIMITS = PIVOT.requests.parameters.answer_limits  # the configuration's names for an answer's maximum length
_ARRAY, _EMPTY_ARRAY, _STRING = (re.compile(rb"\s*" + begin) for begin in (rb"\[", rb"\[\s*\]", rb'"'))
_NULL = msgspec.Raw(b"null")

Fields = dict[str, msgspec.Raw]


def learnt_by(deployments: Iterable[Deployment]) -> tuple[LearntFacts, ...]:
    """Return the facts that refusals have taught of the providers of ``deployments``, each once."""
    return tuple({id(each.learnt): each.learnt for each in deployments if each.learnt is not None}.values())


class Parameters(msgspec.Struct, frozen=True):
    """The configured parameters of one model's requests."""

    defaults: Mapping[str, msgspec.Raw]
    maximums: Mapping[str, float]
    system_prefix: str | None

    @property
    def most_tokens(self) -> int | None:
        """The maximum of answer tokens; None: no limit."""
        limits = [int(self.maximums[name]) for name in _LIMITS if name in self.maximums]
        return min(limits, default=None)

    @classmethod
    def of(cls, settings: ModelSettings) -> "Parameters | None":
        """Return the parameters in ``settings``; None: ``settings`` have no parameters."""
        if not (settings.defaults or settings.maximums or settings.system_prefix):
            return None
        defaults = {name: raw_json(value) for name, value in settings.defaults.items()}
        return cls(defaults, settings.maximums, settings.system_prefix)

    def applied(self, fields: Mapping[str, msgspec.Raw], dialect: Dialect) -> tuple[Fields, tuple[str, ...]]:
        """Return the request with the model's parameters, and the names of parameters lowered to their maximum.

        Raises:
            InvalidRequest: a parameter with a maximum is not a number.

        """
        changed, names = dict(fields), dialect.requests.parameters
        for name, value in self.defaults.items():
            spellings = _spellings(name, names)
            if spellings and not any(_is_set(changed.get(spelling)) for spelling in spellings):
                spelling = name if name in spellings else spellings[0]
                changed[spelling] = _as_list(value) if spelling in names.lists else value
        lowered: list[str] = []
        for name, most in self.maximums.items():
            spellings = _spellings(name, names)
            limits_answer = name in _LIMITS
            given = [spelling for spelling in spellings if _is_set(changed.get(spelling))]
            for spelling in given:
                number = _number(spelling, changed[spelling])
                if number > most or (limits_answer and number < 0):  # for some servers, -1 is no limit
                    changed[spelling] = _written(most)
                    lowered.append(spelling)
            if not given and spellings and limits_answer:  # without a limit in the request, an answer has no limit
                changed[name if name in spellings else spellings[0]] = _written(most)
        if self.system_prefix is not None and dialect.requests.system is not None:
            _put_first(changed, self.system_prefix, dialect.requests.system)
        return changed, tuple(dict.fromkeys(lowered))

    def counted(self, fields: Mapping[str, msgspec.Raw], dialect: Dialect) -> Mapping[str, msgspec.Raw]:
        """Return a request to count tokens with the model's system prefix.

        Google counts a system prompt only within a whole request. Beside a prompt alone the prefix is counted as the
        user's words.
        """
        place, counting = dialect.requests.system, dialect.counting
        if self.system_prefix is None or place is None or counting is None:
            return fields
        changed, whole, prompt = dict(fields), counting.whole, dialect.requests.prompt
        if whole is None:
            _put_first(changed, self.system_prefix, place)
        elif _is_set(changed.get(whole)):
            with suppress(msgspec.DecodeError, RecursionError):  # the provider refuses the request
                inner = msgspec.json.decode(changed[whole], type=dict[str, msgspec.Raw])
                _put_first(inner, self.system_prefix, place)
                changed[whole] = raw_json(inner)
        elif prompt in changed:
            turn = {"role": "user", "parts": [place.item(self.system_prefix)]}
            changed[prompt] = _with_first(changed[prompt], turn)
        return changed


def _spellings(name: str, names: ParameterNames) -> tuple[str, ...]:
    """Return the names of parameter ``name`` in a dialect; empty if the dialect has no such parameter."""
    return names.answer_limits if name in _LIMITS else names.of(name)


def _as_list(value: msgspec.Raw) -> msgspec.Raw:
    """Return a value, which may be a single string in chat, as a list of strings."""
    return msgspec.Raw(b"[" + bytes(value) + b"]") if bytes(value).startswith(b'"') else value


def _put_first(fields: Fields, prefix: str, place: SystemPrompt) -> None:
    """Put ``prefix`` before the request's own system prompt. Messages are not parsed, and are copied once."""
    own = fields.get(place.field)
    if place.within is not None:
        fields[place.field] = _first_within(own, place.within, place.item(prefix))
    elif own is None or not _is_set(own):
        fields[place.field] = raw_json(prefix)
    elif _ARRAY.match(own):  # messages, or blocks, which may have cache markers
        fields[place.field] = _with_first(own, place.item(prefix))
    elif (opened := _STRING.match(own)) is not None:
        first = msgspec.json.encode(f"{prefix}\n\n")
        fields[place.field] = msgspec.Raw(b"".join([memoryview(first)[:-1], memoryview(own)[opened.end() :]]))


def _first_within(own: msgspec.Raw | None, field: str, item: Mapping[str, str]) -> msgspec.Raw:
    """Return an object whose array ``field`` begins with ``item``."""
    try:
        given = {} if own is None else msgspec.json.decode(own, type=dict[str, msgspec.Raw] | None) or {}
    except (msgspec.DecodeError, RecursionError):
        return raw_json({field: [item]}) if own is None else own  # invalid: the provider will refuse it
    array = given.get(field, raw_json([]))
    listed = array if _ARRAY.match(array) else msgspec.Raw(b"[" + bytes(array) + b"]")  # Google also accepts one item
    return raw_json({**given, field: _with_first(listed, item)})


def _with_first(array: msgspec.Raw, item: Mapping[str, object]) -> msgspec.Raw:
    """Return ``array`` with ``item`` at its beginning."""
    opened = _ARRAY.match(array)
    if opened is None:
        return array  # invalid: the provider will refuse it
    comma = b"" if _EMPTY_ARRAY.match(array) else b","
    return msgspec.Raw(b"".join([b"[", msgspec.json.encode(item), comma, memoryview(array)[opened.end() :]]))


def _is_set(raw: msgspec.Raw | None) -> bool:
    return raw is not None and raw != _NULL


def _number(name: str, raw: msgspec.Raw) -> float:
    try:
        return msgspec.json.decode(raw, type=float)
    except msgspec.DecodeError:  # some servers would still accept it as a number
        raise InvalidRequest(f"{name!r} must be a number: it has a maximum here", param=name) from None


def _written(number: float) -> msgspec.Raw:
    return raw_json(int(number) if number == int(number) else number)


class Common(msgspec.Struct, frozen=True):
    """The abilities that all deployments of a model share: most calls need no check of single deployments."""

    # Dialects that all deployments speak natively, without losing any part of a request but ``dropped`` and
    # ``refused_fields``.
    speaks: frozenset[Dialect]
    context_tokens: float  # the shortest known context
    max_output_tokens: float  # the shortest known maximum
    binds: bool = False  # a deployment may give, or refuse, reasoning that only its maker can read
    acts: bool = False  # a deployment runs something at its provider, whatever the request asks
    thinks: bool = True  # no deployment is known not to think, or is told not to think in a way of its own
    takes_forced: bool = True  # a request may force a call of a tool at all deployments
    has_keys: bool = False  # the provider of a deployment has several keys
    dropped: Mapping[str, frozenset[str]] = {}  # by dialect, fields that a deployment refuses
    refused_fields: frozenset[str] = frozenset()  # in chat, fields of a history that a deployment refuses
    whole_for: frozenset[str] = frozenset()  # fields with a value at which a deployment does not stream

    @classmethod
    def of(cls, deployments: Iterable[Deployment]) -> "Common":
        """Return the abilities that all ``deployments`` share."""
        each = list(deployments)
        free = [one.upstream.accepts_all_parameters and not one.traits.changes for one in each]
        spoken = [set(one.speaks) if is_free else set() for one, is_free in zip(each, free, strict=True)]
        common = set.intersection(*spoken) if spoken else set()
        return cls(
            # In other dialects requests may need their reasoning removed.
            frozenset(dialect for dialect in common if dialect.requests.thoughts.without_foreign is None),
            min((one.capabilities.context_tokens or inf for one in each), default=inf),
            min((one.capabilities.max_output_tokens or inf for one in each), default=inf),
            any(one.traits.signs or any(dialect.answers.binds for dialect in one.speaks) for one in each),
            any(one.acts for one in each),
            all(one.capabilities.reasoning is not False and one.traits.is_usual for one in each),
            all(one.traits.forced_tools == "taken" for one in each),
            any(has_several_keys(one.upstream) for one in each),
            {
                name: frozenset[str]().union(*(one.dropped.get(name, ()) for one in each))
                for name in {name for one in each for name in one.dropped}
            },
            frozenset[str]().union(*(one.upstream.refused_fields for one in each)),
            frozenset[str]().union(*(one.whole for one in each)),
        )

    def drops_from(self, dialect: Dialect, fields: Mapping[str, msgspec.Raw]) -> bool:
        """Whether a deployment may be sent a request without one of the ``fields``."""
        dropped = self.dropped.get(dialect.name)
        return dropped is not None and not dropped.isdisjoint(fields)


_T = TypeVar("_T")


class Model(msgspec.Struct, frozen=True):
    """A public name and the deployments behind it, by name, in the order of the configuration."""

    name: str
    deployments: Mapping[str, Deployment]
    race: RaceSettings
    adhoc: bool = False
    common: Common = Common(frozenset(), 0, 0)
    payer: str = ""  # the model whose budget and dollars pay for the calls: this model, or one of a comma list
    prices: Mapping[str, Price] = {}  # known prices, by deployment
    limits: Mapping[str, int] = {}  # by deployment, if set: the smaller of max_in_flight and max_in_flight_fleet
    ttft_s: Mapping[str, float] = {}  # by deployment: the time-out of a first token
    weights: Mapping[str, float] = {}  # weights other than 1, by deployment
    canaries: Mapping[str, float] = {}  # the shares of canaries, by deployment
    bills_losers: frozenset[str] = frozenset()  # deployments that bill the whole answer after a disconnect
    use_limits: Mapping[str, float] = {}  # limits of all calls together, in dollars and tokens
    zone: str = "UTC"  # the zone of the hours, days, weeks and months in which these limits count
    has_dollars: bool = False  # whether one of these limits is in dollars
    dearest: Price | None = None  # the highest known price, if another deployment's is unknown
    fallbacks: tuple[FallbackSettings, ...] = ()
    fallback_after: FallbackAfter = "auto"
    keepalive_s: float | None = None
    takeover: TakeoverSettings = TakeoverSettings()
    parameters: Parameters | None = None  # defaults, maximums and system prefix of requests
    tenant: str | None = None  # the digest of the client's own keys, if some deployments are asked with these
    is_free: bool = False  # whether no call of the model, nor of a fallback, spends the operator's dollars
    marks: bool = False  # whether some deployments are told what to cache
    costs_nothing: bool = False  # whether the operator has set a price of 0 for all deployments
    learnt: tuple[LearntFacts, ...] = ()  # facts of the model's providers
    profiles: Mapping[Profile, "Model"] = {}  # the same model under each profile: its race and timeouts

    @property
    def learnt_as(self) -> Mapping[str, str] | None:
        """The deployments with a client's own key, with the names of facts of these keys; None: there are none."""
        if self.tenant is None:
            return None
        return {name: each.learnt_as for name, each in self.deployments.items() if each.learnt_as is not None}

    def with_deployments(self, deployments: Mapping[str, Deployment], tenant: str, *, is_free: bool) -> "Model":
        """Return the model with these ``deployments`` alone; some have a key of ``tenant``, a digest.

        If all deployments have such a key, calls spend none of the operator's dollars, and the model's own limits in
        dollars do not apply. ``is_free``: its fallbacks spend none of these dollars either.
        """
        race, use_limits, dearest = self.race, self.use_limits, self.dearest
        if all(each.tenant is not None for each in deployments.values()):
            use_limits, dearest = {}, None
            if race.usd_per_day is not None or race.extra_usd_per_call is not None:
                race = race.model_copy(update={"usd_per_day": None, "extra_usd_per_call": None})

        def kept(by_name: Mapping[str, _T]) -> Mapping[str, _T]:
            return {name: each for name, each in by_name.items() if name in deployments}

        return msgspec.structs.replace(
            self,
            deployments=deployments,
            race=race,
            learnt=learnt_by(deployments.values()),
            prices=kept(self.prices),
            limits=kept(self.limits),
            ttft_s=kept(self.ttft_s),
            weights=kept(self.weights),
            canaries=kept(self.canaries),
            bills_losers=self.bills_losers & deployments.keys(),
            use_limits=use_limits,
            has_dollars=self.has_dollars and bool(use_limits),
            dearest=dearest,
            common=Common.of(deployments.values()),
            tenant=tenant,
            is_free=is_free,
        )

    @property
    def mean_price_usd(self) -> float | None:
        """The mean price of a prompt's token and an answer's token, over the deployments; None: no price is known."""
        totals = [price.input_usd + price.output_usd for price in self.prices.values()]
        return sum(totals) / len(totals) if totals else None

    def waits_s(self, after: FallbackAfter, late_s: float, fallback: "Model | None") -> float | None:
        """Return when ``fallback`` is asked beside this model, seconds after its start; None: only after a failure.

        ``late_s``: when an answer of this model is late. A fallback that costs over ten times as much waits twice as
        long.
        """
        if after == "failure":
            return None
        return after if after != "auto" else late_s * (2.0 if self.is_dear(fallback) else 1.0)

    def is_dear(self, fallback: "Model | None") -> bool:
        """Whether ``fallback`` costs over ten times as much as this model."""
        usd, than_usd = None if fallback is None else fallback.mean_price_usd, self.mean_price_usd
        return usd is not None and than_usd is not None and usd > DEAR_FALLBACK * than_usd

    def under(self, profile: Profile | None) -> "Model":
        """Return the model under ``profile``; as configured if ``profile`` is None or the model's own profile."""
        return self if profile is None or profile is self.race.profile else self.profiles.get(profile, self)
