"""The baseline: a plain aiohttp proxy of forty lines. It parses nothing, races nothing, measures and logs nothing."""

import sys
from collections.abc import AsyncIterator

import aiohttp
import uvloop
from aiohttp import web

UPSTREAM = web.AppKey("upstream", str)
SESSION = web.AppKey("session", aiohttp.ClientSession)


async def session(app: web.Application) -> AsyncIterator[None]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as app[SESSION]:
        yield


async def forward(request: web.Request) -> web.StreamResponse:
    url = request.app[UPSTREAM] + request.path
    headers = {"content-type": request.headers["content-type"], "accept-encoding": "identity"}
    async with request.app[SESSION].post(url, data=await request.read(), headers=headers) as upstream:
        kept = {key: upstream.headers[key] for key in ("content-type", "content-length") if key in upstream.headers}
        response = web.StreamResponse(status=upstream.status, headers=kept)
        await response.prepare(request)
        async for block in upstream.content.iter_any():
            await response.write(block)
    await response.write_eof()
    return response


if __name__ == "__main__":
    application = web.Application()
    application[UPSTREAM] = sys.argv[2]
    application.cleanup_ctx.append(session)
    application.router.add_post("/{path:.*}", forward)
    loop = uvloop.new_event_loop()
    web.run_app(application, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None, loop=loop)
