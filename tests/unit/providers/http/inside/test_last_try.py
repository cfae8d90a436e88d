"""Requests whose kept connections turn out to be gone, one after another, as in a reload. In virtual time."""

import asyncio

import pytest
from yarl import URL

from providers.http import Connecting, HttpClient
from providers.http.client import Pool
from providers.refusals import ErrorKind, UpstreamError
from tests.unit.providers.http.inside.h1_server import OK, POST, Dialling
from tests.unit.providers.http.inside.test_pool import TIMEOUT_S, in_virtual_time


async def kept(client: HttpClient, dialling: Dialling, count: int) -> None:
    """Have the client keep ``count`` connections that are all in use."""
    client._pools["1.1"] = Pool(dialling.dial, asyncio.get_running_loop())
    calls = [asyncio.create_task(client.send(POST, TIMEOUT_S)) for _ in range(count)]
    await asyncio.sleep(0.1)
    for line in dialling.lines:
        line.say(OK)
    await asyncio.gather(*calls)
    for line in dialling.lines:
        line.heard()


async def lost_twice(client: HttpClient, dialling: Dialling) -> asyncio.Task[object]:
    """Start a call that is given one kept connection and then another, both of which are gone."""
    other = asyncio.create_task(client.send(POST, TIMEOUT_S))
    await asyncio.sleep(0)
    second = next(line for line in dialling.lines if line.heard())
    call: asyncio.Task[object] = asyncio.create_task(client.send(POST, TIMEOUT_S))
    await asyncio.sleep(0)
    first = next(line for line in dialling.lines if line.heard())
    dialling.takes_s = 1.0
    first.hang_up()
    await asyncio.sleep(0.1)
    second.say(OK)
    await other
    await asyncio.sleep(0.1)
    assert second.heard(), "who waits takes what is freed first"
    second.hang_up()
    await asyncio.sleep(0)
    return call


@in_virtual_time
async def test_the_last_try_goes_over_a_connection_made_for_it() -> None:
    dialling = Dialling()
    client = HttpClient(URL("http://127.0.0.1"), headers={}, connecting=Connecting(versions="1.1"))
    await kept(client, dialling, 3)
    third = asyncio.create_task(client.send(POST, TIMEOUT_S))
    await asyncio.sleep(0)
    busy = next(line for line in dialling.lines if line.heard())
    call = await lost_twice(client, dialling)
    busy.say(OK)
    await third
    await asyncio.sleep(0)
    assert not busy.heard()  # it is kept, and old
    await asyncio.sleep(2)
    fresh = next(line for line in dialling.lines[3:] if line.heard())
    fresh.say(OK)
    await call
    await client.aclose()


@in_virtual_time
async def test_a_fresh_connection_that_is_gone_too_is_an_error() -> None:
    dialling = Dialling()
    client = HttpClient(URL("http://127.0.0.1"), headers={}, connecting=Connecting(versions="1.1"))
    await kept(client, dialling, 2)
    call = await lost_twice(client, dialling)
    await asyncio.sleep(2)
    next(line for line in dialling.lines[2:] if line.heard()).hang_up()
    with pytest.raises(UpstreamError, match="before the answer") as caught:
        await call
    assert caught.value.kind == ErrorKind.DISCONNECTED
    await client.aclose()
