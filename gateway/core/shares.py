"""The use of a stock shared by all clients: each client's own part, and the parts left by others."""

import msgspec

MOST_CLIENTS = 1_000  # those with the latest calls stay
REMEMBERED_S = 3_600.0  # after a client's last call; then others may use its part
NOTED_EVERY_S = 1.0  # between two notes of a client's calls


class ClientShare(msgspec.Struct, gc=False):
    """The rest of what one client's own calls have added."""

    left: float
    due_s: float  # when the client's next call is to be noted


class Shares:
    """The parts of clients in one stock: half of the stock is for what each client's own calls have added.

    A client first uses up what its own calls have added, as if it had half of the stock for itself. Beyond that it may
    use the stock above half: what others leave. So no client loses by another one's use, and unneeded parts are not
    wasted. A single client may use all.
    """

    __slots__ = ("half", "is_used", "known")

    def __init__(self, most: float) -> None:
        """``most``: the whole stock."""
        self.half = most / 2
        self.is_used = False  # else all clients have their whole parts
        self.known: dict[str | None, ClientShare] = {}  # by client, the latest caller at the end

    def earn(self, client: str | None, amount: float, now_s: float) -> None:
        """Add the part of one call of ``client`` to the stock."""
        shares = self.known
        share = shares.pop(client, None)
        if share is None:
            share = ClientShare(self.half, now_s + NOTED_EVERY_S)
        else:
            share.left, share.due_s = min(self.half, share.left + amount), now_s + NOTED_EVERY_S
        shares[client] = share
        while len(shares) > MOST_CLIENTS or next(iter(shares.values())).due_s < now_s - REMEMBERED_S:
            del shares[next(iter(shares))]

    def permits(self, client: str | None, stock: float, amount: float) -> bool:
        """Return whether ``client`` may use ``amount`` of a ``stock`` that is large enough.

        An amount above half waits until half would be left of a full stock.
        """
        share, needed = self.known.get(client), min(amount, self.half)
        if share is not None and share.left >= needed:
            return True
        return stock - needed >= self.half or len(self.known) == (share is not None)  # there is no other client

    def takes(self, client: str | None, stock: float, amount: float = 1.0) -> bool:
        """Return whether ``client`` may use ``amount`` of a ``stock`` that is large enough; if so, count the use."""
        share = self.known.get(client)
        if share is not None and (share.left >= amount or share.left >= self.half):
            share.left -= amount
            self.is_used = True
            return True
        return self.permits(client, stock, amount)

    def overdraw(self, client: str | None) -> None:
        """Count a use by ``client`` without permission: the client's later calls make up for it."""
        share = self.known.get(client)
        if share is not None:
            share.left = max(-2 * self.half, share.left - 1.0)
            self.is_used = True
