"""The driver of those who ask without a race: one key after the other, one form after the other, each by a request."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from providers.exchange import OfCall, Sendings
from providers.refusals import UpstreamError

_T = TypeVar("_T")


async def step_by_step(ask: Callable[[], Awaitable[_T]], sendings: Sendings) -> _T:
    """Return what ``ask`` returns with the first key that is not refused, and in a form that is not.

    ``ask`` sends one request, which ``sendings`` counts; each further one is sent as its upstream chose when it refused
    the one before. Where it is of no call, it makes as many as a call may by default.

    Raises:
        UpstreamError: neither a key nor a form is left, or as many requests were made, which it tells; or it is about
            something else.

    """
    own = sendings.of_call
    sendings.of_call = OfCall(number=1) if own is None else own
    try:
        while True:
            try:
                return await ask()
            except UpstreamError as error:
                if not (error.has_another_key or error.has_another_form) or not sendings.repeat():
                    raise
    finally:
        sendings.of_call = own
