"""Each test here runs on both event loops, over the protocols it asks for, and must leave nothing behind."""

import asyncio
import os
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import uvloop
from yarl import URL

from providers.http import Connecting, HttpClient, TlsContexts, Versions
from tests.app.http.callers import Caller, Own, Reference
from tests.app.http.http1_line import Http1Line
from tests.app.http.http2_line import Http2Line
from tests.app.http.lines import Line, Server
from tests.app.providers.origin import soon, tls_pair
from tests.patience import PATIENCE_S

_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")


class Way(NamedTuple):
    """How the two sides speak."""

    version: Versions
    over_tls: bool = False
    reference: bool = False

    def __str__(self) -> str:
        return "aiohttp" if self.reference else f"http{self.version}{'+tls' if self.over_tls else ''}"


OWN_WAYS = (Way("1.1"), Way("1.1", over_tls=True), Way("2"), Way("2", over_tls=True))
WAYS = (*OWN_WAYS, Way("1.1", reference=True))


class Trust(NamedTuple):
    """A server's certificate for localhost, and the authority whose clients believe it."""

    server: ssl.SSLContext
    authority: bytes

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authority.decode())


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def _open_sockets() -> set[int]:
    """Return the inodes of this process's network sockets, of which a loop has none for itself."""
    found = set()
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - numbers, not paths
        try:
            made_of = os.fstat(int(name))
        except OSError:  # what listed them
            continue
        if stat.S_ISSOCK(made_of.st_mode):
            with socket.socket(fileno=os.dup(int(name))) as copy:
                if copy.family in {socket.AF_INET, socket.AF_INET6}:
                    found.add(made_of.st_ino)
    return found


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(autouse=True)
async def nothing_left_behind(no_proxy: None) -> AsyncIterator[None]:
    """See that the test leaves no task, no socket, and no exception that nobody took."""
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    before = _open_sockets()
    yield

    def left() -> tuple[set[Any], set[int]]:
        return asyncio.all_tasks() - {asyncio.current_task()}, _open_sockets() - before

    deadline = loop.time() + PATIENCE_S
    # What was aborted is closed by the loop's next turns.
    while any(left()) and loop.time() < deadline:  # noqa: ASYNC110 - nothing tells of the end of sockets
        await asyncio.sleep(0)
    assert left() == (set(), set())
    for context in complaints:
        raise AssertionError(context["message"]) from context.get("exception")


@pytest.fixture(scope="session")
def trust() -> Trust:
    return Trust(*tls_pair())


@asynccontextmanager
async def meeting(way: Way, trust: Trust, kind: type[Line] | None = None) -> AsyncIterator[tuple[Server, Caller]]:
    """A server, and a client that may speak to it."""
    if kind is None:
        kind = Http2Line if way.version == "2" else Http1Line
    if way.over_tls:
        trust.server.set_alpn_protocols(["h2"] if way.version == "2" else ["http/1.1"])
    async with Server(kind, trust.server if way.over_tls else None).listening() as server:
        caller = called(server, way, trust)
        try:
            yield server, caller
        finally:
            await soon(caller.aclose())


def called(server: Server, way: Way, trust: Trust) -> Caller:
    if way.reference:
        return Reference(server.origin)
    tls = TlsContexts(trust.client)
    return Own(
        HttpClient(URL(server.origin), headers={"X-Own": "1"}, connecting=Connecting(versions=way.version, tls=tls))
    )


@pytest.fixture(params=WAYS, ids=str)
def way(request: pytest.FixtureRequest) -> Way:
    chosen: Way = request.param
    return chosen


@pytest.fixture
async def met(way: Way, trust: Trust, nothing_left_behind: None) -> AsyncIterator[tuple[Server, Caller]]:
    async with meeting(way, trust) as pair:
        yield pair


@pytest.fixture
def server(met: tuple[Server, Caller]) -> Server:
    return met[0]


@pytest.fixture
def caller(met: tuple[Server, Caller]) -> Caller:
    return met[1]
