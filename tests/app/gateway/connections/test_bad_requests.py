"""Bad input is answered in OpenAI's error shape, with a sentence that helps; nothing is launched, nothing crashes."""

import asyncio
import gzip
import io
import sys
from typing import Any

import msgspec
import pytest

from tests.app.gateway.running_gateway import MODEL, PROMPT, RunningGateway, Serve, chat_body

HELLO = list(PROMPT)
DEEP = 500_000  # since Python 3.14 it is the thread's stack that ends what is nested: at up to 260,000


async def refused(running: RunningGateway, response: Any, status: int, words: str) -> dict[str, Any]:
    """Check an answer that refuses, and that it is all that happened; return its error."""
    raw = await response.read()
    assert response.status == status, raw
    assert response.content_type == "application/json"
    body = msgspec.json.decode(raw)
    assert body.keys() == {"error"}
    error: dict[str, Any] = body["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert words in error["message"]
    assert running.requests == 0
    assert await running.rows("select * from calls") == []
    return error


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"model": "llama",}', "not valid JSON"),
        (b'{"model": "llama", "messages": [{}]} x', "not valid JSON"),
        (b"[1, 2]", "must be a JSON object"),
        (b'"llama"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"NaN", "not valid JSON"),
        (b"\x00", "not valid JSON"),
        (b'{"model": "\xff\xfe", "messages": [{}]}', "UTF-8"),
        (b'{"messages\xff": 1}', "UTF-8"),
        (b'{"model": "llama", "messages": [\x00]}', "not valid JSON"),
        (b'{"model": "llama", "messages": [1e99999999999, -]}', "not valid JSON"),
        (b'{"model": "llama", "messages": ' + b"[" * DEEP + b"]" * DEEP + b"}", "nested"),
        (b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}", "nested"),
        (b'{"model": ' + b"[" * DEEP, "nested"),
        pytest.param(
            b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
            "nested",
            marks=pytest.mark.skipif(sys.version_info >= (3, 14), reason="the thread's stack ends it, which has room"),
        ),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else None,
)
async def test_a_body_that_is_no_json_object_is_refused(serve: Serve, body: bytes, words: str) -> None:
    async with serve() as running:
        async with running.post(body) as response:
            error = await refused(running, response, 400, words)
        assert error["type"] == "invalid_request_error"
        async with running.post(body, path="/v1/embeddings") as response:
            await refused(running, response, 400, words)


async def test_a_deep_body_that_is_translated_is_refused_or_taken(serve: Serve) -> None:
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    body = b'{"model":"llama","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"metadata":%s}' % deep
    async with serve() as running, running.post(body, path="/v1/messages") as response:
        assert response.status < 500, await response.read()


@pytest.mark.parametrize(
    ("body", "words", "param"),
    [
        ({"model": MODEL}, "'messages' is missing", "messages"),
        ({"model": MODEL, "messages": []}, "at least one message", "messages"),
        ({"model": MODEL, "messages": None}, "'messages' is missing", "messages"),
        ({"model": MODEL, "messages": "hello"}, "must be an array", "messages"),
        ({"model": MODEL, "messages": {"role": "user"}}, "must be an array", "messages"),
        ({"messages": HELLO}, "'model' is missing", "model"),
        ({"model": None, "messages": HELLO}, "'model' is missing", "model"),
        ({"model": "", "messages": HELLO}, "'model' is missing", "model"),
        ({"model": 7, "messages": HELLO}, "'model' is invalid", "model"),
        ({"model": ["llama"], "messages": HELLO}, "'model' is invalid", "model"),
        ({"model": MODEL, "messages": HELLO, "stream": "yes"}, "'stream' is invalid", "stream"),
        ({"model": MODEL, "messages": HELLO, "stream_options": 5}, "'stream_options' is invalid", "stream_options"),
        ({"model": MODEL, "messages": HELLO, "tools": "all"}, "'tools' is invalid", "tools"),
        ({"model": MODEL, "messages": HELLO, "store": 1}, "'store' is invalid", "store"),
    ],
    ids=str,
)
async def test_a_field_that_makes_no_sense_is_named(serve: Serve, body: dict[str, Any], words: str, param: str) -> None:
    async with serve() as running, running.post(body) as response:
        error = await refused(running, response, 400, words)
    assert error["param"] == param


@pytest.mark.parametrize(
    "raw",
    [b'"\\ud800"', b'"lla\\u0000ma"', '"🏍"'.encode(), b'"' + b"x" * 100_000 + b'"'],
    ids=lambda raw: repr(raw[:20]),
)
async def test_a_strange_model_name_is_an_unknown_model_or_no_json(serve: Serve, raw: bytes) -> None:
    async with serve() as running, running.post(b'{"model":' + raw + b',"messages":[{}]}') as response:
        assert response.status in {400, 404}
        await refused(running, response, response.status, "")


async def test_embeddings_need_an_input(serve: Serve) -> None:
    async with serve() as running, running.post({"model": MODEL}, path="/v1/embeddings") as response:
        assert (await refused(running, response, 400, "'input' is missing"))["param"] == "input"


async def test_an_unknown_model_is_told_with_near_names(serve: Serve) -> None:
    async with serve() as running:
        async with running.chat(model="lama") as response:
            error = await refused(running, response, 404, "did you mean 'llama'?")
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        async with running.chat(model="zzz") as response:
            await refused(running, response, 404, "known models: llama")
        async with running.get("/v1/models/lama") as response:
            await refused(running, response, 404, "did you mean 'llama'?")


@pytest.mark.parametrize("path", ["/health", "/healthz", "/ping"])
async def test_a_path_of_other_gateways_is_told_with_where_health_is(serve: Serve, path: str) -> None:
    async with serve() as running, running.get(path) as response:
        await refused(running, response, 404, "/health/live")


@pytest.mark.parametrize("path", ["/v1/batches", "/v1/fine_tuning/jobs"])
async def test_an_api_that_only_others_have_is_refused_with_those_there_are(serve: Serve, path: str) -> None:
    async with serve() as running, running.post({}, path=path) as response:
        error = await refused(running, response, 404, f"{path!r} is of an API that this gateway does not have")
        there = (
            "chat, completions, messages, responses, models, interactions, embeddings, moderations, rerank, decisions,"
            " audio, images, conversations"
        )
        assert error["message"].endswith(f"; below /v1 it has {there}")


async def test_a_body_over_the_limit_is_413(serve: Serve) -> None:
    async with serve(config={"max_body_mb": 0.01}) as running:
        async with running.chat(padding="x" * 20_000) as response:
            await refused(running, response, 413, "max_body_mb")
        bomb = gzip.compress(msgspec.json.encode(chat_body(padding="x" * 1_000_000)))
        async with running.post(bomb, headers={"content-encoding": "gzip"}) as response:
            await refused(running, response, 413, "max_body_mb")


async def test_a_body_of_megabytes_is_taken(serve: Serve) -> None:
    long = [{"role": "user", "content": "x" * (3 * 2**20)}]
    async with serve() as running:
        async with running.post(io.BytesIO(msgspec.json.encode(chat_body(messages=long)))) as response:
            assert response.status == 200
        assert running["alpha"].received[0].body["messages"] == long


async def test_a_compressed_body_is_understood_and_a_broken_one_refused(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"content-encoding": "gzip"}
    async with serve() as running:
        async with running.post(b"no gzip at all", headers=headers) as response:
            await refused(running, response, 400, "")
        async with running.post(gzip.compress(msgspec.json.encode(chat_body())), headers=headers) as response:
            assert response.status == 200
    assert not caplog.records


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_only_json_is_taken(serve: Serve, content_type: str) -> None:
    body = msgspec.json.encode(chat_body())
    async with serve() as running, running.post(body, headers={"content-type": content_type}) as response:
        error = await refused(running, response, 415, "application/json")
    assert error["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/chat", "/v2/chat/completions", "/v1/chat/completions/", "/%00", "/../etc"]
)
async def test_a_path_that_is_not_there_is_404_in_json(serve: Serve, path: str) -> None:
    async with serve() as running, running.get(path) as response:
        error = await refused(running, response, 404, "/v1/chat/completions")
    assert error["type"] == "invalid_request_error"
    assert len(error["message"]) < 150
    assert "{" not in error["message"]


async def test_a_long_path_is_not_repeated_whole(serve: Serve) -> None:
    async with serve() as running, running.get("/" + "a" * 5000) as response:
        error = await refused(running, response, 404, "there is no")
    assert len(error["message"]) < 400


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])  # the first needs a whole handshake
async def test_a_websocket_is_refused_at_once_and_told_to_use_post(serve: Serve, path: str) -> None:
    handshake = {"connection": "Upgrade", "upgrade": "WebSocket", "sec-websocket-version": "13"}
    async with serve() as running:
        async with running.get(path, headers=handshake) as response:
            error = await refused(running, response, 426, "POST")
            assert response.headers["connection"] == "close"
        async with running.get(path) as response:
            assert response.status == 405
    assert error["code"] == "websocket_not_supported"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/embeddings", "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/v1/models/llama", "GET"),
        ("POST", "/metrics", "GET"),
    ],
)
async def test_a_wrong_method_is_405_and_told_the_right_one(serve: Serve, method: str, path: str, allowed: str) -> None:
    async with serve() as running, running.http.request(method, running.url + path) as response:
        await refused(running, response, 405, allowed)
        assert allowed in response.headers["allow"].split(", ")


@pytest.mark.parametrize(
    "tags",
    [
        "garbage",
        "=v",
        "a=1,,b",
        "{",
        '{"a": 1}',
        '{"a": {"b": "c"}}',
        "[]",
        ",".join(f"t{number}=x" for number in range(17)),
        "a=" + "x" * 300,
    ],
    ids=lambda tags: tags[:20],
)
async def test_tags_that_are_none_are_refused(serve: Serve, tags: str) -> None:
    async with serve() as running, running.chat({"x-holeshot-tags": tags}) as response:
        await refused(running, response, 400, "x-holeshot-tags")


@pytest.mark.parametrize(
    "header",
    [
        b"x-holeshot-tags: a=\xff\xfe\xed\xa0\x80",
        b'x-holeshot-tags: {"a": "\xff"}',
        b'x-holeshot-tags: {"a": "\\u0000"}',
        b"x-holeshot-race: \xff",
        b'x-holeshot-race: "\xff"',
        b"authorization: Bearer \xff",
        b"traceparent: \xff",
        b"openai-beta: \xff",
        b"anthropic-a+b: 1",
    ],
    ids=repr,
)
async def test_a_header_that_cannot_be_sent_on_does_no_harm(serve: Serve, header: bytes) -> None:
    async with serve() as running:
        answered = await exchange(running, header + b"\r\n", msgspec.json.encode(chat_body()))
        assert answered.split(b" ")[1] in {b"200", b"400"}
        rows = await running.rows("select * from calls")
        assert len(rows) == answered.startswith(b"HTTP/1.1 200")
        assert running.gateway.ledger.lost == running.gateway.ledger.rejected == 0


async def test_a_key_that_is_no_text_is_a_wrong_key(serve: Serve) -> None:
    config = {"clients": {"me": {"key_sha256": "0" * 64}}}
    async with serve(config=config) as running:
        answered = await exchange(running, b"authorization: Bearer \xff\r\n", msgspec.json.encode(chat_body()))
    assert answered.startswith(b"HTTP/1.1 401 ")


async def exchange(running: RunningGateway, headers: bytes, body: bytes) -> bytes:
    """Post ``body`` over a bare socket, with header lines of any bytes; return all that is answered."""
    host, _, port = running.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    head += f"connection: close\r\ncontent-length: {len(body)}\r\n"
    writer.write(head.encode() + headers + b"\r\n" + body)
    answered = await reader.read()
    writer.close()
    return answered


async def test_absurd_numbers_are_the_providers_to_judge(serve: Serve) -> None:
    body = (
        b'{"model":"llama","messages":[{}],"max_tokens":123456789012345678901234567890,"seed":-0.0,"temperature":1e308}'
    )
    async with serve() as running, running.post(body) as response:
        assert response.status == 200
        assert running["alpha"].received[0].body["max_tokens"] == 123456789012345678901234567890


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["tls", "version", "length", "chunk"],
)
async def test_what_is_no_http_is_answered_400_and_closed(serve: Serve, raw: bytes) -> None:
    async with serve() as running:
        host, _, port = running.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(raw)
        assert b" 400 " in (await reader.read()).partition(b"\r\n")[0]
        writer.close()
