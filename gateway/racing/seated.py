"""The seat of a relayed call, which has one attempt at a time."""

import asyncio
from collections.abc import Collection, Sequence

from gateway.attempt_records import AttemptStart
from gateway.racing.open_call import OpenCall
from gateway.racing.seats import Seat


class Seated:
    """The seat of the current attempt, and its count in the load."""

    def __init__(self, open_call: OpenCall) -> None:
        self._open_call = open_call
        self._under_way: AttemptStart | None = None  # the attempt that runs
        self._seat: Seat | None = None  # the attempt's seat

    async def sit_down(self, names: Sequence[str], tripped: Collection[str]) -> str | None:
        """Return the deployment of ``names`` where a seat was taken: one with a free seat, or the first to get one.

        Unhealthy ones are used only if there is no other to wait for, or the wait timed out.
        """
        if not self._open_call.services.seats.lines:
            return names[0]
        well = [name for name in names if name not in tripped]
        chosen = next(filter(self._has_room, well), None)
        if chosen is None:
            if well and (name := await self._turn(tuple(dict.fromkeys(well)))) is not None:
                return name
            chosen = next(filter(self._has_room, names), None)
        if chosen is not None:
            self._take(chosen)
        return chosen

    def enter(self, start: AttemptStart) -> None:
        """Count an attempt."""
        self._under_way = start
        tasks = self._open_call.services.tasks
        tasks.entered(start.deployment)
        tasks.relayed[self] = (self._open_call, start)

    def stand_up(self) -> None:
        """Stop counting the attempt and give its seat back, once."""
        start, self._under_way = self._under_way, None
        if start is not None:
            tasks = self._open_call.services.tasks
            tasks.left(start.deployment)
            del tasks.relayed[self]
        seat, self._seat = self._seat, None
        if seat is not None:
            seat.give_back()

    async def _turn(self, names: Sequence[str]) -> str | None:
        """Wait for a seat at one of ``names``, which are all full; return it, None after the timeout."""
        loop = asyncio.get_running_loop()
        called: asyncio.Future[str | None] = loop.create_future()

        def seated(name: str) -> None:
            if not called.done():  # else its client has just disconnected
                self._take(name)
                called.set_result(name)

        def timed_out() -> None:
            if not called.done():
                called.set_result(None)

        wait = self._open_call.wait(seated=seated, timed_out=timed_out, loop=loop)
        wait.line_up(names)
        try:
            return await called if wait.start_clock() else None
        finally:
            self._open_call.waited(wait)

    def _has_room(self, name: str) -> bool:
        line = self._open_call.services.seats.lines.get(name)
        return line is None or line.has_room

    def _take(self, name: str) -> None:
        line = self._open_call.services.seats.lines.get(name)
        self._seat = None if line is None else Seat(line)
