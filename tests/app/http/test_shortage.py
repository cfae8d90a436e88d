"""No descriptor is left: that is told from a failure of the server, whatever the resolver or OpenSSL call it."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from providers.http import TlsContexts
from providers.refusals import ErrorKind, UpstreamError, is_shortage
from tests.app.http.dialled import answered, calling
from tests.app.http.http1_line import Http1Line
from tests.app.http.lines import Server
from tests.app.providers.origin import soon
from tests.support.servers import free_port


@contextmanager
def without_descriptors() -> Iterator[None]:
    """Let this process open nothing more. Some stay open: below a limit of two even a poll is an error."""
    open_ = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
    lowest = max(open_)
    os.close(open_.pop(open_.index(lowest)))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for each in open_:
            os.close(each)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "nobody.example"])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_lack_of_descriptors_is_our_own(scheme: str, host: str) -> None:
    async with calling(f"{scheme}://{host}:{free_port()}") as caller:
        with without_descriptors(), pytest.raises(UpstreamError) as raised:
            await soon(caller.send("POST", "/", b"{}"))
    assert raised.value.kind is ErrorKind.LOCAL_RESOURCES
    assert "Too many open files" in raised.value.message


async def test_a_refused_port_is_the_servers_even_then() -> None:
    async with calling(f"http://127.0.0.1:{free_port()}") as caller:
        with pytest.raises(UpstreamError) as raised:
            await soon(caller.send("POST", "/", b"{}"))
    assert raised.value.kind is ErrorKind.CONNECT_ERROR


async def test_the_next_call_is_answered_when_there_are_some_again() -> None:
    async with Server(Http1Line).listening() as server, calling(f"http://127.0.0.1:{server.port}") as caller:
        with without_descriptors(), pytest.raises(UpstreamError):
            await soon(caller.send("POST", "/", b"{}"))
        await answered(server, caller)


async def test_no_authorities_that_could_not_be_read_are_kept() -> None:
    contexts = TlsContexts()
    with without_descriptors(), pytest.raises(OSError, match="Too many open files"):
        contexts.offering("auto")
    fresh = TlsContexts().offering("auto").cert_store_stats()
    assert contexts.offering("auto").cert_store_stats() == fresh


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EINVAL, errno.ENOENT])
def test_whatever_a_resolver_says_is_our_own_only_without_descriptors(number: int) -> None:
    vague = OSError(number, os.strerror(number))
    assert not is_shortage(vague)
    with without_descriptors():
        assert is_shortage(vague)


def test_what_the_network_says_is_the_servers_even_without_descriptors() -> None:
    with without_descriptors():
        assert not is_shortage(ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)))
