"""The other forms of a request that its deployment has refused: what each is, and what the refusal teaches.

``ladder.py`` has the order in which the forms are tried:

- in another API, after 400 "This model is only supported in v1/responses";
- for a whole answer, if the deployment refuses to stream and the client does not stream;
- in the form that an error within an answer teaches (an error with a status is the upstream's matter);
- without the reasoning that no key can read.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from gateway.core.attempts import AttemptStart, Role
from gateway.core.calls import Call
from gateway.fleet import Deployment
from gateway.racing.reasoning import digest, note_bound
from gateway.racing.rewording import Reword, RewordedRequest, as_reworded
from gateway.racing.sizes import is_more, note_size
from providers import (
    ErrorKind,
    Exchange,
    Fact,
    Facts,
    Kind,
    LearntFacts,
    MissingFeature,
    Request,
    UpstreamError,
    blames_request_within,
    is_to_be_kept,
    items_of_tools,
    lacking,
    offered,
    parameters_of,
    refused_tool,
    refuses_to_stream,
    types_by_place,
    why_of,
    without_offered,
)
from providers.dialects import OF_FUNCTIONS, Dialect, as_call

_LONGEST_NAMED = 200  # characters
_NAME = re.compile(r"[A-Za-z]\w{0,40}", re.ASCII)
_PLAIN_KINDS = frozenset({"object", "list", "text", "true", "0"})
_KINDS = frozenset(  # values that the APIs define, and no client makes up: a fact may show them as they are
    {"1", "aac", "flac", "json_object", "json_schema", "many", "mp3", "opus", "pcm16", "wav", *_PLAIN_KINDS}
)


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
        learnt, model = deployment.remembers_in, deployment.model
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
    note_size(attempt.deployment, call, error, is_again=attempt.refused is not None)
    if error.findings.is_bound and error.edited_from is None:  # else the maker itself would not take the reasoning
        note_bound(attempt.deployment, call, error)


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
    learnt, model = attempt.deployment.remembers_in, attempt.deployment.model
    if learnt is not None:
        learnt.forget(model, _facts(refusals[:-1], refused_dialect), call.caller.client)
    sent = call.sent_to(attempt.deployment.name)
    if (left := without_offered(sent, {refusal.tool}, call.request.fields)) is not None:
        return _supposed(attempt, call, refusals, error, as_reworded(call, attempt.deployment, left)), error
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
    learnt = attempt.deployment.remembers_in
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
    learnt, model, why = deployment.remembers_in, deployment.model, why_of(error)
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
    learnt, model = deployment.remembers_in, deployment.model
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
        parameter_names = digest(parameter_names)
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
        wrong |= {fact for fact in learnt.of(model, call.caller.client) if is_more(deployment, call, fact)}
    if learnt.stops_streams and call.request.stream and deployment.upstream_stream:
        wrong.add(_stream_of(call, deployment))
    if not wrong.isdisjoint(learnt.of(model, call.caller.client)):
        learnt.forget(model, wrong, call.caller.client)


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
    learnt = deployment.remembers_in
    if learnt is not None and instead is not None:
        for fact in _facts([refusal], instead):
            learnt.suppose(deployment.model, fact, client=call.caller.client, why=why_of(refusal.error))
