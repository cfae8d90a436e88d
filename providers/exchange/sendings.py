"""How often a request was sent, with which key and in what form, also if dropped before any response."""

from collections.abc import Callable
from typing import Final

import msgspec

from providers.http import SendCount
from providers.refusals import Facts, UpstreamError

MOST_OF_CALL: Final = 15  # requests, by default: deployments, keys, forms and fallbacks multiply
MOST_WITH_KEYS: Final = 25  # requests, by default, where a provider has a long ring of keys


def most_of_call(keys: int) -> int:
    """Return how many requests one call makes by default: as many as there are ``keys``, and one; from 15 up to 25."""
    return max(MOST_OF_CALL, min(keys + 1, MOST_WITH_KEYS))


class OfCall(msgspec.Struct, eq=False):
    """How many requests were made for one call, by all its attempts."""

    number: int = 0
    most: int = MOST_OF_CALL  # the requests that may be made

    @property
    def left(self) -> int:
        """How many more requests may be made."""
        return self.most - self.number

    def one_more(self) -> bool:
        """Count one more request; return whether the request may be made."""
        if self.number >= self.most:
            return False
        self.number += 1
        return True


# What was tried of a request that is sent again, in the places that decide what is sent next.


class TriedForms(msgspec.Struct, eq=False):
    """The forms in which one request was sent: see ``trying.py``."""

    known: Facts  # facts from before this request
    facts: Facts  # ``known``, and what the refusals have taught
    first: UpstreamError  # the first refusal, unchanged
    withheld: Facts = ()  # what was left out together, after some refusals, and not itself refused
    last: str = ""  # why the request was refused last, for the log and the page
    is_again: bool = False  # whether the request was sent in a second form
    is_of_must: bool = False  # whether a refusal was about something that the request needs

    @property
    def new(self) -> Facts:
        """The facts that the refusals have taught."""
        return self.facts[len(self.known) :]


class TriedKeys(msgspec.Struct, eq=False):
    """The keys of a provider with which one request was sent, as numbers: see ``ring.py``."""

    numbers: set[int] = msgspec.field(default_factory=set)
    doubted: list[tuple[int, UpstreamError]] = []  # keys that failed, perhaps by the request's fault
    next: int | None = None  # the key with which the request is sent next


class TriedRotation(msgspec.Struct, eq=False):
    """The new key and the keys that it replaces, as far as one request was sent with these: see ``rotation.py``."""

    left: list[int]  # the places of the keys that are tried next, in this order
    of_new: UpstreamError | None = None  # the new key's error, unchanged


class Tried(msgspec.Struct):
    """What was tried of one request, and so what is sent next. Each part belongs to one upstream; None: nothing."""

    forms: TriedForms | None = None
    keys: TriedKeys | None = None
    rotation: TriedRotation | None = None  # of the key in ``keys.next``


class Sendings(SendCount, eq=False):
    """How often one request was written to a connection, and with which key and form; set by the upstream."""

    key_name: str | None = None  # of the last key, by ``key_names``; None if the provider has only one key
    # Paths of the fields that the provider refuses, and that were left out or sent with another value.
    left_out: tuple[str, ...] = ()
    # The client's limit of the answer in tokens, if the provider was asked for more (``Kind.LEAST``); else 0.
    most: int = 0
    # Called by the reader of an answer with an error within the answer, for the key ring, which does not read answers.
    failed: Callable[[UpstreamError], object] | None = None
    is_known: bool = True  # with litellm, only once the answer's headers have arrived
    tried: Tried | None = None  # what was tried of the same request before; handed on when the request is sent again
    of_call: OfCall | None = None  # the call's count, in which the attempt's first request is already; None: no call

    def repeat(self) -> bool:
        """Count the same request with another key, or in another form; return whether it may be sent."""
        return self.of_call is None or self.of_call.one_more()

    def noted_as_last(self, error: UpstreamError, what: str = "another key was not asked") -> bool:
        """Return whether the call may make no further request; if so, ``error`` says so, and ``what`` was not done."""
        of_call = self.of_call
        if of_call is None or of_call.left > 0:
            return False
        error.noted(f" ({what}: this call has made {of_call.number} requests, its max_requests)")
        return True

    @property
    def trying(self) -> Tried:
        """What was tried, to be changed by the upstream that has sent the request."""
        if self.tried is None:
            self.tried = Tried()
        return self.tried

    @property
    def times(self) -> int | None:
        """How often the request was sent; more than once if a kept connection was lost. None: unknown."""
        return self.number if self.is_known else None
