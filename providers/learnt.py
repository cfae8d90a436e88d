"""What the refusals of one provider have taught about its models: the form in which each takes a request."""

import re
import time
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum

import msgspec

SUPPOSED_S = 60.0
HOUR_S = 3_600.0  # of what costs more than a refused request, if it has changed: see ``_SHORT``
DAY_S = 86_400.0  # then a model is asked in the usual form again: its vendor may have changed it
MOST_MODELS = 1_000  # clients may name any model
MOST_FACTS = 32  # of one model: clients may send any field
LONGEST_NAME = 200  # characters of a field's or model's name
_WORD = re.compile(r'"\w{1,40}"', re.ASCII)  # as JSON


class Kind(StrEnum):
    """What a model refused."""

    FIELD = "field"  # a field, or only its ``value``: it is left out
    NAME = "name"  # the name of a field: its value is sent as ``instead``
    VALUE = "value"  # one ``value`` of a field: ``instead`` is sent, the nearest that it takes
    HISTORY = "history"  # roles or lists of texts: a stricter history; with ``field``: that of assistant messages
    SCHEMAS = "schemas"  # to be strict: its tools and formats are best effort; with ``value``: those with this digest
    API = "api"  # the dialect named ``field``: it is asked in ``instead``
    TOOLS = "tools"  # tools in the dialect named ``field``: it is asked in ``instead`` where there are any
    STREAM = "stream"  # to stream answers in the dialect ``field``, with the parameters ``value``: they are asked whole
    REASONING = "reasoning"  # what ``field`` made, with one of its keys, and only that can read
    LENGTH = "length"  # a prompt of ``tokens``
    LIMIT = "limit"  # a limit of the answer above ``tokens`` in ``field``: those that clients had to set are lowered


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a model refuses."""

    kind: Kind
    field: str = ""  # its path in a request, as reasoning.effort
    instead: str = ""
    value: str = ""  # as JSON; "": any
    dialect: str = ""  # the API in which it has this name; "": it is not about a field
    tokens: int = 0  # of a prompt about so many, by the gateway's own estimate
    passing: bool = False  # of one request, as its other fields are: it is not remembered

    @property
    def words(self) -> str:
        """What is refused, and what is sent in its place."""
        own = {
            Kind.HISTORY: f"{self.field} in earlier answers" if self.field else "orders of roles, or lists of texts",
            Kind.SCHEMAS: "strict schemas that it has no rules for" if self.value else "strict schemas",
            Kind.STREAM: f"streaming, in {self.field} with {self.value or 'no parameters'}",
            Kind.REASONING: f"encrypted reasoning of {self.field}",
            Kind.LENGTH: f"a prompt of {self.tokens} tokens",
            Kind.LIMIT: f"{self.field} above {self.tokens}",
            Kind.API: f"{self.field} (asked in {self.instead})",
            Kind.TOOLS: f"tools in {self.field} (asked in {self.instead})",
        }
        if (words := own.get(self.kind)) is not None:
            return words
        named = f"{self.field}: {self.value}" if self.value else self.field
        return f"{named} (sent: {self.instead})" if self.instead else named


_STEERING = frozenset({Kind.API, Kind.TOOLS, Kind.LENGTH})
_SHORT = frozenset({Kind.LENGTH, Kind.STREAM})  # one prompt's estimate; and whole answers are late in races
Facts = tuple[Fact, ...]
NOTHING: Facts = ()
OnFact = Callable[[str, Fact, float], object]


def _tell_nobody(_model: str, _fact: Fact, _until: float) -> None:
    pass


class Learnt:
    """The facts of one provider's models, with any of its keys, for a day each; bounded.

    ``on_fact`` is called with a model, a fact that is new here, and its end in Unix time, which is 0 for one that was
    wrong: the log and the other replicas are told by it.
    """

    def __init__(self, on_fact: OnFact = _tell_nobody, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._on_fact = on_fact
        self._wall_clock = wall_clock
        self._until: dict[str, dict[Fact, float]] = {}  # Unix time, by model
        self.steers = False  # whether anything is known of APIs or lengths, which decides who is asked, and in what
        self.stops_streams = False  # whether anything is known of streams
        self.is_any = False  # whether anything is known at all
        self.supposed: set[tuple[str, Fact]] = set()  # of them, those that no answer has confirmed

    def of(self, model: str) -> Facts:
        """Return what is known of ``model``, in the order in which it was learnt."""
        if (known := self._until.get(model)) is None:
            return NOTHING
        now = self._wall_clock()
        if ended := [fact for fact, until in known.items() if until <= now]:
            known = self._without(model, ended)
        return tuple(known)

    def note(self, model: str, fact: Fact, *, until: float | None = None) -> None:
        """Note what ``model`` refused. ``until`` (Unix time): another replica told it; else it is told to them."""
        if fact.passing or max(len(model), len(fact.field), len(fact.instead), len(fact.value)) > LONGEST_NAME:
            return
        if fact.kind is Kind.VALUE and _WORD.fullmatch(fact.instead) is None:
            return
        is_own, now = until is None, self._wall_clock()
        latest = now + (HOUR_S if fact.kind in _SHORT else DAY_S)
        until = latest if until is None else min(until, latest)
        if until <= now:
            return
        before = self._until.get(model, {})
        replaced = [each for each in before if _replaces(fact, each)]
        known = {each: end for each, end in before.items() if each not in replaced}
        known[fact] = max(until, known.get(fact, 0.0))
        while len(known) > MOST_FACTS:  # what is about one schema or value goes before what is about all requests
            del known[next((each for each in known if each.value), next(iter(known)))]
        self._set(model, known)
        if (is_own and fact not in before) or (model, fact) in self.supposed:
            self.supposed.discard((model, fact))
            self._on_fact(model, fact, until)
            for each in replaced:
                self._on_fact(model, each, 0.0)

    def suppose(self, model: str, fact: Fact) -> None:
        """Use a fact for a minute, though no form without it has been answered: the request was cut, a loser's say.

        ``confirm`` notes it once it has led to an answer.
        """
        known = self._until.get(model, {})
        if fact.passing:
            return
        if fact not in known and len(known) < MOST_FACTS and len(self.supposed) < MOST_MODELS:
            self._set(model, {**known, fact: self._wall_clock() + SUPPOSED_S})
            self.supposed.add((model, fact))

    def confirm(self, model: str, facts: Facts) -> None:
        """Note those of ``facts`` that were supposed: a form that they led to was answered."""
        for fact in facts:
            if (model, fact) in self.supposed:
                self.note(model, fact)

    def forget(self, model: str, facts: Collection[Fact]) -> None:
        """Forget facts of ``model``: the form that they lead to was refused as well."""
        told = [fact for fact in self._until.get(model, {}) if fact in facts and (model, fact) not in self.supposed]
        self._without(model, facts)
        for fact in told:
            self._on_fact(model, fact, 0.0)

    def instead_of(self, model: str, dialect: str, *, tools: bool) -> str:
        """Return the name of the dialect that ``model`` is asked in, in place of ``dialect``, which it may lack.

        ``tools``: the request has some.
        """
        facts, passed = self.of(model), [dialect]
        while True:
            refusals = (fact for fact in facts if fact.field == passed[-1] and _is_api(fact, tools=tools))
            if (refusal := next(refusals, None)) is None:
                return passed[-1]
            if refusal.instead in passed:
                return dialect
            passed.append(refusal.instead)

    def refused_length(self, model: str) -> int | None:
        """Return the tokens of a prompt that was too long for ``model``; None: none was."""
        return next((fact.tokens for fact in self.of(model) if fact.kind is Kind.LENGTH), None)

    @property
    def models(self) -> Mapping[str, Facts]:
        """All that is known, by model."""
        return {model: facts for model in list(self._until) if (facts := self.of(model))}

    def _without(self, model: str, facts: Collection[Fact]) -> dict[Fact, float]:
        known = {fact: until for fact, until in self._until.get(model, {}).items() if fact not in facts}
        self.supposed.difference_update((model, fact) for fact in facts)
        self._set(model, known)
        return known

    def _set(self, model: str, known: dict[Fact, float]) -> None:
        self._until.pop(model, None)
        if known:
            self._until[model] = known
        while len(self._until) > MOST_MODELS:
            del self._until[next(iter(self._until))]
        self.is_any = bool(self._until)
        kinds = {fact.kind for facts in self._until.values() for fact in facts}
        self.steers, self.stops_streams = not _STEERING.isdisjoint(kinds), Kind.STREAM in kinds


def _is_api(fact: Fact, *, tools: bool) -> bool:
    return fact.kind is Kind.API or (tools and fact.kind is Kind.TOOLS)


def learnt_of(upstream: object) -> Learnt | None:
    """Return what refusals have taught an upstream of its models; None if it learns nothing."""
    learnt = getattr(upstream, "learnt", None)
    return learnt if isinstance(learnt, Learnt) else None


def _replaces(fact: Fact, known: Fact) -> bool:
    """Whether ``fact`` is about the same as ``known``, and says another thing."""
    if fact == known or fact.dialect != known.dialect or fact.kind is not known.kind:
        return False
    if fact.kind is Kind.NAME:
        return known.field in {fact.field, fact.instead}
    if fact.kind is Kind.VALUE:
        return (fact.field, fact.value) == (known.field, known.value)
    return fact.kind in {Kind.LENGTH, Kind.LIMIT}
