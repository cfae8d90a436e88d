"""Writes OpenAI's chat-completions format for simulated providers: chunks, events, whole answers, errors."""

import asyncio
import math
import ssl
import struct
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
from aiohttp import web

DONE = b"data: [DONE]\n\n"


class Answering(msgspec.Struct, frozen=True):
    """The fields that are the same in every chunk of one answer."""

    id: str
    model: str
    created: int  # unix seconds

    def chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        """Return a streamed chunk with one choice."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._object("chat.completion.chunk", choices=[choice])

    def usage_chunk(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """Return the chunk without choices for ``stream_options.include_usage``."""
        return self._object("chat.completion.chunk", choices=[], usage=usage)

    def whole(self, message: Mapping[str, Any], finish_reason: str, usage: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
        return self._object("chat.completion", choices=[choice], usage=usage)

    def _object(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, **fields}


def event(data: Mapping[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Return a usage object."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def error(message: str, *, kind: str = "server_error", code: str | int | None = None) -> dict[str, Any]:
    """Return an error in OpenAI's shape."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def model_list(models: Sequence[str]) -> dict[str, Any]:
    """Return the body of ``GET /models``."""
    data = [{"id": model, "object": "model", "created": 0, "owned_by": "simulator"} for model in models]
    return {"object": "list", "data": data}


def embeddings(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the answer to a request for embeddings: a unit vector for each input, determined by the input.

    With ``encoding_format: base64``, as OpenAI's SDKs ask unless they are told otherwise, a vector is its floats of
    four bytes, the lowest first, as text.
    """
    model, inputs = body.get("model", ""), body.get("input", "")
    several = [inputs] if isinstance(inputs, str) else list(inputs)
    vectors: list[Any] = [_vector(text) for text in several]
    if body.get("encoding_format") == "base64":
        vectors = [b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode() for vector in vectors]
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    tokens = sum(1 + len(str(text)) // 4 for text in several)
    return {"object": "list", "model": model, "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def _vector(text: Any, dimensions: int = 8) -> list[float]:
    raw = [zlib.crc32(f"{axis}:{text}".encode()) / 2**31 - 1 for axis in range(dimensions)]
    length = math.hypot(*raw)
    return [value / length for value in raw]


# How the requests to a simulated provider ended, as it saw them itself: this proves that losers are cancelled.

Ending = Literal["completions", "errors", "rate_limited"]


class ProviderCounts(msgspec.Struct):
    """Running totals of one provider. Every request ends in exactly one of the fields after ``most_in_flight``."""

    requests: int = 0
    in_flight: int = 0
    most_in_flight: int = 0  # the maximum so far
    completions: int = 0  # answered completely
    errors: int = 0  # answered with an error status, or broken off by the provider itself
    rate_limited: int = 0  # answered 429
    disconnects_before_first_token: int = 0  # the client hung up
    disconnects_mid_stream: int = 0

    @property
    def disconnects(self) -> int:
        """How often a client hung up."""
        return self.disconnects_before_first_token + self.disconnects_mid_stream


class Visit:
    """One request that is being answered."""

    def __init__(self) -> None:
        self.first_token_sent = False
        self.ending: Ending = "completions"


class ProviderTally:
    """The counts of one provider while it answers. A test can wait until they reach what it expects."""

    def __init__(self) -> None:
        self.counts = ProviderCounts()
        self.requested = asyncio.Event()  # set by the first request
        self.disconnected = asyncio.Event()  # set by the first client to hang up
        self._pulse = asyncio.Event()
        self._answering: set[asyncio.Task[object]] = set()
        self._closing = False

    async def answer(self, give: Callable[[Visit], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        """Run an answer and count it: as the visit's ``ending``, or as a disconnect.

        When the client hangs up, the server cancels this, or the next write fails.
        """
        task = asyncio.current_task()
        assert task is not None, "requests are answered in tasks"
        self._answering.add(task)
        visit = Visit()
        self._add("requests", "in_flight")
        self.counts.most_in_flight = max(self.counts.most_in_flight, self.counts.in_flight)
        self.requested.set()
        try:
            response = await give(visit)
        except asyncio.CancelledError:
            if not self._closing:
                self._count_disconnect(visit)
            raise
        except ConnectionError:
            self._count_disconnect(visit)
            return web.Response()  # cannot be delivered
        else:
            self._add(visit.ending)
            return response
        finally:
            self._answering.discard(task)
            self.counts.in_flight -= 1

    async def reach(self, **at_least: int) -> None:
        """Wait until every named count (also ``disconnects``) is at least the given number."""
        while any(getattr(self.counts, name) < least for name, least in at_least.items()):
            await self._pulse.wait()

    async def close(self) -> None:
        """Cancel all running answers, and wait for their end; they are not counted as disconnects."""
        self._closing = True
        for task in self._answering:
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering)

    def _count_disconnect(self, visit: Visit) -> None:
        self._add("disconnects_mid_stream" if visit.first_token_sent else "disconnects_before_first_token")
        self.disconnected.set()

    def _add(self, *names: str) -> None:
        for name in names:
            setattr(self.counts, name, getattr(self.counts, name) + 1)
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()


# A real HTTP server on loopback for a simulated provider, which notices at once when a client hangs up.

HOST = "127.0.0.1"
_MAX_BODY_BYTES = 256 * 1024 * 1024  # clients may send long prompts and images


@asynccontextmanager
async def serve(
    routes: Iterable[web.RouteDef], tally: ProviderTally, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serve ``routes`` on loopback and yield the base URL for clients, ``http://127.0.0.1:PORT/v1``.

    ``port`` 0 takes a free one. ``GET /_stats`` shows the tally's counts. Running answers are cancelled when the block
    ends.

    Raises:
        OSError: the port is taken.

    """

    async def stats(_: web.Request) -> web.Response:
        return json_response(tally.counts)

    app = web.Application(client_max_size=_MAX_BODY_BYTES)
    app.add_routes([*routes, web.get("/_stats", stats)])
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port, ssl_context=tls)
        await site.start()
        address = runner.addresses[0]
        yield f"{'https' if tls else 'http'}://{HOST}:{address[1]}/v1"
    finally:
        await tally.close()
        await runner.cleanup()


def json_response(
    body: Mapping[str, Any] | list[Any] | msgspec.Struct | bytes,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return ``body`` as JSON; bytes are sent unchanged. ``headers`` may set another content type."""
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return web.Response(body=raw, status=status, headers={"content-type": "application/json", **(headers or {})})
