"""What refusals say of sizes: the length of prompts, the room for an answer, the limits of a vendor."""

from typing import TYPE_CHECKING

import msgspec

from gateway.core.calls import Call
from gateway.fleet import Deployment
from gateway.racing.validation import requested
from providers import Fact, Kind, Limit, UpstreamError, VendorsWords, amount, held_of, room_of, stated_limit, why_of
from providers.dialects import Malformed, named_in

if TYPE_CHECKING:
    from collections.abc import Mapping


def note_size(deployment: Deployment, call: Call, error: UpstreamError, *, is_again: bool) -> None:
    """Remember what an ``error`` says of the size of a request; ``is_again``: that was sent in another form."""
    if not error.is_too_long and error.limit is None and error.lack is None:
        return
    error = _unrepeated(deployment, call, error)
    if error.is_too_long:
        _note_length(deployment, call, error)
        _note_room(deployment, call, error)
    if (limit := error.limit or error.lack) is not None:
        _note_limit(deployment, call, limit, error, is_again=is_again)


def _unrepeated(deployment: Deployment, call: Call, error: UpstreamError) -> UpstreamError:
    """Return ``error`` without words that stand in the request: these may be a prompt that the vendor echoes."""
    told = error.again(error.kind)
    told.said = VendorsWords(call.request.fields, call.sent_to(deployment.name)).unrepeated(error.said)
    return told


def _note_length(deployment: Deployment, call: Call, error: UpstreamError) -> None:
    """Remember that a prompt as long as that of ``call`` is too long for ``deployment``, if the length was at fault."""
    learnt, model = deployment.remembers_in, deployment.model
    if learnt is not None and call.traits.prompt_tokens > 0 and _is_long(deployment, call, error):
        tokens = learnt.refused_length(model, call.caller.client) or call.traits.prompt_tokens
        fact = Fact(Kind.LENGTH, tokens=min(tokens, call.traits.prompt_tokens))
        learnt.note(model, fact, client=call.caller.client, why=why_of(error))


def _note_room(deployment: Deployment, call: Call, error: UpstreamError) -> None:
    """Remember how many tokens a prompt and its answer may have together, as ``deployment`` says."""
    fact = held_of(error, call.sent_to(deployment.name))
    if fact is not None and (learnt := deployment.remembers_in) is not None:
        learnt.note(deployment.model, fact, client=call.caller.client, why=why_of(error))


def _note_limit(deployment: Deployment, call: Call, limit: Limit, error: UpstreamError, *, is_again: bool) -> None:
    """Remember a vendor's limit that ``call`` exceeds: such calls ask other deployments first."""
    if limit.most is None or (learnt := deployment.remembers_in) is None:
        return
    fact = Fact(Kind.SIZE, limit.what, tokens=limit.most)
    # A stricter history has other numbers for its turns, as "messages[21].content must be a string" counts them.
    is_moved = is_again or any(each.kind is Kind.HISTORY for each in learnt.of(deployment.model, call.caller.client))
    if is_more(deployment, call, fact, limit.turn, is_moved=is_moved):
        learnt.note(deployment.model, fact, client=call.caller.client, why=why_of(error))


def is_more(deployment: Deployment, call: Call, fact: Fact, turn: int | None = None, *, is_moved: bool = False) -> bool:
    """Whether a ``call`` exceeds the limit that a ``fact`` states; ``turn`` and ``is_moved`` are of ``amount``."""
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
