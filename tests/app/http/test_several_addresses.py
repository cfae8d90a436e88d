"""A name with several addresses: all of them are used, also one that came later, and what fails comes last."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from random import Random

import pytest
import uvloop

from providers.http import Names, addresses, dialing
from providers.http.addresses import Place
from tests.app.http.callers import Own, read_whole
from tests.app.http.dialled import answered, calling, refused, resolving
from tests.app.http.http1_line import Http1Line
from tests.app.http.http2_line import Http2Line
from tests.app.http.lines import Line, Server
from tests.app.providers.origin import soon
from tests.patience import PATIENCE_S, until
from tests.support.servers import free_port

AWAY = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
GONE = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.fixture(autouse=True)
def one_address_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no second address tried beside the first (RFC 8305), which a busy machine may be slow to reach."""
    monkeypatch.setattr(dialing, "NEXT_ADDRESS_S", PATIENCE_S)


@asynccontextmanager
async def servers(count: int, kind: type[Line] = Http1Line) -> AsyncIterator[list[Server]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Server(kind).listening()) for _ in range(count)]


def at(*listening: Server) -> list[tuple[str, int]]:
    return [("127.0.0.1", server.port) for server in listening]


def begin(caller: Own) -> None:
    """Make a call that nobody waits for."""
    asyncio.create_task(caller.send("POST", "/", b"{}")).add_done_callback(lambda task: task.exception())


def heard(listening: Sequence[Server]) -> list[int]:
    """Return how many calls each server has."""
    return [sum(len(line.exchanges) for line in server.lines) for server in listening]


def has(listening: Sequence[Server], count: int) -> bool:
    """Return whether all servers together have ``count`` calls."""
    return sum(heard(listening)) == count


async def crowd(caller: Own, count: int, listening: Sequence[Server]) -> list[int]:
    """Make ``count`` calls at once that are not answered, and return how many of them came to each server."""
    before = [len(server.lines) for server in listening]
    for _ in range(count):
        begin(caller)

    def came() -> list[int]:
        return [len(server.lines) - known for server, known in zip(listening, before, strict=True)]

    await until(lambda: sum(came()) == count)
    return came()


async def test_connections_go_round_all_addresses_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async with servers(3) as listening:
        resolving(monkeypatch, at(*listening))
        async with calling("http://pods.example") as caller:
            assert await crowd(caller, 30, listening) == [10, 10, 10]


async def test_one_that_came_later_gets_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "FRESH_S", 0.0)
    async with servers(4) as listening:
        resolving(monkeypatch, at(*listening[:3]), at(*listening))
        monkeypatch.setattr(addresses, "SHARED_S", 60.0)
        async with calling("http://pods.example") as caller:
            assert sum(await crowd(caller, 30, listening[:3])) == 30
            assert (await crowd(caller, 10, listening))[3] == 10


async def test_clients_of_one_name_spread_over_it_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async with servers(3) as listening, AsyncExitStack() as stack:
        resolving(monkeypatch, at(*listening))
        names = Names()
        callers = [await stack.enter_async_context(calling("http://pods.example", names=names)) for _ in range(9)]
        for caller in callers:
            await crowd(caller, 1, listening)
        assert [len(server.lines) for server in listening] == [3, 3, 3]


async def test_processes_begin_at_different_addresses() -> None:
    seen = Counter[object]()
    for seed in range(60):
        names = Names(random=Random(seed).random)
        found = names.of(asyncio.get_running_loop(), "pods.example", 80)
        seen[found.in_turn([place(ip) for ip in ("10.0.0.1", "10.0.0.2", "10.0.0.3")])[0].info[4]] += 1
    assert len(seen) == 3
    assert min(seen.values()) >= 10


def place(ip: str, family: int = socket.AF_INET) -> Place:
    return Place((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, 80)))


async def test_the_least_used_comes_first_what_fails_last_and_the_preferred_family_before_the_other() -> None:
    loop = asyncio.get_running_loop()
    six, seven = place("fd00::6", socket.AF_INET6), place("fd00::7", socket.AF_INET6)
    four, five = place("10.0.0.4"), place("10.0.0.5")
    six.used, four.used = 3, 1
    found = Names().of(loop, "two.example", 80)
    assert found.in_turn([six, seven, four, five]) == [seven, six, five, four]
    seven.failed(loop.time())
    assert found.in_turn([six, seven, four, five]) == [six, five, four, seven]
    six.failed(loop.time())
    assert found.in_turn([six, seven, four, five])[:2] == [five, four]


async def test_an_address_that_refuses_is_not_tried_by_every_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with servers(2) as listening:
        dead = ("127.0.0.1", free_port())
        resolving(monkeypatch, [dead, *at(*listening)])
        names = Names()
        async with calling("http://pods.example", names=names) as caller:
            assert sum(await crowd(caller, 12, listening)) == 12
            found = names.of(asyncio.get_running_loop(), "pods.example", 80)
            [failing] = [each for each in await found.found() if each.info[4] == dead]
            await until(lambda: failing.retry_at and not failing.used)
            assert found.in_turn(await found.found())[0] is not failing


async def test_what_ended_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    async with servers(2) as listening:
        resolving(monkeypatch, at(*listening))
        names = Names()
        async with calling("http://pods.example", names=names) as caller:
            await crowd(caller, 8, listening)
            places = await names.of(asyncio.get_running_loop(), "pods.example", 80).found()
            assert [each.used for each in places] == [4, 4]
            for line in listening[0].lines:
                await line.made.wait()
                line.close()
            await until(lambda: [each.used for each in places] == [0, 4])
        assert [each.used for each in places] == [0, 0]


# Over HTTP/2 one connection would carry all calls.


async def test_calls_over_http2_go_round_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    async with servers(3, Http2Line) as listening:
        resolving(monkeypatch, at(*listening))
        async with calling("http://pods.example", versions="2") as caller:
            for number in range(24):
                begin(caller)
                await until(partial(has, listening, number + 1))
                await until(lambda: not any(pool._dials for pool in caller.client._pools.values()))
            assert min(heard(listening)) >= 7
            assert [len(server.lines) for server in listening] == [1, 1, 1]


async def test_calls_over_http2_to_one_address_share_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with servers(1, Http2Line) as listening:
        resolving(monkeypatch, at(*listening))
        async with calling("http://pods.example", versions="2") as caller:
            for number in range(15):
                begin(caller)
                await until(partial(has, listening, number + 1))
            assert len(listening[0].lines) == 1


async def test_a_stream_over_http2_is_not_cut_by_age(monkeypatch: pytest.MonkeyPatch) -> None:
    async with servers(2, Http2Line) as listening:
        resolving(monkeypatch, at(*listening))
        async with calling("http://pods.example", versions="2", age_s=0.05) as caller:
            call = asyncio.create_task(caller.send("POST", "/", b"{}"))
            await until(lambda: sum(heard(listening)) == 1)
            [first] = [server for server in listening if server.lines]
            exchange = await first.exchange()
            await until(lambda: all(server.lines for server in listening))  # its successor
            await exchange.answer(b"ok")
            answer = await soon(call)
            assert await soon(read_whole(answer)) == b"ok"
            await soon(first.lines[0].lost.wait())


def test_connections_come_of_age_within_one_millisecond_on_the_loop_that_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # uvloop's timer of less than half a millisecond is no timer: it cannot say when it is due.
    failed: list[object] = []

    async def renewing() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
        async with servers(1) as listening:
            resolving(monkeypatch, at(*listening))
            async with calling("http://pods.example", age_s=0.02) as caller:
                await crowd(caller, 30, listening)
                [pool] = caller.client._pools.values()
                later = loop.time() + 0.4  # twenty ages
                await until(lambda: failed or min(pool._ages.values(), default=0.0) > later)

    uvloop.run(renewing())
    assert failed == []


# The resolver is away: it fails, or says nothing at all.


class Told:
    def __init__(self) -> None:
        self.said: list[tuple[str, bool]] = []

    def __call__(self, host: str, *, is_away: bool) -> None:
        self.said.append((host, is_away))


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def names(told: Told) -> Names:
    return Names(tell=told)


async def answered_anew(server: Server, caller: Own) -> None:
    """Make a call over a new connection."""
    await answered(server, caller)
    server.lines[-1].close()
    await soon(server.lines[-1].lost.wait())


async def test_while_the_resolver_is_away_the_last_good_addresses_are_used_and_it_is_told_once(
    monkeypatch: pytest.MonkeyPatch, told: Told, names: Names
) -> None:
    monkeypatch.setattr(addresses, "FRESH_S", 0.0)
    monkeypatch.setattr(addresses, "SHARED_S", 0.0)
    async with Server(Http1Line).listening() as server:
        asked = resolving(monkeypatch, at(server), *[AWAY] * 3, at(server))
        async with calling("http://pods.example", names=names) as caller:
            await answered_anew(server, caller)
            assert names.away == 0
            while len(asked) < 4:
                await answered_anew(server, caller)
            await until(lambda: told.said)
            assert told.said == [("pods.example", True)]
            assert names.away == 1
            while len(told.said) < 2:
                await answered_anew(server, caller)
            assert told.said == [("pods.example", True), ("pods.example", False)]
            assert names.away == 0


async def test_a_resolver_that_says_nothing_holds_up_no_name_that_is_known(
    monkeypatch: pytest.MonkeyPatch, names: Names
) -> None:
    monkeypatch.setattr(addresses, "FRESH_S", 0.0)
    monkeypatch.setattr(addresses, "SHARED_S", 0.01)
    async with Server(Http1Line).listening() as server, AsyncExitStack() as stack:
        hangs = threading.Event()
        stack.callback(hangs.set)
        resolving(monkeypatch, at(server), hangs)
        async with calling("http://pods.example", names=names) as caller:
            for _ in range(5):
                await answered_anew(server, caller)


@pytest.mark.parametrize("is_gone_at_once", [True, False])
async def test_a_name_that_is_gone_is_not_away(
    monkeypatch: pytest.MonkeyPatch, told: Told, names: Names, *, is_gone_at_once: bool
) -> None:
    monkeypatch.setattr(addresses, "FRESH_S", 0.0)
    monkeypatch.setattr(addresses, "SHARED_S", 0.0)
    async with Server(Http1Line).listening() as server:
        asked = resolving(monkeypatch, at(server), *([] if is_gone_at_once else [AWAY]), GONE)
        async with calling("http://pods.example", names=names) as caller:
            await answered_anew(server, caller)
            if not is_gone_at_once:
                await answered_anew(server, caller)
                await answered_anew(server, caller)  # whose lookup goes on behind it
                await until(lambda: len(asked) >= 3 and not names.away)
            assert await refused(caller) == "the name pods.example does not resolve"
    assert told.said == ([] if is_gone_at_once else [("pods.example", True), ("pods.example", False)])


async def test_after_an_hour_they_are_used_no_longer(monkeypatch: pytest.MonkeyPatch, names: Names) -> None:
    monkeypatch.setattr(addresses, "FRESH_S", 0.0)
    monkeypatch.setattr(addresses, "KEPT_S", 0.0)
    async with Server(Http1Line).listening() as server:
        resolving(monkeypatch, at(server), AWAY)
        async with calling("http://pods.example", names=names) as caller:
            await answered_anew(server, caller)
            assert await refused(caller) == "the name pods.example does not resolve"


async def test_a_name_that_was_never_known_is_not_told_as_away(
    monkeypatch: pytest.MonkeyPatch, told: Told, names: Names
) -> None:
    resolving(monkeypatch, AWAY)
    async with calling("http://pods.example", names=names) as caller:
        assert await refused(caller) == "the name pods.example does not resolve"
    assert not told.said
    assert names.away == 0


async def test_after_a_failed_connection_the_last_good_addresses_are_tried_again(
    monkeypatch: pytest.MonkeyPatch, names: Names
) -> None:
    async with Server(Http1Line).listening() as server:
        resolving(monkeypatch, [("127.0.0.1", free_port()), *at(server)], AWAY)
        async with calling("http://pods.example", names=names) as caller:
            found = names.of(asyncio.get_running_loop(), "pods.example", 80)
            await found.found()
            found.doubt()
            await answered_anew(server, caller)
