"""The driver of those who ask without a race: one key after the other, each by a request of its own."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from providers.http import SendCount
from providers.refusals import UpstreamError

_T = TypeVar("_T")


async def with_each_key(ask: Callable[[], Awaitable[_T]], sendings: SendCount) -> _T:
    """Return what ``ask`` returns with the first key that is not refused.

    ``ask`` sends one request, which ``sendings`` counts; each further one is sent with the key that its upstream chose.

    Raises:
        UpstreamError: no key is left; or an error that is not about keys.

    """
    while True:
        try:
            return await ask()
        except UpstreamError as error:
            if not error.has_another_key or not sendings.may_repeat():
                raise
