"""One port, listened on by one process or by several workers."""

import errno
import socket
from contextlib import ExitStack

import pytest

from gateway.connections.ports import SharedPort, bind

LOOPBACK = "127.0.0.1"


def accepted(sock: socket.socket) -> int:
    number = 0
    while True:
        try:
            connection, _ = sock.accept()
        except BlockingIOError:
            return number
        connection.close()
        number += 1


def test_each_worker_has_a_socket_of_its_own_and_gets_its_share_of_connections() -> None:
    port = SharedPort(LOOPBACK, 0)
    with ExitStack() as stack:
        sockets = [stack.enter_context(port.make_socket()) for _ in range(4)]
        assert {sock.getsockname() for sock in sockets} == {port.address}
        for _ in range(400):
            stack.enter_context(socket.create_connection(port.address))
        shares = [accepted(sock) for sock in sockets]
    port.close()
    assert sum(shares) == 400
    assert min(shares) > 60  # by chance once in 100,000 times: the standard deviation is 9


def test_a_worker_that_is_gone_gets_nothing_and_the_one_after_it_does() -> None:
    port = SharedPort(LOOPBACK, 0)
    first, second = port.make_socket(), port.make_socket()
    first.close()
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection(port.address))
        assert accepted(second) == 20
        second.close()
        third = stack.enter_context(port.make_socket())
        stack.enter_context(socket.create_connection(port.address))
        assert accepted(third) == 1
    port.close()


def test_nobody_listens_any_more_once_the_workers_do_not() -> None:
    port = SharedPort(LOOPBACK, 0)
    port.make_socket().close()
    port.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(port.address)


@pytest.mark.parametrize("other", [bind, SharedPort])
def test_another_gateway_is_told_that_the_address_is_taken_though_it_would_share_it(other: type[SharedPort]) -> None:
    port = SharedPort(LOOPBACK, 0)
    with port.make_socket(), pytest.raises(OSError, match="already in use") as refusal:
        other(LOOPBACK, port.address[1])
    port.close()
    assert refusal.value.errno == errno.EADDRINUSE
