"""Opens the exchange of an attempt, and reads the rest of its body after the answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gateway.calls import Call
from gateway.fleet.deployment import Deployment
from providers.dialects.translation import translations
from providers.errors import UpstreamError
from providers.exchange import Exchange, Request
from providers.http_exchange import TranslatedExchange
from providers.sendings import Sendings

DRAIN_S = 0.25  # maximum wait for the end of the body after [DONE]; then the connection is dropped


async def open_exchange(deployment: Deployment, call: Call, attempt_id: str, sendings: Sendings) -> Exchange:
    """Send ``call`` to ``deployment``; return the exchange, whose events are in the client's dialect.

    Raises:
        UpstreamError: as for ``Upstream.stream``.

    """
    spoken = deployment.spoken_to(call.dialect)
    request = Request(
        model=deployment.model,
        fields=call.wordings.get(deployment.name, call.fields),
        dialect=spoken,
        headers=call.headers if call.trace is None else call.trace.sent_with(call.headers, attempt_id),
        own_headers=deployment.extra_headers,
        extra_body=deployment.extra_body,
        upstream_stream=deployment.upstream_stream,
        connect_timeout_s=deployment.clocks.connect_s,
        drop_params=deployment.drop_params,
        once=call.stateful,
        sendings=sendings,
    )
    exchange = await deployment.upstream.stream(request)
    if spoken is call.dialect:
        return exchange
    return TranslatedExchange(exchange, translations(spoken, call.dialect, call.fields, exchange.secrets))


@asynccontextmanager
async def reading(exchange: Exchange, *, until: asyncio.Future[None]) -> AsyncIterator[asyncio.Future[bytes]]:
    """Yield the next read of ``exchange`` when it is done, or when ``until`` is; drop it if left before."""
    read = asyncio.ensure_future(exchange.read())
    try:
        waiting: set[asyncio.Future[Any]] = {read, until}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        yield read
    finally:
        if not read.done():
            read.cancel()
            await asyncio.wait({read})
        if not read.cancelled():
            read.exception()  # of a dropped exchange: retrieve its exception, as nothing else does


async def drain(exchange: Exchange, loop: asyncio.AbstractEventLoop) -> None:
    """Read to the end of the body, so that the connection can be reused; drop it after ``DRAIN_S``."""
    timer = loop.call_later(DRAIN_S, exchange.abort)
    try:
        while await exchange.read():
            pass
    except UpstreamError:
        exchange.abort()
    finally:
        timer.cancel()
