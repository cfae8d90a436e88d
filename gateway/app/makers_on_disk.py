"""The makers of thoughts that another account would drop in silence: in the ledger, for a restart without Redis.

Thoughts carry a signature that only their vendor can read, so a request does not show the account that made them.
Makers are stored only for deployments of vendors that drop other accounts' thoughts, in fleets with several such
accounts.
"""

import asyncio
from collections.abc import Callable

from gateway.core.calls import Maker
from gateway.core.errors import NamesUnreachable
from gateway.fleet import Fleet
from gateway.ledger import LedgerNames

KEPT_S = 7 * 86_400.0
LOOK_S = 0.5  # the longest wait of a call for a database that is away
_BOUND = "account"


class MakersOnDisk:
    """Names as ``Makers`` shares them. ``fleet`` returns the fleet in force."""

    def __init__(self, names: LedgerNames, fleet: Callable[[], Fleet]) -> None:
        self._names = names
        self._fleet = fleet
        self._seen: Fleet | None = None
        self._bound_to: frozenset[str] = frozenset()  # deployments; empty with at most one account

    def wants(self, maker: Maker) -> bool:
        """Return whether a thought's maker matters: another account could be asked, and would drop the thought."""
        return maker.deployment in self._bound()

    async def share(self, name: str, value: str) -> None:
        """Store the maker of a thought."""
        self._names.tell(None, (name,), value)

    async def ask(self, name: str) -> str | None:
        """Return the maker of a thought; None: not known, or not now."""
        if not self._bound():
            return None
        try:
            async with asyncio.timeout(LOOK_S):
                return await self._names.ask(None, name)
        except (NamesUnreachable, TimeoutError):
            return None

    def _bound(self) -> frozenset[str]:
        fleet = self._fleet()
        if fleet is not self._seen:
            self._seen = fleet
            accounts = {
                each.name: each.account
                for model in fleet.models.values()
                for each in model.deployments.values()
                if _BOUND in each.traits.bound
            }
            self._bound_to = frozenset(accounts if len({*accounts.values()}) > 1 else ())
        return self._bound_to
