"""Who is asked next after a refusal, and in which words: one ladder, whose rungs are tried in this order.

1. ``LADDER``, here: the same deployment, in the refused request's seat, each by an attempt of its own.
2. Another deployment of the model: ``Replacements.replace``.
3. The same request without the reasoning that no key can read: ``Entry.fail``.
4. Another model, or a wait: ``CallRunner``, after limits and money.

All together make no more requests than ``max_requests`` (``OfCall``), and the last error tells when that was reached.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from gateway.core.attempts import Role
from gateway.core.calls import Call
from gateway.racing.other_forms import (
    After,
    Again,
    Asked,
    Requested,
    Reword,
    another_api_after,
    note_refusal,
    taught_after,
    unforced_after,
    whole_after,
)
from providers import ErrorKind, UpstreamError, refuses_forced_calls

NOT_AGAIN = "its deployment was not asked again"


class Refused(msgspec.Struct, eq=False):
    """A request that was refused, as the rungs see it."""

    attempt: Asked
    call: Call
    error: UpstreamError  # a rung may say another in its place: what the client is told if none is left
    request: Requested | None = None  # None: it passes unread
    reword: Reword | None = None  # None: deployments are asked in one API only


Rung = Callable[[Refused], Awaitable[Again | None]]  # None: it is not about this


async def another_key(refused: Refused) -> Again | None:
    """Send the same request with the key that its upstream has chosen."""
    return Again(Role.KEY) if refused.error.has_another_key else None


async def another_form(refused: Refused) -> Again | None:
    """Send it without what its status refused, or not so: its upstream keeps what was tried."""
    return Again(Role.FORM) if refused.error.has_another_form else None


async def remembered(refused: Refused) -> None:
    """Ask nothing: remember what it says of the size of requests, and of reasoning."""
    note_refusal(refused.attempt, refused.call, refused.error)


async def whole(refused: Refused) -> Again | None:
    """Ask for a whole answer, if streaming it was refused and its client does not stream."""
    return whole_after(refused.attempt, refused.call, refused.error)


async def form_told_within(refused: Refused) -> Again | None:
    """Send it without what an error within an answer refused, of which nothing has come."""
    if refused.attempt.exchange is None or refused.request is None:
        return None
    return taught_after(refused.attempt, refused.call, refused.error, refused.request)


async def without_forcing(refused: Refused) -> Again | None:
    """Ask for JSON that is given back as the call, or leave the choice to the model, if a forced call was refused."""
    if refused.reword is None or not refuses_forced_calls(refused.error):
        return None
    return await unforced_after(refused.attempt, refused.call, refused.error, refused.reword)


async def another_api(refused: Refused) -> Again | None:
    """Ask in another API that the deployment has, if it lacks this one for such requests."""
    if refused.reword is None:
        return None
    again, refused.error = await another_api_after(refused.attempt, refused.call, refused.error, refused.reword)
    return again


# Also once something of the answer has come, where it continues another one, and where it passes unread.
BY_UPSTREAM: Sequence[Rung] = (another_key, another_form)
LADDER: Sequence[Rung] = (*BY_UPSTREAM, remembered, whole, form_told_within, without_forcing, another_api)

# As what a request is recorded that another one repeats in its place: it counts against nobody, and costs nothing.
_REFUSED_AS = {Role.KEY: ErrorKind.KEY_REFUSED, Role.FORM: ErrorKind.FORM_REFUSED}


async def climbed(refused: Refused, rungs: Sequence[Rung]) -> After:
    """Return how its deployment is asked after a refusal, by the first rung that is about it; and the error."""
    for rung in rungs:
        if (again := await rung(refused)) is not None:
            return again, refused.error
    return None, refused.error


def recorded(error: UpstreamError, again: Again | None) -> UpstreamError:
    """Return the error of an attempt after which its deployment is asked ``again``."""
    kind = None if again is None else _REFUSED_AS.get(again.role)
    return error if kind is None else error.again(kind)
