"""What the refusals of one provider have taught about its models: the form in which each takes a request."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum

import msgspec

DAY_S = 86_400.0  # then a model is asked in the usual form again: its vendor may have changed it
MOST_MODELS = 1_000  # clients may name any model
MOST_FACTS = 32  # of one model: clients may send any field
LONGEST_NAME = 200  # characters of a field's or model's name


class Kind(StrEnum):
    """What a model refused."""

    FIELD = "field"  # a field: it is left out
    NAME = "name"  # the name of a field: its value is sent as ``instead``
    HISTORY = "history"  # the order or names of roles, or lists of texts: the strictest form of history is sent
    USAGE = "usage"  # to be asked for usage
    SCHEMAS = "schemas"  # strict schemas: they are sent as best effort
    THOUGHTS = "thoughts"  # thoughts that it has not signed: they are left out of the history
    API = "api"  # the dialect named ``field``: it is asked in ``instead``
    TOOLS = "tools"  # tools in the dialect named ``field``: it is asked in ``instead`` where there are any
    LENGTH = "length"  # a prompt of ``tokens``


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a model refuses."""

    kind: Kind
    field: str = ""  # its path in a request's body, as reasoning.effort
    instead: str = ""  # the name that it is sent by
    dialect: str = ""  # of the requests whose field it is; "": of all
    tokens: int = 0  # about so many, by the gateway's own estimate


_STEERING = frozenset({Kind.API, Kind.TOOLS, Kind.LENGTH})
Facts = tuple[Fact, ...]
_NOTHING: Facts = ()


class Learnt:
    """The facts of one provider's models, with any of its keys, for a day each; bounded.

    ``on_fact`` is called with a model and a fact that is new here: the log and the other replicas are told by it. What
    another replica has found is noted by ``note`` with ``until``, and not told again.
    """

    def __init__(
        self,
        on_fact: Callable[[str, Fact, float], object] = lambda _model, _fact, _until: None,
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._on_fact = on_fact
        self._wall_clock = wall_clock
        self._until: dict[str, dict[Fact, float]] = {}  # Unix time, by model
        self.steers = False  # whether anything is known of APIs or lengths, which decides who is asked, and in what

    def of(self, model: str) -> Facts:
        """Return what is known of ``model``, in the order in which it was learnt."""
        if not self._until or (known := self._until.get(model)) is None:
            return _NOTHING
        now = self._wall_clock()
        if any(until <= now for until in known.values()):
            known = {fact: until for fact, until in known.items() if until > now}
            self._set(model, known)
        return tuple(known)

    def note(self, model: str, fact: Fact, *, until: float | None = None) -> None:
        """Note what ``model`` refused. ``until`` (Unix time): another replica told it; else it is told to them."""
        if max(len(model), len(fact.field), len(fact.instead)) > LONGEST_NAME:
            return
        is_own, now = until is None, self._wall_clock()
        until = now + DAY_S if until is None else min(until, now + DAY_S)
        if until <= now:
            return
        known = dict(self._until.get(model, {}))
        is_new = fact not in known
        known[fact] = max(until, known.get(fact, 0.0))
        if fact.kind is Kind.LENGTH:  # only the shortest prompt that was refused
            least = min((each for each in known if each.kind is Kind.LENGTH), key=lambda each: each.tokens)
            known = {each: end for each, end in known.items() if each.kind is not Kind.LENGTH or each == least}
            is_new = is_new and fact == least
        while len(known) > MOST_FACTS:
            del known[next(iter(known))]
        self._set(model, known)
        if is_own and is_new:
            self._on_fact(model, fact, until)

    def forget(self, model: str, facts: Collection[Fact]) -> None:
        """Forget facts of ``model``: the form that they lead to was refused as well."""
        if known := self._until.get(model):
            self._set(model, {fact: until for fact, until in known.items() if fact not in facts})

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
        """Return the tokens of the shortest prompt that was too long for ``model``; None: none was."""
        return next((fact.tokens for fact in self.of(model) if fact.kind is Kind.LENGTH), None)

    @property
    def models(self) -> Mapping[str, Facts]:
        """All that is known, by model."""
        return {model: facts for model in list(self._until) if (facts := self.of(model))}

    def note_all(self, told: Iterable[tuple[str, Fact, float]]) -> None:
        """Note what another replica has found: models, facts, and when they end in Unix time."""
        for model, fact, until in told:
            self.note(model, fact, until=until)

    def _set(self, model: str, known: dict[Fact, float]) -> None:
        self._until.pop(model, None)
        if known:
            self._until[model] = known
        while len(self._until) > MOST_MODELS:
            del self._until[next(iter(self._until))]
        self.steers = any(fact.kind in _STEERING for facts in self._until.values() for fact in facts)


def _is_api(fact: Fact, *, tools: bool) -> bool:
    return fact.kind is Kind.API or (tools and fact.kind is Kind.TOOLS)


def learnt_of(upstream: object) -> Learnt | None:
    """Return what refusals have taught an upstream of its models; None if it learns nothing."""
    learnt = getattr(upstream, "learnt", None)
    return learnt if isinstance(learnt, Learnt) else None
