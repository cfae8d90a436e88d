"""Sends a request in one form after the other, one at a time; remembers and uses what the refusals teach.

``forms.py`` says what a form is, ``taught.py`` what a refusal is about.
"""

from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import TypeVar

import msgspec

from providers.exchange import betas
from providers.exchange.forms import FormRequest, SentFields, has_must, hints_in, is_to_be_kept
from providers.exchange.interface import Request
from providers.exchange.places import spelt
from providers.exchange.quotes import VendorsWords, mark
from providers.exchange.sendings import TriedForms
from providers.exchange.taught import understood
from providers.refusals import (
    LONGEST_NAME,
    NOTHING,
    ErrorKind,
    Fact,
    Facts,
    Kind,
    LearntFacts,
    MissingFeature,
    UpstreamError,
    is_within_answer,
    lacking,
    mentions,
    read,
    refuses_to_stream,
)

_T = TypeVar("_T")
_REFUSING = frozenset({500, 501})  # statuses with which some servers refuse what others refuse with 400
_OF_THE_API = frozenset({MissingFeature.MODEL, MissingFeature.TOOLS})  # in another API the request loses nothing
_OF_MUSTS = frozenset({Kind.BETA, Kind.MUST})
_REFUSED_ONE_BY_ONE = 2  # fields; a vendor that then refuses one more may refuse a dozen
_COMMON = frozenset({"index", "name", "phase", "response", "scope", "ttl"})  # words of any refusal


def may_teach(refusal: UpstreamError, request: Request) -> bool:
    """Whether a refusal may be about the form of the request, and not about the API, or about streaming for a race."""
    mark(refusal, _own(request))
    if lacking(refusal) in _OF_THE_API or (request.takes_whole and refuses_to_stream(refusal)):
        return False
    if refusal.status == HTTPStatus.OK:
        return is_within_answer(refusal)
    return refusal.kind is ErrorKind.BAD_REQUEST or (
        refusal.kind is ErrorKind.SERVER_ERROR and refusal.status in _REFUSING
    )


async def taken(
    learnt: LearntFacts,
    form_request: FormRequest,
    *,
    say: Callable[[Facts], SentFields],
    ask: Callable[[SentFields], Awaitable[_T]],
) -> _T:
    """Return the answer to a request, sent in the form that the model is known to take, or that refusals taught.

    ``say`` makes a form, and ``ask`` sends the form, once.

    Raises:
        UpstreamError: a refusal, as of ``refused``; or an error that is not about the form.

    """
    request, tried = form_request.request, _tried_of(form_request.request)
    facts = known_of(learnt, request) if tried is None else (*tried.facts, *tried.withheld)
    sent = say(facts)
    try:
        answer = await ask(sent)
    except UpstreamError as error:
        if tried is None and not may_teach(error, request):
            raise
        refusal = error.without_frames()
    else:
        if tried is not None:
            _has_led_to_answer(learnt, request, tried, sent)
        elif facts:
            answered(learnt, request, facts, sent)
        return answer
    raise refused(refusal, learnt, form_request, sent, say=say, tried=tried)


def _tried_of(request: Request) -> TriedForms | None:
    """Return the forms in which a request was refused before; None if this is its first form."""
    tried = request.sendings.tried
    return None if tried is None else tried.forms


def _has_led_to_answer(learnt: LearntFacts, request: Request, tried: TriedForms, sent: SentFields) -> None:
    """Remember the facts that led to the form that was answered."""
    request.sendings.trying.forms = None
    for fact in tried.new:
        learnt.note(request.model, fact, client=request.client, why=tried.last)
    _note_sent(request, sent)


def refused(
    refusal: UpstreamError,
    learnt: LearntFacts,
    form_request: FormRequest,
    sent: SentFields,
    *,
    say: Callable[[Facts], SentFields],
    tried: TriedForms | None = None,
) -> UpstreamError:
    """Return the error of a request that was refused in the form that was ``sent``.

    If the refusal teaches another form, the error has ``has_another_form``, and ``sendings`` keeps that form: without
    all that the model was known to refuse, and without what this refusal adds. The new facts are supposed for a
    minute, also if the request is not sent again. If there is no other form, the error is this refusal; or the
    request's first refusal, if this one is about a field that was changed because of the first.
    """
    request, sendings, client = form_request.request, form_request.request.sendings, form_request.request.client
    if tried is None:
        known_facts = known_of(learnt, request)
        # A copy: a later attempt changes ``refusal`` itself.
        tried = TriedForms(known_facts, known_facts, refusal.again(refusal.kind))
    if may_teach(refusal, request):
        new_facts = understood(read(refusal), sent.fields, form_request, sent.headers)
        facts = _with(new_facts, tried.facts, tried.known)
        learnt.forget(request.model, [fact for fact in tried.new if fact not in facts], client)  # now unsure
        tried.withheld += _withheld(new_facts, tried.new, sent, form_request)
        is_other = not say((*facts, *tried.withheld)).is_as(sent)
        tried.facts, tried.last = facts, why_of(refusal)
        tried.is_of_must = tried.is_of_must or any(fact.kind in _OF_MUSTS for fact in new_facts)
        if is_other:
            _suppose(learnt, request, tried.new, refusal)
            is_once = request.once and is_to_be_kept(request.fields)  # then only the next request is sent in this form
            if not is_once and not sendings.noted_as_last(refusal, "another form was not sent"):
                tried.is_again = True
                refusal.has_another_form = True
                sendings.trying.forms = tried
                return refusal
        sendings.trying.forms = None  # else another key may take this form
    wrong = [fact for fact in tried.known if fact.dialect and mentions(refusal, _names(fact))]
    learnt.forget(request.model, wrong, client)
    # The last refusal is about a form that lacks only the fields of the first refusals; unless it is about a field that
    # was changed.
    if refusal.kind is tried.first.kind:
        changed = [fact for fact in tried.new if mentions(refusal, _names(fact))]
        unchanged = [fact for fact in tried.new if _names(fact) and fact not in changed]
        _suppose(learnt, request, unchanged, refusal)
        if tried.is_again:
            learnt.forget(request.model, [fact for fact in tried.new if fact not in unchanged], client)
            refusal = tried.first if changed else refusal
    _note_musts(learnt, request, tried.new, tried.last)
    if tried.is_of_must and refusal.kind is ErrorKind.SERVER_ERROR:
        refusal.turn_into(ErrorKind.BAD_REQUEST, without_body=True)  # the type of the refusal blames the server
    refusal.found(is_declined=refusal.findings.is_declined or tried.is_of_must)  # another provider may know the beta
    return refusal


def _note_musts(learnt: LearntFacts, request: Request, facts: Facts, why: str) -> None:
    """Remember the betas and fields that were refused and may not be left out."""
    for fact in facts:
        if fact.kind in _OF_MUSTS:
            learnt.note(request.model, fact, client=request.client, why=why)


def _with(new_facts: Facts, tried: Facts, known_facts: Facts) -> Facts:
    """Return the facts of ``tried`` with those that a refusal adds.

    A vendor that does not name the refused beta has now refused one of the betas that were left. So perhaps the betas
    that were left out before were no trouble: those facts hold for this request only.
    """
    if any(fact.field in betas.NAMES for fact in new_facts):
        new = tried[len(known_facts) :]
        are_unsure = [fact.field in betas.NAMES and "," in fact.value for fact in new]
        as_passing = (msgspec.structs.replace(fact, passing=True) for fact in new)
        new = tuple(other if unsure else fact for fact, other, unsure in zip(new, as_passing, are_unsure, strict=True))
        tried = (*known_facts, *new)
    return (*tried, *(fact for fact in new_facts if fact not in tried))


def _withheld(new_facts: Facts, taught: Facts, sent: SentFields, form_request: FormRequest) -> Facts:
    """Return the preferences and hints that are left out together: one by one, they may take all requests of a call.

    ``taught``: by earlier refusals of this request. One refusal may name many fields.
    """
    earlier, newest = (sum(fact.kind is Kind.FIELD for fact in facts) for facts in (taught, new_facts))
    return hints_in(sent.fields, form_request) if newest and earlier >= _REFUSED_ONE_BY_ONE else NOTHING


def _suppose(learnt: LearntFacts, request: Request, facts: Iterable[Fact], refusal: UpstreamError) -> None:
    for fact in facts:
        learnt.suppose(request.model, fact, client=request.client, why=why_of(refusal))


def answered(learnt: LearntFacts, request: Request, facts: Facts, sent: SentFields) -> None:
    """Note that the form to which ``facts`` led was answered, and what that form lacked."""
    _note_sent(request, sent)
    wrong = [fact for fact in facts if fact.kind in _OF_MUSTS and _is_demanded(fact, request, sent)]
    learnt.forget(request.model, wrong, request.client)
    if learnt.supposed:
        learnt.confirm(request.model, tuple(fact for fact in facts if fact not in request.taught), request.client)


def _is_demanded(fact: Fact, request: Request, sent: SentFields) -> bool:
    if fact.kind is Kind.MUST:
        return has_must(fact, request.fields, request.dialect.requests) and fact.field not in sent.told
    return betas.is_demanded(fact.field, fact.value, request.fields, request.headers)


def _note_sent(request: Request, sent: SentFields) -> None:
    request.sendings.left_out, request.sendings.most = sent.told, sent.most


def known_of(learnt: LearntFacts, request: Request) -> Facts:
    """Return the facts of the model of ``request``, with those that answers to this request have taught."""
    facts = learnt.of(request.model, request.client)
    return facts if not request.taught else (*facts, *(fact for fact in request.taught if fact not in facts))


def learn(
    learnt: LearntFacts, form_request: FormRequest, error: UpstreamError, say: Callable[[Facts], SentFields]
) -> Facts:
    """Return what an ``error`` within an answer teaches, as ``refused`` does after a status.

    This provider answers 200 before it refuses, so a status confirms no fact: the next answer that begins does.
    """
    request = form_request.request
    mark(error, _own(request))
    if not is_within_answer(error) or lacking(error) in _OF_THE_API:
        return NOTHING
    known_facts = known_of(learnt, request)
    sent = say(known_facts)
    new_facts = tuple(
        fact for fact in understood(read(error), sent.fields, form_request, sent.headers) if fact not in known_facts
    )
    if say((*known_facts, *new_facts)).is_as(sent):
        wrong = [fact for fact in known_facts if fact.dialect and mentions(error, _names(fact))]
        learnt.forget(request.model, wrong, request.client)
        _note_musts(learnt, request, new_facts, why_of(error))
        return NOTHING
    _suppose(learnt, request, new_facts, error)
    return (*new_facts, *_withheld(new_facts, request.taught, sent, form_request))


def _own(request: Request) -> VendorsWords:
    return VendorsWords(request.fields, texts=betas.quotable(request.headers))


def why_of(refusal: UpstreamError) -> str:
    """Return the status, code and type of a refusal, as the log and the page may show them."""
    return " ".join((str(refusal.status or ""), *refusal.names)).strip()[:LONGEST_NAME]


def _names(fact: Fact) -> tuple[str, ...]:
    """Return the names by which a refusal may mean the field of a fact; none if the fact is not about a field.

    For example, ``reasoning.effort`` and ``effort``.
    """
    if fact.kind not in {Kind.FIELD, Kind.NAME, Kind.VALUE}:
        return ()
    if fact.field in betas.NAMES:
        return tuple(filter(None, fact.value.split(",")))
    last = fact.field.rpartition(".")[2]
    names = (fact.field, "" if last in _COMMON else last, fact.instead if fact.kind is Kind.NAME else "")
    return tuple(name for name in dict.fromkeys((*names, *map(spelt, names))) if name)
