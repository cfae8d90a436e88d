"""The listening socket, and a sentence for each reason why there is none."""

import errno
import resource
import socket

import pytest

from gateway.server import ListenError
from gateway.server.listener import _explained, bind


def test_it_listens_at_once() -> None:
    with bind("127.0.0.1", 0) as sock, socket.create_connection(sock.getsockname()):
        pass


def test_a_port_that_is_taken_is_named() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"port {port} on 127.0.0.1 is already in use.*--port"):
            bind("127.0.0.1", port)


def test_an_address_of_another_machine_is_no_matter_of_ports() -> None:
    with pytest.raises(ListenError, match=r"192.0.2.1 is not an address of this machine.*--host") as caught:
        bind("192.0.2.1", 0)
    assert "--port" not in str(caught.value)


def test_a_host_without_an_address_is_named() -> None:
    host = "a" * 64 + ".example"  # no resolver is asked for such a name
    with pytest.raises(ListenError, match=f"there is no address for the host '{host}' .*--host"):
        bind(host, 0)


def test_ports_below_1024_are_said_to_be_the_systems() -> None:
    said = _explained(PermissionError(errno.EACCES, "Permission denied"), "127.0.0.1", 80)
    assert said is not None
    assert "port 80" in said
    assert "CAP_NET_BIND_SERVICE" in said


def test_a_lack_of_descriptors_is_no_matter_of_the_address() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 1, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                bind("127.0.0.1", 0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
