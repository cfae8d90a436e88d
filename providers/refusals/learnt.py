"""Facts that the refusals of one provider have taught about its models: the form in which each takes a request.

For example, 400 "Unsupported parameter: 'verbosity'" teaches that the model takes no ``verbosity``: for a day, requests
to this model are sent without that field.

A fact that one client has met holds for that client alone, as a request may lead a provider to say something untrue.
When a second client meets the same fact, and an answer has confirmed the fact for one of the two, the fact holds for
all. The answer is needed, as a prompt that quotes an error is refused in each form. Without clients a fact holds for
all at once.
"""

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import StrEnum

import msgspec

SUPPOSED_S = 60.0
HOUR_S = 3_600.0  # of facts that, once outdated, cost more than a refused request: see ``_SHORT``
DAY_S = 86_400.0  # then a model is asked in the usual form again: the vendor may have changed the model
MOST_MODELS = 1_000  # clients may name any model
MOST_FACTS = 32  # of one model: clients may send any field
MOST_CLIENTS = 128  # with facts that no other client has met; each with facts of so many models:
MOST_MODELS_OF_CLIENT = 16
FORMER = "\0"  # in place of a client: from a replica whose older version does not name the client
FORGOTTEN = "\1"  # in place of a client: an operator has forgotten the fact
LEAST_ROOM = 256  # tokens of an answer: if fewer fit, the prompt is too long
_SPARE_TOKENS = 64
LONGEST_NAME = 200  # characters of a field's or model's name
_LONGEST_VALUE = 1_000  # of a value: an agent's betas are many
_WORD = re.compile(r'"\w{1,40}"', re.ASCII)  # as JSON


class Kind(StrEnum):
    """What a model refused. For example, FIELD is 400 "Unsupported parameter: 'verbosity'"."""

    FIELD = "field"  # a field, or only its ``value``: leave the field out
    NAME = "name"  # the name of a field: send the value as ``instead``
    VALUE = "value"  # one ``value`` of a field: send ``instead``, the nearest accepted value
    HISTORY = "history"  # roles or lists of texts: a stricter history; with ``field``: of assistant messages, or a role
    SCHEMAS = "schemas"  # strict schemas: sent as best effort; ``value``: those with this digest; ``field``: any words
    FORCED = "forced"  # a forced call of a tool while the model thinks: ``field`` tells the model not to think
    CALL = "call"  # a forced call of a tool, with or without thinking; with ``field``: also a forbidden one
    API = "api"  # the dialect named ``field``: the model is asked in ``instead``
    TOOLS = "tools"  # tools in the dialect named ``field``: requests with tools are sent in ``instead``
    TOOL = "tool"  # tools of the type ``value`` in the dialect ``field``: requests with these are sent in ``instead``
    STREAM = "stream"  # streams in the dialect ``field``, with the parameters ``value``: answers are asked for whole
    REASONING = "reasoning"  # encrypted reasoning of ``field``, which nobody else can read
    ACCOUNT = "account"  # reasoning of the key ``field``, sent with the key ``value``: the keys are of two accounts
    LENGTH = "length"  # a prompt of ``tokens``
    SIZE = "size"  # more than ``tokens`` (0: any) of ``field``: tools, pictures, bytes; others are asked first
    # A prompt and an answer of more than ``tokens`` together; a token of a prompt has ``value`` hundredths of a byte.
    ROOM = "room"
    LIMIT = "limit"  # a limit of the answer above ``tokens`` in ``field``: limits that clients had to set are lowered
    MUST = "must"  # a field, or one ``value``, that may not be left out: requests with it are sent elsewhere
    BETA = "beta"  # the beta ``value`` in ``field``: a request that needs the beta is sent elsewhere
    PREFILL = "prefill"  # an answer that the request begins: a last turn of the user asks for the rest
    LEAST = "least"  # a limit of the answer below ``tokens``: ``tokens`` are asked for, and the answer is cut


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a model refuses."""

    kind: Kind
    field: str = ""  # the field's path in a request, such as reasoning.effort
    instead: str = ""
    value: str = ""  # as JSON; "": any value
    dialect: str = ""  # the API in which the field has this name; "": the fact is not about a field
    tokens: int = 0  # those of a prompt are the gateway's own estimate
    passing: bool = False  # true of one request only, because of its other fields: forgotten after the request

    @property
    def words(self) -> str:
        """The refused part, and what is sent in its place."""
        own = {
            Kind.HISTORY: _OF_HISTORIES.get(self.field, f"{self.field} in earlier answers"),
            Kind.SCHEMAS: "words of JSON Schema (sent: told in descriptions)"
            if self.field
            else ("strict schemas that it has no rules for" if self.value else "strict schemas"),
            Kind.FORCED: "forced calls of tools while it thinks",
            Kind.CALL: "any choice of tools but its own" if self.field else "forced calls of tools",
            Kind.STREAM: f"streaming, in {self.field} with {self.value or 'no parameters'}",
            Kind.REASONING: f"encrypted reasoning of {self.field}",
            Kind.ACCOUNT: f"thoughts of the key {self.field!r} with the key {self.value!r}, of another account",
            Kind.LENGTH: f"a prompt of {self.tokens} tokens",
            Kind.SIZE: f"more than {self.tokens} {self.field}" if self.tokens else self.field,
            Kind.LIMIT: f"{self.field} above {self.tokens}",
            Kind.LEAST: f"{self.field} below {self.tokens}",
            Kind.PREFILL: "to continue an answer that the request begins (sent: that the user asks for it)",
            Kind.BETA: f"{self.field}: {self.value}, for what does not exist without it",
            Kind.ROOM: f"a prompt and an answer of more than {self.tokens} tokens together",
            Kind.API: f"{self.field} (asked in {self.instead})",
            Kind.TOOLS: f"tools in {self.field} (asked in {self.instead})",
            Kind.TOOL: f"tools of the type {self.value} in {self.field} "
            + ("(sent: functions, or nothing)" if self.instead == self.field else f"(asked in {self.instead})"),
        }
        if (words := own.get(self.kind)) is not None:
            return words
        named = f"{self.field}: {self.value}" if self.value else self.field
        if self.kind is Kind.MUST:
            return f"{named}, which is not left out"
        return f"{named} (sent: {self.instead})" if self.instead else named


_OF_HISTORIES = {
    "": "orders of roles, or lists of texts",
    "document": "documents (sent: their texts)",
    "arguments": "arguments of calls that say nothing (sent: {})",
    "blank": "answers, or texts in them, that say nothing (left out)",
    "developer": "the role developer (sent: system)",
    "system": "system prompts (sent: in the user's first message, in <system> tags)",
    "texts": "lists of texts (sent: one text)",
    "tool_call_id": "ids of calls that other vendors have made (sent: in its own form)",
}
OF_APIS = frozenset({Kind.API, Kind.TOOL, Kind.TOOLS})
_STEERING = OF_APIS | {Kind.CALL, Kind.LENGTH, Kind.SIZE, Kind.ROOM, Kind.LEAST, Kind.BETA, Kind.MUST}
# Kept for an hour only. LENGTH and ROOM are estimates; answers that are asked for whole are late in races (STREAM); a
# vendor may take a new BETA tomorrow; a model answers worse without its REASONING.
_SHORT = frozenset({Kind.BETA, Kind.LENGTH, Kind.REASONING, Kind.ROOM, Kind.STREAM})
# Two facts of these kinds that differ in their tokens alone are about the same thing: 8,000 and 9,000 of a LENGTH.
_MEASURED = frozenset({Kind.LENGTH, Kind.LIMIT, Kind.LEAST, Kind.ROOM, Kind.SIZE})
_NO_KINDS: frozenset[Kind] = frozenset()
Facts = tuple[Fact, ...]
NOTHING: Facts = ()


class Met(msgspec.Struct, frozen=True):
    """Who has met a fact, when and why; Unix times."""

    until: float
    at: float  # when the fact was met first
    why: str = ""  # the status and the code of the refusal
    clients: tuple[str | None, ...] = (None,)  # None: a call without a client, as a probe, or all calls without keys
    doubted_by: str | None = None  # the client for which the fact did not hold; a second such client ends the fact

    @property
    def is_for_all(self) -> bool:
        """Whether the fact holds for all clients."""
        return None in self.clients or len(self.clients) > 1


class ListedFact(msgspec.Struct, frozen=True):
    """A fact as the page and the command line list it."""

    model: str
    fact: Fact
    met: Met


# Called with a model, a new fact, the fact's end in Unix time (0: the fact holds no more), and the clients that have
# met it, the latest last.
OnFact = Callable[[str, Fact, float, Met], object]
_Models = dict[str, dict[Fact, Met]]


def _tell_nobody(_model: str, _fact: Fact, _until: float, _met: Met) -> None:
    pass


class LearntFacts:
    """The facts of one provider's models, with any of the provider's keys, for a day each, apart for each client.

    The number of facts has bounds (``MOST_…``). ``on_fact`` tells the log and the other replicas.
    """

    def __init__(self, on_fact: OnFact = _tell_nobody, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._on_fact = on_fact
        self._wall_clock = wall_clock
        self._met: dict[str | None, _Models] = {}  # by client; None: what holds for all
        self._kinds: dict[str | None, frozenset[Kind]] = {}  # by client, in the same way
        # Whether any client has met a fact. Most providers have taught nothing, so these four save nearly every search.
        self.steers = False  # a fact about APIs or lengths, which decide who is asked, and in which API
        self.stops_streams = False  # a fact about streams
        self.is_any = False  # a fact of any kind
        self.is_of_some = False  # a fact that does not hold for all clients
        self.supposed: set[tuple[str | None, str, Fact]] = set()  # facts that no answer has confirmed

    def of(self, model: str, client: str | None = None) -> Facts:
        """Return the facts of ``model`` for ``client``, in the order in which they were learnt.

        Of two facts about the same thing, the client's own comes before the one that holds for all.
        """
        shared = self._alive(None, model)
        own = self._alive(FORMER if client is None else client, model)  # without clients no client can doubt a fact
        if client is None or not (own or shared):
            return (*shared, *(fact for fact in own if fact not in shared))
        holding = [
            fact
            for fact, met in shared.items()
            if met.doubted_by != client and not any(_replaces(each, fact) for each in own)
        ]
        return (*holding, *(fact for fact in own if fact not in holding))

    def note(
        self,
        model: str,
        fact: Fact,
        *,
        client: str | None = None,
        why: str = "",
        until: float | None = None,
        at: float | None = None,
    ) -> None:
        """Note what ``model`` refused to ``client``.

        ``until`` (Unix time): another replica reported the fact, met at ``at``. Else the other replicas are told.
        """
        if not _may_be_kept(model, fact):
            return
        is_own, now = until is None, self._wall_clock()
        latest = now + (HOUR_S if fact.kind in _SHORT else DAY_S)
        until = latest if until is None else min(until, latest)
        if until <= now:
            return
        if client is not None and self._is_shared(model, fact, client):
            self._confirm_shared(model, fact)
            return
        facts = self._alive(client, model)
        before = facts.get(fact)
        was_supposed = (client, model, fact) in self.supposed
        met = Met(
            max(until, 0.0 if before is None else before.until),
            (now if at is None else at) if before is None else before.at,
            why or ("" if before is None else before.why),
            (client,) if before is None else before.clients,
        )
        self.supposed.discard((client, model, fact))
        replaced = self._put(client, model, fact, met)
        others = self._share(model, fact, client)
        if (is_own and before is None) or was_supposed:
            self._on_fact(model, fact, until, msgspec.structs.replace(met, clients=(*others, *met.clients)))
            for each, its in replaced.items():
                self._on_fact(model, each, 0.0, its)

    def suppose(self, model: str, fact: Fact, *, client: str | None = None, why: str = "") -> None:
        """Use a fact for a minute before an answer confirms the fact: a loser, for example, is cut before that.

        ``confirm`` keeps a fact that has led to an answer.
        """
        facts, now = self._alive(client, model), self._wall_clock()
        if fact.passing or fact in self.of(model, client):
            return
        if len(facts) < MOST_FACTS and (client is not None or len(self.supposed) < MOST_MODELS):
            self.supposed.add((client, model, fact))
            self._put(client, model, fact, Met(now + SUPPOSED_S, now, why, (client,)), replaces=False)
            self._share(model, fact, client)

    def confirm(self, model: str, facts: Facts, client: str | None = None) -> None:
        """Keep the supposed ones of ``facts``: a request in the form that the facts demand was answered."""
        for fact in facts:
            if (None, model, fact) in self.supposed and client is not None:
                self._confirm_shared(model, fact)
            elif (client, model, fact) in self.supposed:
                self.note(model, fact, client=client)

    def forget(self, model: str, facts: Collection[Fact], client: str | None = None) -> None:
        """Forget facts of ``model`` for ``client``: a request in the form that the facts demand was refused as well.

        When a second client meets the same refusal, a fact that holds for all is forgotten for the others too.
        """
        if not facts:
            return
        if client is None:
            self._without(FORMER, model, facts)
            self._without(None, model, facts)
            return
        self._without(client, model, facts)
        shared = self._met.get(None, {}).get(model, {})
        doubted = [fact for fact in facts if fact in shared]
        self._without(None, model, [each for each in doubted if shared[each].doubted_by not in {None, client}])
        for fact in doubted:
            if fact in shared and (met := shared[fact]).doubted_by is None:
                shared[fact] = msgspec.structs.replace(met, doubted_by=client)

    def drop(self, model: str, fact: Fact, *, before: float | None = None) -> bool:
        """Forget a fact for all clients, as an operator wants; return whether the fact was known.

        ``before``: when another replica was asked to forget, in Unix time; facts met since then stay.
        """
        holders = [
            client
            for client, models in self._met.items()
            if fact in models.get(model, ()) and (before is None or models[model][fact].at <= before)
        ]
        for client in holders:
            self._without(client, model, (fact,))
        if holders and before is None:
            now = self._wall_clock()
            self._on_fact(model, fact, 0.0, Met(now + DAY_S, now, clients=(FORGOTTEN,)))
        return bool(holders)

    def instead_of(self, model: str, dialect: str, *, tools: bool, client: str | None = None) -> str:
        """Return the name of the dialect in which ``model`` is asked, if the model lacks ``dialect``.

        ``tools``: the request has some.
        """
        facts, passed = self.of(model, client), [dialect]
        while True:
            refusals = (fact for fact in facts if fact.field == passed[-1] and _is_api(fact, tools=tools))
            if (refusal := next(refusals, None)) is None:
                return passed[-1]
            if refusal.instead in passed:
                return dialect
            passed.append(refusal.instead)

    def tools_in(self, model: str, dialect: str, client: str | None = None) -> Mapping[str, str]:
        """Return the tools that ``model`` has refused in ``dialect``: a tool's type → the name of another dialect."""
        facts = (fact for fact in self.of(model, client) if fact.kind is Kind.TOOL and fact.field == dialect)
        return {fact.value: fact.instead for fact in facts}

    def met_by_others(self, model: str, client: str | None) -> Facts:
        """Return the facts of ``model`` that only other clients have met: for ``client`` they are suppositions."""
        if not self.is_of_some or client is None:
            return NOTHING
        own, now = self.of(model, client), self._wall_clock()
        others = (models[model] for who, models in self._met.items() if who not in {None, FORMER} and model in models)
        met_facts = (fact for facts in others for fact, met in facts.items() if met.until > now and fact not in own)
        return tuple(dict.fromkeys(met_facts))

    def refused_length(self, model: str, client: str | None = None) -> int | None:
        """Return the tokens of a prompt that was too long for ``model``; None: none was."""
        return next((fact.tokens for fact in self.of(model, client) if fact.kind is Kind.LENGTH), None)

    def room(self, model: str, size: int, client: str | None = None) -> int | None:
        """Return how many tokens of an answer fit beside a prompt of ``size`` bytes; None: not known, or too few.

        The number is an estimate that is rather too low, as a request for more tokens than fit is refused.
        """
        fact = next((each for each in self.of(model, client) if each.kind is Kind.ROOM), None)
        if fact is None or not fact.value.isdecimal():
            return None
        room = fact.tokens - size * 100 * 17 // (16 * max(1, int(fact.value))) - _SPARE_TOKENS
        return room if room >= LEAST_ROOM else None

    def steers_for(self, client: str | None) -> bool:
        """Whether a fact known for ``client`` decides which deployment is asked, or in which API."""
        return self.steers and not _STEERING.isdisjoint(self._kinds_for(client))

    def stops_streams_for(self, client: str | None) -> bool:
        """Whether anything is known of streams for ``client``."""
        return self.stops_streams and Kind.STREAM in self._kinds_for(client)

    @property
    def models(self) -> Mapping[str, Facts]:
        """All known facts, of any client, by model."""
        by_model: dict[str, Facts] = {}
        for listed in self.listed():
            before = by_model.get(listed.model, ())
            by_model[listed.model] = before if listed.fact in before else (*before, listed.fact)
        return by_model

    def listed(self) -> Iterator[ListedFact]:
        """Yield all known facts, with the clients that have met them; facts that hold for all come first."""
        for client in sorted(self._met, key=lambda client: (client is not None, client or "")):
            for model in list(self._met.get(client, ())):
                for fact, met in self._alive(client, model).items():
                    yield ListedFact(model, fact, met)

    def _kinds_for(self, client: str | None) -> frozenset[Kind]:
        own = self._kinds.get(FORMER if client is None else client, _NO_KINDS)
        return self._kinds.get(None, _NO_KINDS) | own

    def _is_shared(self, model: str, fact: Fact, client: str) -> bool:
        shared = self._alive(None, model)
        if (met := shared.get(fact)) is not None and met.doubted_by == client:
            shared[fact] = msgspec.structs.replace(met, doubted_by=None)
        return fact in shared

    def _share(self, model: str, fact: Fact, client: str | None) -> tuple[str, ...]:
        """Have a fact hold for all if another client has met the fact too; return that client."""
        if client is None or client == FORMER:
            return ()
        match: tuple[Fact, str] | None = None
        for other in [each for each in self._met if each is not None and each not in {FORMER, client}]:
            for each in self._alive(other, model):
                if _is_alike(each, fact):
                    wider = each if each.tokens > fact.tokens else fact
                    match = (wider, other) if match is None or wider.tokens < match[0].tokens else match
        if match is None:
            return ()
        shared, other = match
        one, two = (
            next(each for each in self._met[who][model].items() if _is_alike(each[0], fact)) for who in (other, client)
        )
        if any(
            shared_fact.tokens <= shared.tokens
            for shared_fact in self._alive(None, model)
            if _is_alike(shared_fact, fact)
        ):
            return (other,)
        met = Met(max(one[1].until, two[1].until), min(one[1].at, two[1].at), two[1].why, (other, client))
        if all((who, model, its[0]) in self.supposed for who, its in ((other, one), (client, two))):
            return (other,)
        self._put(None, model, shared, met)
        self._confirm_shared(model, shared)
        return (other,)

    def _confirm_shared(self, model: str, fact: Fact) -> None:
        """Have a fact that two clients have met hold for its full time, and report it as met by both."""
        met = self._met[None][model][fact]
        is_new = (None, model, fact) in self.supposed
        self.supposed.discard((None, model, fact))
        if is_new:
            until = self._wall_clock() + (HOUR_S if fact.kind in _SHORT else DAY_S)
            met = self._met[None][model][fact] = msgspec.structs.replace(met, until=until)
        for client in met.clients:
            if client is None:
                continue
            if is_new or (client, model, fact) in self.supposed:
                others = tuple(each for each in met.clients if each != client)
                self._on_fact(model, fact, met.until, msgspec.structs.replace(met, clients=(*others, client)))
            self._without(client, model, (fact,), tells=False)

    def _alive(self, client: str | None, model: str) -> dict[Fact, Met]:
        """Return the facts of ``model`` that ``client`` has met, without those that have ended."""
        models = self._met.get(client)
        if models is None or (facts := models.get(model)) is None:
            return {}
        now = self._wall_clock()
        if ended := [fact for fact, met in facts.items() if met.until <= now]:
            self._without(client, model, ended, tells=False)
            return self._met.get(client, {}).get(model, {})
        return facts

    def _put(
        self, client: str | None, model: str, fact: Fact, met: Met, *, replaces: bool = True
    ) -> Mapping[Fact, Met]:
        """Keep what ``client`` has met, within the bounds; return what this replaces."""
        models = self._met.pop(client, {})
        before = models.pop(model, {})
        replaced = {each: its for each, its in before.items() if replaces and _replaces(fact, each)}
        facts_left = {each: its for each, its in before.items() if each not in replaced}
        facts_left[fact] = met
        dropped: list[tuple[str | None, str, Fact, Met]] = []
        while len(facts_left) > MOST_FACTS:  # facts about one schema or value go before facts about all requests
            each = next((each for each in facts_left if each.value), next(iter(facts_left)))
            dropped.append((client, model, each, facts_left.pop(each)))
        models[model] = facts_left
        self._met[client] = models
        while len(models) > (MOST_MODELS if client is None else MOST_MODELS_OF_CLIENT):
            name = next(iter(models))
            dropped += [(client, name, *each) for each in models.pop(name).items()]
        while len(self._met) > MOST_CLIENTS + 2:  # ``None`` and ``FORMER``
            oldest = next(each for each in self._met if each is not None)
            of_oldest = self._met.pop(oldest)
            dropped += [(oldest, name, *each) for name, facts in of_oldest.items() for each in facts.items()]
            self._kinds.pop(oldest, None)
        for who, name, each, its in dropped:  # so a client that names ever new fields does not fill a store either
            if (who, name, each) not in self.supposed:
                self._tell_end(name, each, its)
            self.supposed.discard((who, name, each))
        self.supposed.difference_update((client, model, each) for each in replaced)
        self._look(client)
        return replaced

    def _without(self, client: str | None, model: str, facts: Collection[Fact], *, tells: bool = True) -> None:
        """Forget facts of ``model`` that ``client`` has met."""
        models = self._met.get(client, {})
        facts_left = models.get(model, {})
        for fact in [each for each in facts_left if each in facts]:
            met, was_supposed = facts_left.pop(fact), (client, model, fact) in self.supposed
            self.supposed.discard((client, model, fact))
            if tells and not was_supposed:
                self._tell_end(model, fact, met)
        if not facts_left and models.pop(model, None) is not None and not models:
            del self._met[client]
        self._look(client)

    def _tell_end(self, model: str, fact: Fact, met: Met) -> None:
        for client in met.clients:
            self._on_fact(model, fact, 0.0, msgspec.structs.replace(met, clients=(client,)))

    def _look(self, client: str | None) -> None:
        """Note the kinds of the facts that there are for ``client``."""
        kinds = frozenset(fact.kind for facts in self._met.get(client, {}).values() for fact in facts)
        if kinds:
            self._kinds[client] = kinds
        else:
            self._kinds.pop(client, None)
        every = _NO_KINDS.union(*self._kinds.values())
        self.is_any = bool(every)
        self.is_of_some = not self._kinds.keys() <= {None, FORMER}
        self.steers, self.stops_streams = not _STEERING.isdisjoint(every), Kind.STREAM in every


def _may_be_kept(model: str, fact: Fact) -> bool:
    if fact.passing or max(len(model), len(fact.field), len(fact.instead)) > LONGEST_NAME:
        return False
    if len(fact.value) > _LONGEST_VALUE:
        return False
    return fact.kind is not Kind.VALUE or _WORD.fullmatch(fact.instead) is not None


def _is_alike(fact: Fact, other: Fact) -> bool:
    """Whether two clients have met the same thing."""
    if fact.kind not in _MEASURED:
        return fact == other
    return (fact.kind, fact.field, fact.dialect) == (other.kind, other.field, other.dialect)


def _is_api(fact: Fact, *, tools: bool) -> bool:
    return fact.kind is Kind.API or (tools and fact.kind is Kind.TOOLS)


def _replaces(fact: Fact, other: Fact) -> bool:
    """Whether ``fact`` is about the same thing as ``other``, and says something else: two lengths of a prompt."""
    if fact == other or fact.dialect != other.dialect or fact.kind is not other.kind:
        return False
    if fact.kind is Kind.NAME:
        return other.field in {fact.field, fact.instead}
    if fact.kind is Kind.VALUE:
        return (fact.field, fact.value) == (other.field, other.value)
    return fact.kind in _MEASURED and (fact.kind is not Kind.SIZE or fact.field == other.field)
