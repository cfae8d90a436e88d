"""The other forms of a request that its deployment has refused: what each is, and what the refusal teaches.

``ladder.py`` has the order in which the forms are tried:

- in another API, after 400 "This model is only supported in v1/responses";
- for a whole answer, if the deployment refuses to stream and the client does not stream;
- in the form that an error within an answer teaches (an error with a status is the upstream's matter);
- without the reasoning that no key can read.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from gateway.core.attempts import AttemptStart, Role
from gateway.core.calls import AS_ASKED, Call, Maker
from gateway.fleet import Deployment
from gateway.racing.validation import requested
from providers import (
    Apart,
    ErrorKind,
    Exchange,
    Fact,
    Facts,
    Kind,
    LearntFacts,
    Limit,
    MissingFeature,
    Request,
    UpstreamError,
    VendorsWords,
    amount,
    blames_request_within,
    held_of,
    is_to_be_kept,
    items_of_tools,
    lacking,
    maker_of,
    offered,
    parameters_of,
    reads_thoughts,
    refused_tool,
    refuses_to_stream,
    room_of,
    stated_limit,
    types_by_place,
    why_of,
    without_offered,
)
from providers.dialects import OF_FUNCTIONS, Dialect, Malformed, Wording, as_call, named_in

_DIGEST_CHARS = 16
_TOLD = "told in its answer"
_LONGEST_NAMED = 200  # characters
_NAME = re.compile(r"[A-Za-z]\w{0,40}", re.ASCII)
_PLAIN_KINDS = frozenset({"object", "list", "text", "true", "0"})
_KINDS = frozenset(  # values that the APIs define, and no client makes up: a fact may show them as they are
    {"1", "aac", "flac", "json_object", "json_schema", "many", "mp3", "opus", "pcm16", "wav", *_PLAIN_KINDS}
)


class RewordedRequest(msgspec.Struct, frozen=True):
    """A call's request as one deployment gets it in another API."""

    spoken: Dialect
    fields: Mapping[str, msgspec.Raw]
    dropped: tuple[str, ...]

    def of(self, call: Call, deployment: str) -> Call:
        """Return ``call`` with this request for ``deployment``."""
        return call.rendered_as(deployment, fields=self.fields, dropped=self.dropped, spoken=self.spoken, apart=None)


# Renders a call's request for a deployment in a dialect; None: impossible, or parts that must stay would be lost.
Reword = Callable[[Call, Deployment, Dialect], Awaitable[RewordedRequest | None]]


class RetryForm(msgspec.Struct, frozen=True):
    """How a deployment is asked again: in another form, or with another key of the provider."""

    role: Role
    reworded: RewordedRequest | None = None  # None: with the same fields
    facts: Facts = ()  # about the model, by which this form is made


class ApiRefusal(msgspec.Struct, frozen=True):
    """A refusal that is about the API in which a deployment was asked."""

    spoken: Dialect
    lacks: MissingFeature
    error: UpstreamError
    kind: ErrorKind  # as read from the error, before another API of the deployment was found
    tool: str = ""  # the type of a tool that the API lacks


class FormAttempt(Protocol):
    """An attempt, as far as this file needs it."""

    deployment: Deployment
    start: AttemptStart
    lacks: ApiRefusal | None
    again: RetryForm | None
    whole: bool
    exchange: Exchange | None

    @property
    def refused(self) -> "FormAttempt | None":
        """The attempt whose request this one repeats."""


# Returns the request of a call as a deployment gets it; for errors within answers, which are rare.
RequestMaker = Callable[[], Request]
After = tuple[RetryForm | None, UpstreamError]


class OtherForms:
    """Remembers what deployments have refused, and how their requests are rendered instead.

    ``reword``: None if deployments are asked in one API only.
    """

    def __init__(self, reword: Reword | None = None) -> None:
        self.reword = reword

    def answered(self, attempt: FormAttempt, call: Call) -> None:
        """Remember what the deployment refused before it took this attempt's request in another form."""
        deployment, before = attempt.deployment, attempt.refused
        learnt, model = _learnt_of(deployment), deployment.model
        if learnt is None or before is None:
            return
        dialect = deployment.spoken_in(call)
        for fact in facts_of(attempt):
            # Else the refusal was about another API.
            if dialect.name in {fact.dialect, fact.field} or fact.kind is Kind.CALL:
                learnt.note(model, fact, client=call.caller.client)
        refusals = list(_refusals(attempt))
        if not refusals:
            return
        facts = learnt.of(model, call.caller.client)
        wrong = [fact for fact in facts if fact.kind is Kind.API and fact.field == dialect.name]
        learnt.forget(model, wrong, call.caller.client)
        for fact in _facts(refusals, dialect):
            learnt.note(model, fact, client=call.caller.client, why=why_of(refusals[-1].error))


def note_refusal(attempt: FormAttempt, call: Call, error: UpstreamError) -> None:
    """Remember what an ``error`` says of the size of requests, and of reasoning that cannot be read."""
    if blames_request_within(error):
        error.turn_into(ErrorKind.BAD_REQUEST)
    if error.is_too_long or error.limit is not None or error.lack is not None:
        _note_size(attempt, call, _unrepeated(attempt.deployment, call, error))
    if error.findings.is_bound and error.edited_from is None:  # else the maker itself would not take the reasoning
        _note_bound(attempt.deployment, call, error)


def _unrepeated(deployment: Deployment, call: Call, error: UpstreamError) -> UpstreamError:
    """Return ``error`` without words that stand in the request: these may be a prompt that the vendor echoes."""
    told = error.again(error.kind)
    told.said = VendorsWords(call.request.fields, call.sent_to(deployment.name)).unrepeated(error.said)
    return told


def _note_size(attempt: FormAttempt, call: Call, error: UpstreamError) -> None:
    if error.is_too_long:
        _note_length(attempt.deployment, call, error)
        _note_room(attempt.deployment, call, error)
    if (limit := error.limit or error.lack) is not None:
        _note_limit(attempt, call, limit, error)


async def another_api_after(attempt: FormAttempt, call: Call, error: UpstreamError, reword: Reword) -> After:
    """Return the request in another API of the deployment, if it refused this API; and the error.

    After the refusal of a type of tools the request is sent first without these tools, if the client only offers them
    (a web search), and last in this API with functions in their place. If no API is left, the error is the first one:
    of the API in which the deployment is usually asked. A refusal that is answered in another API is no fault. For
    example, after 400 "This model is only supported in v1/responses" a request in chat is sent in Responses.
    """
    refusal = None if attempt.start.continues is not None else _refusal_of(attempt.deployment, call, error)
    if refusal is None:
        return None, error
    refused_dialect = refusal.spoken
    if call.request.stateful and is_to_be_kept(call.request.fields):
        _suppose_another(attempt.deployment, call, refusal)
        return None, error
    refusals = [*_refusals(attempt), refusal]
    attempt.lacks = refusals[-1]
    learnt, model = _learnt_of(attempt.deployment), attempt.deployment.model
    if learnt is not None:
        learnt.forget(model, _facts(refusals[:-1], refused_dialect), call.caller.client)
    if (left := without_offered(call.sent_to(attempt.deployment.name), {refusal.tool})) is not None:
        return _supposed(attempt, call, refusals, error, _as_reworded(call, attempt.deployment, left)), error
    tried = {refusal.spoken for refusal in refusals}
    others = attempt.deployment.others(offered(error.said))
    if refusal.lacks is MissingFeature.TOOL and refused_dialect.name in OF_FUNCTIONS:
        others = (*others, OF_FUNCTIONS[refused_dialect.name])
    for dialect in others:
        if dialect not in tried and (reworded := await reword(call, attempt.deployment, dialect)) is not None:
            return _supposed(attempt, call, refusals, error, reworded), error
    return None, _told(refusals)


def _supposed(
    attempt: FormAttempt, call: Call, refusals: Sequence[ApiRefusal], error: UpstreamError, reworded: RewordedRequest
) -> RetryForm:
    """Return ``reworded`` as the next form, and suppose at once that the deployment takes such requests.

    In a race the next attempt may be cancelled before its answer.
    """
    error.turn_into(ErrorKind.NO_SUCH_API)
    learnt = _learnt_of(attempt.deployment)
    if learnt is not None:
        for fact in _facts(refusals, reworded.spoken):
            learnt.suppose(attempt.deployment.model, fact, client=call.caller.client, why=why_of(error))
    return RetryForm(Role.API, reworded)


def _refusal_of(deployment: Deployment, call: Call, error: UpstreamError) -> ApiRefusal | None:
    """Return what the API that was asked lacks, by the words of ``error``; None if the words do not say so."""
    dialect, lacks = deployment.spoken_in(call), lacking(error)
    if lacks is not None:
        return ApiRefusal(dialect, lacks, error, error.kind)
    fields = call.sent_to(deployment.name)
    tool = refused_tool(error, types_by_place(fields), items_of_tools(fields))
    return None if tool is None else ApiRefusal(dialect, MissingFeature.TOOL, error, error.kind, tool)


def _learnt_of(deployment: Deployment) -> LearntFacts | None:
    """Return the place where a refusal is remembered: apart from all others if a client's own key was used."""
    return deployment.learnt if deployment.tenant is None else deployment.upstream.learnt


def facts_of(attempt: FormAttempt) -> Facts:
    """Return the facts that the refusals before ``attempt`` have taught about the form of the request."""
    return tuple(fact for again in _agains(attempt) for fact in again.facts)


def _agains(attempt: FormAttempt) -> Iterator[RetryForm]:
    """Yield how the deployment was asked again up to ``attempt``, oldest first."""
    before = attempt.refused
    if before is not None and before.again is not None:
        yield from _agains(before)
        yield before.again


def taught_after(attempt: FormAttempt, call: Call, error: UpstreamError, request: RequestMaker) -> RetryForm | None:
    """Return the form that is taught by an ``error`` within a stream, before anything of an answer."""
    if attempt.start.continues is not None:
        return None
    facts = attempt.deployment.upstream.learn(request(), error)
    if not facts or call.request.stateful:  # a stateful request is never sent twice; the next one has the form
        return None
    error.turn_into(ErrorKind.BAD_REQUEST)  # no strike against the deployment
    return RetryForm(Role.FORM, facts=facts)


async def unforced_after(attempt: FormAttempt, call: Call, error: UpstreamError, reword: Reword) -> RetryForm | None:
    """Return a request that forces no tool call, if ``error`` refuses one: for JSON that is returned as the call.

    If the model also refuses JSON, as the request offers tools that must not be called, the model may choose. If the
    operator wants the client to get the refusal, the refusal is only remembered.
    """
    deployment = attempt.deployment
    dialect, sent = deployment.spoken_in(call), call.sent_to(deployment.name)
    learnt, model, why = _learnt_of(deployment), deployment.model, why_of(error)
    if attempt.start.continues is not None or dialect.requests.tools.choice not in sent:
        return None
    if as_call(call.request.dialect, call.request.fields, dialect, sent) is not None:
        fact = _NO_CHOICE
    elif _forces_what_it_offers(dialect, sent):
        fact = _UNFORCED
    else:
        if learnt is not None:  # the request forces nothing, so the error quotes the prompt
            learnt.forget(model, [_UNFORCED, _NO_CHOICE], call.caller.client)
        return None
    if learnt is not None and _NO_CHOICE in learnt.met_by_others(model, call.caller.client):
        fact = _NO_CHOICE  # another client has met both refusals, and this client has just met the first
    error.turn_into(ErrorKind.BAD_REQUEST)
    reworded = None
    if deployment.adapts_forced and not call.request.stateful:
        reworded = await reword(call, deployment.unforced(forbids=fact is _UNFORCED), dialect)
    if learnt is not None and reworded is not None:
        learnt.suppose(model, fact, client=call.caller.client, why=why)  # at once: a loser may be cut
    elif learnt is not None:
        learnt.note(model, fact, client=call.caller.client, why=why)
    return None if reworded is None else RetryForm(Role.FORM, reworded, (fact,))


def _forces_what_it_offers(dialect: Dialect, sent: Mapping[str, msgspec.Raw]) -> bool:
    """Whether a request forces a call of a tool that it offers. If not, the model is not at fault: the request is."""
    requests = dialect.requests
    forced = None if requests.tools.forced is None else requests.tools.forced(sent)
    if forced is None:
        return False
    offered = {
        tool.name for field, read in requests.tools.offered.items() if field in sent for tool in read(sent[field])
    }
    return bool(offered) and offered.issuperset(forced.names)


_UNFORCED, _NO_CHOICE = Fact(Kind.CALL), Fact(Kind.CALL, "none")

# Deployments that answer, but refuse to stream: known from the vendor's row, or from refusals.


def asked_whole(call: Call, deployment: Deployment) -> bool:
    """Whether the answer to a ``call`` has to be asked for whole. A client that streams never gets one."""
    learnt, rules = deployment.learnt, deployment.whole
    is_taught = learnt is not None and learnt.stops_streams and learnt.stops_streams_for(call.caller.client)
    if call.request.stream or not (rules or is_taught):
        return False
    fields = call.sent_to(deployment.name)
    if not is_taught and rules.keys().isdisjoint(fields):  # nearly always
        return False
    parameters = _parameters(call, deployment)
    if any(kind in rules.get(name, ()) or "*" in rules.get(name, ()) for name, kind in parameters):
        return True
    if learnt is None or not is_taught:
        return False
    return _stream_of(call, deployment) in learnt.of(deployment.model, call.caller.client)


def whole_after(attempt: FormAttempt, call: Call, error: UpstreamError) -> RetryForm | None:
    """Return that a whole answer is to be asked for, if ``error`` refuses to stream and the client does not stream.

    Whatever the status, the refusal is no strike. If the whole answer is refused too, the fact is forgotten.
    """
    deployment = attempt.deployment
    learnt, model = _learnt_of(deployment), deployment.model
    if attempt.whole and error.kind is ErrorKind.BAD_REQUEST and learnt is not None and learnt.stops_streams:
        learnt.forget(model, [_stream_of(call, deployment)], call.caller.client)
    if attempt.whole or call.request.stream or not deployment.upstream_stream or not refuses_to_stream(error):
        return None
    error.turn_into(ErrorKind.BAD_REQUEST)
    fact = _stream_of(call, deployment)
    if learnt is not None:
        learnt.suppose(model, fact, client=call.caller.client, why=why_of(error))
    return None if call.request.stateful else RetryForm(Role.WHOLE, facts=(fact,))


def _parameters(call: Call, deployment: Deployment) -> frozenset[tuple[str, str]]:
    fields = call.sent_to(deployment.name)
    return parameters_of(fields, deployment.spoken_in(call).requests.reading_order)


def _stream_of(call: Call, deployment: Deployment) -> Fact:
    """Return the fact that requests with the parameters of ``call`` are not streamed.

    For example ``n=many, tools``. If a name or a value may be a client's own word, the fact has only a digest.
    """
    parameters = sorted(each for each in _parameters(call, deployment) if each[0] != "model")
    parameter_names = ", ".join(name if kind in _PLAIN_KINDS else f"{name}={kind}" for name, kind in parameters)
    is_plain = all(_NAME.fullmatch(name) and kind in _KINDS for name, kind in parameters)
    if len(parameter_names) > _LONGEST_NAMED or not is_plain:
        parameter_names = _digest(parameter_names)
    return Fact(Kind.STREAM, deployment.spoken_in(call).name, value=parameter_names)


# Requests that a deployment takes after all, though it has refused such requests before.


def accepted(attempt: FormAttempt, call: Call, learnt: LearntFacts) -> None:
    """Forget that the deployment refuses to stream, or refuses as large a request: it has just taken ``call``."""
    deployment, model = attempt.deployment, attempt.deployment.model
    refused = learnt.refused_length(model, call.caller.client)
    wrong = (
        {Fact(Kind.LENGTH, tokens=refused)} if refused is not None and call.traits.prompt_tokens >= refused else set()
    )
    if learnt.steers:
        wrong |= {fact for fact in learnt.of(model, call.caller.client) if _is_more(deployment, call, fact)}
    if learnt.stops_streams and call.request.stream and deployment.upstream_stream:
        wrong.add(_stream_of(call, deployment))
    if not wrong.isdisjoint(learnt.of(model, call.caller.client)):
        learnt.forget(model, wrong, call.caller.client)


# Of reasoning that is encrypted or signed.


def reasoning_of(maker: Maker) -> Fact:
    """Return the fact that the reasoning of ``maker`` cannot be read. The fact has a digest of the maker's key."""
    account = "" if maker.key_name is None and maker.tenant is None else _digest(f"{maker.key_name}\n{maker.tenant}")
    return Fact(Kind.REASONING, maker.deployment, value=account)


def _note_bound(deployment: Deployment, call: Call, error: UpstreamError) -> None:
    """Note that ``deployment`` has refused others' reasoning: each maker whose reasoning was sent, else the newest."""
    if call.traits.maker is None or (learnt := _learnt_of(deployment)) is None:
        return
    elsewhere = [each for each in call.traits.makers if each.deployment.partition("/")[0] != deployment.provider]
    suspects = [each for each in elsewhere if not is_unread(each, deployment, call)]  # other reasoning was not sent
    for maker in suspects or [call.traits.maker]:
        learnt.note(deployment.model, reasoning_of(maker), client=call.caller.client, why=why_of(error))


def cannot_read(maker: Maker, deployment: Deployment, client: str | None) -> bool:
    """Whether ``deployment`` is known to refuse the reasoning of ``maker`` when ``client`` sends it."""
    learnt = deployment.learnt
    return learnt is not None and reasoning_of(maker) in learnt.of(deployment.model, client)


def is_bound_elsewhere(deployment: Deployment, maker: Maker, client: str | None = None) -> bool:
    """Whether the vendor of ``deployment`` would silently drop reasoning of ``maker``, which is another account.

    Known from the settings, or from the vendor's answers.
    """
    if "account" not in deployment.traits.bound:
        return False
    if deployment.provider != maker.deployment.partition("/")[0] and cannot_read(maker, deployment, client):
        return True
    if maker.account is None:  # unknown for reasoning that is older than the memory of accounts
        return maker.deployment.partition("/")[0] != deployment.provider
    return maker.account != deployment.account


def is_unread(maker: Maker, deployment: Deployment, call: Call) -> bool:
    """Whether ``deployment`` refuses the reasoning of ``maker``: known from the two models, or from a refusal.

    A refusal is known for an hour. Then the deployment gets such reasoning again, as it may be able to read it by then.
    """
    if deployment.provider == maker.deployment.partition("/")[0]:
        return False
    is_its = maker.made or maker_of(maker.model) not in {"", "open"}  # else any model takes the reasoning
    reads = reads_thoughts(deployment.same_as or deployment.model, maker.model) if is_its else None
    if reads is None:
        return cannot_read(maker, deployment, call.caller.client)
    return not reads


def told_apart(made: Maker, by: Maker, learnt: LearntFacts | None, request: Request) -> None:
    """Note that, by the vendor's answer to a ``request`` with the key of ``by``, ``made`` is of another account.

    If one provider has both keys, the gateway learns that these two keys are of two accounts.
    """
    if learnt is None or made.tenant is not None or by.tenant is not None:
        return
    fact, names = reasoning_of(made), (made.key_name, by.key_name)
    if made.deployment.partition("/")[0] == by.deployment.partition("/")[0]:
        if None in names or names[0] == names[1]:
            return
        one, other = sorted(filter(None, names))
        fact = Fact(Kind.ACCOUNT, one, value=other)
    learnt.note(request.model, fact, client=request.client, why=_TOLD)


def keys_apart(maker: Maker, deployment: Deployment, client: str | None) -> frozenset[str]:
    """Return the names of the provider's keys that are known to be of another account than that of ``maker``."""
    learnt = deployment.learnt
    if learnt is None or not learnt.is_any or (name := maker.key_at(deployment.provider)) is None:
        return frozenset()
    pairs = [{fact.field, fact.value} for fact in learnt.of(deployment.model, client) if fact.kind is Kind.ACCOUNT]
    return frozenset[str]().union(*(pair - {name} for pair in pairs if name in pair))


def apart_from(maker: Maker, call: Call, deployment: Deployment) -> Apart | None:
    """Return the request for those keys of ``deployment`` that cannot read ``maker``'s reasoning; None: all can."""
    names = keys_apart(maker, deployment, call.caller.client)
    if not names or (wording := _without_reasoning(call, deployment)) is None:
        return None
    return Apart(names, wording.fields, tuple(loss.field for loss in wording.losses))


def read_after_all(maker: Maker, learnt: LearntFacts | None, request: Request) -> None:
    """Forget that the model of ``request`` cannot read the reasoning of ``maker``."""
    if learnt is not None and (fact := reasoning_of(maker)) in learnt.of(request.model, request.client):
        learnt.forget(request.model, (fact,), request.client)


def tells_each_apart(deployment: Deployment, call: Call) -> bool:
    """Whether single pieces of reasoning can be left out of a request to ``deployment``."""
    return deployment.spoken_in(call).requests.thoughts.without_those is not None


def without_unread(
    call: Call, deployment: Deployment, makers: Mapping[bytes, Maker], refused: Mapping[bytes, Collection[str]]
) -> RewordedRequest | None:
    """Return the request without the reasoning that ``deployment`` refuses or drops; None: there is no such reasoning.

    ``makers``: the maker of each piece of reasoning, by the hash of the piece. ``refused``: by the same
    hash, the providers that have refused a piece of an unknown maker.
    """
    of_unread = {
        maker
        for maker in {*makers.values()}
        if is_unread(maker, deployment, call) or is_bound_elsewhere(deployment, maker, call.caller.client)
    }
    requests = deployment.spoken_in(call).requests
    without = requests.thoughts.without_those
    unread = {each for each, maker in makers.items() if maker in of_unread}
    unread |= {each for each, providers in refused.items() if deployment.provider in providers}
    if not unread or without is None or (requests.vendors.takes_quirks and deployment.upstream.refused_fields):
        return None  # the fields with reasoning are left out anyway
    fields = call.sent_to(deployment.name)
    try:
        wording = without(fields, frozenset(unread))
    except Malformed:  # the provider reports the error in its own words
        return None
    return _as_reworded(call, deployment, wording) if wording.losses else None


def without_reasoning(call: Call, deployment: Deployment, edited_from: int = 0) -> RewordedRequest | None:
    """Return the request without reasoning that only its maker can read; None: the request has none.

    ``edited_from``: the first turn whose reasoning is left out, if the dialect can tell.
    """
    if (wording := _without_reasoning(call, deployment, edited_from)) is None:
        return None
    return _as_reworded(call, deployment, wording)


def _as_reworded(call: Call, deployment: Deployment, wording: Wording) -> RewordedRequest:
    dropped = call.rendered.get(deployment.name, AS_ASKED).dropped
    if dropped:  # some fields are taken once the reasoning beside them is gone
        was, still = (_lost_there(call, deployment, sent) for sent in (call.sent_to(deployment.name), wording.fields))
        dropped = tuple(field for field in dropped if field not in was or field in still)
    lost = (*dropped, *(loss.field for loss in wording.losses))
    return RewordedRequest(deployment.spoken_in(call), wording.fields, lost)


def _lost_there(call: Call, deployment: Deployment, fields: Mapping[str, msgspec.Raw]) -> frozenset[str]:
    """Return the parts of ``fields`` that the API of ``deployment`` cannot express, by the client's names."""
    dialect, request = deployment.spoken_in(call), call.request
    try:
        losses = deployment.upstream.losses(dialect, deployment.model, fields)
    except Malformed:  # the provider reports the error in its own words
        return frozenset()
    return frozenset(named_in(request.dialect, dialect, request.fields, loss.field) for loss in losses)


def _without_reasoning(call: Call, deployment: Deployment, edited_from: int = 0) -> Wording | None:
    requests, fields = deployment.spoken_in(call).requests, call.sent_to(deployment.name)
    if edited_from and requests.thoughts.without_since is not None:
        wording: Wording | None = requests.thoughts.without_since(fields, edited_from)
    else:
        without = requests.thoughts.without_bound
        wording = None if without is None else without(fields)
    return wording if wording is not None and wording.losses else None


# Of a limit of the answer that does not fit beside the prompt.


def room_for(call: Call, deployment: Deployment, error: UpstreamError) -> int:
    """Return how many tokens of an answer fit beside the prompt, by the ``error`` of ``deployment``; 0: unknown."""
    return room_of(error, call.sent_to(deployment.name))


def within_room(call: Call, deployment: Deployment, room: int) -> Call | None:
    """Return ``call`` with a limit of the answer that leaves room for the prompt at ``deployment``; None: both fit."""
    name, dialect = deployment.name, deployment.spoken_in(call)
    requests, fields = dialect.requests, call.sent_to(name)
    limits = [each for each in requests.parameters.answer_limits if each in fields]
    try:
        limit_asked = requests.parameters.limit_in(fields)
        if limit_asked is None or limit_asked <= room or not deployment.extra_body.keys().isdisjoint(limits):
            return None
        if requests.with_limit is None:
            within: Mapping[str, msgspec.Raw] = {**fields, **dict.fromkeys(limits, msgspec.Raw(b"%d" % room))}
        else:
            within, _ = requests.with_limit(fields, room)
    except Malformed:
        return None
    own = (named_in(call.request.dialect, dialect, call.request.fields, limit) for limit in limits)
    return call.rendered_as(name, fields=within, spoken=dialect, lowered=tuple(dict.fromkeys(own)), apart=None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]


def _told(refusals: Sequence[ApiRefusal]) -> UpstreamError:
    """Return the error of a request that no API took: of the API in which the deployment is usually asked."""
    first = refusals[0]
    is_unknown = first.lacks is MissingFeature.MODEL and first.kind is ErrorKind.NOT_FOUND
    kind = ErrorKind.NO_SUCH_API if is_unknown else first.kind  # the model's name is right
    if len(refusals) > 1:
        return first.error.again(kind)
    first.error.turn_into(kind)
    return first.error


def _facts(refusals: Iterable[ApiRefusal], instead: Dialect) -> list[Fact]:
    """Return what ``refusals`` teach if the request is taken in the dialect ``instead``."""
    kinds = {MissingFeature.TOOL: Kind.TOOL, MissingFeature.TOOLS: Kind.TOOLS}
    return [Fact(kinds.get(each.lacks, Kind.API), each.spoken.name, instead.name, each.tool) for each in refusals]


def _refusals(attempt: FormAttempt) -> Iterator[ApiRefusal]:
    """Yield the refusals before ``attempt``, oldest first."""
    before = attempt.refused
    if before is not None:
        yield from _refusals(before)
        if before.lacks is not None:
            yield before.lacks


def _suppose_another(deployment: Deployment, call: Call, refusal: ApiRefusal) -> None:
    """Have the next request sent in another API at once, if this request must not be sent twice."""
    others = deployment.others(offered(refusal.error.said))
    instead = next((each for each in others if each is not refusal.spoken), None)
    learnt = _learnt_of(deployment)
    if learnt is not None and instead is not None:
        for fact in _facts([refusal], instead):
            learnt.suppose(deployment.model, fact, client=call.caller.client, why=why_of(refusal.error))


def _note_length(deployment: Deployment, call: Call, error: UpstreamError) -> None:
    """Remember that a prompt as long as that of ``call`` is too long for ``deployment``, if the length was at fault."""
    learnt, model = _learnt_of(deployment), deployment.model
    if learnt is not None and call.traits.prompt_tokens > 0 and _is_long(deployment, call, error):
        tokens = learnt.refused_length(model, call.caller.client) or call.traits.prompt_tokens
        fact = Fact(Kind.LENGTH, tokens=min(tokens, call.traits.prompt_tokens))
        learnt.note(model, fact, client=call.caller.client, why=why_of(error))


def _note_room(deployment: Deployment, call: Call, error: UpstreamError) -> None:
    """Remember how many tokens a prompt and its answer may have together, as ``deployment`` says."""
    fact = held_of(error, call.sent_to(deployment.name))
    if fact is not None and (learnt := _learnt_of(deployment)) is not None:
        learnt.note(deployment.model, fact, client=call.caller.client, why=why_of(error))


def _note_limit(attempt: FormAttempt, call: Call, limit: Limit, error: UpstreamError) -> None:
    """Remember a vendor's limit that ``call`` exceeds: such calls ask other deployments first."""
    deployment = attempt.deployment
    if limit.most is None or (learnt := _learnt_of(deployment)) is None:
        return
    fact = Fact(Kind.SIZE, limit.what, tokens=limit.most)
    # A stricter history has other numbers for its turns, as "messages[21].content must be a string" counts them.
    is_moved = attempt.refused is not None or any(
        each.kind is Kind.HISTORY for each in learnt.of(deployment.model, call.caller.client)
    )
    if _is_more(deployment, call, fact, limit.turn, is_moved=is_moved):
        learnt.note(deployment.model, fact, client=call.caller.client, why=why_of(error))


def _is_more(
    deployment: Deployment, call: Call, fact: Fact, turn: int | None = None, *, is_moved: bool = False
) -> bool:
    if fact.kind is not Kind.SIZE:
        return False
    fields, dialect = call.sent_to(deployment.name), deployment.spoken_in(call)
    return amount(fact.field, fields, dialect.requests, turn, is_moved=is_moved) > fact.tokens


def _is_long(deployment: Deployment, call: Call, error: UpstreamError) -> bool:
    """Whether the length of the prompt was at fault: then ``deployment`` refuses other prompts of this length, too.

    Vendors refuse in the same words a short prompt with a large limit of the answer, a prompt that continues a stored
    conversation, and a prompt with a large picture.
    """
    answer = requested(call.request.fields, call.request.dialect).max_tokens or 0
    limit = stated_limit(error.said) or deployment.capabilities.context_tokens
    if limit is None:
        return call.traits.inline_bytes is not None and answer <= call.traits.prompt_tokens
    return call.traits.prompt_tokens >= (limit if answer > limit // 4 else limit // 2)
