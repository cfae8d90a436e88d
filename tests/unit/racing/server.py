"""Servers on the race track that count what is under way with their own eyes, and the seats there are at them."""

from collections.abc import Sequence
from typing import Any

from gateway.racing import Seats
from providers import Exchange, Request
from tests.unit.racing.track import DONE, FINISH, Step, Timetable, TimetableExchange, delta

PATIENCE_S = 2.0  # how long a call waits


class Counted(TimetableExchange):
    """An exchange that its server knows to be over."""

    async def read(self) -> bytes:
        data = await super().read()
        if self.ended:
            self._over_at_the_server()
        return data

    def abort(self) -> None:
        super().abort()
        self._over_at_the_server()

    def _over_at_the_server(self) -> None:
        server = self._upstream
        assert isinstance(server, Server)
        server.under_way.discard(self)


class Server(Timetable):
    """A timetable that counts what is under way there, with its own eyes."""

    def __init__(self, name: str, *timetables: Sequence[tuple[float, Step]], headers_at: float = 0.0) -> None:
        super().__init__(name, *timetables, headers_at=headers_at)
        self.under_way: set[object] = set()
        self.peak = 0

    async def stream(self, request: Request) -> Exchange:
        asking = object()
        self.under_way.add(asking)
        self.peak = max(self.peak, len(self.under_way))
        try:
            exchange = await super().stream(request)
        finally:
            self.under_way.discard(asking)
        assert isinstance(exchange, TimetableExchange)
        counted = Counted(self, exchange._steps, exchange._started)
        self.under_way.add(counted)
        return counted


def answer(ttft: float, total: float) -> Sequence[tuple[float, Step]]:
    return [(ttft, delta("hello")), (total, FINISH), (total, DONE), (total, None)]


def server(name: str, ttft: float = 0.1, total: float = 0.5, **options: Any) -> Server:
    return Server(name, answer(ttft, total), **options)


def limited(**limits: int) -> Seats:
    seats = Seats()
    seats.limit(limits, PATIENCE_S)
    return seats


def left_clean(seats: Seats) -> None:
    assert [(line.taken, len(line.waiting)) for line in seats.lines.values()] == [(0, 0)] * len(seats.lines)
