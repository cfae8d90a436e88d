"""The upstream against a server on loopback: what is sent, what comes back, and what goes wrong on the way."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest

from providers import (
    ErrorKind,
    EventSplitter,
    Exchange,
    HttpUpstream,
    Quirks,
    Request,
    Server,
    TranslatedExchange,
    UpstreamError,
    events,
)
from providers.dialects import CHAT, MESSAGES, RESPONSES, read_event, translations
from tests.app.providers.origin import LAST_CHUNK, STREAM_HEAD, Connection, Origin, chunked, response, soon, tls_pair

KEY = "sk-test-0123456789abcdefghij"
HELLO = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'
FIELDS = {
    "model": msgspec.Raw(b'"fast"'),
    "messages": msgspec.Raw(b'[ {"role" : "user", "content":"hi"} ]'),
    "stream": msgspec.Raw(b"false"),
}
REQUEST = Request(model="llama-3", fields=FIELDS)


@pytest.fixture
async def origin() -> AsyncIterator[Origin]:
    async with Origin().serving() as serving:
        yield serving


@pytest.fixture
async def upstreams() -> AsyncIterator[list[HttpUpstream]]:
    opened: list[HttpUpstream] = []
    yield opened
    for upstream in opened:
        await upstream.aclose()


@pytest.fixture
def upstream(origin: Origin, upstreams: list[HttpUpstream]) -> HttpUpstream:
    upstreams.append(HttpUpstream(Server(provider="groq", base_url=origin.base_url), KEY, wall_clock=lambda: 0.0))
    return upstreams[-1]


async def ask(origin: Origin, upstream: HttpUpstream, answer: bytes, request: Request = REQUEST) -> Exchange:
    """Send a request, answer it with these bytes, and return the exchange."""
    attempt = asyncio.create_task(upstream.stream(request))
    connection, _ = await origin.request()
    connection.send(answer)
    return await soon(attempt)


async def whole(exchange: Exchange) -> bytes:
    stream = b""
    while data := await soon(exchange.read()):
        stream += data
    return stream


async def refusal(origin: Origin, upstream: HttpUpstream, answer: bytes) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        await ask(origin, upstream, answer)
    assert KEY not in str(caught.value)
    return caught.value


async def failed_reading(origin: Origin, upstream: HttpUpstream, answer: bytes) -> UpstreamError:
    return await failure_of(await ask(origin, upstream, answer))


async def failure_of(exchange: Exchange) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        await whole(exchange)
    return caught.value


def body_of(request: bytes) -> bytes:
    return request.partition(b"\r\n\r\n")[2]


def json_of(request: bytes) -> Any:
    return msgspec.json.decode(body_of(request))


def data_of(stream: bytes) -> list[bytes]:
    return [event.data for event in events(stream)]


# -- what is sent


async def test_the_body_is_patched_at_its_top_level_and_nowhere_else(origin: Origin, upstream: HttpUpstream) -> None:
    attempt = asyncio.create_task(upstream.stream(REQUEST))
    connection, request = await origin.request()
    connection.send(STREAM_HEAD + LAST_CHUNK)
    await soon(attempt)
    assert request.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert b'"messages":[ {"role" : "user", "content":"hi"} ]' in request
    assert json_of(request) == {
        "model": "llama-3",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_the_key_goes_out_and_no_compression_is_asked_for(origin: Origin, upstream: HttpUpstream) -> None:
    attempt = asyncio.create_task(upstream.stream(REQUEST))
    connection, request = await origin.request()
    connection.send(STREAM_HEAD + LAST_CHUNK)
    await soon(attempt)
    head = request.lower()
    assert b"authorization: bearer " + KEY.encode() in head
    assert b"accept-encoding: identity" in head
    assert b"content-type: application/json" in head
    assert head.count(b"content-type:") == 1


async def test_a_request_cannot_replace_the_providers_own_headers(origin: Origin, upstream: HttpUpstream) -> None:
    request = Request(model="m", fields={}, headers={"Authorization": "Bearer stolen", "openai-beta": "x"})
    attempt = asyncio.create_task(upstream.stream(request))
    connection, sent = await origin.request()
    connection.send(STREAM_HEAD + LAST_CHUNK)
    await soon(attempt)
    assert b"stolen" not in sent
    assert b"openai-beta: x" in sent.lower()


async def test_azure_names_the_model_in_its_path_and_the_key_in_a_header_of_its_own(
    origin: Origin, upstreams: list[HttpUpstream]
) -> None:
    azure = HttpUpstream(
        Server(
            provider="azure",
            base_url=f"http://localhost:{origin.port}",
            auth="api-key",
            query={"api-version": "2024-10-21"},
            chat_path="openai/deployments/{model}/chat/completions",
        ),
        KEY,
    )
    upstreams.append(azure)
    attempt = asyncio.create_task(azure.stream(Request(model="my gpt/4", fields={})))
    connection, request = await origin.request()
    connection.send(STREAM_HEAD + LAST_CHUNK)
    await soon(attempt)
    path = b"/openai/deployments/my%20gpt%2F4/chat/completions?api-version=2024-10-21"
    assert request.startswith(b"POST " + path + b" HTTP/1.1\r\n")
    assert b"api-key: " + KEY.encode() in request.lower()
    assert b"authorization" not in request.lower()


async def test_a_prompt_of_megabytes_arrives_whole(origin: Origin, upstream: HttpUpstream) -> None:
    prompt = msgspec.Raw(b'"' + b"x" * (5 * 1024 * 1024) + b'"')
    attempt = asyncio.create_task(upstream.stream(Request(model="m", fields={"messages": prompt})))
    connection, request = await origin.request()
    connection.send(STREAM_HEAD + LAST_CHUNK)
    await soon(attempt)
    assert len(json_of(request)["messages"]) == 5 * 1024 * 1024


async def test_a_field_of_a_query_may_be_there_several_times(origin: Origin, upstreams: list[HttpUpstream]) -> None:
    azure = HttpUpstream(Server(provider="azure", base_url=origin.base_url, query={"api-version": "1"}), KEY)
    upstreams.append(azure)
    asked = [("include[]", "a"), ("include[]", "b"), ("after", "c")]
    attempt = asyncio.create_task(azure.fetch("GET", "responses/resp_1", asked))
    connection, request = await origin.request()
    connection.send(response(b"{}"))
    await soon(attempt)
    target = request.split(b" ", 2)[1].decode()
    assert parse_qsl(target.partition("?")[2]) == [("api-version", "1"), *asked]


async def test_a_proxy_named_by_the_environment_is_used(
    origin: Origin, upstreams: list[HttpUpstream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:pass@localhost:{origin.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    upstreams.append(HttpUpstream(Server(provider="far", base_url="http://far.invalid/v1"), KEY))
    attempt = asyncio.create_task(upstreams[-1].stream(REQUEST))
    connection, request = await origin.request()
    connection.send(STREAM_HEAD + LAST_CHUNK)
    await soon(attempt)
    assert request.startswith(b"POST http://far.invalid/v1/chat/completions HTTP/1.1\r\n")
    assert b"proxy-authorization: basic bwu6cgfzcw==" in request.lower()


# -- what comes back


async def test_events_are_read_as_they_come(origin: Origin, upstream: HttpUpstream) -> None:
    attempt = asyncio.create_task(upstream.stream(REQUEST))
    connection, _ = await origin.request()
    connection.send(STREAM_HEAD)
    exchange = await soon(attempt)
    assert exchange.status == 200
    assert exchange.headers["content-type"] == "text/event-stream"
    for data in (b": ping\n\n", HELLO, b"data: [DO"):
        connection.send(chunked(data))
        assert await soon(exchange.read()) == data
    connection.send(chunked(b"NE]\n\n") + LAST_CHUNK)
    assert await whole(exchange) == b"NE]\n\n"


@pytest.mark.parametrize("content_type", [b"", b"Content-Type: text/plain\r\n", b"Content-Type: application/json\r\n"])
@pytest.mark.parametrize("cut", [1, 4, 5, 6, 20])
async def test_events_are_known_by_their_look_whatever_their_type(
    origin: Origin, upstream: HttpUpstream, content_type: bytes, cut: int
) -> None:
    attempt = asyncio.create_task(upstream.stream(REQUEST))
    connection, _ = await origin.request()
    head = b"HTTP/1.1 200 OK\r\n" + content_type + b"Transfer-Encoding: chunked\r\n\r\n"
    connection.send(head + chunked(HELLO[:cut]))
    reading = asyncio.create_task(whole(await soon(attempt)))
    connection.send(chunked(HELLO[cut:]) + LAST_CHUNK)
    assert await soon(reading) == HELLO


async def test_a_compressed_stream_is_unpacked(origin: Origin, upstream: HttpUpstream) -> None:
    answer = response(gzip.compress(HELLO), content_type="text/event-stream", content_encoding="gzip")
    assert await whole(await ask(origin, upstream, answer)) == HELLO


async def test_an_event_of_megabytes_comes_through(origin: Origin, upstream: HttpUpstream) -> None:
    event = b'data: {"choices":[{"delta":{"content":"' + b"x" * (6 * 1024 * 1024) + b'"}}]}\n\n'
    exchange = await ask(origin, upstream, STREAM_HEAD + chunked(event) + LAST_CHUNK)
    splitter = EventSplitter()
    stream = b""
    while data := await soon(exchange.read()):
        stream += splitter.feed(data)
    assert stream == event


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "with a byte order mark"])
async def test_a_json_body_although_a_stream_was_asked_for_becomes_one(
    origin: Origin, upstream: HttpUpstream, mark: bytes
) -> None:
    body = b'{"id":"1","choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{}}'
    said = data_of(await whole(await ask(origin, upstream, response(mark + body))))
    assert said[0].startswith(
        b'{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"}'
    )
    assert said[-1] == b"[DONE]"


async def test_a_deployment_that_cannot_stream_is_not_asked_to(origin: Origin, upstream: HttpUpstream) -> None:
    options = {"stream_options": msgspec.Raw(b'{"include_usage":true}')}
    request = Request(model="m", fields=FIELDS | options, upstream_stream=False)
    attempt = asyncio.create_task(upstream.stream(request))
    connection, sent = await origin.request()
    assert json_of(sent)["stream"] is False
    assert "stream_options" not in json_of(sent)
    connection.send(response(b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"length"}]}'))
    said = data_of(await whole(await soon(attempt)))
    assert b'"finish_reason":"length"' in said[1]


async def test_a_missing_tool_index_is_filled_in_where_the_catalog_says_so(
    origin: Origin, upstreams: list[HttpUpstream]
) -> None:
    quirks = Quirks(repairs=frozenset({"tool_index"}))
    upstreams.append(HttpUpstream(Server(provider="gemini", base_url=origin.base_url, quirks=quirks), KEY))
    calls = b'data: {"choices":[{"delta":{"tool_calls":[{"id":"%b","function":{"name":"f","arguments":"{}"}}]}}]}\n\n'
    first, second = calls % b"a", calls % b"b"
    exchange = await ask(
        origin, upstreams[-1], STREAM_HEAD + chunked(HELLO + first[:30]) + chunked(first[30:] + second) + LAST_CHUNK
    )
    stream = await whole(exchange)
    assert stream.startswith(HELLO)
    indexes = [
        msgspec.json.decode(data)["choices"][0]["delta"]["tool_calls"][0]["index"] for data in data_of(stream)[1:]
    ]
    assert indexes == [0, 1]


async def test_an_error_event_that_echoes_the_key_is_read_without_it(origin: Origin, upstream: HttpUpstream) -> None:
    error = b'{"error":{"message":"bad key ' + KEY.encode() + b'"}}'
    exchange = await ask(origin, upstream, STREAM_HEAD + chunked(b"data: " + error + b"\n\n") + LAST_CHUNK)
    assert KEY in exchange.secrets
    found = read_event(error, exchange.secrets).error
    assert found is not None
    assert found.message == "bad key ***"


# -- refusals


async def test_a_401_keeps_the_key_to_itself(origin: Origin, upstream: HttpUpstream) -> None:
    body = b'{"error":{"message":"Incorrect API key provided: ' + KEY.encode() + b'.","code":"invalid_api_key"}}'
    error = await refusal(origin, upstream, response(body, status="401 Unauthorized"))
    assert (error.kind, error.status) == (ErrorKind.PROVIDER_AUTH, 401)
    assert error.message == "Incorrect API key provided: ***."
    assert error.body is None


async def test_a_429_says_how_long_to_wait(origin: Origin, upstream: HttpUpstream) -> None:
    answer = response(b'{"error":"slow down"}', status="429 Too Many Requests", retry_after="7")
    error = await refusal(origin, upstream, answer)
    assert (error.kind, error.retry_after_s, error.message) == (ErrorKind.RATE_LIMITED, 7.0, "slow down")


async def test_a_400_carries_the_providers_error_for_the_client(origin: Origin, upstream: HttpUpstream) -> None:
    body = b'{"error":{"message":"no such role","type":"invalid_request_error","param":"messages","code":"bad"}}'
    error = await refusal(origin, upstream, response(body, status="400 Bad Request"))
    assert error.kind is ErrorKind.BAD_REQUEST
    assert error.body is not None
    assert msgspec.json.decode(error.body) == msgspec.json.decode(body)


async def test_a_path_that_is_not_there_is_told_with_its_address_and_without_secrets(
    origin: Origin, upstreams: list[HttpUpstream]
) -> None:
    for base_url, hint in (("", "; is /v1 missing at the end of its base_url?"), ("/v1", "")):
        own = HttpUpstream(
            Server(
                provider="own",
                base_url=f"http://me:secret-word@localhost:{origin.port}{base_url}?key=secret-word",
                is_own_url=True,
            ),
            None,
        )
        upstreams.append(own)
        error = await refusal(origin, own, response(b'{"detail":"Not Found"}', status="404 Not Found"))
        url = f"http://localhost:{origin.port}{base_url}/chat/completions"
        assert (error.kind, error.message) == (ErrorKind.NOT_FOUND, f"Not Found (asked was {url}{hint})")


@pytest.mark.parametrize(
    "said",
    [
        b'{"error":{"message":"Model not found, inaccessible, and/or not deployed","code":"NOT_FOUND"}}',
        b'{"error":{"message":"No endpoints found for vendor/m.","code":404}}',  # OpenRouter
    ],
)
async def test_a_model_that_is_not_there_is_no_missing_api(origin: Origin, upstream: HttpUpstream, said: bytes) -> None:
    attempt = asyncio.create_task(upstream.stream(Request(model="m", fields={}, dialect=RESPONSES)))
    connection, _ = await origin.request()
    connection.send(response(said, status="404 Not Found"))
    with pytest.raises(UpstreamError) as caught:
        await soon(attempt)
    assert caught.value.kind is ErrorKind.NOT_FOUND
    assert "asked was" not in caught.value.message


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ('{"error":{"message":"Model Not Exist","type":"invalid_request_error"}}', ErrorKind.NOT_FOUND),  # DeepSeek
        ('{"object":"error","message":"Invalid model: llama-3","code":"1500"}', ErrorKind.NOT_FOUND),  # Mistral
        ('{"error":{"message":"The model `llama-3` has been decommissioned and is ..."}}', ErrorKind.NOT_FOUND),  # Groq
        ('{"error":{"message":"llama-3 is not a valid model ID","code":400}}', ErrorKind.NOT_FOUND),  # OpenRouter
        ('{"error":"unsupported model: llama-3"}', ErrorKind.NOT_FOUND),
        ('{"error":"Model llama-3 was shut down on 2026-11-01"}', ErrorKind.NOT_FOUND),
        ('{"error":"The requested model \'llama-3\' is deprecated and no longer served."}', ErrorKind.NOT_FOUND),
        (
            '{"error":{"code":"1211","message":"Unknown Model, please check the model code."}}',
            ErrorKind.NOT_FOUND,
        ),  # Z.ai
        (
            """{"error":{"message":"The requested model 'llama-3' does not exist.","code":"model_not_found"}}""",
            ErrorKind.NOT_FOUND,  # OpenAI
        ),
        (
            """{"error":{"message":"The requested model 'gpt-image-9' does not exist.","code":"model_not_found"}}""",
            ErrorKind.BAD_REQUEST,  # of a tool
        ),
        *(
            (json.dumps({"error": {"message": said}}), ErrorKind.NOT_FOUND)
            for said in (
                "The provided model identifier is invalid.",  # Bedrock
                "Invocation of model ID llama-3 with on-demand throughput isn\u2019t supported.",  # likewise
                "模型不存在,请检查模型代码。",  # Zhipu
                "Unable to access model llama-3. Please visit your account's page of models.",  # Together
                "Invalid model name passed in model=llama-3. Call `/v1/models` to view available models",  # LiteLLM
                "The model `llama-3` does not exist",
                "Model llama-3 is no longer available",
                "model 'llama-3' not found",
                "Unknown model: llama-3",
                "Model not found: llama-3.",
                "The requested model is not supported.",
            )
        ),
        *(
            (json.dumps({"error": {"message": said}}), ErrorKind.BAD_REQUEST)
            for said in (
                "The model `gpt-image-9` does not exist",  # of a tool
                "The model llama-3 does not support tools",
                "Unknown model: llama-3.1",
                "The requested model is not supported with this tool",
                "The model in your text 'is no longer available'",
            )
        ),
        ('{"error":{"message":"llama-4 is not a valid model ID","code":400}}', ErrorKind.BAD_REQUEST),  # of "models"
        ('{"error":"unsupported model: llama-4"}', ErrorKind.BAD_REQUEST),
        ('{"error":{"message":"Invalid model parameter: temperature"}}', ErrorKind.BAD_REQUEST),
    ],
)
async def test_a_model_that_is_not_there_any_more_blames_no_client(
    origin: Origin, upstream: HttpUpstream, said: str, kind: ErrorKind
) -> None:
    error = await refusal(origin, upstream, response(said.encode(), status="400 Bad Request"))
    assert (error.kind, error.body is None) == (kind, kind is ErrorKind.NOT_FOUND)


async def test_an_error_in_a_json_array_is_read(origin: Origin, upstream: HttpUpstream) -> None:
    body = b'[{"error":{"code":404,"message":"models/x is not found","status":"NOT_FOUND"}}]'
    error = await refusal(origin, upstream, response(body, status="404 Not Found"))
    assert (error.kind, error.message) == (ErrorKind.NOT_FOUND, "models/x is not found")


async def test_of_a_web_page_only_the_title_is_kept(origin: Origin, upstream: HttpUpstream) -> None:
    page = b"<html><head><title>502 Bad Gateway</title></head><body><center>nginx</center></body></html>"
    error = await refusal(origin, upstream, response(page, status="502 Bad Gateway", content_type="text/html"))
    assert (error.kind, error.message) == (ErrorKind.SERVER_ERROR, "a web page: 502 Bad Gateway")


async def test_an_endless_error_is_cut_off(origin: Origin, upstream: HttpUpstream) -> None:
    attempt = asyncio.create_task(upstream.stream(REQUEST))
    connection, _ = await origin.request()
    head = b"HTTP/1.1 500 Oops\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection.send(head + chunked(b"oops " * 20_000))
    with pytest.raises(UpstreamError) as caught:
        await soon(attempt)
    assert caught.value.kind is ErrorKind.SERVER_ERROR
    assert len(caught.value.message) == 4096
    await soon(connection.lost.wait())


async def test_an_error_whose_body_breaks_off_keeps_its_status(origin: Origin, upstream: HttpUpstream) -> None:
    attempt = asyncio.create_task(upstream.stream(REQUEST))
    connection, _ = await origin.request()
    connection.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\n")
    connection.drop()
    with pytest.raises(UpstreamError) as caught:
        await soon(attempt)
    assert caught.value.status == 503


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("400 Bad Request", ErrorKind.BAD_REQUEST),
        ("401 Unauthorized", ErrorKind.PROVIDER_AUTH),
        ("429 Too Many Requests", ErrorKind.RATE_LIMITED),
    ],
)
async def test_an_error_that_is_packed_in_a_way_not_offered_keeps_its_status(
    origin: Origin, upstream: HttpUpstream, status: str, kind: ErrorKind
) -> None:
    answer = response(b"\x28\xb5\x2f\xfd", status=status, content_encoding="zstd", retry_after="7")
    error = await refusal(origin, upstream, answer)
    assert (error.kind, error.status) == (kind, int(status[:3]))
    assert error.retry_after_s == (7 if kind is ErrorKind.RATE_LIMITED else None)


async def test_a_redirect_is_refused_and_the_key_stays(origin: Origin, upstream: HttpUpstream) -> None:
    async with Origin().serving() as elsewhere:
        answer = response(b"", status="307 Temporary Redirect", location=f"{elsewhere.base_url}/x?token=abc")
        error = await refusal(origin, upstream, answer)
        assert (error.kind, error.status) == (ErrorKind.INVALID_RESPONSE, 307)
        assert "correct its base_url" in error.message
        assert "token" not in error.message
        assert not elsewhere.accepted


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
async def test_a_json_error_with_status_200_is_an_error(
    origin: Origin, upstream: HttpUpstream, content_type: str
) -> None:
    body = b'{"error":{"message":"overloaded","code":503}}'
    error = await failed_reading(origin, upstream, response(body, content_type=content_type))
    assert (error.kind, error.status, error.message) == (ErrorKind.SERVER_ERROR, 503, "overloaded")


async def test_an_error_in_an_array_within_a_translated_stream_keeps_its_kind(
    origin: Origin, upstream: HttpUpstream
) -> None:
    event = b'data: [{"error":{"code":429,"message":"Quota exceeded"}}]\n\n'
    exchange = await ask(origin, upstream, STREAM_HEAD + chunked(event) + LAST_CHUNK)
    error = await failure_of(TranslatedExchange(exchange, translations(CHAT, MESSAGES, {}, exchange.secrets)))
    assert (error.kind, error.status, error.message) == (ErrorKind.RATE_LIMITED, 429, "Quota exceeded")


async def test_a_web_page_with_status_200_is_an_invalid_response(origin: Origin, upstream: HttpUpstream) -> None:
    page = b"<!DOCTYPE html><html><head><title>Sign in</title></head></html>"
    error = await failed_reading(origin, upstream, response(page, content_type="text/html"))
    assert error.kind is ErrorKind.INVALID_RESPONSE
    assert "Sign in" in error.message


async def test_an_empty_body_is_an_empty_answer(origin: Origin, upstream: HttpUpstream) -> None:
    error = await failed_reading(origin, upstream, response(b""))
    assert error.kind is ErrorKind.UPSTREAM_EMPTY


# -- connections


async def test_a_connection_lost_in_the_middle_is_disconnected(origin: Origin, upstream: HttpUpstream) -> None:
    attempt = asyncio.create_task(upstream.stream(REQUEST))
    connection, _ = await origin.request()
    connection.send(STREAM_HEAD + chunked(HELLO))
    exchange = await soon(attempt)
    assert await soon(exchange.read()) == HELLO
    connection.drop()
    with pytest.raises(UpstreamError) as caught:
        await soon(exchange.read())
    assert caught.value.kind is ErrorKind.DISCONNECTED


async def kept_connection(origin: Origin, upstream: HttpUpstream) -> Connection:
    await whole(await ask(origin, upstream, STREAM_HEAD + LAST_CHUNK))
    return origin.accepted[-1]


async def test_a_kept_connection_that_is_gone_is_replaced_by_a_fresh_one(
    origin: Origin, upstream: HttpUpstream
) -> None:
    kept = await kept_connection(origin, upstream)
    attempt = asyncio.create_task(upstream.stream(REQUEST))
    first_try = await soon(kept.requests.get())
    kept.drop()
    fresh, second_try = await origin.request()
    assert second_try == first_try
    fresh.send(STREAM_HEAD + chunked(HELLO) + LAST_CHUNK)
    exchange = await soon(attempt)
    assert exchange.connect_ms is not None
    assert await whole(exchange) == HELLO


async def test_it_is_replaced_once(origin: Origin, upstream: HttpUpstream) -> None:
    kept = await kept_connection(origin, upstream)
    attempt = asyncio.create_task(upstream.stream(REQUEST))
    await soon(kept.requests.get())
    kept.drop()
    fresh, _ = await origin.request()
    fresh.drop()
    with pytest.raises(UpstreamError) as caught:
        await soon(attempt)
    assert caught.value.kind is ErrorKind.DISCONNECTED
    assert len(origin.accepted) == 2


async def test_a_response_that_has_begun_is_not_asked_for_again(origin: Origin, upstream: HttpUpstream) -> None:
    kept = await kept_connection(origin, upstream)
    attempt = asyncio.create_task(upstream.stream(REQUEST))
    await soon(kept.requests.get())
    kept.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    kept.close()
    with pytest.raises(UpstreamError) as caught:
        await soon(attempt)
    assert caught.value.kind is ErrorKind.DISCONNECTED
    assert len(origin.accepted) == 1


async def test_nobody_listening_is_a_connect_error(upstreams: list[HttpUpstream]) -> None:
    async with Origin().serving() as gone:
        base_url = gone.base_url
    upstreams.append(HttpUpstream(Server(provider="gone", base_url=base_url), KEY))
    with pytest.raises(UpstreamError) as caught:
        await soon(upstreams[-1].stream(REQUEST))
    assert caught.value.kind is ErrorKind.CONNECT_ERROR


async def test_a_tls_handshake_that_never_ends_is_a_connect_timeout(
    origin: Origin, upstreams: list[HttpUpstream]
) -> None:
    base_url = origin.base_url.replace("http:", "https:")
    upstreams.append(HttpUpstream(Server(provider="mute", base_url=base_url), KEY))
    with pytest.raises(UpstreamError) as caught:
        await soon(upstreams[-1].stream(Request(model="m", fields={}, connect_timeout_s=0.01)))
    assert caught.value.kind is ErrorKind.CONNECT_TIMEOUT


async def test_what_is_no_http_is_an_invalid_response(origin: Origin, upstream: HttpUpstream) -> None:
    error = await refusal(origin, upstream, b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    assert error.kind is ErrorKind.INVALID_RESPONSE
    assert error.__cause__ is None
    assert error.__context__ is None


async def test_a_private_authority_is_trusted_through_ssl_cert_file(
    upstreams: list[HttpUpstream], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server_context, authority = tls_pair()
    async with Origin(server_context).serving() as origin:
        upstreams.append(HttpUpstream(Server(provider="private", base_url=origin.base_url), KEY))
        with pytest.raises(UpstreamError, match="SSL_CERT_FILE") as caught:
            await soon(upstreams[-1].stream(REQUEST))
        assert caught.value.kind is ErrorKind.CONNECT_ERROR

        (tmp_path / "ca.pem").write_bytes(authority)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        upstreams.append(HttpUpstream(Server(provider="private", base_url=origin.base_url), KEY))
        await origin.connection()
        exchange = await ask(origin, upstreams[-1], STREAM_HEAD + chunked(HELLO) + LAST_CHUNK)
        assert await whole(exchange) == HELLO


# -- besides chat


async def test_embeddings_come_back_whole(origin: Origin, upstream: HttpUpstream) -> None:
    attempt = asyncio.create_task(
        upstream.send("embeddings", Request(model="e", fields={"input": msgspec.Raw(b'"x"')}))
    )
    connection, request = await origin.request()
    assert request.startswith(b"POST /v1/embeddings HTTP/1.1\r\n")
    assert json_of(request) == {"input": "x", "model": "e"}
    body = b'{"data":[{"embedding":[0.1]}]}'
    connection.send(response(gzip.compress(body), content_encoding="gzip", x_request_id="r"))
    answer = await soon(attempt)
    assert (answer.status, answer.body, answer.headers["x-request-id"]) == (200, body, "r")
    assert answer.connect_ms is not None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("200 OK", ErrorKind.INVALID_RESPONSE),  # it is no JSON
        *((status, ErrorKind.NO_SUCH_API) for status in ("404 Not Found", "405 No", "501 Not Implemented")),
    ],
)
async def test_errors_of_embeddings_have_their_kinds(
    origin: Origin, upstream: HttpUpstream, status: str, kind: ErrorKind
) -> None:
    attempt = asyncio.create_task(upstream.send("embeddings", REQUEST))
    connection, _ = await origin.request()
    connection.send(response(b"busy", status=status))
    with pytest.raises(UpstreamError) as caught:
        await soon(attempt)
    assert caught.value.kind is kind


@pytest.mark.parametrize("body", [b'{"data":[{"id":"a"},{"id":"b"}]}', b'[{"id":"a"},{"id":"b"}]'])
async def test_models_are_listed_from_either_shape(origin: Origin, upstream: HttpUpstream, body: bytes) -> None:
    attempt = asyncio.create_task(upstream.list_models())
    connection, request = await origin.request()
    assert request.startswith(b"GET /v1/models HTTP/1.1\r\n")
    connection.send(response(body))
    assert [model.id for model in (await soon(attempt)).models] == ["a", "b"]


def test_no_secret_is_in_a_repr() -> None:
    with_key = HttpUpstream(Server(provider="groq", base_url="https://host/v1"), KEY)
    assert repr(with_key) == "HttpUpstream('groq', 'https://host/v1')"
    with_password = HttpUpstream(Server(provider="own", base_url="https://me:pw@host/v1"), None)
    assert repr(with_password) == "HttpUpstream('own', 'https://host/v1')"


def test_a_key_beside_a_password_in_the_url_is_refused() -> None:
    with pytest.raises(ValueError, match="keep one of the two"):
        HttpUpstream(Server(provider="own", base_url="https://me:pw@host/v1"), KEY)


def test_a_key_with_a_line_break_is_refused_unshown() -> None:
    with pytest.raises(ValueError, match="line break") as caught:
        HttpUpstream(Server(provider="groq", base_url="https://host/v1"), KEY + "\n")
    assert KEY not in str(caught.value)
