"""Clients of SDKs on a ``Racer``: as their vendors made them, but each request is raced in this process.

So whatever takes such a client races, too. The frameworks that most people use have a module each beside this one.
"""

import asyncio
from collections.abc import AsyncIterator
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, cast

from holeshot import Racer

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from holeshot._served import ServedEvents

_BASE_URL = "http://holeshot"  # no connection is made: frameworks show this name as the provider in their metrics
_RACE_HEADER = "x-holeshot-race"


def openai_client(racer: Racer, **options: Any) -> "AsyncOpenAI":
    """Return OpenAI's client (chat completions, completions, Responses); ``options`` are its own.

    The client does not retry: a race has asked all deployments already. Only the Racer has to be closed.
    """
    import openai  # noqa: PLC0415 - whoever calls this has it; ``import holeshot`` needs none

    made = {"api_key": "none", "base_url": f"{_BASE_URL}/v1", "max_retries": 0, **options}
    return openai.AsyncOpenAI(**made, http_client=_http_client(openai, racer))


def anthropic_client(racer: Racer, **options: Any) -> Any:
    """Return Anthropic's client (Messages), ``AsyncAnthropic``; ``options`` are its own.

    The client does not retry: a race has asked all deployments already. Only the Racer has to be closed.
    """
    anthropic: Any = import_module("anthropic")  # a caller has the package installed
    made = {"api_key": "none", "base_url": _BASE_URL, "max_retries": 0, **options}
    return anthropic.AsyncAnthropic(**made, http_client=_http_client(anthropic, racer))


def _http_client(sdk: Any, racer: Racer) -> Any:
    """Return the HTTP client of an SDK, whose requests go to the Racer and never to a proxy."""
    kind = sdk.DefaultAsyncHttpxClient
    library = import_module(kind.__mro__[1].__module__.partition(".")[0])  # httpx, or httpx2 since openai 3
    return kind(transport=_Transport(racer, library), trust_env=False)


class _Transport:
    """The transport of an HTTP client, which gives requests to a Racer instead of sending them to a server."""

    def __init__(self, racer: Racer, library: ModuleType) -> None:
        self._racer = racer
        self._library: Any = library
        # The library takes streams of its own class alone.
        self._body = cast("type[_Body]", type("Body", (_Body, self._library.AsyncByteStream), {}))

    async def handle_async_request(self, request: Any) -> Any:
        """Return the response, once it has begun. A cancellation cancels all attempts."""
        from holeshot._served import served  # noqa: PLC0415 - memory: imports what a Racer alone does not need

        library, wait_s = self._library, request.extensions.get("timeout", {}).get("read")
        body = await request.aread()
        try:
            async with asyncio.timeout(wait_s):
                found = await served(self._racer, request.url.path, body, request.headers.get(_RACE_HEADER))
        except TimeoutError:
            raise library.ReadTimeout(f"no answer within {wait_s} s", request=request) from None
        head = list(found.headers.items())
        if isinstance(found.body, bytes):
            return library.Response(found.status, headers=head, content=found.body)
        late = library.ReadTimeout(f"nothing came for {wait_s} s", request=request)
        return library.Response(found.status, headers=head, stream=self._body(found.body, wait_s, late))

    async def aclose(self) -> None:
        """Do nothing: the owner of the Racer closes it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Body:
    """The body of a streamed response: events, each within the time that the client waits for one."""

    def __init__(self, events: "ServedEvents", wait_s: float | None, late: Exception) -> None:
        self._events = events
        self._wait_s = wait_s
        self._late = late

    async def __aiter__(self) -> AsyncIterator[bytes]:
        blocks = aiter(self._events)
        while True:
            try:
                async with asyncio.timeout(self._wait_s):
                    block = await anext(blocks, None)
            except TimeoutError:
                raise self._late from None
            if block is None:
                return
            yield block

    async def aclose(self) -> None:
        """End the call."""
        await self._events.aclose()
