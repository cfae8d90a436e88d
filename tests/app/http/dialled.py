"""Calls whose connections are the matter: how they are made, how they fail, and what stands in their way."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

import pytest
from yarl import URL

from providers.http import Connecting, HttpClient, Names, Response, TlsContexts, Versions
from providers.refusals import ErrorKind, UpstreamError
from tests.app.http.callers import Own, read_whole
from tests.app.http.conftest import Trust
from tests.app.http.lines import Server
from tests.app.providers.origin import soon
from tests.patience import PATIENCE_S

Address = tuple[Any, ...]


@asynccontextmanager
async def calling(
    origin: str,
    trust: Trust | None = None,
    *,
    versions: Versions = "auto",
    connect_timeout_s: float = 10.0,
    names: Names | None = None,
    age_s: float | None = None,
) -> AsyncIterator[Own]:
    tls = TlsContexts(trust.client) if trust is not None else None
    client = HttpClient(
        URL(origin), headers={}, connecting=Connecting(versions=versions, tls=tls, names=names, age_s=age_s)
    )
    caller = Own(client, connect_timeout_s)
    try:
        yield caller
    finally:
        await soon(caller.aclose())


async def answered(server: Server, caller: Own) -> Response:
    call = asyncio.create_task(caller.send("POST", "/", b"{}"))
    await (await server.exchange()).answer(b"ok")
    answer = await soon(call)
    assert await soon(read_whole(answer)) == b"ok"
    assert isinstance(answer, Response)
    return answer


async def refused(caller: Own, kind: ErrorKind = ErrorKind.CONNECT_ERROR) -> str:
    """Return what the error says to a call that gets no connection."""
    with pytest.raises(UpstreamError) as caught:
        await soon(caller.send("POST", "/", b"{}"))
    assert caught.value.kind is kind
    return caught.value.message


@contextmanager
def silent_port() -> Iterator[int]:
    """A port whose connections are never made: its queue is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)  # noqa: FBT003 - as sockets have it
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: Sequence[Address] | Exception | threading.Event) -> list[str]:
    """Have this process's resolver give ``answers`` in turn, the last for ever; an event: unknown, once it is set."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: str, *options: Any, **named: Any) -> list[Any]:
        if host[-1].isdigit() or named.get("flags", 0) & socket.AI_NUMERICHOST:
            return real(host, *options, **named)
        answer = answers[min(len(asked), len(answers) - 1)]
        asked.append(host)
        if isinstance(answer, threading.Event):
            answer.wait(PATIENCE_S)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        if isinstance(answer, Exception):
            raise answer
        families = [socket.AF_INET6 if ":" in address[0] else socket.AF_INET for address in answer]
        kind = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(family, *kind, address) for family, address in zip(families, answer, strict=True)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked
