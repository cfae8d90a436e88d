"""Several keys of one provider as one ``Upstream``: each request uses the key with the most headroom.

The provider limits each key for each model, and for each API whose requests are not raced. Headroom is assumed to
refill steadily within a minute. After a 429 a key rests for as long as the provider says; a refused key is tried once a
minute. A ring sends a request once: the error of a limited or refused key says whether another key is left. If so, that
key is chosen already, and the caller asks again at once, as another attempt.

A conversation stays with the key that answered it last, whose prompt cache has it, while that key works and has room.
Other conversations are spread over the keys.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from math import inf
from typing import TypeVar

import msgspec

from providers.dialects import Dialect, Loss
from providers.exchange import (
    Apart,
    Exchange,
    Request,
    Sendings,
    TriedKeys,
    Upstream,
    UpstreamAnswer,
    WrappedExchange,
)
from providers.keys.availability import Availability, KeyReadiness, Waits
from providers.keys.each import step_by_step
from providers.models import Listing
from providers.refusals import (
    OF_ONE_KEY,
    About,
    ErrorKind,
    Facts,
    Findings,
    UpstreamError,
    bars_model,
    headroom,
)

# The names of a provider's keys in the ledger. Names distinguish the keys, and are not secret.

SHOWN_CHARS = 4  # the last characters of a key, which vendors' consoles show too
SHORTEST_CHARS = 16  # for shorter keys, four characters are too many


def key_names(keys: Sequence[str], own: Sequence[str | None] = ()) -> tuple[str, ...]:
    """Return a name for each of ``keys``: its ``own``, else its last four characters, else its number: ``#2``.

    Keys whose names would be equal get their numbers.
    """
    names = [_name(key, named) for key, named in zip(keys, own or (None,) * len(keys), strict=True)]
    return tuple(
        name if name is not None and names.count(name) == 1 else f"#{number}" for number, name in enumerate(names, 1)
    )


def _name(key: str, own: str | None) -> str | None:
    return own or (f"…{key[-SHOWN_CHARS:]}" if len(key) >= SHORTEST_CHARS else None)


# An exchange with one of several keys. It notifies the key ring when it ends.


class KeyRingExchange(WrappedExchange):
    """An ``Exchange`` around another, with the ring's headers."""

    def __init__(
        self,
        exchange: Exchange,
        headers: Mapping[str, str],
        *,
        over: Callable[[], None],  # called once, at the end
    ) -> None:
        super().__init__(exchange)
        self.headers = headers
        self._over: Callable[[], None] | None = over

    async def read(self) -> bytes:
        """Return the next bytes of the event stream, ``b""`` at its end.

        Raises:
            UpstreamError: as of the inner exchange.

        """
        try:
            block = await self._exchange.read()
        except BaseException:
            self._end()
            raise
        if not block:
            self._end()
        return block

    def conclude(self) -> bytes:
        """Return the end that was held back."""
        self._end()
        return self._exchange.conclude()

    def abort(self) -> None:
        """Drop the exchange at once; without effect after the end or an abort."""
        self._end()
        self._exchange.abort()

    def _end(self) -> None:
        over, self._over = self._over, None
        if over is not None:
            over()


# Which key answered a conversation last, as prompt caches belong to keys.

WARM_S = 300.0  # vendors: since the last use: the shortest life of a cache that a vendor promises
KEPT = 20_000  # bound: of one provider
# judgement: how many conversations beyond its share a key may have, and by which part of it, before the next key is
# taken
SLACK = 0.25
SLACK_SHARE = 0.1


class Conversations:
    """Which key answered which conversation, within the life of a cache. Keys are numbers; all times are of one clock.

    An organization has a cache for each model, so a conversation may have one key for each model.
    """

    __slots__ = ("_kept", "count")

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, bytes], tuple[int, float]] = OrderedDict()  # the last used at the end
        self.count: dict[int, int] = {}  # conversations by key

    def key_of(self, model: str, conversation: bytes, now_s: float) -> int | None:
        """Return the key that answered the conversation last, if that key's cache should still have it."""
        self._forget(now_s)
        known = self._kept.get((model, conversation))
        return None if known is None else known[0]

    def answered(self, model: str, conversation: bytes, key: int, now_s: float) -> None:
        """Note that this key has just been sent the whole conversation, and answers."""
        self._drop((model, conversation))
        self._kept[model, conversation] = key, now_s
        self.count[key] = self.count.get(key, 0) + 1
        self._forget(now_s)

    def _forget(self, now_s: float) -> None:
        while self._kept:
            oldest = next(iter(self._kept))
            if len(self._kept) <= KEPT and now_s - self._kept[oldest][1] < WARM_S:
                return
            self._drop(oldest)

    def _drop(self, which: tuple[str, bytes]) -> None:
        known = self._kept.pop(which, None)
        if known is not None:
            self.count[known[0]] -= 1


def spread(conversation: bytes, names: Sequence[str], loads: Sequence[float]) -> int:
    """Return the place of a key for a new conversation: the same in every replica, as far as loads allow.

    Rendezvous hashing with bounded loads: the order of the keys depends only on the conversation and the keys' names,
    and a key with clearly more than its share of the ``loads`` is skipped.
    """
    most = (1.0 + SLACK_SHARE) * sum(loads) / len(loads) + SLACK
    return next(each for each in _ordered(conversation, names) if loads[each] <= most)


def _ordered(conversation: bytes, names: Sequence[str]) -> Iterator[int]:
    drawn = [blake2b(name.encode(), digest_size=8, key=conversation).digest() for name in names]
    yield from sorted(range(len(names)), key=drawn.__getitem__)


# The keys and their ring.

REFILL_S = 60.0  # limits are per minute
COOL_S = 0.5  # after a 429 without retry-after
TRY_REFUSED_EVERY_S = 60.0  # only a person can correct a key
_STEPS = 20  # headroom is compared in twentieths: with small differences a burst would go to one key
ROOM = 0.1  # of a key's rate limit: with less, conversations leave the key for one that has more
AS_MUCH = 0.25  # less headroom than another key, with which a key is still given new conversations
# A key with more requests under way than this many, and than this many times those of another key, has no room: all of
# its requests may be of one conversation.
CROWD = 4
CROWD_TIMES = 2.0
_MOST_MODELS = 1000  # per key; clients may name any model
_MOST_MET = 1000  # the same for what single clients have met
_CLIENTS = 3  # so many clients have met the same: the cause is not one client any more
_UNAUTHORIZED = 401
# A key rests for as long as its 429 says. Another key is used meanwhile.
_WAITS = Waits(cool_min_s=COOL_S, cool_max_s=inf, try_every_s=TRY_REFUSED_EVERY_S, refill_s=REFILL_S)

_NO_KEYS: frozenset[str] = frozenset()

_T = TypeVar("_T")


class _Key:
    """One key, its upstream and its state."""

    __slots__ = ("_met", "_models", "everywhere", "in_flight", "name", "number", "turn", "upstream")

    def __init__(self, number: int, name: str, upstream: Upstream) -> None:
        self.number = number
        self.name = name  # in the ledger
        self.upstream = upstream
        self.in_flight = 0
        self.turn = 0  # the ring's number of the last request with this key
        self.everywhere = Availability(_WAITS)  # for all models: an unknown key is refused for all
        self._models: dict[str, Availability] = {}
        self._met: dict[
            tuple[str, str], Availability
        ] = {}  # by model and client: failures that the client's own requests may have caused

    def at(self, model: str) -> Availability:
        if (known := self._models.get(model)) is None:
            if len(self._models) >= _MOST_MODELS:
                self._models.clear()
            known = self._models[model] = Availability(_WAITS)
        return known

    def both(self, model: str) -> tuple[Availability, Availability]:
        return self.everywhere, self.at(model)

    def of(self, model: str, client: str | None) -> tuple[Availability, ...]:
        """Return what holds for requests of ``client``."""
        own = self._met.get((model, client)) if self._met and client is not None else None
        return self.both(model) if own is None else (*self.both(model), own)

    def refused(self, model: str, client: str | None = None) -> bool:
        return any(each.refused for each in self.of(model, client))

    def cooling_s(self, model: str, client: str | None, now_s: float) -> float:
        return max(each.cooling_s(now_s) for each in self.of(model, client))

    def meet(self, model: str, client: str, error: UpstreamError, now_s: float) -> None:
        """Hold a failure that ``client`` has met against the key, for that client; for all once several have met it."""
        if len(self._met) >= _MOST_MET:
            self._met.clear()
        _hold(self._met.setdefault((model, client), Availability(_WAITS)), error, now_s)
        if sum(name == model for name, _ in self._met) >= _CLIENTS:
            self.failed(model, error, now_s)

    def is_ready(self, model: str, now_s: float) -> bool:
        return all(each.readiness(now_s) is KeyReadiness.READY for each in self.both(model))

    def may_be_asked(self, model: str, now_s: float, client: str | None = None) -> bool:
        """Whether the key is ready, or refused and due for a try."""
        known = self.of(model, client)
        return all(each.readiness(now_s) is KeyReadiness.READY or each.is_due(now_s) for each in known)

    def tried(self, model: str, now_s: float, client: str | None = None) -> None:
        """Note that a refused key is being tried: no second request tries it."""
        for each in self.of(model, client):
            each.tried(now_s)

    def answered(self, model: str, headers: Mapping[str, str], now_s: float, client: str | None = None) -> None:
        """Handle an answer: the key is valid, and the headers report its headroom."""
        for each in self.both(model):
            each.answered()
        if self._met and client is not None:
            self._met.pop((model, client), None)
        if (left := headroom(headers)) is not None:
            self.at(model).told(left, now_s)

    def failed(self, model: str, error: UpstreamError, now_s: float, *, holds: bool = True) -> bool:
        """Handle a failure; return whether another key may succeed. ``holds``: the key is at fault, not the request."""
        if error.kind is ErrorKind.RATE_LIMITED:
            if holds:
                self.at(model).cool(error.retry_after_s, now_s)
            return True
        if error.scope in OF_ONE_KEY or error.is_barred:
            return True
        if error.kind is ErrorKind.PROVIDER_AUTH:  # a 403 may be about this model only
            if holds:
                is_bad = error.status == _UNAUTHORIZED and not bars_model(error)
                (self.everywhere if is_bad else self.at(model)).refuse(now_s)
            return True
        return False


def _hold(availability: Availability, error: UpstreamError, now_s: float) -> None:
    if error.kind is ErrorKind.RATE_LIMITED:
        availability.cool(error.retry_after_s, now_s)
    elif error.kind is ErrorKind.PROVIDER_AUTH:
        availability.refuse(now_s)


def _as_it_can_read(request: Request, apart: Apart) -> Request:
    """Return ``request`` without reasoning that the chosen key's account cannot read."""
    if request.sendings.key_name not in apart.keys:
        return request
    return msgspec.structs.replace(request, fields=apart.fields)


def _is_crowded(key: _Key, keys: Sequence[_Key]) -> bool:
    others = [each.in_flight for each in keys if each is not key]
    return bool(others) and key.in_flight > max(CROWD, CROWD_TIMES * sum(others) / len(others))


class KeyRing:
    """An ``Upstream`` around one upstream per key."""

    def __init__(
        self,
        provider: str,
        keys: Sequence[str],
        opened: Callable[[str], Upstream],  # opens the upstream of one key
        *,
        names: Sequence[str | None] = (),  # of the keys, if set by the operator
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._provider = provider
        named = zip(keys, key_names(keys, names), strict=True)
        self._keys = [_Key(number, name, opened(key)) for number, (key, name) in enumerate(named, 1)]
        self.accepts_all_parameters = all(key.upstream.accepts_all_parameters for key in self._keys)
        self.refused_fields = frozenset[str]().union(*(key.upstream.refused_fields for key in self._keys))
        self.can_fetch = all(key.upstream.can_fetch for key in self._keys)
        self.needs_warming = any(key.upstream.needs_warming for key in self._keys)
        self.learnt = self._keys[0].upstream.learnt
        self._clock = clock
        self._turn = 0
        self._conversations = Conversations()

    def __repr__(self) -> str:
        return f"KeyRing({self._provider!r}, {len(self._keys)} keys)"

    def learn(self, request: Request, error: UpstreamError) -> Facts:
        """Return what an error within an answer teaches of the model, with any key."""
        return self._keys[0].upstream.learn(request, error)

    def losses(self, dialect: Dialect, model: str, fields: Mapping[str, msgspec.Raw]) -> Sequence[Loss]:
        """Return the parts of a request that the provider would refuse, with any key."""
        return self._keys[0].upstream.losses(dialect, model, fields)

    def connect(self) -> None:
        """Have a connection open with each key."""
        for key in self._keys:
            key.upstream.connect()

    async def warm_up(self) -> None:
        """Prepare the upstreams of all keys."""
        for key in self._keys:
            if key.upstream.needs_warming:
                await key.upstream.warm_up()

    async def stream(self, request: Request) -> Exchange:
        """Request an answer with the best key; once more with the next one.

        Raises:
            UpstreamError: this key is limited or refused, and another is left; or none is left, with the least
                ``retry-after``; or the error is not about keys.

        """
        model, apart = request.model, request.apart  # the request itself would keep the prompt
        exchange, key = await self._ask(
            model,
            lambda upstream: upstream.stream(request if apart is None else _as_it_can_read(request, apart)),
            request.sendings,
            request.first_key,
            keys=self._keys_for(request),
            apart=_NO_KEYS if apart is None else apart.keys,
            conversation=request.conversation,
            client=request.client,
        )
        if apart is not None and key.name in apart.keys:
            request.sendings.left_out += apart.left_out
        key.answered(model, exchange.headers, self._clock(), request.client)
        if request.conversation is not None:
            self._conversations.answered(model, request.conversation, key.number, self._clock())
        request.sendings.failed = self._failed_with(key, model, request)
        return KeyRingExchange(exchange, self._headers(model, exchange.headers), over=lambda: self._over(key))

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        """Post with the best key; once more with the next one.

        Raises:
            UpstreamError: as for ``stream``.

        """
        model = f"{request.model} ({path})"  # a key that is refused here may be valid for the model's answers
        keys = self._keys_for(request)
        answer, key = await self._ask(
            model,
            lambda upstream: upstream.send(path, request),
            request.sendings,
            keys=keys,
            client=request.client,
        )
        self._over(key)
        key.answered(model, answer.headers, self._clock(), request.client)
        request.sendings.failed = self._failed_with(key, model, request)
        return msgspec.structs.replace(answer, headers=self._headers(model, answer.headers))

    async def fetch(self, method: str, path: str, query: list[tuple[str, str]]) -> UpstreamAnswer:
        """Send a request without a body with one key after the other, as stored objects belong to one account.

        Raises:
            UpstreamError: as of ``send``; always not_found where the keys' upstreams cannot fetch.

        """
        unknown: UpstreamError | None = None
        for key in self._keys:
            try:
                return await key.upstream.fetch(method, path, query)
            except UpstreamError as error:
                if error.kind.facts.about is not About.OPERATOR:
                    raise
                unknown = unknown or error
        assert unknown is not None  # a ring has keys
        raise unknown

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:
        """Return the models offered to the best key; if that is limited or refused, to the next one.

        Raises:
            UpstreamError: as for ``stream``.

        """
        sendings = Sendings()
        listing, key = await step_by_step(
            lambda: self._ask("", lambda upstream: upstream.list_models(connect_timeout_s), sendings), sendings
        )
        self._over(key)
        return listing

    async def aclose(self) -> None:
        """Close the connections of all keys."""
        for key in self._keys:
            await key.upstream.aclose()

    async def _ask(
        self,
        model: str,
        ask: Callable[[Upstream], Awaitable[_T]],
        sendings: Sendings,
        first: str | None = None,
        *,
        keys: Sequence[_Key] = (),
        apart: frozenset[str] = _NO_KEYS,
        conversation: bytes | None = None,
        client: str | None = None,
    ) -> tuple[_T, _Key]:
        """Return the answer with one key, and that key; its request stays in flight. ``first``: the name of a key.

        The key is the one chosen when the last one was refused, else the best. ``keys``: those that may be asked; none:
        all. ``apart``: names of keys that come last. ``conversation`` and ``client``: as in ``Request``. If every key
        fails and the request may be at fault, the failures count against the keys for this client. If one key answers,
        they count against the failed keys for everybody.
        """
        before = sendings.tried
        tried, keys = (None if before is None else before.keys) or TriedKeys(), keys or self._keys
        best = partial(self._best, model, keys, tried.numbers, first, conversation, client, apart)
        key = best() if tried.next is None else self._keys[tried.next - 1]
        if key is None:
            raise self._none_left(model, keys, None, client)
        self._begin(key, model, client)
        tried.numbers.add(key.number)
        sendings.key_name = key.name
        try:
            answer = await ask(key.upstream)
        except BaseException as error:
            self._over(key)
            if not isinstance(error, UpstreamError):
                raise
            sendings.trying.keys = None
            is_rotated = sendings.trying.rotation is not None  # and another key of the same place is left
            tried.next = key.number if is_rotated or error.has_another_form else None
            if tried.next is None:
                holds = client is None or error.findings.is_certain
                if not key.failed(model, error, self._clock(), holds=holds):
                    raise
                if not holds:
                    tried.doubted.append((key.number, error.again(error.kind)))  # whoever asks again changes this one
                following = best()
                tried.next = None if following is None else following.number
                error.has_another_key = following is not None and not sendings.noted_as_last(error)
            if error.has_another_key or error.has_another_form:
                sendings.trying.keys = tried
                raise
            self._settle(model, client, tried.doubted)
            if tried.next is not None or error.scope in OF_ONE_KEY or error.is_barred:
                raise
            raise self._none_left(model, keys, error, client) from error
        if sendings.tried is not None:
            sendings.tried.keys = None
            self._settle(model, None, tried.doubted)
        return answer, key

    def _begin(self, key: _Key, model: str, client: str | None) -> None:
        key.tried(model, self._clock(), client)
        key.in_flight += 1
        self._turn += 1
        key.turn = self._turn

    def _settle(self, model: str, client: str | None, doubted: Sequence[tuple[int, UpstreamError]]) -> None:
        """Hold failures against keys for ``client``; None: for all, as another key has taken the same request."""
        for number, error in doubted:
            key = self._keys[number - 1]
            if client is None:
                key.failed(model, error, self._clock())
            else:
                key.meet(model, client, error, self._clock())

    def _best(  # noqa: PLR0917 - what a request says of keys
        self,
        model: str,
        keys: Sequence[_Key],
        tried: Collection[int],
        first: str | None,
        conversation: bytes | None,
        client: str | None,
        apart: frozenset[str],
    ) -> _Key | None:
        """Return the next usable key of those that were not ``tried``: ``first``, then the best.

        Keys in ``apart`` come last.
        """
        now_s = self._clock()
        usable = [key for key in keys if key.number not in tried and key.may_be_asked(model, now_s, client)]
        has_it = None if conversation is None else self._with_cache(model, conversation, usable, now_s)
        return min(
            usable,
            key=lambda key: (key.name != first, key.name in apart, key is not has_it, *self._rank(key, model, now_s)),
            default=None,
        )

    def _with_cache(self, model: str, conversation: bytes, usable: Sequence[_Key], now_s: float) -> _Key | None:
        """Return the key whose cache has a conversation, or should get it; None: the cache does not decide.

        The key that has the conversation is used while it has room. A new conversation goes to one of the keys with
        about as much room as any. But a refused key that is due is tried first.
        """
        keys = [key for key in usable if not key.refused(model)]
        if not keys:
            return None
        number = self._conversations.key_of(model, conversation, now_s)
        for key in keys:
            if key.number == number and key.at(model).headroom(now_s) >= ROOM and not _is_crowded(key, keys):
                return key
        most = max(key.at(model).headroom(now_s) for key in keys)
        if most < ROOM or len(keys) < len(usable):
            return None
        able = [key for key in keys if key.at(model).headroom(now_s) >= max(ROOM, most - AS_MUCH)]
        loads = [self._conversations.count.get(key.number, 0) + key.in_flight for key in able]
        return able[spread(conversation, [key.name for key in able], loads)]

    def _keys_for(self, request: Request) -> Sequence[_Key]:
        """Return the one key that may be used; all keys if none is named, or the named key is gone."""
        return [key for key in self._keys if key.name == request.key_name] or self._keys

    @staticmethod
    def _rank(key: _Key, model: str, now_s: float) -> tuple[bool, int, int, int]:
        """Return the sort key, the least first. A refused key that is due comes first: else it would stay unused."""
        return not key.refused(model), -round(key.at(model).headroom(now_s) * _STEPS), key.in_flight, key.turn

    def _failed_with(self, key: _Key, model: str, request: Request) -> Callable[[UpstreamError], object]:
        is_known = request.client is not None
        return lambda error: key.failed(model, error, self._clock(), holds=error.findings.is_certain or not is_known)

    def _over(self, key: _Key) -> None:
        key.in_flight -= 1

    def _headers(self, model: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return a response's headers with the headroom of the ring instead of one key's."""
        if not any(key.at(model).has_told for key in self._keys):
            return headers
        now_s, count = self._clock(), len(self._keys)
        left = sum(key.at(model).headroom(now_s) for key in self._keys if key.is_ready(model, now_s))
        share = left / count
        kept = {name: value for name, value in headers.items() if "ratelimit" not in name}
        return kept | {
            "x-ratelimit-limit-keys": str(count),
            "x-ratelimit-remaining-keys": f"{share * count:.3f}",
        }

    def _none_left(
        self, model: str, keys: Sequence[_Key], last: UpstreamError | None, client: str | None
    ) -> UpstreamError:
        now_s = self._clock()
        wait_s: float | None
        status: int | None
        # A key whose rate limit has ended meanwhile is not a refused key.
        waits_s = [key.cooling_s(model, client, now_s) for key in keys if not key.refused(model, client)]
        said = f"; the last one asked: {last.message}" if last is not None else ""
        if waits_s:
            refused = len(keys) - len(waits_s)
            are = "is" if len(waits_s) == 1 else "are"
            told = f"{len(waits_s)} of {len(keys)} keys {are} rate-limited" + (
                f", {refused} refused" if refused else ""
            )
            wait_s, kind, status = min(waits_s), ErrorKind.RATE_LIMITED, 429
        else:
            told = f"all {len(keys)} keys are refused"
            wait_s, kind, status = None, ErrorKind.PROVIDER_AUTH, last.status if last is not None else 401
        brief = f"provider {self._provider!r}: {told}"
        message = f"{brief}{said}"
        words = None if last is None or last.words is None else message
        return UpstreamError(
            kind,
            message,
            status=status,
            retry_after_s=wait_s,
            words=words,
            brief=brief if words else None,
            # Else some are well for others.
            findings=Findings(is_certain=all(not key.is_ready(model, now_s) for key in keys)),
        )


def has_several_keys(upstream: Upstream) -> bool:
    """Whether one of several keys is used for each request to ``upstream``."""
    return isinstance(upstream, KeyRing)
