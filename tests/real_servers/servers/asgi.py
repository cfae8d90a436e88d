"""An ASGI application that passes each request on to the one behind it, and stops when its client has gone.

It runs in the server's own process and environment, from a copy, so it imports nothing of ours.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import h11

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_KEPT = {b"content-type", b"cache-control", b"x-received", b"content-length"}


async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Serve one request."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    body = b""
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return
        body += event.get("body", b"")
        if not event.get("more_body"):
            break
    relaying = asyncio.create_task(_relay(scope, body, send))
    leaving = asyncio.create_task(_left(receive))
    await asyncio.wait({relaying, leaving}, return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()
    relaying.cancel()
    await asyncio.wait({relaying, leaving})


async def _live(receive: Receive, send: Send) -> None:
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _relay(scope: dict[str, Any], body: bytes, send: Send) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["APPLICATION_PORT"]))
    try:
        connection = h11.Connection(h11.CLIENT)
        target = scope["raw_path"] + b"?" + scope["query_string"]
        headers = [(b"host", b"application"), (b"content-length", b"%d" % len(body))]
        asked = h11.Request(method=scope["method"], target=target, headers=headers)
        for part in (asked, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(connection.send(part) or b"")
        await writer.drain()
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Response):
                kept = [(name, value) for name, value in event.headers if name in _KEPT]
                await send({"type": "http.response.start", "status": event.status_code, "headers": kept})
            elif isinstance(event, h11.Data):
                await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
            else:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
    finally:
        writer.transport.abort()
