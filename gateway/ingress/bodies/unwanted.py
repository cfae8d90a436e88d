"""Bodies that nobody wants: the answer goes first, and the rest is read raw, bounded in bytes and seconds.

To close a connection by which more is still coming resets it, and its client may then never read why it was refused.
"""

import asyncio

from aiohttp import web

from gateway.ingress.bodies.work import BodyWork

DRAINED_BYTES = 16 * 2**20  # costs less than the connections on which as much could be sent otherwise
DRAINED_S = 5.0


async def answer_first(request: web.Request, response: web.StreamResponse, work: BodyWork) -> None:
    """Send ``response`` to a request whose body was not read to its end, then drain that, or close the connection."""
    length = request.content_length
    if length is None or length > DRAINED_BYTES or "expect" in request.headers:
        response.force_close()  # said in its head: many stop sending then
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
