"""Asks a deployment again in another API, where it refuses the one that it was asked in."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from gateway.core.attempts import AttemptStart
from gateway.core.calls import Call
from gateway.fleet.models import Deployment
from gateway.racing.validation import requested
from providers import ErrorKind, Fact, Kind, Lacking, UpstreamError, lacking, offered, stated_limit
from providers.dialects import Dialect


class Reworded(msgspec.Struct, frozen=True):
    """A call's request as one deployment gets it in another API."""

    spoken: Dialect
    fields: Mapping[str, msgspec.Raw]
    dropped: tuple[str, ...]

    def of(self, call: Call, deployment: str) -> Call:
        """Return ``call`` with this as the request of ``deployment``."""
        return msgspec.structs.replace(
            call,
            wordings={**call.wordings, deployment: self.fields},
            dropped={**call.dropped, deployment: self.dropped},
            spoken={**call.spoken, deployment: self.spoken},
        )


# Renders a call's request for a deployment in a dialect; None: it would lose what may not be lost, or cannot be.
Reword = Callable[[Call, Deployment, Dialect], Awaitable[Reworded | None]]


class Refusal(msgspec.Struct, frozen=True):
    """What a deployment has refused for the API in which it was asked."""

    spoken: Dialect
    lacks: Lacking
    error: UpstreamError
    kind: ErrorKind  # of the error, before it was known that the deployment has another API


class Asked(Protocol):
    """An attempt, as far as this file needs it."""

    deployment: Deployment
    start: AttemptStart
    lacks: Refusal | None

    @property
    def refused(self) -> "Asked | None":
        """The attempt whose request it repeats."""


class OtherApis:
    """What deployments are asked in, in place of an API that they refuse; their refusals are remembered."""

    def __init__(self, reword: Reword) -> None:
        self._reword = reword

    async def instead(self, attempt: Asked, call: Call, error: UpstreamError) -> tuple[Reworded | None, UpstreamError]:
        """Return the request in another API that its deployment may have, if it refused this one; and its error.

        Where none is left, that is the error of the first: of the API in which it is usually asked. A refusal that is
        answered in another API is no fault. What continues an answer, or must not be sent twice, is not repeated.
        """
        if error.is_too_long:
            _note_length(attempt.deployment, call, error)
        lacks = lacking(error)
        if lacks is None or attempt.start.continues is not None:
            return None, error
        spoken = attempt.deployment.spoken_in(call)
        if call.stateful:
            _suppose_another(attempt.deployment, Refusal(spoken, lacks, error, error.kind))
            return None, error
        refusals = [*_refusals(attempt), Refusal(spoken, lacks, error, error.kind)]
        attempt.lacks = refusals[-1]
        learnt, model = attempt.deployment.learnt, attempt.deployment.model
        if learnt is not None:
            learnt.forget(model, _facts(refusals[:-1], spoken))
        asked = {refusal.spoken for refusal in refusals}
        for dialect in attempt.deployment.others(offered(error.message)):
            if dialect not in asked and (found := await self._reword(call, attempt.deployment, dialect)) is not None:
                error.kind = ErrorKind.NO_SUCH_API
                if learnt is not None:
                    for fact in _facts(refusals, dialect):  # as a loser may be cut before its answer, in each race
                        learnt.suppose(model, fact)
                return found, error
        return None, _told(refusals)

    def answered(self, attempt: Asked, call: Call) -> None:
        """Remember what its deployment has refused before it took this attempt's request in another API."""
        deployment, refusals = attempt.deployment, list(_refusals(attempt))
        learnt, model = deployment.learnt, deployment.model
        if learnt is None or not refusals:
            return
        spoken = deployment.spoken_in(call)
        learnt.forget(model, [fact for fact in learnt.of(model) if fact.kind is Kind.API and fact.field == spoken.name])
        for fact in _facts(refusals, spoken):
            learnt.note(model, fact)


def _told(refusals: Sequence[Refusal]) -> UpstreamError:
    """Return the error of a request that no API took: that of the one in which it is usually asked."""
    first = refusals[0]
    is_unknown = first.lacks is Lacking.MODEL and first.kind is ErrorKind.NOT_FOUND
    kind = ErrorKind.NO_SUCH_API if is_unknown else first.kind  # its name is right
    if len(refusals) > 1:
        return first.error.again(kind)
    first.error.kind = kind
    return first.error


def _facts(refusals: Iterable[Refusal], instead: Dialect) -> list[Fact]:
    """Return what ``refusals`` teach if the request is taken in the dialect ``instead``."""
    kinds = {Lacking.TOOLS: Kind.TOOLS}
    return [Fact(kinds.get(each.lacks, Kind.API), each.spoken.name, instead.name) for each in refusals]


def _refusals(attempt: Asked) -> Iterator[Refusal]:
    """Yield what was refused before ``attempt``, the first at first."""
    before = attempt.refused
    if before is not None:
        yield from _refusals(before)
        if before.lacks is not None:
            yield before.lacks


def _suppose_another(deployment: Deployment, refusal: Refusal) -> None:
    """Have the next request asked in another API at once, where this one must not be sent twice."""
    others = deployment.others(offered(refusal.error.message))
    instead = next((each for each in others if each is not refusal.spoken), None)
    if deployment.learnt is not None and instead is not None:
        for fact in _facts([refusal], instead):
            deployment.learnt.suppose(deployment.model, fact)


def _note_length(deployment: Deployment, call: Call, error: UpstreamError) -> None:
    """Remember that a prompt as long as that of ``call`` is too long for ``deployment``, if its own length was it."""
    learnt, model = deployment.learnt, deployment.model
    if learnt is not None and call.prompt_tokens > 0 and _is_long(deployment, call, error):
        known = learnt.refused_length(model) or call.prompt_tokens
        learnt.note(model, Fact(Kind.LENGTH, tokens=min(known, call.prompt_tokens)))


def _is_long(deployment: Deployment, call: Call, error: UpstreamError) -> bool:
    """Whether it is the prompt of ``call`` that is too long for ``deployment``, and others of its size are as well.

    The same words are said of a short prompt with a large limit of its answer, of one that goes on from a stored
    conversation, and of one with a large picture.
    """
    answer = requested(call.fields, call.dialect).max_tokens or 0
    limit = stated_limit(error.message) or deployment.capabilities.context_tokens
    if limit is None:
        return call.inline_bytes is not None and answer <= call.prompt_tokens
    return call.prompt_tokens >= (limit if answer > limit // 4 else limit // 2)
