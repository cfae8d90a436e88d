"""Serves stand-ins over HTTP, each on a port of its own."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web
from msgspec import structs

from strict_vendors.vendor import Refused, Reply, Request, Vendor, as_json

MAX_BODY_BYTES = 64 * 2**20


class Served:
    """A stand-in that is served; what it saw and what it refused are looked at here."""

    def __init__(self, vendor: Vendor, root: str) -> None:
        self.vendor, self.root = vendor, root
        self.base_url, self.key, self.second_key = root + vendor.base, vendor.key, vendor.second_key
        self.seen, self.refusals = vendor.seen, vendor.refusals

    @property
    def said(self) -> str:
        """What it refused, a line each: for the message of an assertion."""
        return "\n".join(f"{each.status} {each.request.path}: {each.message} [{each.rule}]" for each in self.refusals)


@asynccontextmanager
async def served(vendor: Vendor, port: int = 0, *, pause: Callable[[], float] | None = None) -> AsyncIterator[Served]:
    """Serve one stand-in on loopback, on a free port if none is given.

    ``pause`` returns for each request after how many seconds its answer begins; None: at once.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        asked = vendor.of_key(request.headers)
        if request.headers.get("upgrade", "").lower() == "websocket" and asked.hears(request.path):
            return await _talk(request, asked)
        body = await request.read()
        reply = asked.answer(request.method, request.raw_path, request.headers, body)
        if pause is not None:
            await asyncio.sleep(pause())
        return await send(request, reply)

    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        host, bound = runner.addresses[0][:2]
        yield Served(vendor, f"http://{host}:{bound}")
    finally:
        await runner.cleanup()


async def _talk(request: web.Request, vendor: Vendor) -> web.StreamResponse:
    """Answer the messages of a WebSocket, one after the other."""
    asked = Request(request.method, request.path, {name.lower(): value for name, value in request.headers.items()})
    vendor.seen.append(asked)
    try:
        vendor.admit(asked)
    except Refused as refused:
        vendor.note(asked, refused)
        return await send(request, vendor.refusal(refused))
    socket = web.WebSocketResponse(max_msg_size=MAX_BODY_BYTES)
    await socket.prepare(request)
    connection: dict[str, Any] = {}
    async for message in socket:
        if message.type is not WSMsgType.TEXT:
            continue
        body = json.loads(message.data)
        vendor.seen.append(structs.replace(asked, body=body))
        events, breaks = vendor.hear(body, connection)
        for event in events[: len(events) // 2 + 1] if breaks else events:
            await socket.send_str(as_json(event).decode())
        if breaks == "silent":
            await asyncio.Event().wait()
        if breaks == "early":
            await socket.close()
        elif breaks:
            _close(request)
        if breaks:
            break
    return socket


async def send(request: web.Request, reply: Reply) -> web.StreamResponse:
    """Send a reply: whole, or block by block, as late and as far as it says."""
    if reply.late_s:
        await asyncio.sleep(reply.late_s)
    if reply.blocks is None:
        if reply.breaks == "silent":
            await asyncio.Event().wait()
        body = reply.body if isinstance(reply.body, bytes) else as_json(reply.body)
        response = web.Response(
            body=body, status=reply.status, headers=reply.headers, content_type=reply.content_type or "application/json"
        )
        if reply.breaks and reply.breaks != "early":
            _close(request)
        return response
    stream = web.StreamResponse(
        headers={**reply.headers, "content-type": reply.content_type or "text/event-stream; charset=utf-8"}
    )
    try:
        await stream.prepare(request)
        middle = len(reply.blocks) // 2
        for number, block in enumerate(reply.blocks[: middle + 1] if reply.breaks else reply.blocks):
            if reply.rest_s and number == middle:
                await asyncio.sleep(reply.rest_s)
            await stream.write(block)
            await asyncio.sleep(0)  # a block is a packet, as far as the loop has it
        if reply.breaks == "silent":
            await asyncio.Event().wait()
        if reply.breaks and reply.breaks != "early":
            _close(request)
            return stream
        await stream.write_eof()
    except ConnectionError:  # who asked has left
        pass
    return stream


def _close(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()
