"""Litellm as an upstream, against a real server on loopback that speaks Anthropic's messages API."""

import asyncio
import errno
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.client_reqrep import ConnectionKey

from providers import ErrorKind, Exchange, LiteLLM, LiteLLMUpstream, Request, UpstreamError, events
from providers.dialects import Chunk, read_event
from providers.simulator import ProviderTally, ScriptedProvider, Status, Visit, serve

KEY = "the-very-secret-key"


class Messages:
    """A server that answers what the last user message tells it to."""

    def __init__(self) -> None:
        self.tally = ProviderTally()
        self.headers: dict[str, str] = {}
        self.body: dict[str, Any] = {}
        self.base_url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.body = await request.json()
        self.headers = {name.lower(): value for name, value in request.headers.items()}
        content = self.body["messages"][-1]["content"]
        told = content if isinstance(content, str) else content[0]["text"]
        return await self.tally.answer(lambda visit: self._perform(request, visit, told))

    async def _perform(self, request: web.Request, visit: Visit, told: str) -> web.StreamResponse:
        if told.isdigit():
            headers = {"retry-after": "7"} if told == "429" else {}
            error = {"type": "some_error", "message": f"refused {told}, key {KEY}"}
            return web.json_response({"type": "error", "error": error}, status=int(told), headers=headers)
        if told == "hang":
            await asyncio.Event().wait()
        if not self.body.get("stream"):
            return web.json_response(message(content=[{"type": "text", "text": "Hello"}], stop_reason="end_turn"))
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "request-id": "req_1"})
        await response.prepare(request)
        await response.write(
            event("message_start", message=message())
            + event("content_block_start", index=0, content_block={"type": "text", "text": ""})
            + event("ping")
        )
        for text in ("Hel", "lo"):
            visit.first_token_sent = True
            await response.write(event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}))
        if told == "hang after two":
            await asyncio.Event().wait()
        if told == "drop after two":
            assert request.transport is not None
            request.transport.abort()
            return response
        if told == "error after two":
            await response.write(event("error", error={"type": "overloaded_error", "message": "Overloaded"}))
            return response
        await response.write(
            event("content_block_stop", index=0)
            + event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5})
            + event("message_stop")
        )
        return response


def message(**fields: Any) -> dict[str, Any]:
    usage = {"input_tokens": 11, "output_tokens": 5}
    base = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "claude", "usage": usage}
    return base | {"stop_reason": None, "stop_sequence": None} | fields


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


@pytest.fixture
async def anthropic() -> AsyncIterator[Messages]:
    messages = Messages()
    async with serve([web.post("/v1/messages", messages.answer)], messages.tally) as base_url:
        messages.base_url = base_url.removesuffix("/v1")
        yield messages


@pytest.fixture
async def litellm() -> AsyncIterator[LiteLLM]:
    library = LiteLLM()
    yield library
    await library.aclose()


@asynccontextmanager
async def upstream_to(litellm: LiteLLM, base_url: str, prefix: str = "anthropic") -> AsyncIterator[LiteLLMUpstream]:
    upstream = LiteLLMUpstream(litellm, provider="claude", litellm_prefix=prefix, api_key=KEY, base_url=base_url)
    yield upstream
    await upstream.aclose()


@pytest.fixture
async def upstream(litellm: LiteLLM, anthropic: Messages) -> AsyncIterator[LiteLLMUpstream]:
    async with upstream_to(litellm, anthropic.base_url) as upstream:
        yield upstream


def tell(what: str, *, upstream_stream: bool = True, **fields: Any) -> Request:
    body = {"model": "public-name", "stream": True, "messages": [{"role": "user", "content": what}], **fields}
    raw = msgspec.json.decode(json.dumps(body), type=dict[str, msgspec.Raw])
    return Request("claude-sonnet-4-5", raw, upstream_stream=upstream_stream)


async def read_all(exchange: Exchange) -> bytes:
    blocks = []
    while block := await exchange.read():
        blocks.append(block)
    return b"".join(blocks)


def chunks(stream: bytes) -> list[Chunk]:
    return [read_event(event.data) for event in events(stream)]


async def test_an_answer_arrives_as_an_openai_stream(upstream: LiteLLMUpstream, anthropic: Messages) -> None:
    request = tell("hello", temperature=0.5)
    exchange = await upstream.stream(request)
    assert request.sendings.times == 1
    stream = await read_all(exchange)
    seen = chunks(stream)
    assert exchange.status == 200
    assert exchange.headers["request-id"] == "req_1"
    assert [chunk.meaningful for chunk in seen] == [True, True, False, False, False]
    assert [chunk.finished for chunk in seen] == [False, False, True, False, False]
    assert seen[-2].usage_only
    assert seen[-2].usage is not None
    assert (seen[-2].usage.prompt_tokens, seen[-2].usage.completion_tokens) == (11, 5)
    assert seen[-1].done
    assert await exchange.read() == b""
    assert anthropic.body["model"] == "claude-sonnet-4-5"
    assert anthropic.body["temperature"] == 0.5
    assert anthropic.headers["x-api-key"] == KEY


async def test_an_answer_that_is_not_streamed_upstream_is_presented_as_a_stream(upstream: LiteLLMUpstream) -> None:
    stream = await read_all(await upstream.stream(tell("hello", upstream_stream=False)))
    assert b'"Hello"' in stream
    assert chunks(stream)[-1].done


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ErrorKind.BAD_REQUEST),
        (401, ErrorKind.PROVIDER_AUTH),
        (404, ErrorKind.NOT_FOUND),
        (429, ErrorKind.RATE_LIMITED),
        (500, ErrorKind.SERVER_ERROR),
        (529, ErrorKind.SERVER_ERROR),
    ],
)
async def test_a_refusal_keeps_its_kind_and_the_provider_s_words_without_the_key(
    upstream: LiteLLMUpstream, anthropic: Messages, status: int, kind: ErrorKind
) -> None:
    with pytest.raises(UpstreamError) as raised:
        await upstream.stream(tell(str(status)))
    assert raised.value.kind is kind
    assert raised.value.message == f"refused {status}, key ***"
    assert KEY not in repr(raised.value.body)
    assert raised.value.retry_after_s == (7 if status == 429 else None)
    assert anthropic.tally.counts.requests == 1  # not tried again behind our back


async def test_a_bad_request_carries_an_error_the_client_can_be_given(upstream: LiteLLMUpstream) -> None:
    with pytest.raises(UpstreamError) as raised:
        await upstream.stream(tell("400"))
    assert raised.value.body is not None
    assert json.loads(raised.value.body)["error"]["message"] == "refused 400, key ***"


async def test_an_error_in_the_middle_comes_after_what_was_said_before(upstream: LiteLLMUpstream) -> None:
    exchange = await upstream.stream(tell("error after two"))
    with pytest.raises(UpstreamError, match="Overloaded") as raised:
        await read_all(exchange)
    assert raised.value.kind is ErrorKind.STREAM_ERROR


async def test_a_broken_connection_in_the_middle_is_a_disconnect(upstream: LiteLLMUpstream) -> None:
    exchange = await upstream.stream(tell("drop after two"))
    with pytest.raises(UpstreamError) as raised:
        await read_all(exchange)
    assert raised.value.kind is ErrorKind.DISCONNECTED


async def test_no_server_is_a_connect_error(litellm: LiteLLM, unused_tcp_port: int) -> None:
    async with upstream_to(litellm, f"http://127.0.0.1:{unused_tcp_port}") as upstream:
        with pytest.raises(UpstreamError) as raised:
            await upstream.stream(tell("hello"))
    assert raised.value.kind is ErrorKind.CONNECT_ERROR


async def test_a_server_in_a_network_that_no_proxy_lists_is_reached_directly(
    monkeypatch: pytest.MonkeyPatch, litellm: LiteLLM, anthropic: Messages, unused_tcp_port: int
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_tcp_port}")
    monkeypatch.setenv("no_proxy", "10.0.0.0/8")
    async with upstream_to(litellm, anthropic.base_url) as upstream:
        with pytest.raises(UpstreamError):
            await upstream.stream(tell("hello"))
    monkeypatch.setenv("no_proxy", "10.0.0.0/8 127.0.0.0/8")
    async with upstream_to(litellm, anthropic.base_url) as upstream:
        assert chunks(await read_all(await upstream.stream(tell("hello"))))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL])
def test_what_this_machine_lacks_is_no_connect_error(number: int) -> None:
    from providers import upstream_error  # noqa: PLC0415 - as it is by its user

    lacking = OSError(number, os.strerror(number))
    error = RuntimeError("litellm.InternalServerError: AnthropicException - Cannot connect to host")
    where = ConnectionKey("a", 1, is_ssl=False, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None)
    error.__cause__ = aiohttp.ClientConnectorError(where, lacking)
    assert upstream_error(error, (), 0.0, str, opened=False).kind is ErrorKind.LOCAL_RESOURCES


async def test_a_cancelled_attempt_is_seen_by_the_provider_before_headers(
    upstream: LiteLLMUpstream, anthropic: Messages
) -> None:
    request = tell("hang")
    attempt = asyncio.create_task(upstream.stream(request))
    await anthropic.tally.reach(requests=1)
    attempt.cancel()
    await asyncio.wait([attempt])
    await anthropic.tally.reach(disconnects_before_first_token=1)
    assert request.sendings.times is None  # litellm does not tell


async def test_an_aborted_exchange_is_seen_by_the_provider_mid_stream(
    upstream: LiteLLMUpstream, anthropic: Messages
) -> None:
    exchange = await upstream.stream(tell("hang after two"))
    await exchange.read()
    exchange.abort()
    await anthropic.tally.reach(disconnects_mid_stream=1)
    exchange.abort()
    assert await exchange.read() == b""


async def test_a_reader_cancelled_mid_stream_is_seen_by_the_provider(
    upstream: LiteLLMUpstream, anthropic: Messages
) -> None:
    exchange = await upstream.stream(tell("hang after two"))
    reading = asyncio.create_task(read_all(exchange))
    await asyncio.sleep(0)  # let it begin
    reading.cancel()
    await asyncio.wait([reading])
    await anthropic.tally.reach(disconnects=1)


async def test_closing_the_upstream_ends_what_is_under_way(litellm: LiteLLM, anthropic: Messages) -> None:
    async with upstream_to(litellm, anthropic.base_url) as upstream:
        exchange = await upstream.stream(tell("hang after two"))
    await anthropic.tally.reach(disconnects=1)
    with pytest.raises(UpstreamError):
        await read_all(exchange)


async def test_a_client_cannot_set_litellm_s_own_parameters(upstream: LiteLLMUpstream, anthropic: Messages) -> None:
    request = tell("hello", api_base="http://elsewhere.invalid", mock_response="fooled", api_key="theirs", top_k=3)
    with pytest.raises(UpstreamError, match=r"does not support api_base.*mock_response.*api_key") as raised:
        await upstream.stream(request)
    assert raised.value.kind is ErrorKind.BAD_REQUEST
    stream = await read_all(await upstream.stream(msgspec.structs.replace(request, drop_params=True)))
    assert b"fooled" not in stream
    assert anthropic.headers["x-api-key"] == KEY
    assert anthropic.body["top_k"] == 3


async def test_embeddings_are_sent_and_answered(litellm: LiteLLM) -> None:
    async with ScriptedProvider() as provider, upstream_to(litellm, provider.base_url, "openai") as upstream:
        fields = {"input": msgspec.Raw(b'["a","b"]'), "model": msgspec.Raw(b'"x"')}
        answer = await upstream.send("embeddings", Request("embed-1", fields))
        assert len(json.loads(answer.body)["data"]) == 2
        assert provider.received[0].body["model"] == "embed-1"
        provider.once([Status(429, headers={"retry-after": "3"})])
        with pytest.raises(UpstreamError) as raised:
            await upstream.send("embeddings", Request("embed-1", fields))
        assert (raised.value.kind, raised.value.retry_after_s) == (ErrorKind.RATE_LIMITED, 3)


async def test_other_endpoints_are_not_found(upstream: LiteLLMUpstream) -> None:
    with pytest.raises(UpstreamError) as raised:
        await upstream.send("rerank", tell("hello"))
    assert raised.value.kind is ErrorKind.NOT_FOUND


async def test_nothing_is_kept_behind_litellm(upstream: LiteLLMUpstream) -> None:
    assert not upstream.can_fetch
    with pytest.raises(UpstreamError) as raised:
        await upstream.fetch("GET", "responses/r", [])
    assert raised.value.kind is ErrorKind.NOT_FOUND


async def test_warming_up_sends_nothing(upstream: LiteLLMUpstream, anthropic: Messages) -> None:
    await upstream.warm_up()
    assert anthropic.tally.counts.requests == 0


def test_the_key_shows_in_no_repr() -> None:
    upstream = LiteLLMUpstream(LiteLLM(), provider="claude", litellm_prefix="anthropic", api_key=KEY)
    assert KEY not in repr(upstream)


def test_litellm_is_not_imported_before_it_is_used() -> None:
    program = (
        "import sys; from providers.upstreams.litellm_library import LiteLLM;"
        "from providers.upstreams.litellm_upstream import LiteLLMUpstream;"
        "LiteLLMUpstream(LiteLLM(), provider='claude', litellm_prefix='anthropic');"
        "assert not {'litellm', 'openai', 'httpx'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])
