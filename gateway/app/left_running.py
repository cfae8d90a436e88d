"""Responses in the background from before a start: counted in limits, and asked for until the ledger has the cost.

A client may have been disconnected by the restart, and never look. Of all processes with one ledger, one asks.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
import structlog

from gateway.api import Context, GatewayPhase, InBackground, look_again
from gateway.core.errors import ApiError, NamesUnreachable
from gateway.core.records import Unended
from gateway.core.tasks import end_if_cancelled
from gateway.ledger import LedgerNames
from providers import UNREADABLE, UpstreamError

AGAIN_S, MOST_S = 5.0, 600.0  # pauses between two looks: the first, and the longest after doublings
AT_ONCE = 8
COUNTED_WITHIN_S = 3.0  # the start waits no longer
_TRIED_AGAIN_S = 10.0  # while the database is away


class _Left(msgspec.Struct, eq=False):
    """A response begun by another process, and the time of the next look."""

    row: Unended
    begun: InBackground
    due_s: float
    pause_s: float = AGAIN_S


class LeftRunning:
    """Counts and asks for responses that other processes have begun. ``clock``: monotonic, in seconds."""

    def __init__(self, context: Context, names: LedgerNames, *, clock: Callable[[], float]) -> None:
        self._context = context
        self._names = names
        self._clock = clock
        self._left: list[_Left] = []
        self._tried = asyncio.Event()

    async def run(self) -> None:
        """Find the responses, and ask until the end of each is seen."""
        while not await self._find():
            end_if_cancelled()
            await asyncio.sleep(_TRIED_AGAIN_S)
        while self._left:
            await asyncio.sleep(max(0.0, min(each.due_s for each in self._left) - self._clock()))
            await self.ask()
            end_if_cancelled()

    async def counted(self) -> None:
        """Wait until limits count the responses, or the database does not answer; not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(COUNTED_WITHIN_S):
                await self._tried.wait()

    async def _find(self) -> bool:
        """Return whether the database listed the responses."""
        try:
            rows = await self._names.unended()
        except NamesUnreachable:
            return False
        finally:
            self._tried.set()
        responses: list[_Left] = []
        for row in rows:
            with suppress(*UNREADABLE):  # of a later version
                begun = msgspec.json.decode(row.known, type=InBackground)
                if not self._context.responses.has_begun(begun.attempt_id):  # the database may have answered late
                    responses.append(_Left(row, begun, self._clock()))
        self._context.responses.count_left(each.begun for each in responses)
        self._left = [each for each in responses if each.row.name is not None and each.begun.deployment is not None]
        if responses:
            # Event responses.left_running: So many responses ran in the background when the process before ended. Their
            # clients may never look, so the gateway asks for the `asked` of them whose ids it can read, until their
            # ends are seen. Limits in dollars count all.
            # Do: Nothing. If fewer are asked than were found: set `page.signing_key`, and keep it.
            structlog.get_logger().info("responses.left_running", found=len(responses), asked=len(self._left))
        return True

    async def ask(self) -> None:
        """Ask for the responses that are due, if no other process does."""
        now_s = self._clock()
        due = [each for each in self._left if each.due_s <= now_s][:AT_ONCE]
        ended = await asyncio.gather(*map(self._has_ended, due))
        over = [each for each, has_ended in zip(due, ended, strict=True) if has_ended]
        for each in due:
            each.due_s = self._clock() + each.pause_s
            each.pause_s = min(MOST_S, 2 * each.pause_s)
        self._left = [each for each in self._left if each not in over]

    async def _has_ended(self, left: _Left) -> bool:
        """Return whether there is nothing more to ask for."""
        row, context = left.row, self._context
        if context.phase is not GatewayPhase.SERVING or row.name is None:
            return False
        try:
            if not await self._names.claim(row.id, left.pause_s):
                return not await self._names.is_unended(row.id)
            ended = await look_again(context, row.client, row.name, left.begun)
            if ended is None:
                await self._names.leave(row.id)
        except (ApiError, UpstreamError):  # a later look tries again
            return False
        return ended is not False
