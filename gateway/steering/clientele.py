"""Clientele: how many clients make up recent traffic, and so how much one client may decide for the others. Pure.

What one client meets may be its own doing: its requests may be impossible to answer. So one client's part of a decision
that holds for others is bounded. Such a decision takes three clients. Two are enough if they have nearly all recent
traffic, and one is if this client has nearly all, or if clients have no names.
"""

from collections import defaultdict
from collections.abc import Mapping
from heapq import nlargest
from math import ceil, exp2, inf

from gateway.steering.constants import (
    CLIENTS_HALF_LIFE_S,
    FLAW_CLIENT_SHARE,
    FLAW_CLIENTS_OF,
    LONE_CLIENT_SHARE,
    PAIR_CLIENT_SHARE,
    QUALITY_MEMORY,
)

_GONE = 0.05  # of an attempt, after fading: the client is silent


class Clientele:
    """The clients of recent traffic, by their answers or attempts."""

    __slots__ = ("counts", "fades_at_s", "total")

    def __init__(self) -> None:
        self.counts: defaultdict[str | None, float] = defaultdict(float)
        self.total = 0.0
        self.fades_at_s = -inf

    def count(self, client: str | None) -> None:
        """Add an answer to ``client``; None if clients are not distinguished. Of many, older ones count half."""
        if self.total >= QUALITY_MEMORY:
            self._fade(0.5, 0.5)
        self.counts[client] += 1.0
        self.total += 1.0

    def fade(self, now_s: float) -> None:
        """Halve the counted answers; to be called once ``fades_at_s`` has passed."""
        if self.counts:
            self._fade(exp2(-1.0 - (now_s - self.fades_at_s) / CLIENTS_HALF_LIFE_S), _GONE)
        self.fades_at_s = now_s + CLIENTS_HALF_LIFE_S

    def share(self) -> float:
        """Return the share of a decision that one client may contribute: 0.4 if three clients or more call."""
        first, second = (*nlargest(2, self.counts.values()), 0.0, 0.0)[:2]
        enough = FLAW_CLIENTS_OF * self.total
        if first >= enough:
            return LONE_CLIENT_SHARE
        return PAIR_CLIENT_SHARE if first + second >= enough else FLAW_CLIENT_SHARE

    def _fade(self, factor: float, least: float) -> None:
        counts = {each: left for each, count in self.counts.items() if (left := count * factor) > least}
        self.counts = defaultdict(float, counts)
        self.total = sum(self.counts.values())


def bounded(shares: Mapping[str | None, float], most: float) -> dict[str | None, float]:
    """Return the ``shares`` of clients, each at most ``most``."""
    return {each: min(most, share) for each, share in shares.items()}


class Blame:
    """Failures of one kind at one deployment, by client. Under None they count fully: no request caused them."""

    __slots__ = ("by_client",)

    def __init__(self) -> None:
        self.by_client: dict[str | None, float] = {}  # read on the hot path

    def add(self, client: str | None, most: float = inf) -> None:
        """Add a failure that ``client`` has met; of its failures no more than ``most`` count."""
        by_client = self.by_client
        by_client[client] = min(most, by_client.get(client, 0.0) + 1.0)

    def weight(self, share: float, needed: float) -> float:
        """Return how many failures count for all clients, if one client may contribute this ``share`` of ``needed``."""
        certain = self.by_client.get(None, 0.0)
        clients = len(self.by_client) - (None in self.by_client)
        if not clients:
            return certain
        # With so many clients the failures are nobody's own doing, even if one client has met most of them.
        most = ceil(share * needed) if clients >= ceil(1.0 / share) else share * needed
        return certain + sum(min(most, met) for each, met in self.by_client.items() if each is not None)

    def clear(self) -> None:
        """Forget all failures."""
        self.by_client.clear()

    @property
    def only(self) -> str | None:
        """The one client that has met all failures; None: several clients, or no request can have caused them."""
        return next(iter(self.by_client)) if len(self.by_client) == 1 else None
