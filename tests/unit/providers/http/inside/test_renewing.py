"""At their age connections give way to others where that spreads them over a name's addresses. In virtual time."""

import asyncio
import math
import socket
from random import Random
from typing import TYPE_CHECKING

import pytest

from providers.http import Names
from providers.http.client import Pool
from providers.http.http1 import Http1Connection
from providers.http.message import ConnectionOwner
from providers.refusals import ErrorKind, UpstreamError
from tests.unit.providers.http.inside.h1_server import OK, POST, Dialling, Line
from tests.unit.providers.http.inside.test_pool import TIMEOUT_S, in_virtual_time

if TYPE_CHECKING:
    from providers.http.addresses import Addresses

AGE_S = 60.0


class Pods(Dialling):
    """Dials the addresses of a name, of which there may be more later."""

    def __init__(self, count: int, *, takes_s: float = 0.0) -> None:
        super().__init__(takes_s=takes_s)
        loop = asyncio.get_running_loop()
        self.addresses: Addresses = Names(random=Random(7).random).of(loop, "pods.example", 80)
        self.has(count)
        self.pool = Pool(self.dial, loop, addresses=self.addresses, age_s=AGE_S)

    def has(self, count: int) -> None:
        """Have the name so many addresses from now on."""
        told = [(f"10.0.0.{number}", 80) for number in range(1, count + 1)]
        self.addresses._answered([(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in told])
        self.addresses._answered_at = math.inf  # it need not be looked up

    async def dial(self, owner: ConnectionOwner, timeout_s: float) -> Http1Connection:
        place = self.addresses.in_turn(self.addresses._places)[0]
        client = await super().dial(owner, timeout_s)
        client.place = place
        return client

    def open(self) -> list[Line]:
        return [line for line in self.lines if not line.wire.aborted]

    @property
    def used(self) -> list[int]:
        return [place.used for place in self.addresses._places]

    async def calls(self, count: int = 1) -> list[Line]:
        """Make calls at once, and return their lines; none of them but the first ones waits for a connection."""
        responses = [await self.pool.send(POST, TIMEOUT_S) for _ in range(count)]
        lines = [line for line in self.lines if line.heard()]
        for line in lines:
            line.say(OK)
        for response in responses:
            assert await response.read() == b"ok"
        return lines

    async def end(self) -> None:
        await self.pool.aclose()
        await asyncio.sleep(0)
        assert not self.open()
        assert not self.pool._ages
        assert not self.pool._renewals
        assert not sum(self.used)


@in_virtual_time
async def test_one_connection_goes_from_address_to_address_and_no_call_waits() -> None:
    pods = Pods(3)
    await pods.calls()
    seen = set()
    for _ in range(60):
        await asyncio.sleep(5)
        before = pods.begun
        [line] = await pods.calls()
        seen.add(line.client.place)
        assert pods.begun == before
        assert len(pods.open()) == 1
    assert len(seen) == 3
    assert pods.begun <= 8
    await pods.end()


@in_virtual_time
async def test_where_there_is_one_address_a_connection_stays() -> None:
    pods = Pods(1)
    for _ in range(600):
        await pods.calls()
        await asyncio.sleep(10)
    assert pods.begun == 1
    await pods.end()


@in_virtual_time
async def test_where_all_addresses_have_as_many_connections_stay() -> None:
    pods = Pods(3)
    for _ in range(100):
        await pods.calls(6)
        await asyncio.sleep(10)
    assert pods.used == [2, 2, 2]
    assert pods.begun == 6
    await pods.end()


@in_virtual_time
async def test_an_address_that_came_later_has_its_share_within_the_age() -> None:
    pods = Pods(3)
    await pods.calls(12)
    pods.has(4)
    for _ in range(7):
        await asyncio.sleep(10)
        before = pods.begun
        await pods.calls(12)
        assert pods.begun == before
    assert pods.used[3] >= 3
    assert sum(pods.used) == 12
    assert pods.begun <= 20
    await pods.end()


@in_virtual_time
async def test_an_address_that_left_the_name_is_left_in_time() -> None:
    pods = Pods(2)
    await pods.calls(2)
    [leaves] = [line for line in pods.open() if line.client.place is pods.addresses._places[1]]
    for second in range(60):
        if second % 3 == 0:
            pods.has(1)
        await pods.calls(2)
        await asyncio.sleep(10)
    assert leaves.wire.aborted
    assert pods.used == [2]
    await pods.end()


@in_virtual_time
async def test_what_runs_goes_on_to_its_end() -> None:
    pods = Pods(2)
    response = await pods.pool.send(POST, TIMEOUT_S)
    [line] = pods.lines
    line.say(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab")
    await asyncio.sleep(AGE_S * 20)
    assert line in pods.open()
    line.say(b"cd")
    assert await response.read() + await response.read() == b"abcd"
    await asyncio.sleep(0)
    assert line not in pods.open()
    assert pods.begun == 2
    await pods.end()


@in_virtual_time
async def test_what_nobody_uses_is_not_replaced() -> None:
    pods = Pods(2)
    await pods.calls(3)
    for _ in range(5):
        await asyncio.sleep(8)
        await pods.calls(1)
    await asyncio.sleep(10)
    assert len(pods.open()) <= 2
    await asyncio.sleep(AGE_S)
    assert not pods.open()
    assert pods.begun <= 4
    await pods.end()


@pytest.mark.parametrize("stillborn", [False, True])
def test_where_no_other_can_be_made_it_stays(*, stillborn: bool) -> None:
    @in_virtual_time
    async def test() -> None:
        pods = Pods(2)
        await pods.calls()
        pods.stillborn = stillborn
        pods.errors = [] if stillborn else [UpstreamError(ErrorKind.CONNECT_ERROR, "refused")] * 2
        for _ in range(13):
            await asyncio.sleep(10)
            assert await pods.calls() == pods.lines[:1]
        pods.stillborn = False
        for _ in range(7):
            await asyncio.sleep(10)
            await pods.calls()
        assert pods.lines[0].wire.aborted
        await pods.end()

    test()


@in_virtual_time
async def test_one_that_is_retired_renews_nothing() -> None:
    pods = Pods(2)
    running = await pods.pool.send(POST, TIMEOUT_S)
    pods.pool.retire()
    await asyncio.sleep(AGE_S * 3)
    assert pods.begun == 1
    pods.lines[0].say(OK)
    assert await running.read() == b"ok"
    await pods.end()


@in_virtual_time
async def test_closing_ends_a_renewal() -> None:
    pods = Pods(2)
    await pods.calls()
    pods.takes_s = 1000.0
    for _ in range(7):
        await asyncio.sleep(10)
        await pods.calls()
    assert pods.begun == 2
    await pods.end()
