"""Counts how often a request was sent, and with which key, also if it was dropped before any response."""

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from providers.refusals import UpstreamError


MOST_OF_CALL: Final = 15  # requests, by default: deployments, keys, forms and fallbacks multiply
MOST_WITH_KEYS: Final = 25  # requests, by default, where a provider has a long ring of keys


def most_of_call(keys: int) -> int:
    """Return how many requests one call makes by default: a ring of so many keys is tried to its end and one more."""
    return max(MOST_OF_CALL, min(keys + 1, MOST_WITH_KEYS))


class OfCall(msgspec.Struct, eq=False):
    """How many requests were made for one call, by all its attempts."""

    number: int = 0
    most: int = MOST_OF_CALL  # that may be made

    @property
    def left(self) -> int:
        """How many more may be made."""
        return self.most - self.number

    def one_more(self) -> bool:
        """Count one more request; return whether it may be made."""
        if self.number >= self.most:
            return False
        self.number += 1
        return True


class SendCount(msgspec.Struct, eq=False):  # a struct is made without a Python call
    """How often one request was written to a connection, and with which key; set by the upstream."""

    number: int = 0
    key_name: str | None = None  # of the last key, by ``key_names``; None if the provider has only one key
    # Paths of fields that its provider was not sent, or not so, as it refuses them.
    left_out: tuple[str, ...] = ()
    most: int = 0  # tokens of the answer that were asked for, where its provider was asked for more; 0: it was not
    # Tells the key ring, once the answer has begun: an event with an error is known to whoever reads the events.
    failed: "Callable[[UpstreamError], object] | None" = None
    is_known: bool = True  # with litellm, only once the answer's headers have arrived

    # By who has several keys or forms for it: which of them were tried. Whoever sends it again keeps this.
    tried: dict[object, Any] | None = None

    of_call: OfCall | None = None  # counts those of its attempt's first request already; None: of no call

    def may_repeat(self) -> bool:
        """Count the same request with another key, or in another form; return whether it may be sent."""
        return self.of_call is None or self.of_call.one_more()

    def may_be_repeated(self, error: "UpstreamError", what: str = "another key was not asked") -> bool:
        """Return whether the same request may be sent once more; if not, its ``error`` tells that, and ``what``."""
        of_call = self.of_call
        if of_call is None or of_call.left > 0:
            return True
        error.noted(f" ({what}: this call has made {of_call.number} requests, its max_requests)")
        return False

    def trying(self, of: object, tried: object | None) -> None:
        """Keep what ``of`` knows of what it has ``tried`` with this request; None: it is done with it."""
        if tried is not None:
            self.tried = {**(self.tried or {}), of: tried}
        elif self.tried is not None:
            self.tried.pop(of, None)

    @property
    def times(self) -> int | None:
        """How often it was sent; more than once if a kept connection was lost. None: unknown."""
        return self.number if self.is_known else None
