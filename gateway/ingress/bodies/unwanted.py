"""Unread bodies: the response is sent first, then the rest is read and dropped, with limits on bytes and seconds.

Closing a connection while data arrives resets it, and the client may then never read why it was refused.
"""

import asyncio

from aiohttp import web

from gateway.ingress.bodies.work import BodyWork

DRAINED_BYTES = 16 * 2**20  # cheaper than the new connections that could be used to send as much
DRAINED_S = 5.0


async def answer_first(request: web.Request, response: web.StreamResponse, work: BodyWork) -> None:
    """Send ``response`` to a request whose body was not fully read, then read the rest or close the connection."""
    length = request.content_length
    if length is None or length > DRAINED_BYTES or "expect" in request.headers:
        response.force_close()  # many clients stop sending when they see this header
    content = request.content
    left = DRAINED_BYTES
    try:
        async with asyncio.timeout(DRAINED_S):
            await response.prepare(request)
            await response.write_eof()
            while left > 0 and (data := await content.readany()):
                left -= len(data)
                work.drained_bytes += len(data)
    except (TimeoutError, ConnectionError, web.RequestPayloadError):
        pass
    if not content.is_eof():
        response.force_close()
