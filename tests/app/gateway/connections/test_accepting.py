"""Accepting: in batches, and without descriptors."""

import asyncio
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import uvloop

from gateway.server.listener import BATCH, Acceptor, bind
from tests.patience import PATIENCE_S, until

LOOPS: tuple[Callable[[], asyncio.AbstractEventLoop], ...] = (uvloop.new_event_loop, asyncio.new_event_loop)


class Taken:
    """What an acceptor has handed on, and how often it had no descriptor."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        self.exhausted = 0
        self._changed = asyncio.Event()

    def take(self, sock: socket.socket, host: str) -> None:
        assert host == "127.0.0.1"
        self.sockets.append(sock)
        self._changed.set()

    def refused(self) -> None:
        self.exhausted += 1
        self._changed.set()

    async def until(self, *, taken: int = 0, exhausted: int = 0) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.sockets) < taken or self.exhausted < exhausted:
                self._changed.clear()
                await self._changed.wait()


@contextmanager
def knocking(sock: socket.socket, number: int) -> Iterator[list[socket.socket]]:
    """Connect so often; the kernel answers before anybody accepts."""
    clients = [socket.create_connection(sock.getsockname()) for _ in range(number)]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_who_knocks_at_once_is_accepted_in_as_few_turns_as_there_are_batches(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    number = 2 * BATCH + 1

    async def accept() -> int:
        sock, taken = bind("127.0.0.1", 0), Taken()
        with knocking(sock, number):
            acceptor = Acceptor(sock, taken.take, on_exhausted=taken.refused)
            acceptor.start()
            await taken.until(taken=number)
            acceptor.stop()
            for each in taken.sockets:
                each.close()
        return acceptor.batches

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(accept()) == 3


def test_who_has_knocked_before_the_port_closes_is_accepted() -> None:
    async def accept() -> int:
        sock, taken = bind("127.0.0.1", 0), Taken()
        with knocking(sock, 300):
            acceptor = Acceptor(sock, taken.take, on_exhausted=taken.refused)
            acceptor.start()
            acceptor.stop()
            acceptor.stop()  # twice does no harm
            for each in taken.sockets:
                each.close()
        return len(taken.sockets)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(accept()) == 300


@pytest.mark.parametrize("loop", LOOPS)
def test_without_a_descriptor_it_rests_and_goes_on_and_refuses_nobody(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def accept() -> None:
        sock, taken = bind("127.0.0.1", 0), Taken()
        with knocking(sock, 2) as (first, second):
            acceptor = Acceptor(sock, taken.take, on_exhausted=taken.refused)
            acceptor.start()
            with no_descriptor_left():
                await taken.until(exhausted=1)
                assert not taken.sockets
                assert acceptor._pause is not None  # a ready socket is not looked at in vain meanwhile
            await taken.until(taken=2)
            assert [each.getpeername() for each in taken.sockets] == [first.getsockname(), second.getsockname()]
            acceptor.stop()
            for each in taken.sockets:
                each.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(accept())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_socket_that_cannot_accept_does_not_keep_the_loop_busy(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def accept() -> None:
        sock, taken = bind("127.0.0.1", 0), Taken()
        acceptor = Acceptor(sock, taken.take, on_exhausted=taken.refused)
        acceptor.start()
        sock.shutdown(socket.SHUT_RDWR)
        await until(lambda: acceptor._pause is not None)
        assert not taken.exhausted
        acceptor.stop()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(accept())


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unused = os.dup(0)
    os.close(unused)
    resource.setrlimit(resource.RLIMIT_NOFILE, (unused, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
