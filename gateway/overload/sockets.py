"""The limits of WebSockets: a client's open connections, the rate of new ones, and delays after refusals.

Over HTTP each refused request costs the client a turn of its connection: without these limits, one WebSocket could ask
as fast as it writes. Each process counts for itself.
"""

import asyncio
from collections.abc import Hashable
from math import ceil, inf

from gateway.core.errors import ApiError
from gateway.core.tasks import pause

MOST_OPEN = 256  # of one client
BURST = 100  # handshakes at once: many may come again after a restart
HANDSHAKES_PER_S = 10.0
HELD_S = 1.0  # the refusal of a handshake
HELD_EACH = MOST_OPEN  # of one client; further refusals are sent at once

# Messages that no provider is asked for: refused ones, and turns that only prepare. Usual clients are refused once in a
# while (for an unknown response), and prepare once. Of one client, at once and then per second:
UNASKED, UNASKED_PER_S = 300.0, 10.0
# Of one connection.
FREE = 5.0  # refusals, answered at once
FORGOTTEN_S = 12.0  # after so long a refusal no longer counts, so FREE a minute delay nothing
MIB = 2**20
FIRST_S, LONGEST_S = 0.25, 5.0  # before the next message is read: doubled for each further refusal
WARM_UPS, WARM_UPS_PER_S = 20.0, 1.0  # turns that only prepare


class TooManySockets(ApiError):
    """A client has, or opens, too many WebSockets."""

    # Means: The client has 256 WebSockets open at one process of the gateway, or opens more than ten a second for long.
    # Retry: after `retry-after`.
    # Caller: Keep a connection for the turns of a conversation, and use its streams (`stream_id`).
    # Operator: Give each of several people or programs a key of its own.
    status = 429
    type = "rate_limit_error"
    code = "too_many_websockets"


class Count:
    """Counts events, and forgets ``per_s`` of them a second; the count stays at or below ``most``."""

    def __init__(self, per_s: float, most: float = inf) -> None:
        self._per_s, self._most = per_s, most
        self._number = self._at_s = 0.0

    def at(self, now_s: float) -> float:
        """Return the number that still counts."""
        return max(0.0, self._number - (now_s - self._at_s) * self._per_s)

    def add(self, now_s: float, more: float = 1.0) -> float:
        """Count ``more`` events; return the number."""
        self._number, self._at_s = min(self._most, self.at(now_s) + more), now_s
        return self._number


class ClientSockets:
    """The sockets of one client."""

    def __init__(self) -> None:
        self.open = 0
        self.held = 0  # delayed refusals of handshakes
        self.handshakes = Count(HANDSHAKES_PER_S)
        self.unasked = Count(UNASKED_PER_S, 2 * UNASKED)
        self._reads = asyncio.Lock()

    async def turn(self) -> None:
        """Wait until one of the client's connections may go on: one in each turn of the loop, in order of arrival."""
        async with self._reads:
            await asyncio.sleep(0)

    def is_used(self, now_s: float) -> bool:
        """Return whether the client has connections, or events that still count."""
        return bool(self.open or self.held or self.handshakes.at(now_s) or self.unasked.at(now_s))


class OpenSockets:
    """The WebSockets of all clients."""

    def __init__(self) -> None:
        self._clients: dict[Hashable, ClientSockets] = {}

    def enter(self, owner: Hashable, now_s: float) -> ClientSockets:
        """Count a handshake, and its connection until ``leave``; ``now_s`` is the loop's clock.

        Raises:
            TooManySockets: the client has too many connections, or opens them too fast

        """
        sockets = self._clients.get(owner)
        if sockets is None:
            self._sweep(now_s)
            sockets = self._clients[owner] = ClientSockets()
        if sockets.open >= MOST_OPEN:
            raise TooManySockets(
                f"this client has {MOST_OPEN} WebSockets open, as many as it may: use one of them again, or close one",
                headers={"retry-after": str(ceil(HELD_S))},
            )
        if sockets.handshakes.at(now_s) + 1.0 > BURST:
            raise TooManySockets(
                f"this client opens more than {HANDSHAKES_PER_S:g} WebSockets a second: keep them open for more turns",
                headers={"retry-after": str(ceil(HELD_S))},
            )
        sockets.handshakes.add(now_s)
        sockets.open += 1
        return sockets

    def leave(self, owner: Hashable) -> None:
        """Stop counting the connection."""
        self._clients[owner].open -= 1

    async def hold(self, owner: Hashable, until: asyncio.Event) -> None:
        """Delay the refusal of a handshake; send it at once if many wait, or from ``until`` on."""
        sockets = self._clients[owner]
        if sockets.held >= HELD_EACH:
            return
        sockets.held += 1
        try:
            await pause(HELD_S, until)
            await sockets.turn()  # connections that came together do not go on together
        finally:
            sockets.held -= 1

    def _sweep(self, now_s: float) -> None:
        """Forget the clients without connections and without handshakes that still count."""
        for owner, sockets in [*self._clients.items()]:
            if not sockets.is_used(now_s):
                del self._clients[owner]


class MessagePace:
    """The delay of one connection's next message after refusals. ``until_s``: the delay's end, by the loop's clock."""

    def __init__(self, own: ClientSockets) -> None:
        self.until_s = 0.0
        self._own = own
        self._refused = Count(1 / FORGOTTEN_S, FREE + 6.0)  # forgotten in two minutes
        self._warmed = Count(WARM_UPS_PER_S, 2 * WARM_UPS)
        self.turn = own.turn

    def refused(self, now_s: float, most_s: float = LONGEST_S, size: int = 0) -> None:
        """Count a refused message, which delays the next one by ``most_s`` at most.

        A message of several megabytes counts as one refusal for each megabyte, as reading it took so long.
        """
        refused = self._refused.add(now_s, 1.0 + size // MIB)
        delay_s = max(FIRST_S, FIRST_S * 2.0 ** (refused - FREE - 1.0)) if refused > FREE else 0.0
        self._delay(now_s, min(most_s, LONGEST_S, max(delay_s, self._unasked_s(now_s))))

    def warmed(self, now_s: float) -> None:
        """Count a turn that only prepares the next one."""
        beyond = self._warmed.add(now_s) - WARM_UPS
        self._delay(now_s, max(beyond / WARM_UPS_PER_S, self._unasked_s(now_s)))

    def _unasked_s(self, now_s: float) -> float:
        """Return the delay caused by all connections of the client."""
        return max(0.0, self._own.unasked.add(now_s) - UNASKED) / UNASKED_PER_S

    def _delay(self, now_s: float, seconds: float) -> None:
        self.until_s = max(self.until_s, now_s + seconds if seconds > 0 else 0.0)
