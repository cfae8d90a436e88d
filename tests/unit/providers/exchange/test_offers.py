import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from providers.dialects import events_of_answer
from providers.exchange import HttpExchange, TranslatedExchange
from providers.http import Response, decoded
from providers.refusals import ErrorKind, UpstreamError

EVENT = b'data: {"choices":[]}\n\n'


class Source:
    """A connection that remembers what was taken, and whether it was dropped."""

    def __init__(self) -> None:
        self.taken_bytes = 0
        self.dropped = False

    def taken(self, response: Response, size: int) -> None:
        self.taken_bytes += size

    def widen(self, response: Response) -> None:
        """Hear of it."""

    def drop(self, response: Response) -> None:
        self.dropped = True


class Reading:
    """An exchange whose first events were read, whose reader waits for more, and a listener that remembers."""

    def __init__(self) -> None:
        self.source = Source()
        self.response = Response(self.source, asyncio.get_running_loop(), None)
        self.exchange = HttpExchange(self.response, (), events_of_answer)
        self.offered: list[bytes] = []
        self.wants = True

    async def begin(self) -> "asyncio.Task[bytes]":
        self.response.begin(200, [])
        self.response.feed(EVENT)
        assert await self.exchange.read() == EVENT
        self.source.taken_bytes = 0
        self.exchange.offer_to(self.listen)
        return await self.wait()

    async def wait(self) -> "asyncio.Task[bytes]":
        """Read in a task, and return once it waits."""
        reading = asyncio.ensure_future(self.exchange.read())
        await settled()
        return reading

    def listen(self, data: bytes) -> bool:
        self.offered.append(data)
        return self.wants


async def settled() -> None:
    """Let everything happen that needs no more than the loop."""
    for _ in range(5):
        await asyncio.sleep(0)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def test_what_arrives_while_the_reader_waits_is_offered_and_leaves_the_reader_asleep() -> None:
    async def main() -> None:
        offers = Reading()
        reading = await offers.begin()
        offers.response.feed(b"one")
        await settled()
        offers.response.feed(b"two")
        await settled()
        assert (offers.offered, reading.done()) == ([b"one", b"two"], False)
        assert (offers.source.taken_bytes, offers.response.buffered) == (6, 0)
        offers.response.end()
        assert await reading == b""

    run(main())


def test_pieces_that_arrive_together_are_offered_as_one() -> None:
    async def main() -> None:
        offers = Reading()
        reading = await offers.begin()
        for piece in (b"a", b"b", b"c"):
            offers.response.feed(piece)
        await settled()
        assert offers.offered == [b"abc"]
        offers.response.end()
        await reading

    run(main())


def test_what_the_listener_does_not_want_is_read() -> None:
    async def main() -> None:
        offers = Reading()
        offers.wants = False
        reading = await offers.begin()
        offers.response.feed(b"odd")
        assert await reading == b"odd"
        assert (offers.offered, offers.source.taken_bytes) == ([b"odd"], 3)

    run(main())


def test_nothing_is_offered_while_nobody_waits_so_that_nothing_is_overtaken() -> None:
    async def main() -> None:
        offers = Reading()
        offers.wants = False
        reading = await offers.begin()
        offers.response.feed(b"odd")
        await reading
        offers.wants = True
        offers.response.feed(b"later")  # the reader is busy with the one before
        await settled()
        assert offers.offered == [b"odd"]
        assert await offers.exchange.read() == b"later"

    run(main())


def test_the_end_wakes_the_reader_who_reads_what_came_with_it() -> None:
    async def main() -> None:
        offers = Reading()
        reading = await offers.begin()
        offers.response.feed(b"last")
        offers.response.end()
        assert await reading == b"last"
        assert await offers.exchange.read() == b""
        assert offers.offered == []

    run(main())


def test_a_broken_connection_wakes_the_reader_after_all_that_had_arrived() -> None:
    async def main() -> None:
        offers = Reading()
        reading = await offers.begin()
        offers.response.feed(b"half")
        offers.response.fail(UpstreamError(ErrorKind.DISCONNECTED, "gone"))
        assert await reading == b"half"
        with pytest.raises(UpstreamError, match="gone"):
            await offers.exchange.read()

    run(main())


def test_nothing_is_offered_once_the_exchange_was_dropped() -> None:
    async def main() -> None:
        offers = Reading()
        reading = await offers.begin()
        offers.response.feed(b"too late")
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await settled()
        assert (offers.offered, offers.source.dropped) == ([], True)

    run(main())


def test_a_fault_of_the_listener_is_raised_by_the_reader() -> None:
    async def main() -> None:
        offers = Reading()
        reading = await offers.begin()

        def broken(data: bytes) -> bool:
            raise ZeroDivisionError(data)

        offers.exchange.offer_to(broken)
        offers.response.feed(b"x")
        with pytest.raises(ZeroDivisionError):
            await reading
        assert offers.source.dropped

    run(main())


def test_what_has_to_be_unpacked_or_mended_first_is_not_offered() -> None:
    async def main() -> None:
        offers = Reading()
        offers.response.begin(200, [(b"content-encoding", b"gzip")])
        packed = HttpExchange(decoded(offers.response), (), events_of_answer)
        packed.offer_to(offers.listen)
        TranslatedExchange(offers.exchange, ()).offer_to(offers.listen)
        assert offers.response.listener is None

    run(main())
