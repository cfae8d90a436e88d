"""The replacement of a key by another, as one ``Upstream``: no call fails while only one of the two is valid.

The former key stays in use until the new one has answered, and is forgotten then. One request in ``TRY_NEW_EVERY_S``
tries the new key first. The error of a request that is refused with one key tells that another one is left: the
caller sends it again, as an attempt of its own, and gets the next key.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import TypeVar

import msgspec

from providers.dialects import Dialect, Loss
from providers.exchange import Exchange, Request, Sendings, TriedRotation, Upstream, UpstreamAnswer
from providers.keys.availability import LONG_AGO_S
from providers.keys.each import step_by_step
from providers.models import Listing
from providers.refusals import ErrorKind, Facts, UpstreamError

TRY_NEW_EVERY_S = 10.0  # a provider may need minutes until it knows a key everywhere; each try costs a round trip
_MOST_KEYS = 3  # of one place: the new one, the previous one, and the one that has answered

_T = TypeVar("_T")

# The keys that were configured at one place, the newest first. Those after the first are not forgotten yet.
Keys = list[str]


def succeeded(places: Mapping[int | str, str], before: Mapping[int | str, Keys]) -> dict[int | str, Keys]:
    """Return the keys of each place, given those that it had ``before``.

    A key that only moved from another place replaces none, and a key whose place is gone is forgotten at once.
    """
    configured = {keys[0] for keys in before.values()}
    found: dict[int | str, Keys] = {}
    for place, key in places.items():
        known = before.get(place, [])
        if known and known[0] == key:
            found[place] = known.copy()
        elif key in configured:
            found[place] = [key]
        else:
            formers = [each for each in known if each != key]
            found[place] = [key, *(formers if len(formers) < _MOST_KEYS else (formers[0], formers[-1]))]
    return found


class RotationOutcome(Enum):
    """The outcome of a new key."""

    DONE = auto()  # it has answered, and the former ones are forgotten
    REFUSED = auto()  # it is refused, and a former one is not


class RotatedKey:
    """An ``Upstream`` around those of a new key and of the keys that it replaces."""

    def __init__(
        self,
        keys: Keys,
        opened: Callable[[str], Upstream],  # opens the upstream of one key
        *,
        tell: Callable[[RotationOutcome], object],  # each at most once
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``keys``: at least two; forgotten ones are removed from this list."""
        self._keys = keys
        self._upstreams = [opened(key) for key in keys]  # beside ``keys``
        self._opened = tuple(self._upstreams)
        self._new = self._upstreams[0]
        self._in_use = self._upstreams[-1]
        self._tried_at_s = LONG_AGO_S
        self._tell = tell
        self._has_told_refused = False
        self._clock = clock
        self.accepts_all_parameters = self._new.accepts_all_parameters
        self.refused_fields = self._new.refused_fields
        self.can_fetch = self._new.can_fetch
        self.needs_warming = self._new.needs_warming
        self.learnt = self._new.learnt

    def __repr__(self) -> str:
        return f"RotatedKey({len(self._keys)} keys)"

    def learn(self, request: Request, error: UpstreamError) -> Facts:
        """Return what an error within an answer teaches of the model, with any key."""
        return self._new.learn(request, error)

    def losses(self, dialect: Dialect, model: str, fields: Mapping[str, msgspec.Raw]) -> Sequence[Loss]:
        """Return the parts of a request that the provider would refuse, with any key."""
        return self._new.losses(dialect, model, fields)

    async def stream(self, request: Request) -> Exchange:
        """Request an answer with the key in use; once more with the next one.

        Raises:
            UpstreamError: this key is refused, and another one is left; or all are; or it is not about keys.

        """
        return await self._ask(lambda upstream: upstream.stream(request), request.sendings)

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        """Post with the key in use; once more with the next one.

        Raises:
            UpstreamError: as for ``stream``.

        """
        return await self._ask(lambda upstream: upstream.send(path, request), request.sendings)

    async def fetch(self, method: str, path: str, query: list[tuple[str, str]]) -> UpstreamAnswer:
        """Send a request without a body with the key in use, and with the others if that is refused.

        Raises:
            UpstreamError: as for ``stream``.

        """
        return await self._with_each(lambda upstream: upstream.fetch(method, path, query))

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:
        """Return the models offered to the key in use, or to the others if that is refused.

        Raises:
            UpstreamError: as for ``stream``.

        """
        return await self._with_each(lambda upstream: upstream.list_models(connect_timeout_s))

    def connect(self) -> None:
        """Have a connection open with each key."""
        for upstream in self._opened:
            upstream.connect()

    async def warm_up(self) -> None:
        """Load what the first request would wait for, with each key."""
        for upstream in self._opened:
            await upstream.warm_up()

    async def aclose(self) -> None:
        """Close the connections of all keys, also of those that are forgotten: a request may have used them still."""
        for upstream in self._opened:
            await upstream.aclose()

    async def _with_each(self, ask: Callable[[Upstream], Awaitable[_T]]) -> _T:
        sendings = Sendings()
        return await step_by_step(lambda: self._ask(ask, sendings), sendings)

    async def _ask(self, ask: Callable[[Upstream], Awaitable[_T]], sendings: Sendings) -> _T:
        """Return the answer with one key: the first of the order, or the next one that ``sendings`` was not sent with.

        Raises:
            UpstreamError: with another key left; else the new key's, as that is the one to correct; or an error that is
                not about keys.

        """
        tried = None if sendings.tried is None else sendings.tried.rotation
        if tried is None:
            if len(self._upstreams) == 1:
                return await ask(self._new)
            tried = TriedRotation([*self._order()])
        place = tried.left.pop(0)
        upstream = self._opened[place]
        try:
            answer = await ask(upstream)
        except UpstreamError as error:
            sendings.trying.rotation = None
            if error.has_another_form:
                tried.left.insert(0, place)
                sendings.trying.rotation = tried
                raise
            if error.kind is not ErrorKind.PROVIDER_AUTH and not error.is_barred:
                raise
            if upstream is self._new:
                tried.of_new = error.again(error.kind)  # whoever asks again changes this one
            error.has_another_key = bool(tried.left) and not sendings.noted_as_last(error)
            if error.has_another_key:
                sendings.trying.rotation = tried
                raise
            if tried.left or upstream is self._new or tried.of_new is None:
                raise
            raise tried.of_new from error
        if sendings.tried is not None:
            sendings.tried.rotation = None
        self._note(upstream, is_new_refused=tried.of_new is not None)
        return answer

    def _order(self) -> Iterable[int]:
        """Return the places of the keys in the order of tries.

        The first one is tried again at the end: the provider may switch to its key between two refusals.
        """
        now_s = self._clock()
        first = [self._in_use, self._new]
        if now_s - self._tried_at_s >= TRY_NEW_EVERY_S:
            self._tried_at_s = now_s
            first.reverse()
        return map(self._opened.index, (*dict.fromkeys([*first, *self._upstreams]), first[0]))

    def _note(self, upstream: Upstream, *, is_new_refused: bool) -> None:
        """Handle an answer: keys that are older than this one are forgotten."""
        if len(self._upstreams) == 1 or upstream not in self._upstreams:  # a newer one has answered meanwhile
            return
        place = self._upstreams.index(upstream)
        del self._upstreams[place + 1 :], self._keys[place + 1 :]
        self._in_use = upstream
        if upstream is self._new:
            self._tell(RotationOutcome.DONE)
        elif is_new_refused and not self._has_told_refused:
            self._has_told_refused = True
            self._tell(RotationOutcome.REFUSED)
