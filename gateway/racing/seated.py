"""The seat of a call that is relayed: of one attempt at a time."""

import asyncio
from collections.abc import Collection, Sequence

from gateway.racing.open_call import OpenCall
from gateway.racing.seats import Seat


class Seated:
    """Where the attempt under way has its seat, and is counted."""

    def __init__(self, open_call: OpenCall) -> None:
        self._open_call = open_call
        self._under_way: str | None = None  # the deployment that is being asked
        self._seat: Seat | None = None  # the attempt's

    async def sit_down(self, names: Sequence[str], tripped: Collection[str]) -> str | None:
        """Return the first of ``names`` that has room, or is the first to have it in time; its seat is taken.

        The broken are asked only where there is nobody to wait for, or the waiting was in vain.
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

    def enter(self, name: str) -> None:
        """Count an attempt in."""
        self._under_way = name
        self._open_call.services.tasks.entered(name)

    def stand_up(self) -> None:
        """Count the attempt out and give its seat back, once."""
        name, self._under_way = self._under_way, None
        if name is not None:
            self._open_call.services.tasks.left(name)
        seat, self._seat = self._seat, None
        if seat is not None:
            seat.give_back()

    async def _turn(self, names: Sequence[str]) -> str | None:
        """Wait until one of ``names``, which are all full, has a seat; return it, None if that takes too long."""
        loop = asyncio.get_running_loop()
        called: asyncio.Future[str | None] = loop.create_future()

        def seated(name: str) -> None:
            if not called.done():  # or its client has just gone
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
