"""Answers under way rest between reads while the loop is busy: when, which of them, and that nothing is lost."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from providers.http import READ_BYTES, Batches, Response
from providers.http.batches import LESS_S, MORE_S, MOST_S
from providers.http.http2 import Http2Connection
from providers.http.message import BUFFERED_BYTES
from tests.patience import PATIENCE_S, until
from tests.unit.providers.http.inside.h1_server import POST, Line
from tests.unit.providers.http.inside.h2_server import Garage, Wire, data, headers, post, settings

LONGEST_S = 0.02
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
EVER = 3600.0  # no rest of a test ends by itself


def chunks(*texts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(text), text) for text in texts)


class ByHand(Batches):
    """Rests that end when the test says so."""

    def __init__(self, rest_s: float = EVER) -> None:
        super().__init__()
        self.rest_s = rest_s
        self._ends: list[Callable[[], object]] = []

    def rest(self, _: asyncio.AbstractEventLoop, go_on: Callable[[], object]) -> None:
        self._ends.append(go_on)

    def end(self) -> int:
        """End all rests; return how many there were."""
        ends, self._ends = self._ends, []
        for go_on in ends:
            go_on()
        return len(ends)


class Reader:
    """Reads an answer, of which it is offered what arrives while it waits."""

    def __init__(self, response: Response) -> None:
        self.offered: list[bytes] = []
        self.rest = b""
        self.begun = False
        self._response = response
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        await self._response.begun()
        self.begun = True
        self._response.listener = self._take
        while piece := await self._response.read():
            self.rest += piece

    def _take(self, piece: bytes) -> bool:
        self.offered.append(piece)
        return True


async def under_way(line: Line, batches: Batches) -> Reader:
    """Return the reader of an answer that is being forwarded."""
    line.client.batches = batches
    reader = Reader(line.client.send(POST))
    line.say(HEAD)
    await until(lambda: reader.begun)
    return reader


def test_the_rest_grows_while_turns_are_long_and_ends_when_they_are_short() -> None:
    batches = Batches()
    batches.observe(LONGEST_S / 2, LONGEST_S)
    assert batches.rest_s == MORE_S
    for _ in range(9):
        batches.observe(LONGEST_S / 2, LONGEST_S)
    assert batches.rest_s == MOST_S
    batches.observe(LONGEST_S / 5, LONGEST_S)
    assert batches.rest_s == MOST_S - LESS_S
    for _ in range(99):
        batches.observe(LONGEST_S / 5, LONGEST_S)
    assert batches.rest_s == 0.0


def test_nobody_rests_where_overload_control_is_off_or_nothing_is_asked_any_more() -> None:
    batches = Batches()
    batches.observe(1.0, 0.0)
    assert batches.rest_s == 0.0
    batches.observe(1.0, LONGEST_S)
    batches.forget()
    assert batches.rest_s == 0.0


async def test_who_rests_goes_on_in_turn() -> None:
    batches, gone_on, loop = Batches(), list[int](), asyncio.get_running_loop()
    batches.rest_s = 0.01
    for number in range(3):
        batches.rest(loop, partial(gone_on.append, number))
    batches.rest_s = 0.05
    batches.rest(loop, partial(gone_on.append, 3))
    await until(lambda: len(gone_on) == 4)
    batches.rest(loop, partial(gone_on.append, 4))  # after all had gone on
    await until(lambda: len(gone_on) == 5)
    assert gone_on == [0, 1, 2, 3, 4]


async def test_a_defect_of_one_does_not_keep_the_others_from_going_on() -> None:
    batches, gone_on, loop = Batches(), asyncio.Event(), asyncio.get_running_loop()
    said: list[object] = []
    loop.set_exception_handler(lambda _, context: said.append(context["exception"]))
    batches.rest_s = 0.001

    def broken() -> None:
        raise LookupError

    batches.rest(loop, broken)
    batches.rest(loop, gone_on.set)
    await asyncio.wait_for(gone_on.wait(), PATIENCE_S)
    assert [type(each) for each in said] == [LookupError]


async def test_an_answer_under_way_rests_after_a_read_and_then_goes_on() -> None:
    line, batches = Line(Garage()), ByHand()
    reader = await under_way(line, batches)
    line.say(chunks(b"a", b"b"))
    assert not line.wire.is_reading()
    await until(lambda: reader.offered == [b"ab"])  # what was read is forwarded at once
    assert not line.wire.is_reading()
    assert batches.end() == 1
    assert line.wire.is_reading()
    line.say(chunks(b"c") + b"0\r\n\r\n")
    await reader.task
    assert (reader.offered, reader.rest, line.wire.is_reading()) == ([b"ab"], b"c", True)
    assert line.client.room


@pytest.mark.parametrize("rest_s", [0.0, EVER])
async def test_nothing_before_the_first_token_rests_and_nothing_while_there_is_time(rest_s: float) -> None:
    line = Line(Garage())
    line.client.batches = ByHand(rest_s)
    response = line.client.send(POST)
    line.say(HEAD)
    line.say(chunks(b"a", b"b"))
    assert line.wire.is_reading()
    response.listener = lambda _: True
    line.say(chunks(b"c", b"d"))
    assert line.wire.is_reading() is not bool(rest_s)


async def test_an_answer_whose_tokens_come_singly_anyway_does_not_rest() -> None:
    line = Line(Garage())
    await under_way(line, ByHand(1e-9))
    line.say(chunks(b"a"))
    assert line.wire.is_reading()
    line.say(b"3\r\n")  # some servers write a chunk's size by itself
    assert line.wire.is_reading()
    line.say(b"def\r\n" + chunks(b"b", b"c"))
    assert not line.wire.is_reading()


async def test_a_large_read_does_not_rest() -> None:
    line = Line(Garage())
    await under_way(line, ByHand())
    line.say(chunks(b"x" * READ_BYTES, b"y"))
    assert line.wire.is_reading()


async def test_what_comes_while_an_answer_rests_ends_it_or_finds_its_reader_behind() -> None:
    line, batches = Line(Garage()), ByHand()
    response = line.client.send(POST)
    line.client.batches = batches
    line.say(HEAD)
    response.listener = lambda _: True
    line.say(chunks(b"a", b"b"))
    line.say(chunks(b"x" * BUFFERED_BYTES))
    assert batches.end() == 1
    assert not line.wire.is_reading()  # still behind
    while response.buffered:
        await response.read()
    assert line.wire.is_reading()
    line.client.data_received(chunks(b"c", b"d"))
    assert not line.wire.is_reading()
    line.client.data_received(b"0\r\n\r\n")
    assert line.client.room
    assert line.wire.is_reading()
    batches.end()
    assert line.wire.is_reading()


async def test_over_tls_an_answer_is_read_on_and_only_offered_in_batches() -> None:
    line, batches = Line(Garage(), secure=True), ByHand()
    reader = await under_way(line, batches)
    for piece in (b"a", b"b"):
        line.say(chunks(piece, piece))
        await asyncio.sleep(0)
    assert (line.wire.is_reading(), reader.offered) == (True, [])
    assert batches.end() == 1
    assert reader.offered == [b"aabb"]
    line.say(chunks(b"c", b"d") + chunks(b"x" * READ_BYTES))  # so much is no matter of tokens
    await until(lambda: len(reader.offered) > 1 or reader.rest)
    line.say(b"0\r\n\r\n")
    await reader.task


async def test_a_dropped_answer_ends_while_it_rests() -> None:
    line, batches = Line(Garage()), ByHand()
    line.client.batches = batches
    response = line.client.send(POST)
    line.say(HEAD)
    response.listener = lambda _: True
    line.say(chunks(b"a", b"b"))
    line.client.close()
    assert line.wire.aborted
    assert batches.end() == 1
    assert not line.wire.is_reading()


async def test_over_http_2_tokens_of_one_answer_are_forwarded_together() -> None:
    loop, wire = asyncio.get_running_loop(), Wire()
    client = Http2Connection(Garage(), loop, None)
    wire.protocol = client
    client.connection_made(wire)
    client.data_received(settings())
    client.batches = batches = ByHand()
    reader, other = Reader(client.send(post())), Reader(client.send(post()))
    client.data_received(headers(1) + headers(3))
    await until(lambda: reader.begun and other.begun)
    for piece in (b"a", b"b", b"c"):
        client.data_received(data(1, piece))
        await asyncio.sleep(0)
    assert reader.offered == []
    assert batches.end() == 1
    assert reader.offered == [b"abc"]
    client.data_received(data(1, b"d"))
    client.data_received(data(1, b"e", end=True) + data(3, b"x", end=True))
    await asyncio.gather(reader.task, other.task)  # the end does not wait
    assert (reader.offered, reader.rest, other.rest) == ([b"abc"], b"de", b"x")
