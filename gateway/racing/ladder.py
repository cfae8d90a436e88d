"""Which deployment is asked next after a refusal, and in what form: one ladder, with rungs in this order.

1. ``DEPLOYMENT``: the same deployment, in the refused request's seat, each time as an attempt of its own.
2. ``MODEL``: another deployment of the model; when none is left, the only one whose whole answer broke off, once more;
   or one that refused reasoning, without that reasoning.
3. ``CALL``: another model; else the first model once more, when it is free; else the model with most room, for a
   shorter answer; else the first model without earlier pictures, if it sees none.

For example: 400 "Unsupported parameter: 'verbosity'" asks the same deployment again without the field (1), 503 asks the
next deployment (2), and when all have failed, the model's first fallback is asked (3).

A rung decides, and tells the attempt, the entry of the model, or the call's models, which api plans and pays for. All
rungs together make no more requests than ``max_requests`` (``OfCall``); the last error says when the limit was reached.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from gateway.core.attempts import Role
from gateway.core.calls import Call
from gateway.core.errors import ApiError
from gateway.core.race_failures import AllRateLimited, RejectedByProvider, told_of
from gateway.racing.call import OpenCall
from gateway.racing.other_forms import (
    After,
    FormAttempt,
    RequestMaker,
    RetryForm,
    another_api_after,
    note_refusal,
    taught_after,
    unforced_after,
    whole_after,
)
from gateway.racing.rewording import Reword, RewordedRequest
from providers import ANSWER, ErrorKind, Meaning, RefusalScope, UpstreamError, refuses_forced_calls

# 1. The same deployment.

NOT_AGAIN = "its deployment was not asked again"


class RefusedStep(msgspec.Struct, eq=False):
    """A request that was refused, as the rungs see it."""

    attempt: FormAttempt
    call: Call
    error: UpstreamError  # what the client gets if no rung is left; a rung may put another error here
    request: RequestMaker | None = None  # None: the request passes unread
    reword: Reword | None = None  # None: deployments are asked in one API only


Rung = Callable[[RefusedStep], Awaitable[RetryForm | None]]  # None: the rung is not for this refusal


async def another_key(refused: RefusedStep) -> RetryForm | None:
    """Send the same request with the key that the upstream has chosen."""
    return RetryForm(Role.KEY) if refused.error.has_another_key else None


async def another_form(refused: RefusedStep) -> RetryForm | None:
    """Send the request without a refused field, or in another form; the upstream remembers what was tried.

    For example, 400 "Unsupported parameter: 'verbosity'": without ``verbosity``.
    """
    return RetryForm(Role.FORM) if refused.error.has_another_form else None


async def remembered(refused: RefusedStep) -> None:
    """Ask nothing: remember what the refusal says of the size of requests, and of reasoning."""
    note_refusal(refused.attempt, refused.call, refused.error)


async def whole(refused: RefusedStep) -> RetryForm | None:
    """Ask for a whole answer, if streaming was refused and the client does not stream.

    For example, 400 "Your organization must be verified to stream this model".
    """
    return whole_after(refused.attempt, refused.call, refused.error)


async def form_told_within(refused: RefusedStep) -> RetryForm | None:
    """Send the request without a field that was refused by an error in the stream, before anything of an answer."""
    if refused.attempt.exchange is None or refused.request is None:
        return None
    return taught_after(refused.attempt, refused.call, refused.error, refused.request)


async def without_forcing(refused: RefusedStep) -> RetryForm | None:
    """After the refusal of a forced tool call: ask for JSON, returned as the call, or leave the choice to the model."""
    if refused.reword is None or not refuses_forced_calls(refused.error):
        return None
    return await unforced_after(refused.attempt, refused.call, refused.error, refused.reword)


async def another_api(refused: RefusedStep) -> RetryForm | None:
    """Ask in another API of the deployment, if the deployment lacks this API for such requests."""
    if refused.reword is None:
        return None
    again, refused.error = await another_api_after(refused.attempt, refused.call, refused.error, refused.reword)
    return again


# Also after a part of the answer has come, in continuations, and for answers that pass unread.
BY_UPSTREAM: Sequence[Rung] = (another_key, another_form)
DEPLOYMENT: Sequence[Rung] = (*BY_UPSTREAM, remembered, whole, form_told_within, without_forcing, another_api)

# The error of a request that another request repeats: such an error counts against no deployment, and costs nothing.
_REFUSED_AS = {Role.KEY: ErrorKind.KEY_REFUSED, Role.FORM: ErrorKind.FORM_REFUSED}


async def climbed(refused: RefusedStep, rungs: Sequence[Rung]) -> After:
    """Return how the deployment is asked after a refusal, by the first rung for that refusal; and the error."""
    for rung in rungs:
        if (again := await rung(refused)) is not None:
            return again, refused.error
    return None, refused.error


def recorded(error: UpstreamError, again: RetryForm | None) -> UpstreamError:
    """Return the error of an attempt after which its deployment is asked ``again``."""
    kind = None if again is None else _REFUSED_AS.get(again.role)
    return error if kind is None else error.again(kind)


# 2. The same model, when no rung is left at the deployment.


class Others(StrEnum):
    """Which other deployments of the model may take a request that one has refused."""

    ALL = "all"
    LONGER = "longer"  # those with a longer context
    ELSEWHERE = "elsewhere"  # one, of another provider first, as filters differ; or one fallback
    ONE = "one"  # as the request may be wrong everywhere; none beside other attempts


_OTHERS: Mapping[RefusalScope, Others] = {
    **dict.fromkeys(
        (RefusalScope.MINUTE, RefusalScope.MAKER, RefusalScope.TERMS, RefusalScope.SIZE, RefusalScope.MODEL), Others.ALL
    ),
    RefusalScope.LENGTH: Others.LONGER,
    RefusalScope.CONTENT: Others.ELSEWHERE,
    RefusalScope.REQUEST: Others.ONE,
}


def others_after(error: UpstreamError) -> Others | None:
    """Return which other deployments may be asked after ``error``; None: no refusal, so any of them may be asked.

    For example, 400 "prompt is too long: 210000 tokens > 200000 maximum": those with a longer context.
    """
    return None if (scope := error.scope) is None else _OTHERS[scope]


class RaceModel(Protocol):
    """A model in a race after one of its attempts has failed, as the rungs see it."""

    @property
    def is_asked(self) -> bool:
        """Whether any attempt of this model may still answer."""

    def next_deployment(self) -> str | None:
        """Remove the next candidate with a free seat from the candidates, and return it; None if there is none."""

    def is_late(self, deployment: str) -> bool:
        """Whether it is too late to ask ``deployment``."""

    def wait_for_seat(self) -> bool:
        """Wait for the first free seat of the deployments that are full; return whether any is full."""

    def ask(self, deployment: str) -> None:
        """Ask ``deployment`` in place of the attempt that failed."""

    def ask_beside(self) -> bool:
        """Ask one more deployment, paid from the budget; return whether there is one."""

    def bound(self) -> tuple[str, RewordedRequest] | None:
        """Return the next deployment that refused reasoning, and the request without reasoning; None: no other."""

    def broken(self) -> str | None:
        """Return the deployment whose whole answer broke off; None: none or several, or another model may answer."""

    def allow(self, deployment: str, reworded: RewordedRequest) -> None:
        """Make ``deployment`` a candidate once more, for this request."""


ModelRung = Callable[[RaceModel], bool]  # returns whether a deployment is asked, or waited for


def another_deployment(of: RaceModel) -> bool:
    """Ask the next candidate, or wait for a seat."""
    if (name := of.next_deployment()) is None:
        return of.wait_for_seat()
    if of.is_late(name):
        return False
    of.ask(name)
    return True


def the_broken_once_more(of: RaceModel) -> bool:
    """When no other is left, ask the deployment once more whose whole answer broke off.

    Some SDKs do not ask again (Google's), and the vendor would not have streamed to such a client: the gateway does.
    """
    if of.is_asked or (name := of.broken()) is None or of.is_late(name):
        return False
    of.ask(name)
    return True


def one_beside(of: RaceModel) -> bool:
    """Ask one more deployment beside an invalid answer, which costs money all the same."""
    return of.ask_beside()


def without_thoughts(of: RaceModel) -> bool:
    """When no other is left, ask a deployment that refused reasoning once more, without that reasoning.

    If the client has edited its history, only the reasoning behind the edit is left out.
    """
    if of.is_asked or (bound := of.bound()) is None:
        return False
    of.allow(*bound)
    return another_deployment(of)


MODEL: Sequence[ModelRung] = (another_deployment, the_broken_once_more, without_thoughts)
AFTER_INVALID: Sequence[ModelRung] = (one_beside, without_thoughts)  # if the invalid answer is paid, and not in turn


def goes_on(of: RaceModel, rungs: Sequence[ModelRung]) -> bool:
    """Go up these rungs; return whether a deployment is asked, or waited for."""
    return any(rung(of) for rung in rungs)


# 3. The same call, when no deployment of a model is left.


class CallModels(Protocol):
    """The models of a call, after those asked so far have failed, as the rungs see them."""

    open_call: OpenCall
    failed: list[tuple[str, ApiError]]  # why, in this order

    @property
    def own(self) -> str | None:
        """The model that the client asked for; None: the model cannot be used."""

    def turn_s(self, model: str, wait_s: float) -> float:
        """Return when it is this call's turn to ask ``model``, which is free in ``wait_s``."""

    async def use_next(self) -> bool:
        """Go on with the next model that limits and money allow; return whether there is one."""

    async def use_own(self) -> bool:
        """Plan the model that the client asked for once more; return whether limits and money allow it."""

    async def use_roomiest(self) -> bool:
        """Go on, once, with the deployment that leaves most room for an answer; return whether there is one."""

    async def use_unseeing(self) -> bool:
        """Go on, once, with a deployment that has refused pictures, if they can be left out; return whether so."""


CallRung = Callable[[CallModels], Awaitable[bool]]  # returns whether a model is to be asked


async def another_model(of: CallModels) -> bool:
    """Ask a fallback, unless two filters have refused the request."""
    return of.open_call.filtered <= 1 and await of.use_next()


async def once_free(of: CallModels) -> bool:
    """If all deployments of the asked model are limited and said until when, wait for the first, and ask once more.

    No attempt runs meanwhile. The wait is within the time that calls wait for a seat. Waiting calls ask one by one.
    """
    open_call, services = of.open_call, of.open_call.services
    own = dict(of.failed).get(of.own or "")  # none: the model could not be asked, and still cannot
    if not isinstance(own, AllRateLimited) or any(type(error) is not AllRateLimited for _, error in of.failed):
        return False
    left_s = services.seats.queue_timeout_s - open_call.waited_s
    if open_call.call.deadline_at is not None:
        left_s = min(left_s, open_call.call.deadline_at - services.clock())
    if own.free_in_s is None or own.free_in_s > left_s:
        return False
    wait_s = min(left_s, of.turn_s(of.own or "", own.free_in_s))
    await asyncio.sleep(wait_s)
    open_call.waited_s += wait_s
    open_call.unasked_since = services.clock()  # the wait does not count as the gateway's own time
    return await of.use_own()


async def a_shorter_answer(of: CallModels) -> bool:
    """If all deployments refused the length that was asked for, ask for the longest answer that one of them gives.

    For example, after 400 "you requested 8500 tokens (500 in the messages, 8000 in the completion)".
    """
    refusal = told_of(of.failed)
    is_limit = isinstance(refusal, RejectedByProvider) and refusal.limit is not None and refusal.limit.what == ANSWER
    return (is_limit or refusal.meaning is Meaning.TOO_LONG) and await of.use_roomiest()


async def without_pictures(of: CallModels) -> bool:
    """If a deployment takes no pictures, ask it with notes in place of those of earlier turns and of tools."""
    return await of.use_unseeing()


CALL: Sequence[CallRung] = (another_model, once_free, a_shorter_answer, without_pictures)


async def has_next(of: CallModels) -> bool:
    """Go up the rungs of a call; return whether another model is to be asked, or one once more.

    No rung is for a call that has made as many requests as it may, or that may already run at a provider. Such a call
    does not wait either: the errors so far tell the client more.
    """
    if of.open_call.sent.left <= 0 or of.open_call.may_run_on:
        return False
    for rung in CALL:
        if await rung(of):
            return True
    return False
