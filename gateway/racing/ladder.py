"""Who is asked next after a refusal, and in which words: one ladder, whose rungs are tried in this order.

1. ``DEPLOYMENT``: the same deployment, in the refused request's seat, each by an attempt of its own.
2. ``MODEL``: another deployment of its model; when none is left, one that has refused, without unreadable reasoning.
3. ``CALL``: another model; else the first once more, when it is free, or who has most room, for a shorter answer.

A rung decides, and says so to whom it is about: an attempt, the entry of a model, or the call's models, which api plans
and pays for. All together make no more requests than ``max_requests`` (``OfCall``), and the last error tells when that
was reached.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from gateway.core.attempts import Role
from gateway.core.calls import Call
from gateway.core.errors import ApiError
from gateway.core.race_failures import AllRateLimited, RejectedByProvider, told_of
from gateway.racing.call import OpenCall
from gateway.racing.other_forms import (
    After,
    Again,
    AskedAttempt,
    Requested,
    Reword,
    Reworded,
    another_api_after,
    note_refusal,
    taught_after,
    unforced_after,
    whole_after,
)
from providers import ANSWER, ErrorKind, Meaning, UpstreamError, refuses_forced_calls

# 1. The same deployment.

NOT_AGAIN = "its deployment was not asked again"


class RefusedStep(msgspec.Struct, eq=False):
    """A request that was refused, as the rungs see it."""

    attempt: AskedAttempt
    call: Call
    error: UpstreamError  # a rung may say another in its place: what the client is told if none is left
    request: Requested | None = None  # None: it passes unread
    reword: Reword | None = None  # None: deployments are asked in one API only


Rung = Callable[[RefusedStep], Awaitable[Again | None]]  # None: it is not about this


async def another_key(refused: RefusedStep) -> Again | None:
    """Send the same request with the key that its upstream has chosen."""
    return Again(Role.KEY) if refused.error.has_another_key else None


async def another_form(refused: RefusedStep) -> Again | None:
    """Send it without what its status refused, or not so: its upstream keeps what was tried."""
    return Again(Role.FORM) if refused.error.has_another_form else None


async def remembered(refused: RefusedStep) -> None:
    """Ask nothing: remember what it says of the size of requests, and of reasoning."""
    note_refusal(refused.attempt, refused.call, refused.error)


async def whole(refused: RefusedStep) -> Again | None:
    """Ask for a whole answer, if streaming it was refused and its client does not stream."""
    return whole_after(refused.attempt, refused.call, refused.error)


async def form_told_within(refused: RefusedStep) -> Again | None:
    """Send it without what an error within an answer refused, of which nothing has come."""
    if refused.attempt.exchange is None or refused.request is None:
        return None
    return taught_after(refused.attempt, refused.call, refused.error, refused.request)


async def without_forcing(refused: RefusedStep) -> Again | None:
    """Ask for JSON that is given back as the call, or leave the choice to the model, if a forced call was refused."""
    if refused.reword is None or not refuses_forced_calls(refused.error):
        return None
    return await unforced_after(refused.attempt, refused.call, refused.error, refused.reword)


async def another_api(refused: RefusedStep) -> Again | None:
    """Ask in another API that the deployment has, if it lacks this one for such requests."""
    if refused.reword is None:
        return None
    again, refused.error = await another_api_after(refused.attempt, refused.call, refused.error, refused.reword)
    return again


# Also once something of the answer has come, where it continues another one, and where it passes unread.
BY_UPSTREAM: Sequence[Rung] = (another_key, another_form)
DEPLOYMENT: Sequence[Rung] = (*BY_UPSTREAM, remembered, whole, form_told_within, without_forcing, another_api)

# As what a request is recorded that another one repeats in its place: it counts against nobody, and costs nothing.
_REFUSED_AS = {Role.KEY: ErrorKind.KEY_REFUSED, Role.FORM: ErrorKind.FORM_REFUSED}


async def climbed(refused: RefusedStep, rungs: Sequence[Rung]) -> After:
    """Return how its deployment is asked after a refusal, by the first rung that is about it; and the error."""
    for rung in rungs:
        if (again := await rung(refused)) is not None:
            return again, refused.error
    return None, refused.error


def recorded(error: UpstreamError, again: Again | None) -> UpstreamError:
    """Return the error of an attempt after which its deployment is asked ``again``."""
    kind = None if again is None else _REFUSED_AS.get(again.role)
    return error if kind is None else error.again(kind)


# 2. The same model, when no rung is left at its deployment.


class OfModel(Protocol):
    """A model in a race, one of whose attempts has failed, as the rungs see it."""

    @property
    def is_asked(self) -> bool:
        """Whether any of its attempts may still answer."""

    def next_deployment(self) -> str | None:
        """Return the next candidate that has a free seat, which is none any more; None if there is none."""

    def is_late(self, deployment: str) -> bool:
        """Whether it is too late to ask ``deployment``."""

    def wait_for_seat(self) -> bool:
        """Wait for the first seat of those that are full; return whether there are any."""

    def ask(self, deployment: str) -> None:
        """Ask ``deployment`` in place of what has failed."""

    def ask_beside(self) -> bool:
        """Ask one more from the budget; return whether there is one."""

    def bound(self) -> tuple[str, Reworded] | None:
        """Return the first that has refused reasoning, each once, and the request without that; None: there is none."""

    def allow(self, deployment: str, reworded: Reworded) -> None:
        """Make ``deployment`` a candidate once more, for this request."""


ModelRung = Callable[[OfModel], bool]  # returns whether anybody is asked, or waited for


def another_deployment(of: OfModel) -> bool:
    """Ask the next candidate, or wait for a seat."""
    if (name := of.next_deployment()) is None:
        return of.wait_for_seat()
    if of.is_late(name):
        return False
    of.ask(name)
    return True


def one_beside(of: OfModel) -> bool:
    """Ask one more beside an invalid answer, which costs money all the same."""
    return of.ask_beside()


def without_thoughts(of: OfModel) -> bool:
    """Ask a deployment that has refused reasoning once more, without it, when no other is left.

    Where a client has edited its history that is what stood behind the edit.
    """
    if of.is_asked or (found := of.bound()) is None:
        return False
    of.allow(*found)
    return another_deployment(of)


MODEL: Sequence[ModelRung] = (another_deployment, without_thoughts)
AFTER_INVALID: Sequence[ModelRung] = (one_beside, without_thoughts)  # if it is paid, and not in turn


def goes_on(of: OfModel, rungs: Sequence[ModelRung]) -> bool:
    """Go up these rungs; return whether a deployment is asked, or waited for."""
    return any(rung(of) for rung in rungs)


# 3. The same call, when no deployment of a model is left.


class OfModels(Protocol):
    """The models of a call, of which those asked so far have failed, as the rungs see them."""

    open_call: OpenCall
    failed: list[tuple[str, ApiError]]  # why, in this order

    @property
    def own(self) -> str | None:
        """The model that was asked for; None: it cannot be used."""

    def turn_s(self, model: str, wait_s: float) -> float:
        """Return when it is this call's turn to ask ``model``, which is free in ``wait_s``."""

    async def use_next(self) -> bool:
        """Go on with the next model that limits and money allow; return whether there is one."""

    async def use_own(self) -> bool:
        """Go on with the model that was asked for, planned once more; return whether limits and money allow it."""

    async def use_roomiest(self) -> bool:
        """Go on with who gives the longest answer beside the prompt, for as much; return whether there is one, once."""


CallRung = Callable[[OfModels], Awaitable[bool]]  # returns whether a model is to be asked


async def another_model(of: OfModels) -> bool:
    """Ask a fallback, unless two filters have refused the request."""
    return of.open_call.filtered <= 1 and await of.use_next()


async def once_free(of: OfModels) -> bool:
    """Wait until the asked model's first deployment is free, and ask it once more, if all are limited and it said when.

    No attempt runs meanwhile; it is within what calls wait for a seat. One call goes after the other.
    """
    open_call, services = of.open_call, of.open_call.services
    own = dict(of.failed).get(of.own or "")  # none: it could not be asked, and still cannot
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
    open_call.unasked_since = services.clock()  # the wait is none of our own time
    return await of.use_own()


async def a_shorter_answer(of: OfModels) -> bool:
    """Ask for as much as one of those gives that have all refused what was asked for: it is better than none."""
    told = told_of(of.failed)
    is_limit = isinstance(told, RejectedByProvider) and told.limit is not None and told.limit.what == ANSWER
    return (is_limit or told.meaning is Meaning.TOO_LONG) and await of.use_roomiest()


CALL: Sequence[CallRung] = (another_model, once_free, a_shorter_answer)


async def has_next(of: OfModels) -> bool:
    """Go up the rungs of a call; return whether another model is to be asked, or one once more.

    No rung is about a call that has made as many requests as it may, or may run already. Such a call does not wait
    either: the errors so far tell more.
    """
    if of.open_call.sent.left <= 0 or of.open_call.may_run_on:
        return False
    for rung in CALL:
        if await rung(of):
            return True
    return False
