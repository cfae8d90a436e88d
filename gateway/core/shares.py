"""What each client may still use of something that all clients share: its own part, and what others leave."""

import msgspec

MOST_CLIENTS = 1_000  # those that called last stay
REMEMBERED_S = 3_600.0  # after a client's last call the others may use its part
NOTED_EVERY_S = 1.0  # that a client has called


class ClientShare(msgspec.Struct, gc=False):
    """What one client has left of what its own calls have added."""

    left: float
    due_s: float  # when it is to be noted again that it calls


class Shares:
    """The parts of clients in one stock: half of it is for what each client's own calls have added.

    A client uses up first what its own calls have added, as if it had half of the stock for itself. Beyond that it may
    use what is there above half: what others leave. So a client misses nothing of what another one uses, and what one
    does not need is not wasted. A client that is alone may use all.
    """

    __slots__ = ("half", "is_used", "known")

    def __init__(self, most: float) -> None:
        """``most``: the whole stock."""
        self.half = most / 2
        self.is_used = False  # else all clients have left what they can have
        self.known: dict[str | None, ClientShare] = {}  # by client, the last that called at the end

    def earn(self, client: str | None, amount: float, now_s: float) -> None:
        """Add the part of one call of ``client`` to the stock."""
        known = self.known
        own = known.pop(client, None)
        if own is None:
            own = ClientShare(self.half, now_s + NOTED_EVERY_S)
        else:
            own.left, own.due_s = min(self.half, own.left + amount), now_s + NOTED_EVERY_S
        known[client] = own
        while len(known) > MOST_CLIENTS or next(iter(known.values())).due_s < now_s - REMEMBERED_S:
            del known[next(iter(known))]

    def permits(self, client: str | None, stock: float, amount: float) -> bool:
        """Whether ``client`` may use ``amount`` of a ``stock`` that has it.

        What is more than half waits until half would be left of a full stock.
        """
        own, needed = self.known.get(client), min(amount, self.half)
        if own is not None and own.left >= needed:
            return True
        return stock - needed >= self.half or len(self.known) == (own is not None)  # there is no other client

    def takes(self, client: str | None, stock: float, amount: float = 1.0) -> bool:
        """Whether ``client`` may use ``amount`` of a ``stock`` that has it; if so, count it."""
        own = self.known.get(client)
        if own is not None and (own.left >= amount or own.left >= self.half):
            own.left -= amount
            self.is_used = True
            return True
        return self.permits(client, stock, amount)

    def overdraw(self, client: str | None) -> None:
        """Count what ``client`` uses without permission: its later calls make up for that."""
        own = self.known.get(client)
        if own is not None:
            own.left = max(-2 * self.half, own.left - 1.0)
            self.is_used = True
