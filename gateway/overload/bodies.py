"""The bytes of request bodies in memory: one budget for the process, a share of it for each client.

A body counts with its unpacked bytes, from the first one until its call no longer needs them. A short body that arrives
complete with its head is not counted: the memory assumed for each seat includes it.
"""

from collections.abc import Callable, Hashable
from typing import Protocol

from gateway.core.errors import ApiError, Overloaded, TooManyBodies

SEATED_BYTES = 64 * 1024  # maximum of an uncounted body: a quarter of the memory assumed for a seat
CLIENT_SHARE = 0.5  # of the budget: one client alone leaves room for another
FEWEST_UNFINISHED = 64  # unfinished bodies of a client, however few seats there are
CLIENTS_OF_ADDRESS = 2  # an address may have twice as many, as several clients may share it behind a proxy
RETRY_AFTER_S = 2


class Cut(Protocol):
    """Ends the reading of a body for the reason in the body's ``error``."""

    def __call__(self) -> None:
        """Drop the bytes read so far, and read no more."""


class Body:
    """One body in the budget. ``release`` it when its bytes are no longer needed; repeated calls do no harm."""

    __slots__ = ("_address", "_bodies", "_client", "cut", "error", "size")

    def __init__(self, bodies: "Bodies", client: Hashable, address: Hashable, cut: Cut | None) -> None:
        self._bodies: Bodies | None = bodies
        self._client = client
        self._address = address
        self.cut = cut  # None: the body is complete
        self.size = 0
        self.error: ApiError | None = None  # the reason if the body was cut

    def grow(self, number: int) -> None:
        """Count ``number`` more bytes, before they are kept.

        Raises:
            TooManyBodies: the client has no more room
            Overloaded: the process has no more room, or the body was cut

        """
        if self.error is not None or self._bodies is None:
            raise self.error or Overloaded("the body was cancelled")
        self._bodies.add(self, self._client, number)

    def finish(self) -> None:
        """Mark the body as complete: it can no longer be cut."""
        if self.cut is not None and self._bodies is not None:
            self.cut = None
            self._bodies.finished(self, self._client, self._address)

    def shrink(self, size: int) -> None:
        """Reduce the body to ``size`` bytes, and mark it as complete."""
        if self._bodies is not None and size < self.size:
            self._bodies.remove(self._client, self.size - size)
            self.size = size

    def release(self) -> None:
        """Return the body's bytes to the budget."""
        bodies = self._bodies
        if bodies is not None:
            self.finish()
            self._bodies = None
            bodies.remove(self._client, self.size)

    def end(self, error: ApiError) -> None:
        """Cut the body with ``error``, to free its memory."""
        self.error, cut = error, self.cut
        self.release()
        if cut is not None:
            cut()


class _Share:
    """One client's part of the budget."""

    __slots__ = ("size", "unfinished")

    def __init__(self) -> None:
        self.size = 0  # bytes
        self.unfinished: dict[Body, None] = {}  # the oldest first


class Bodies:
    """The bodies of one process."""

    def __init__(self, most_bytes: int, *, most_unfinished: Callable[[], int] = lambda: FEWEST_UNFINISHED) -> None:
        """``most_unfinished`` returns the maximum of a client's unfinished bodies; an address may have twice that."""
        self.most_bytes = most_bytes
        self.size = 0  # bytes of all bodies
        self.unfinished = 0
        self.cut = 0  # number of bodies cut to make room
        self._most_unfinished = most_unfinished
        self._shares: dict[Hashable, _Share] = {}
        self._addresses: dict[Hashable, int] = {}  # unfinished bodies

    @property
    def most_each(self) -> int:
        """The maximum of one client's bytes."""
        return int(self.most_bytes * CLIENT_SHARE)

    def used_by(self, client: Hashable) -> int:
        """Return the bytes of one client's bodies."""
        share = self._shares.get(client)
        return 0 if share is None else share.size

    def begin(self, client: Hashable, address: Hashable, cut: Cut) -> Body:
        """Return a new, empty body; ``cut`` ends its reading.

        Raises:
            TooManyBodies: the client, or the address, has too many unfinished bodies

        """
        most, share = max(FEWEST_UNFINISHED, self._most_unfinished()), self._shares.get(client)
        from_address = self._addresses.get(address, 0)
        is_address = from_address >= most * CLIENTS_OF_ADDRESS
        if is_address or (share is not None and len(share.unfinished) >= most):
            whose = "this address" if is_address else "this client"
            most *= CLIENTS_OF_ADDRESS if is_address else 1
            raise TooManyBodies(
                f"{whose} has {most} requests whose bodies are not complete; complete one, or retry in"
                f" {RETRY_AFTER_S} s",
                headers={"retry-after": str(RETRY_AFTER_S)},
            )
        body = Body(self, client, address, cut)
        if share is None:
            share = self._shares[client] = _Share()
        share.unfinished[body] = None
        self._addresses[address] = from_address + 1
        self.unfinished += 1
        return body

    def whole(self, client: Hashable, size: int) -> Body:
        """Return a complete body of ``size`` bytes.

        Raises:
            TooManyBodies, Overloaded: there is no room for the body

        """
        body = Body(self, client, None, None)
        body.grow(size)
        return body

    def add(self, body: Body, client: Hashable, number: int) -> None:
        """Count more bytes of a body of ``client``.

        Raises:
            TooManyBodies, Overloaded: there is no room for the bytes

        """
        share = self._shares.get(client)
        if share is None:
            share = self._shares[client] = _Share()
        try:
            if share.size + number > self.most_each:
                raise _client_full(self.most_each)
            if self.size + number > self.most_bytes:
                self._make_room(body, number)
        except ApiError:
            self._forget(client, share)
            raise
        self._shares[client] = share  # making room may have cut the client's last other body, and forgotten the share
        share.size += number
        self.size += number
        body.size += number

    def remove(self, client: Hashable, number: int) -> None:
        """Return bytes of ``client`` to the budget."""
        share = self._shares.get(client)
        if share is not None:
            share.size -= number
            self.size -= number
            self._forget(client, share)

    def finished(self, body: Body, client: Hashable, address: Hashable) -> None:
        """Count a body as complete."""
        del self._shares[client].unfinished[body]
        self.unfinished -= 1
        left = self._addresses[address] - 1
        if left:
            self._addresses[address] = left
        else:
            del self._addresses[address]

    def _make_room(self, body: Body, number: int) -> None:
        """Cut the oldest unfinished bodies of the clients with the most bytes, until ``number`` bytes fit.

        Raises:
            Overloaded: ``body`` is next to be cut, or all others are complete

        """
        while self.size + number > self.most_bytes:
            cuttable = [share for share in self._shares.values() if any(each.size for each in share.unfinished)]
            most = max(cuttable, key=lambda share: share.size, default=None)
            oldest = None if most is None else next(each for each in most.unfinished if each.size)
            if oldest is None or oldest is body:
                raise process_full()
            self.cut += 1
            oldest.end(process_full())

    def _forget(self, client: Hashable, share: _Share) -> None:
        if not share.size and not share.unfinished:
            self._shares.pop(client, None)


def _client_full(most: int) -> TooManyBodies:
    return TooManyBodies(
        f"the bodies of this client's requests take more than {most / 2**20:.0f} MiB, its share of the gateway's"
        f" memory; retry in {RETRY_AFTER_S} s, with fewer at the same time",
        headers={"retry-after": str(RETRY_AFTER_S)},
    )


def process_full() -> Overloaded:
    """Return the error for a request if the process has no memory for it or its answer."""
    return Overloaded(
        f"the gateway has no memory for more bodies of requests; retry in {RETRY_AFTER_S} s",
        headers={"retry-after": str(RETRY_AFTER_S)},
    )
