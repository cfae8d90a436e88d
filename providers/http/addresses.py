"""The addresses of names: looked up, spread over, and remembered while the resolver is away."""

import asyncio
import errno
import random
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import Protocol, cast
from weakref import WeakValueDictionary

from aiohappyeyeballs import AddrInfoType

from providers.refusals import out_of_descriptors

# Lookups. The resolver may hang for half a minute, and both event loops have few threads for lookups, which Redis and
# the database use too: two names that hang would hold up everything else. So each lookup has a thread of its own.


def look_up(loop: asyncio.AbstractEventLoop, host: str, port: int) -> asyncio.Future[list[AddrInfoType]]:
    """Return a future of the addresses of ``host``, an address or a name; it fails as ``socket.getaddrinfo`` does.

    Raises:
        OSError: ENOMEM, if this machine can start no thread.

    """
    future: asyncio.Future[list[AddrInfoType]] = loop.create_future()
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, ValueError):  # a name
        thread = Thread(target=_look_up, args=(loop, future, host, port), name="look-up", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            raise OSError(errno.ENOMEM, "no thread can be started") from None
    else:
        future.set_result(cast("list[AddrInfoType]", found))
    return future


def _look_up(loop: asyncio.AbstractEventLoop, future: asyncio.Future[list[AddrInfoType]], host: str, port: int) -> None:
    found: object = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except Exception as error:  # noqa: BLE001 - it is that of all who wait
        found = error
    with suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(_tell, future, found)


def _tell(future: asyncio.Future[list[AddrInfoType]], found: object) -> None:
    if isinstance(found, Exception):
        future.set_exception(found)
    else:
        future.set_result(cast("list[AddrInfoType]", found))


# What the resolver says about a name that is gone, or has no address any more. Anything else: the resolver is away.
_GONE = frozenset(
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, name)
)


def _is_gone(error: BaseException) -> bool:
    return not isinstance(error, OSError) or (isinstance(error, socket.gaierror) and error.errno in _GONE)


FRESH_S = 30.0
SHARED_S = 1.0  # an older lookup may wait for a lost datagram: another one is begun beside it
_MOST_LOOKUPS = 4  # of a name, each in a thread
KEPT_S = 3600.0  # for so long the last good addresses are used, while the resolver is away
TELLING_S = 300.0  # a resolver that nobody has asked for so long may be back
FAILING_S = 30.0  # an address that failed comes after the others for so long; then one connection tries the address
LEFT_S = 300.0  # an address that no answer had for so long is not the name's: balancers give a few of many in turns


class Place:
    """One of a name's addresses."""

    __slots__ = ("found_at", "info", "retry_at", "used")

    def __init__(self, info: AddrInfoType) -> None:
        self.info = info
        self.found_at = 0.0  # when the resolver last listed this address
        self.used = 0  # connections of all clients: open, or being opened
        self.retry_at = 0.0  # the address failed, and comes after the others until then; 0: it has not failed

    def failed(self, now_s: float) -> None:
        """Put the address behind the others for a while."""
        self.retry_at = now_s + FAILING_S


class Addresses:
    """The addresses of one name. All who connect to it share these, so that connections spread over them."""

    def __init__(self, names: "Names", loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        self.host = host
        self.random = names.random
        self._names = names
        self._loop = loop
        self._port = port
        self._places: list[Place] = []  # places of the last answer, in its order
        self._known: dict[object, Place] = {}  # by address: these, and earlier ones that may still be the name's
        self._answered_at = 0.0  # when the places were last known to be right
        self._is_stale = False  # a connection has failed: the addresses may have changed
        self._lookup: asyncio.Future[list[AddrInfoType]] | None = None  # the latest running lookup
        self._lookups = 0  # how many run
        self._asked_at = -SHARED_S
        self._is_late = False  # nobody waits for a resolver that is late
        self.is_away = False  # the resolver failed, which was reported

    async def found(self) -> Sequence[Place]:
        """Return the places. All who ask together share one lookup, which goes on if they give up.

        Raises:
            OSError, ValueError: no address is known: as ``socket.getaddrinfo`` does.

        """
        now = self._loop.time()
        if self._places and not self._is_stale and now - self._answered_at < FRESH_S:
            return self._places
        may_keep = bool(self._places) and now - self._answered_at < KEPT_S
        try:
            lookup = self._begin(now, rarely=may_keep and self._is_late)
        except OSError:  # no thread
            if not may_keep:
                raise
            return self._places
        if not may_keep:
            assert lookup is not None
            await asyncio.shield(lookup)
        elif lookup is not None and not self._is_late:
            await asyncio.wait([lookup], timeout=SHARED_S)
            if not lookup.done():
                self._is_late = True
            elif not self._places:  # the name is gone
                lookup.result()
        return self._places

    def in_turn(self, places: Sequence[Place]) -> Sequence[Place]:
        """Return ``places`` in the order to try: of each family the least used first, and what has failed last."""
        if len(places) == 1:
            return places
        now = self._loop.time()
        families = list(dict.fromkeys(place.info[0] for place in places))  # the machine's preference
        return sorted(
            places,
            key=lambda place: (
                now < place.retry_at,
                families.index(place.info[0]),
                place.used,
                self.random(),
            ),
        )

    def evens_out(self, place: Place) -> bool:
        """Whether a connection to ``place`` should go to another address: one has fewer, or this has left the name."""
        now = self._loop.time()
        others = [each for each in self._places if each is not place and now >= each.retry_at]
        if now - place.found_at >= LEFT_S and place not in self._places:
            return bool(others)
        return any(each.used < place.used for each in others if each.info[0] == place.info[0])

    def beside(self, place: Place) -> int:
        """Return how many addresses of the same family there are."""
        return len({id(each) for each in self._places if each.info[0] == place.info[0]})

    def doubt(self) -> None:
        """Have the name looked up again before the next connection: one has failed."""
        self._is_stale = True

    @property
    def is_told_away(self) -> bool:
        """Whether the resolver was away when it was last asked, a moment ago."""
        return self.is_away and self._loop.time() - self._asked_at < TELLING_S

    def _begin(self, now_s: float, *, rarely: bool) -> asyncio.Future[list[AddrInfoType]] | None:
        """Return the running lookup, a new one if that is old. ``rarely``: not a new one for each who asks."""
        is_old = now_s - self._asked_at >= SHARED_S and self._lookups < _MOST_LOOKUPS
        if not is_old and (self._lookup is not None or rarely):
            return self._lookup
        lookup = self._lookup = look_up(self._loop, self.host, self._port)
        self._lookups, self._asked_at = self._lookups + 1, now_s
        if lookup.done():  # an address: callbacks would run later
            self._looked_up(lookup)
        else:
            lookup.add_done_callback(self._looked_up)
        return lookup

    def _looked_up(self, lookup: asyncio.Future[list[AddrInfoType]]) -> None:
        self._lookups -= 1
        if lookup is self._lookup:
            self._lookup = None
        if lookup.cancelled():
            return
        error = lookup.exception()
        if error is None:
            self._answered(lookup.result())
        elif _is_gone(error):
            self._answered([])
        elif not out_of_descriptors():
            self._is_late = True
            if self._places and not self.is_away:
                self.is_away = True
                self._names.tell(self.host, is_away=True)

    def _answered(self, found: list[AddrInfoType]) -> None:
        now = self._answered_at = self._loop.time()
        self._is_stale = self._is_late = False
        self._places = [self._known.setdefault(info[4], Place(info)) for info in found]
        for place in self._places:
            place.found_at = now
        self._known = {
            address: place for address, place in self._known.items() if place.used or now - place.found_at < LEFT_S
        }
        if self.is_away:
            self.is_away = False
            self._names.tell(self.host, is_away=False)


class TellAway(Protocol):
    """Is called when the resolver is away, and when it is back."""

    def __call__(self, host: str, *, is_away: bool) -> None:
        """Note that connections to ``host`` use its last good addresses, or no longer do."""


def _tell_nobody(host: str, *, is_away: bool) -> None:
    pass


class Names:
    """The addresses of all names that a process connects to."""

    def __init__(
        self,
        *,
        tell: TellAway = _tell_nobody,
        random: Callable[[], float] = random.random,
    ) -> None:
        self.tell = tell
        self.random = random
        self._known: WeakValueDictionary[tuple[object, ...], Addresses] = WeakValueDictionary()

    def of(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> Addresses:
        """Return the addresses of a name, or of an address that is written as one."""
        key = (loop, host, port)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Addresses(self, loop, host, port)
        return found

    @property
    def away(self) -> int:
        """How many names are connected to by their last good addresses, because the resolver is away."""
        return sum(each.is_told_away for each in self._known.values())
