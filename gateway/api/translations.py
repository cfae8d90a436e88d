"""The request that each deployment of a model is sent: translated once for all that are sent the same."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property

import msgspec

from gateway.api.request import Needs
from gateway.core.calls import AS_ASKED, RenderedRequest
from gateway.core.errors import ApiError, InvalidRequest
from gateway.fleet import Deployment
from gateway.http import too_many_values
from gateway.settings import DataPolicy
from providers import (
    NO_PREFILL,
    PICTURES,
    Demand,
    Fact,
    Kind,
    Traits,
    fitted_to,
    is_neutral,
    last_turn,
    maker_of,
    may_begin,
    of_loss,
    only_offered,
    told_to_go_on,
    types_of_tools,
    without_offered,
)
from providers.dialects import (
    AS_CALL,
    CANNOT_STOP_THINKING,
    DIALECTS,
    OF_FUNCTIONS,
    OURS,
    PIVOT,
    SEALED_MARK,
    Dialect,
    Fields,
    ForcedCall,
    Habits,
    Loss,
    Malformed,
    RequestFormat,
    Wording,
    as_asked,
    rendered,
    takes_text,
    without_pictures,
)

# Required of every deployment, even with drop_params: without these parts of the prompt nothing is left to answer.
_ESSENTIAL = frozenset(
    field for dialect in DIALECTS.values() for field in (dialect.requests.prompt, *dialect.requests.essential)
)
_WITHIN_PROMPT = tuple(f"{dialect.requests.prompt}[" for dialect in DIALECTS.values())
_NO_PROMPT = msgspec.Raw()
_NO_EFFORT, _LOW_EFFORT = {"reasoning_effort": "none"}, {"reasoning_effort": "low"}
_NO_PICTURES = Fact(Kind.SIZE, PICTURES)
ABILITIES = {
    "tools": "does not support tools",
    "json_schema": "does not support JSON schemas",
    "vision": "does not support images",
    "audio": "does not support audio",
    "documents": "does not support documents",
}


def is_sealed(dialect: Dialect, fields: Fields) -> bool:
    """Whether a conversation may have a part that the gateway has sealed; in chat it is then not only of texts.

    In Gemini such a part is Base64 within Base64.
    """
    prompt = bytes(fields.get(dialect.requests.prompt, _NO_PROMPT))
    return SEALED_MARK in prompt or OURS in prompt


class Fitting(msgspec.Struct, frozen=True):
    """The deployments that can answer, and the request for each."""

    deployments: list[Deployment]
    excluded: dict[str, str]  # deployment → reason
    rendered: dict[str, RenderedRequest]  # deployment → the request for it, if that differs from the client's
    second: dict[str, str] = {}  # deployment → why it is asked only if no other can be
    lesser: list[str] = []  # deployments that do not take a preference: of equals, others come first
    rooms: dict[str, int] = {}  # deployment → the tokens that it has for an answer, if more are requested

    def sent_to(self, deployment: str, fields: Fields) -> Fields:
        """Return the fields that ``deployment`` is sent of a request with these ``fields``."""
        fields_there = self.rendered.get(deployment, AS_ASKED).fields
        return fields if fields_there is None else fields_there


class Unfit(Exception):
    """The deployment cannot answer; the message is the reason."""


_STORED, _STORE = "previous_response_id", "store"  # of Responses


class Question(msgspec.Struct, frozen=True):
    """The parts of a request that decide which deployments can answer it."""

    model: str
    dialect: Dialect
    fields: Fields
    needs: Needs
    policy: DataPolicy
    values: int = 0  # JSON values of the fields; 0: not counted, as there are few
    most_values: int = 0  # the maximum for a translation
    unstored: bool = False  # as the gateway has asked, not the client
    served: frozenset[str] = frozenset()  # fields whose loss is harmless, as the gateway itself does what they ask for
    is_to_be_stored: bool = False  # by the provider, as the gateway keeps nothing of the answer
    shortens: bool = False  # if no deployment allows so long an answer, a shorter one is requested
    has_fallbacks: bool = False  # other models are asked if no deployment can answer
    shows_all: bool = False  # another model may see the pictures, so none is left out here
    client: str | None = None  # facts from refusals may hold for this client only

    @property
    def is_too_many(self) -> bool:
        """Whether there are too many values for a translation."""
        return self.values > self.most_values


class Translations:
    """The translations of one request into the dialects of its deployments; each is made once."""

    def __init__(self, question: Question) -> None:
        self.fault: ApiError | None = None  # of the request
        self.faulty_for = 0  # deployments
        self.demanded = [ability for ability in ABILITIES if getattr(question.needs, ability)]
        self._question = question
        self._dialect = question.dialect
        self._fields = question.fields
        self._known: dict[object, Wording] = {}
        self._with_limit = question.dialect.requests.with_limit
        self._may_sum_up = question.dialect.requests.asks_for_summary is not None
        self._limited: dict[int, tuple[Fields, tuple[str, ...]]] = {}

    @property
    def lowers(self) -> bool:
        """Whether a limit above a deployment's longest answer is lowered, as clients of this API have to set one."""
        return self._with_limit is not None

    def seen_by(self, deployment: Deployment) -> "Translations":
        """Return the translations for ``deployment``: without earlier pictures, if the deployment sees none."""
        question = self._question
        if question.shows_all or not _sees_nothing(deployment, question.client):
            return self
        return self._unseen or self

    @cached_property
    def _unseen(self) -> "_UnseenTranslations | None":
        left = None if self._question.is_too_many else without_pictures(self._dialect.requests.prompt, self._fields)
        return None if left is None else _UnseenTranslations(self._question, left)

    @cached_property
    def offered(self) -> frozenset[str]:
        """The offered tools that run at the vendor, and without which an agent can work."""
        return only_offered(self._question.fields)

    @cached_property
    def sealed(self) -> bool:
        """Whether the conversation may have reasoning that the gateway has sealed."""
        return is_sealed(self._dialect, self._fields)

    @cached_property
    def forced(self) -> ForcedCall | None:
        """The call of a tool that the request forces."""
        forced = self._dialect.requests.tools.forced
        return None if forced is None else forced(self._fields)

    @cached_property
    def forbids_thinking(self) -> bool:
        """Whether the request says that the model is not to think."""
        forbids = self._dialect.requests.thinking.forbids
        return forbids is not None and forbids(self._fields)

    @cached_property
    def has_texts(self) -> bool:
        """Whether the request may offer tools whose input is a text, or may have called some."""
        has_texts = self._dialect.requests.tools.has_texts
        return has_texts is not None and has_texts(self._fields)

    @cached_property
    def may_begin(self) -> bool:
        """Whether the request may begin its answer."""
        return may_begin(self._fields, self._dialect.requests)

    @cached_property
    def tool_types(self) -> frozenset[str]:
        """The types of the request's tools, but for functions."""
        return types_of_tools(self._fields)

    @cached_property
    def has_other_tools(self) -> bool:
        """Whether the request has tools of agents that servers with only functions ignore or refuse."""
        has_other_tools = self._dialect.requests.tools.has_others
        return has_other_tools is not None and has_other_tools(self._fields)

    def _sums_up(self, deployment: Deployment) -> bool:
        """Whether a compaction is requested, which the model of ``deployment`` can do only by writing a summary."""
        is_asked = self._dialect.requests.asks_for_summary
        return not deployment.compacts and is_asked is not None and is_asked(self._fields)

    def fit(self, deployment: Deployment, fitting: Fitting) -> None:
        """Add ``deployment`` to ``fitting``, with its translated request and the fields left out."""
        usual = deployment.spoken_to(self._dialect)
        if usual.name not in deployment.apis:
            raise Unfit(f"answers {', '.join(sorted(deployment.apis))} only")
        dialect = self._asked_in(deployment)
        fields, lowered = self._within(deployment)
        if (learnt := deployment.learnt) is not None and learnt.steers and self.forced is not None:
            deployment = deployment.as_learnt(self._question.client)
        wording = self._ruled(deployment, dialect, self._for(deployment, dialect, fields), fitting)
        if deployment.refuses_storing and dialect is self._dialect:
            wording = _without_storing(dialect, wording)
        if self._question.is_to_be_stored and not deployment.stores:
            fitting.second[deployment.name] = "is not known to store what it answers"
        if deployment.keeps and (dialect.requests.storing or "") in wording.fields:
            self._kept(deployment, dialect, wording, fitting)
        try:
            refused = deployment.upstream.losses(dialect, deployment.model, wording.fields)
            losses = [*wording.losses, *as_asked(refused, self._dialect, wording)] if refused else wording.losses
        except Malformed as malformed:
            losses = self._lost_with_all(wording, malformed)
        if wording.fields is not self._fields or dialect is not usual or losses or lowered:
            fitting.rendered[deployment.name] = RenderedRequest(
                None if wording.fields is self._fields else wording.fields,
                None if dialect is usual else dialect,
                tuple(dict.fromkeys(loss.field for loss in losses if not is_neutral(loss.field, self._fields))),
                lowered,
            )
        if losses:
            self._note(losses, deployment, fitting)

    def fit_to_count(self, deployment: Deployment, fitting: Fitting) -> None:
        """Add to ``fitting`` the request that ``deployment`` counts, if that differs from the client's."""
        deployment = deployment if self.forced is None else deployment.as_learnt(self._question.client)
        wording = self._ruled(deployment, self._dialect, self._for(deployment, self._dialect, self._fields), fitting)
        if wording.fields is not self._fields:
            dropped = tuple(dict.fromkeys(loss.field for loss in wording.losses))
            fitting.rendered[deployment.name] = RenderedRequest(wording.fields, dropped=dropped)

    def _asked_in(self, deployment: Deployment) -> Dialect:
        """Return the dialect in which ``deployment`` is asked: the client's own, unless there is a reason for another.

        The reasons, in this order: the model takes tools elsewhere; refusals; tools or summaries that are missing.
        """
        client = self._question.client
        dialect = deployment.asked_in(self._dialect, tools=self._question.needs.tools, client=client)
        if (learnt := deployment.learnt) is not None and learnt.steers:
            dialect = self._where_tools_are_taken(deployment, dialect)
        if dialect is not self._dialect:
            return dialect
        if (deployment.functions_only and self.has_other_tools) or (self._may_sum_up and self._sums_up(deployment)):
            return PIVOT if PIVOT in deployment.speaks else OF_FUNCTIONS.get(dialect.name, dialect)
        return dialect

    def _where_tools_are_taken(self, deployment: Deployment, dialect: Dialect) -> Dialect:
        """Return the dialect for a deployment that has refused tools of some type in ``dialect``."""
        refused = deployment.refused_tools(dialect, client=self._question.client)
        instead = next((name for kind, name in refused.items() if kind in self.tool_types), None)
        if instead is None:
            return dialect
        if instead != dialect.name:
            return DIALECTS[instead]
        return dialect if without_offered(self._fields, refused) is not None else OF_FUNCTIONS.get(instead, dialect)

    def _without_refused(self, deployment: Deployment, dialect: Dialect, wording: Wording) -> Wording:
        """Return the request without the hosted tools that are only offered, of types that ``deployment`` refused."""
        refused = deployment.refused_tools(dialect, client=self._question.client)
        if not refused or (left := without_offered(wording.fields, refused)) is None:
            return wording
        losses = (*wording.losses, *as_asked(left.losses, self._dialect, wording))
        return msgspec.structs.replace(wording, fields=left.fields, losses=losses)

    def _note(self, losses: Sequence[Loss], deployment: Deployment, fitting: Fitting) -> None:
        """Add to ``fitting`` the parts that ``deployment`` does not take; a required part keeps the deployment out."""
        unchosen = self._dialect.requests.omissible.unchosen
        demands = [(loss, of_loss(loss, self._fields, unchosen)) for loss in losses]
        musts = [loss for loss, demand in demands if demand is Demand.MUST]
        lost = [loss for loss in musts if loss.field not in self._question.served]
        if len(lost) < len(musts) and any(loss.field == _STORE for loss in musts):
            fitting.second[deployment.name] = "stores nothing: the gateway keeps the answer for a while"
        if any(demand is Demand.PREFERENCE for _, demand in demands):
            fitting.lesser.append(deployment.name)
        _check_essential(lost)
        if lost and not deployment.drop_params:
            wanted = next((loss for loss in lost if loss.field not in self.offered), None)
            if wanted is not None:
                raise Unfit(f"does not support {wanted.field!r}: {wanted.reason} (drop_params: true leaves it out)")
            fitting.second[deployment.name] = f"does not have {lost[0].field!r}, which is only offered"

    def _lost_with_all(self, wording: Wording, malformed: Malformed) -> tuple[Loss, ...]:
        """Return the losses of a request that is ``malformed`` because nothing is left of the prompt."""
        if any(loss.field in _ESSENTIAL for loss in wording.losses):
            return wording.losses
        raise self._refused(malformed) from None

    def _ruled(self, deployment: Deployment, dialect: Dialect, wording: Wording, fitting: Fitting) -> Wording:
        """Return the request in the form that the model takes, by its traits and by what it has refused."""
        if (learnt := deployment.learnt) is not None and learnt.steers:
            wording = self._without_refused(deployment, dialect, wording)
        if not deployment.traits.prefill and self.may_begin:
            wording = self._going_on(dialect, wording)
        if deployment.traits.is_usual:
            return wording
        wording = self._calmed(deployment.traits, dialect, wording)
        if deployment.traits.narrows and dialect.requests.vendors.takes_rules:
            wording = self._narrowed(deployment, dialect, wording)
        wording = self._called(deployment, dialect, wording, fitting)
        if deployment.is_newest_version and (newest := dialect.requests.vendors.for_newest_version) is not None:
            changed = newest(wording.fields)
            losses = (*wording.losses, *as_asked(changed.losses, self._dialect, wording))
            wording = msgspec.structs.replace(wording, fields=changed.fields, losses=losses)
        if deployment.drops_unfit and (dropping := dialect.requests.thoughts.dropping_unfit) is not None:
            with suppress(Malformed):  # the provider reports the error in its own words
                wording = msgspec.structs.replace(wording, fields=dropping(wording.fields))
        return wording

    def _calmed(self, traits: Traits, dialect: Dialect, wording: Wording) -> Wording:
        """Return a request that forbids thinking in the vendor's words; a loss if the model cannot stop thinking."""
        calm, is_off = dialect.requests.thinking.forbidding, dialect.requests.thinking.forbids
        if (
            dialect is not PIVOT
            or calm is None
            or is_off is None
            or not (self.forbids_thinking or is_off(wording.fields))
        ):
            return wording
        if traits.not_thinking:
            return msgspec.structs.replace(wording, fields=calm(wording.fields, traits.not_thinking).fields)
        if traits.efforts:  # ``fitted_to`` takes the nearest
            return msgspec.structs.replace(wording, fields=calm(wording.fields, _NO_EFFORT).fields)
        if traits.least_thinking == "off":
            return wording
        field = (
            "thinking" if "thinking" in self._fields else self._dialect.requests.thinking.effort or "reasoning_effort"
        )
        losses = (*wording.losses, Loss(field, CANNOT_STOP_THINKING, hint=True))
        return msgspec.structs.replace(wording, fields=calm(wording.fields, _LOW_EFFORT).fields, losses=losses)

    def _narrowed(self, deployment: Deployment, dialect: Dialect, wording: Wording) -> Wording:
        """Return a request without the parameters that the model refuses."""
        fit, losses = fitted_to(deployment.traits, wording.fields), wording.losses
        named = fit.losses if dialect is self._dialect else as_asked(fit.losses, self._dialect, wording)
        for loss, its in zip(fit.losses, named, strict=True):
            name = (
                self._dialect.requests.thinking.effort if loss.field == dialect.requests.thinking.effort else its.field
            )
            losses = (*losses, Loss(name or its.field, loss.reason, loss.hint))
        return msgspec.structs.replace(wording, fields=fit.fields, losses=losses)

    def _called(self, deployment: Deployment, dialect: Dialect, wording: Wording, fitting: Fitting) -> Wording:
        """Return a request that forces a call of a tool in a way that the model takes.

        Some models obey when thinking is switched off. The others are asked for JSON, if no other deployment obeys.
        """
        traits = deployment.traits
        if traits.forced_tools == "taken":
            return wording
        if self.forced is None:
            return wording
        if traits.takes_forced:
            if dialect.requests.thinking.forbidding is None:
                return wording
            calm = dialect.requests.thinking.forbidding(wording.fields, traits.not_thinking)
            losses = (*wording.losses, *as_asked(calm.losses, self._dialect, wording))
            return msgspec.structs.replace(wording, fields=calm.fields, losses=losses)
        if not deployment.adapts_forced:
            raise Unfit("takes no forced tool (forced_tools: adapt asks it for JSON, which is given back as the call)")
        fitting.second[deployment.name] = AS_CALL
        # For a translated request, the translation has made the request for JSON already.
        unforced = dialect.requests.tools.unforced if dialect is self._dialect else None
        forced = msgspec.structs.replace(self.forced, as_json=traits.forced_tools != "auto")
        return wording if unforced is None else unforced(wording, forced)

    def _going_on(self, dialect: Dialect, wording: Wording) -> Wording:
        """Return a request whose user's turn asks to go on with the begun answer, for a model that refuses prefills."""
        fields, places = told_to_go_on(dict(wording.fields), dialect.requests)
        if not places:
            return wording
        loss = Loss(last_turn(self._fields, self._dialect.requests), NO_PREFILL, nearly=True)
        return msgspec.structs.replace(wording, fields=fields, losses=(*wording.losses, loss))

    def _kept(self, deployment: Deployment, dialect: Dialect, wording: Wording, fitting: Fitting) -> None:
        """Ask vendors without ``store: false`` last; exclude a vendor to which ``store: true`` must not be sent."""
        field = dialect.requests.storing or ""
        store = bytes(wording.fields[field])
        if store == b"true" and self._question.policy.zdr:
            raise Unfit("would keep the request, which says 'store': true, and its client's data policy is zdr")
        learnt = deployment.learnt
        if store == b"false" and learnt is not None and learnt.is_any:
            facts = learnt.of(deployment.model, self._question.client)
            if any(fact.kind is Kind.FIELD and (fact.field, fact.dialect) == (field, dialect.name) for fact in facts):
                fitting.second[deployment.name] = f"does not know {field!r}, by which the request says not to keep it"

    def _within(self, deployment: Deployment) -> tuple[Fields, tuple[str, ...]]:
        """Return the request with a limit that ``deployment`` allows, and the names of the lowered fields."""
        limit, most = self._question.needs.max_tokens, deployment.capabilities.max_output_tokens
        if self._with_limit is None or limit is None or most is None or limit <= most:
            return self._fields, ()
        limited = self._limited.get(most)
        if limited is None:
            try:
                limited = self._with_limit(self._fields, most)
            except Malformed as malformed:
                raise self._refused(malformed) from None
            self._limited[most] = limited
        return limited

    def _for(self, deployment: Deployment, dialect: Dialect, fields: Fields) -> Wording:
        habits, pivoting = deployment.habits[dialect.name], dialect.pivoting
        if habits.encrypts and pivoting is not None and pivoting.stream_sealed is not None and self.sealed:
            habits = msgspec.structs.replace(habits, seal=deployment.seal)
        if dialect is self._dialect:
            chooses = deployment.vendor is not None and "choices" not in habits.beyond
            unchanged = self._own(dialect, habits, fields, is_choiceless=chooses)
            return (
                self._with_thoughts(deployment, dialect, unchanged)
                if deployment.capabilities.reasoning is True
                else unchanged
            )
        if (reason := dialect.untranslated or self._dialect.untranslated) is not None:
            raise Unfit(f"answers {dialect.name} only, and {reason}")
        if self._question.is_too_many:
            error = too_many_values(self._question.most_values, f"to be translated for {dialect.name}")
            self._fail(error)
            raise Unfit(error.message)
        key = (dialect, habits, id(fields))
        wording = self._known.get(key)
        if wording is None:
            wording = self._known[key] = self._made(dialect, habits, fields)
        return wording

    def _own(self, dialect: Dialect, habits: Habits, fields: Fields, *, is_choiceless: bool) -> Wording:
        """Return the request unchanged, except for parts that the model would refuse.

        Such parts are: other models' reasoning; an effort, if the model does not think or takes it in another form;
        tools whose input is a text, if the model has only functions; and a choice of tools, if the vendor
        ``is_choiceless``.
        """
        requests = dialect.requests
        is_foreign = requests.thoughts.without_foreign is not None and not self._question.is_too_many
        asks_effort = not requests.thinking.fields.isdisjoint(fields)
        chooses = is_choiceless and requests.tools.offering is not None and "tool_choice" in fields
        is_sealed = requests.thoughts.without_sealed is not None and not self._question.needs.inline and self.sealed
        is_textless = (
            requests.tools.as_functions is not None
            and self.has_texts
            and not self._question.is_too_many
            and not takes_text(dialect, habits.beyond)
        )
        if not (is_foreign or chooses or is_sealed or is_textless or (asks_effort and not habits.thinks)):
            return Wording(fields)
        key = (dialect, habits, id(fields), chooses)
        wording = self._known.get(key)
        if wording is None:
            wording = self._known[key] = _fit_for(
                requests, habits, fields, is_foreign=is_foreign, asks_effort=asks_effort
            )
            if is_sealed and requests.thoughts.without_sealed is not None:
                unsealed = requests.thoughts.without_sealed(wording.fields)
                wording = self._known[key] = Wording(unsealed.fields, (*wording.losses, *unsealed.losses))
            if is_textless and requests.tools.as_functions is not None:
                wording = self._known[key] = requests.tools.as_functions(wording)
            if chooses and requests.tools.offering is not None:
                wording = self._known[key] = requests.tools.offering(wording)
        return wording

    def _with_thoughts(self, deployment: Deployment, dialect: Dialect, wording: Wording) -> Wording:
        """Return a request for reasoning that can be sent back, if the gateway wants nothing stored.

        Open models do not seal reasoning, and Groq refuses a request for it.
        """
        asking = dialect.requests.thoughts.asking
        if asking is None or not self._question.unstored or self._question.is_too_many:
            return wording
        if maker_of(deployment.model) == "open" or "include" in deployment.dropped.get(dialect.name, ()):
            return wording
        key = (dialect, id(wording.fields))
        asking_wording = self._known.get(key)
        if asking_wording is None:
            asking_wording = self._known[key] = msgspec.structs.replace(wording, fields=asking(wording.fields))
        return asking_wording

    def _made(self, dialect: Dialect, habits: Habits, fields: Fields) -> Wording:
        try:
            return rendered(fields, self._dialect, dialect, habits)
        except Malformed as malformed:
            raise self._refused(malformed) from None

    def _refused(self, malformed: Malformed) -> Unfit:
        self._fail(InvalidRequest(malformed.message, param=malformed.param))
        return Unfit(f"cannot be asked: {malformed.message}")

    def _fail(self, fault: ApiError) -> None:
        self.fault = fault
        self.faulty_for += 1


class _UnseenTranslations(Translations):
    """Translations of a request without its pictures, for deployments that see none and are asked last."""

    def __init__(self, question: Question, left: Wording) -> None:
        needs = msgspec.structs.replace(question.needs, vision=False)
        super().__init__(msgspec.structs.replace(question, fields=left.fields, needs=needs))
        self._pictures = [loss.field for loss in left.losses]

    def fit(self, deployment: Deployment, fitting: Fitting) -> None:
        """Add ``deployment`` to ``fitting``, and name the pictures that it is not sent."""
        super().fit(deployment, fitting)
        own = fitting.rendered.get(deployment.name, AS_ASKED)
        fitting.rendered[deployment.name] = msgspec.structs.replace(
            own, fields=fitting.sent_to(deployment.name, self._fields), dropped=(*own.dropped, *self._pictures)
        )
        fitting.second[deployment.name] = "sees no pictures"


def _fit_for(
    requests: RequestFormat, habits: Habits, fields: Fields, *, is_foreign: bool, asks_effort: bool
) -> Wording:
    wording = Wording(fields)
    try:
        if is_foreign and requests.thoughts.without_foreign is not None:
            wording = requests.thoughts.without_foreign(fields, habits)
        fit = None
        if asks_effort and not habits.thinks and requests.thinking.without_effort is not None:
            fit = requests.thinking.without_effort(wording.fields)
        elif asks_effort and requests.thinking.with_effort is not None:
            fit = requests.thinking.with_effort(wording.fields, habits)
        if fit is not None:
            wording = Wording(fit.fields, (*wording.losses, *fit.losses))
    except Malformed:
        pass  # the provider reports the error in its own words
    return wording


def _without_storing(dialect: Dialect, wording: Wording) -> Wording:
    """Return a request without ``store: true``, for a vendor that refuses it."""
    if _STORED not in dialect.requests.essential or bytes(wording.fields.get(_STORE, b"")) != b"true":
        return wording
    fields = {name: value for name, value in wording.fields.items() if name != _STORE}
    losses = (*wording.losses, Loss(_STORE, "this provider keeps no responses"))
    return msgspec.structs.replace(wording, fields=fields, losses=losses)


def _check_essential(lost: Iterable[Loss]) -> None:
    for loss in lost:
        if loss.field in _ESSENTIAL:
            parts = (each for each in lost if each.field.startswith(_WITHIN_PROMPT))  # their loss left nothing
            cause = next(parts, loss) if f"{loss.field}[" in _WITHIN_PROMPT else loss
            raise Unfit(f"does not support {cause.field!r}: {cause.reason}")


def _sees_nothing(deployment: Deployment, client: str | None) -> bool:
    if deployment.capabilities.vision is False:
        return True
    learnt = deployment.learnt
    return learnt is not None and learnt.steers and _NO_PICTURES in learnt.of(deployment.model, client)
